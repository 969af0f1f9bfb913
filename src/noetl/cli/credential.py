"""`noetl credential`: the secrets that playbooks name, encrypted in the store.

Data comes from standard input, a file or an option, and is never printed unless it is asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.cli.arguments import Parser, count
from noetl.cli.contexts import chosen_server
from noetl.cli.credential_lookup import not_installed
from noetl.cli.diagnostics import cells, output_width, paint_for
from noetl.cli.environment import variables
from noetl.cli.files import STDIN, read_bytes, shown_name, write_json
from noetl.cli.payload import refuse_depth, value_of
from noetl.cli.stores import add_store_options
from noetl.cli.tables import table
from noetl.errors import UsageError
from noetl.settings import Settings

if TYPE_CHECKING:
    from noetl.cli.credential_desk import CredentialDesk
    from noetl.registry.credentials import Credential

ACTIONS: Final = ("set", "list", "show", "delete", "rotate")
NAMELESS: Final = ("list", "rotate")
BELONGS: Final = {
    "type": ("set", "list"),
    "data": ("set",),
    "description": ("set",),
    "tag": ("set",),
    "meta": ("set",),
    "search": ("list",),
    "limit": ("list",),
    "include_data": ("show",),
    "add_key": ("rotate",),
}
"""The actions each option is for."""
HEADS: Final = ("NAME", "TYPE", "VERSION", "UPDATED", "TAGS", "DESCRIPTION")


def run(arguments: list[str], settings: Settings) -> int:
    options = _parser().parse_args(arguments)
    _check(options)
    try:
        # An optional dependency: credentials are encrypted with it.
        import noetl.cli.credential_desk  # noqa: F401, PLC0415
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    actions = {"set": _set, "list": _list, "show": _show, "delete": _delete, "rotate": _rotate}
    return asyncio.run(actions[options.action](options, settings))


def _parser() -> Parser:
    parser = Parser(
        "credential",
        "Keeps the secrets that playbooks name in their keychain, encrypted: `set` creates or replaces one, "
        "`list` and `show` look at them, `delete` removes one, `rotate` moves all to the current master "
        "key.\nExit codes: 0 done, 1 rotated but for some that cannot be opened, 2 no such credential, or no "
        "master key.",
        "noetl credential set pg_shop --type postgres --data @pg_shop.json",
    )
    parser.add_argument("action", choices=ACTIONS, metavar="|".join(ACTIONS), help="what to do")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the name (or id) of a credential")
    parser.add_argument("--type", metavar="TYPE", help="set: what it is, such as postgres; list: only these")
    parser.add_argument(
        "--data",
        metavar="JSON|@FILE|-",
        help="set: the fields as a JSON object; without it they are read from standard input",
    )
    parser.add_argument("--description", metavar="TEXT", help="set: what it is for")
    parser.add_argument("--tag", metavar="TAG", action="append", help="set: a word to find it by; repeat it")
    parser.add_argument(
        "--meta", metavar="K=V", action="append", help="set: more about it, not secret; repeat it"
    )
    parser.add_argument("--search", metavar="TEXT", help="list: text in the name, description or tags")
    parser.add_argument("--limit", metavar="N", type=count, help="list: at most N (default: 100)")
    parser.add_argument("--include-data", action="store_true", help="show: the secret fields too")
    parser.add_argument("--add-key", action="store_true", help="rotate: make a new master key first")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    add_store_options(parser)
    return parser


def _check(options: argparse.Namespace) -> None:
    for option, actions in BELONGS.items():
        if getattr(options, option) not in (None, False) and options.action not in actions:
            written = "--" + option.replace("_", "-")
            raise UsageError(f"{written} belongs to `credential {'` and `'.join(actions)}`")
    if options.action in NAMELESS and options.name is not None:
        raise UsageError(f"`credential {options.action}` takes no name")
    if options.action not in NAMELESS and options.name is None:
        raise UsageError(f"`credential {options.action}` needs the name of a credential")
    if options.action == "set" and options.type is None:
        raise UsageError("`credential set` needs --type, such as postgres, bearer or oauth2")


@asynccontextmanager
async def _desk(
    options: argparse.Namespace, settings: Settings, *, keys: bool = False, create: bool = False
) -> AsyncIterator[CredentialDesk]:
    """Where the credentials are; `keys`: this machine's master keys are needed if it is a store."""
    # As in `run`.
    from noetl.cli.credential_desk import served_credentials, stored_credentials  # noqa: PLC0415
    from noetl.cli.key_rings import found_keys  # noqa: PLC0415
    from noetl.secrets.encryption import KeyRing  # noqa: PLC0415

    server = chosen_server(options.server, options.store, settings, variables())
    if server is not None:
        async with served_credentials(server) as desk:
            yield desk
        return
    ring = found_keys(settings, variables()) if keys else KeyRing()
    async with stored_credentials(options.store or settings.store, ring, create=create) as stored:
        yield stored


async def _set(options: argparse.Namespace, settings: Settings) -> int:
    # As in `run`.
    from noetl.registry.credentials import CredentialDraft  # noqa: PLC0415

    draft = CredentialDraft(
        name=options.name,
        type=options.type,
        data=_object(options.data, settings),
        description=options.description or "",
        tags=tuple(options.tag or ()),
        meta=_meta(options.meta or []),
    )
    async with _desk(options, settings, keys=True, create=True) as desk:
        made = await desk.set(draft)
    return _said(options, made, f"credential {made.name}: version {made.version}")


async def _list(options: argparse.Namespace, settings: Settings) -> int:
    async with _desk(options, settings) as desk:
        found = await desk.list(of_type=options.type, text=options.search, limit=options.limit or 100)
    if options.json:
        write_json(found)
    elif not found:
        print("no credentials; `noetl credential set NAME` adds one")
    else:
        rows = [
            (
                each.name,
                each.type,
                str(each.version),
                each.updated_at[:19].replace("T", " "),
                ",".join(each.tags),
                each.description,
            )
            for each in found
        ]
        sys.stdout.write(table(HEADS, rows, output_width(sys.stdout), paint_for(sys.stdout, settings)))
    return 0


async def _show(options: argparse.Namespace, settings: Settings) -> int:
    async with _desk(options, settings, keys=options.include_data) as desk:
        found = await desk.get(options.name, include_data=options.include_data)
    if options.json:
        write_json(found)
        return 0
    lines = {
        "name": found.name,
        "id": found.id,
        "type": found.type,
        "version": str(found.version),
        "description": found.description,
        "tags": ", ".join(found.tags),
        "meta": _json(found.meta) if found.meta else "",
        "created": found.created_at,
        "updated": found.updated_at,
        "master key": found.key_id,
        "data": "(hidden; --include-data shows it)" if found.data is msgspec.UNSET else _json(found.data),
    }
    for title, text in lines.items():
        if text:
            # What somebody else wrote must not steer this terminal.
            print(f"{title + ':':<13}{''.join(cell.text for cell in cells(text))}")
    return 0


async def _delete(options: argparse.Namespace, settings: Settings) -> int:
    async with _desk(options, settings) as desk:
        gone = await desk.delete(options.name)
    return _said(options, gone, f"credential {gone.name} deleted")


async def _rotate(options: argparse.Namespace, settings: Settings) -> int:
    # As in `run`.
    from noetl.cli.key_rings import with_key_added  # noqa: PLC0415

    if options.add_key:
        if chosen_server(options.server, options.store, settings, variables()) is not None:
            raise UsageError("--add-key makes a key on this machine; a server has its own: add it there")
        ring, path = with_key_added(settings, variables())
        print(f"master key {ring.current.key_id} is in {path}: keep a copy in a safe place", file=sys.stderr)
    async with _desk(options, settings, keys=True, create=options.add_key) as desk:
        done = await desk.rotate()
    if options.json:
        write_json(done)
    else:
        print(f"{done.rewrapped} rewrapped; all are under the master key {done.key_id}")
    for name in done.unreadable:
        print(
            f"noetl credential: {name} cannot be opened with these keys; it stays as it was", file=sys.stderr
        )
    return 1 if done.unreadable else 0


def _said(options: argparse.Namespace, document: Credential, text: str) -> int:
    if options.json:
        write_json(document)
    else:
        print(text)
    return 0


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode("utf-8")


def _object(written: str | None, settings: Settings) -> dict[str, Any]:
    """The data; a mistake in it is told without showing it."""
    where = "--data"
    if written is None or written == STDIN:
        where = "the data on standard input"
        if written is None and sys.stdin.isatty():
            print("the data as a JSON object, then the end of input (Ctrl-D):", file=sys.stderr)
        content = read_bytes(STDIN, settings)
    elif written.startswith("@"):
        where = shown_name(written[1:])
        content = read_bytes(written[1:], settings)
    else:
        content = written.encode("utf-8", "surrogateescape")
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise UsageError(f"{where} is not JSON (it is not shown here)") from None
    if not isinstance(found, dict):
        raise UsageError(f"{where} must be a JSON object")
    refuse_depth(found, where)
    return found


def _meta(assignments: list[str]) -> dict[str, Any]:
    found = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not key or not equals:
            raise UsageError(f"--meta takes KEY=VALUE, but got {assignment!r}")
        found[key] = value_of(text)
    return found
