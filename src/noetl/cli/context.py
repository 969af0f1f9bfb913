"""`noetl context`: names for servers, with the tokens to use there."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Final

import msgspec

from noetl.cli.arguments import Parser
from noetl.cli.contexts import (
    LOCAL,
    Contexts,
    Server,
    contexts_path,
    read_contexts,
    server_url,
    write_contexts,
)
from noetl.cli.diagnostics import output_width, paint_for
from noetl.cli.environment import variables
from noetl.cli.files import STDIN, read_bytes, write_json
from noetl.cli.tables import table
from noetl.errors import UsageError
from noetl.settings import Settings

ACTIONS: Final = ("add", "use", "list")
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
HEADS: Final = ("", "NAME", "SERVER", "TOKEN")


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "context",
        "Names servers: `add` keeps an address and its token under a name, `use` sends the commands that "
        "name neither a store nor a server there, `list` shows them. The name `local` is the store of this "
        "machine.\nExit codes: 0 done, 2 no such context.",
        "noetl context add shop --server https://noetl.example.com --token -",
    )
    parser.add_argument("action", choices=ACTIONS, metavar="add|use|list", help="what to do")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the name of a context")
    parser.add_argument("--server", metavar="URL", help="add: the address of the server")
    parser.add_argument(
        "--token",
        metavar="-|@FILE",
        help="add: read the token from standard input or a file; it is not shown",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    options = parser.parse_args(arguments)
    path = contexts_path(variables())
    contexts = read_contexts(path)
    if options.action != "add" and (options.server is not None or options.token is not None):
        raise UsageError("--server and --token belong to `context add`")
    if options.action == "list":
        if options.name is not None:
            raise UsageError("`context list` takes no name")
        return _show(contexts, options, settings)
    if options.name is None:
        raise UsageError(f"`context {options.action}` needs the name of a context")
    if options.action == "use":
        return _use(path, contexts, options)
    return _add(path, contexts, options, settings)


def _add(path: Path, contexts: Contexts, options: argparse.Namespace, settings: Settings) -> int:
    name = options.name
    if name == LOCAL or not NAME.fullmatch(name):
        raise UsageError(f"a context cannot be called `{name}`: letters, digits, `_` and `-`, not `{LOCAL}`")
    if options.server is None:
        raise UsageError("`context add` needs --server URL")
    server = Server(url=server_url(options.server), token=_token(options.token, settings))
    write_contexts(path, msgspec.structs.replace(contexts, servers={**contexts.servers, name: server}))
    return _said(
        options,
        {"name": name, "server": server.url, "has_token": server.token is not None},
        f"context {name}: {server.url}\nuse it with: noetl context use {name}",
    )


def _use(path: Path, contexts: Contexts, options: argparse.Namespace) -> int:
    name = options.name
    if name != LOCAL and name not in contexts.servers:
        known = ", ".join([LOCAL, *sorted(contexts.servers)])
        raise UsageError(f"there is no context `{name}`: {known}")
    write_contexts(path, msgspec.structs.replace(contexts, current=name))
    where = "the store of this machine" if name == LOCAL else contexts.servers[name].url
    return _said(options, {"name": name}, f"commands go to {where} now")


def _said(options: argparse.Namespace, document: dict[str, object], text: str) -> int:
    if options.json:
        write_json(document)
    else:
        print(text)
    return 0


def _token(written: str | None, settings: Settings) -> str | None:
    if written is None:
        return None
    if written != STDIN and not written.startswith("@"):
        raise UsageError(
            "a token on a command line can be seen by every process: give it on standard input "
            "(--token -) or in a file (--token @FILE)"
        )
    token = read_bytes(written.removeprefix("@"), settings).decode("utf-8", "replace").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("--token: there is no token, one word on one line")
    return token


def _show(contexts: Contexts, options: argparse.Namespace, settings: Settings) -> int:
    servers = sorted(contexts.servers.items())
    if options.json:
        write_json(
            {
                "current": contexts.current,
                "contexts": [
                    {"name": name, "server": server.url, "has_token": server.token is not None}
                    for name, server in servers
                ],
            }
        )
        return 0
    rows = [(LOCAL, "(this machine)", "")]
    rows += [(name, server.url, "yes" if server.token else "no") for name, server in servers]
    marked = [("*" if row[0] == contexts.current else "", *row) for row in rows]
    sys.stdout.write(table(HEADS, marked, output_width(sys.stdout), paint_for(sys.stdout, settings)))
    return 0
