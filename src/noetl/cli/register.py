"""`noetl register`: puts checked playbooks into the catalog, each change as a new version."""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

from noetl.cli.arguments import Parser
from noetl.cli.diagnostics import report_to_stderr
from noetl.cli.files import load_file, playbooks_below, shown_name, write_json
from noetl.cli.stores import Place, ServedPlace, add_store_options, place_of
from noetl.errors import UsageError
from noetl.ids import SystemClock, timestamp
from noetl.playbook.load import Loaded
from noetl.settings import Settings
from noetl.store.protocol import CatalogEntry


class Readable(NamedTuple):
    file: str
    loaded: Loaded


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "register",
        "Checks playbooks and puts them into the catalog. A changed text is a new version; the same text "
        "keeps its version. If one is invalid, none is registered.\n"
        "Exit codes: 0 registered, 1 one is invalid, 2 unreadable.",
        "noetl register playbooks/",
    )
    parser.add_argument(
        "paths", nargs="+", metavar="FILE|DIR", help="a playbook, a folder of them, or - for stdin"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    add_store_options(parser)
    options = parser.parse_args(arguments)
    found = [Readable(file, load_file(file, settings)) for file in _files(options.paths, settings)]
    invalid = [each for each in found if not each.loaded.valid]
    for each in invalid:
        report_to_stderr(each.file, each.loaded, settings)
    if invalid:
        return 1
    place = place_of(options, settings)
    entries = asyncio.run(
        _register_served(place, found) if isinstance(place, ServedPlace) else _register(place, found)
    )
    if options.json:
        rows = zip(found, entries, strict=True)
        write_json(
            [
                {"file": shown_name(each.file), "path": entry.path, "version": entry.version}
                for each, entry in rows
            ]
        )
    else:
        for entry in entries:
            print(f"{entry.path}@{entry.version}")
    return 0


def _files(paths: list[str], settings: Settings) -> list[str]:
    files: dict[str, None] = {}
    for path in paths:
        if not os.path.isdir(path):
            files[path] = None
            continue
        below = list(playbooks_below(path, settings))
        if not below:
            raise UsageError(f"there is no playbook in {shown_name(path)}")
        for each in below:
            if isinstance(each, UsageError):
                raise each
            files[each] = None
    return list(files)


async def _register_served(place: ServedPlace, found: list[Readable]) -> list[CatalogEntry]:
    # What talks HTTP is slow to import, and only commands to a server need it.
    from noetl.cli.served import api_of, entry_of  # noqa: PLC0415

    api = api_of(place.server)
    try:
        return [entry_of(await api.register(each.loaded.text)) for each in found]
    finally:
        await api.close()


async def _register(place: Place, found: list[Readable]) -> list[CatalogEntry]:
    store = place.own()
    try:
        entries = []
        for each in found:
            playbook = each.loaded.playbook
            assert playbook is not None
            now = timestamp(SystemClock().now())
            source = each.loaded.text.encode()
            entries.append(await store.register(playbook.path, playbook.name, playbook.dialect, source, now))
        return entries
    finally:
        await store.close()
