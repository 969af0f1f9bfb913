"""`noetl catalog`: the registered playbooks, their texts and their versions."""

from __future__ import annotations

import argparse
import asyncio
import sys

from noetl.cli.arguments import Parser, count
from noetl.cli.catalog_paths import registered, split_version
from noetl.cli.diagnostics import output_width, paint_for
from noetl.cli.files import write_json
from noetl.cli.stores import AnyPlace, add_store_options, place_of
from noetl.cli.tables import table
from noetl.engine.state import Data
from noetl.errors import UsageError
from noetl.settings import Settings
from noetl.store.protocol import CatalogEntry

ACTIONS = ("list", "show", "versions")
HEADS = ("PATH", "VERSION", "DIALECT", "REGISTERED", "NAME")


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "catalog",
        "Shows registered playbooks: `list` the newest version of each, `show` the text of one, `versions` "
        "all versions of one.\nExit codes: 0 shown, 2 not registered.",
        "noetl catalog show reports/daily@3",
    )
    parser.add_argument("action", choices=ACTIONS, metavar="list|show|versions", help="what to show")
    parser.add_argument("path", metavar="PATH[@VERSION]", nargs="?", help="a registered playbook")
    parser.add_argument("--limit", metavar="N", type=count, default=100, help="at most N (default: 100)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    add_store_options(parser)
    options = parser.parse_args(arguments)
    place = place_of(options, settings)
    if options.action == "list":
        if options.path is not None:
            raise UsageError(
                "`catalog list` takes no path; `catalog versions PATH` lists one playbook's versions"
            )
        return _show_rows(asyncio.run(_entries(place, None, options.limit)), options, settings)
    if options.path is None:
        raise UsageError(f"`catalog {options.action}` needs the path of a playbook")
    if options.action == "versions":
        path, _ = split_version(options.path)
        return _show_rows(asyncio.run(_entries(place, path, options.limit)), options, settings)
    return _show_text(asyncio.run(_entry(place, options.path)), options)


async def _entries(place: AnyPlace, path: str | None, limit: int) -> list[CatalogEntry]:
    store = place.read()
    try:
        if path is not None:
            await registered(store, path)
        return await store.catalog(path=path, limit=limit)
    finally:
        await store.close()


async def _entry(place: AnyPlace, written: str) -> CatalogEntry:
    store = place.read()
    try:
        return await registered(store, written)
    finally:
        await store.close()


def _data(entry: CatalogEntry) -> Data:
    return {
        "path": entry.path,
        "version": entry.version,
        "name": entry.name,
        "dialect": entry.dialect,
        "registered_at": entry.registered_at,
        "digest": entry.digest,
    }


def _show_rows(entries: list[CatalogEntry], options: argparse.Namespace, settings: Settings) -> int:
    if options.json:
        write_json([_data(entry) for entry in entries])
    elif not entries:
        print("no playbooks are registered; `noetl register FILE` adds one")
    else:
        rows = [
            (each.path, str(each.version), each.dialect, each.registered_at[:19].replace("T", " "), each.name)
            for each in entries
        ]
        sys.stdout.write(table(HEADS, rows, output_width(sys.stdout), paint_for(sys.stdout, settings)))
    return 0


def _show_text(entry: CatalogEntry, options: argparse.Namespace) -> int:
    text = entry.source.decode("utf-8", "replace")
    if options.json:
        write_json(_data(entry) | {"source": text})
    else:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    return 0
