"""`noetl exec`: runs a registered playbook, by default its newest version."""

from __future__ import annotations

import asyncio

from noetl.cli.arguments import Parser
from noetl.cli.catalog_paths import registered
from noetl.cli.payload import payload
from noetl.cli.run import add_start_options, run_registered
from noetl.cli.stores import Place, place_of
from noetl.settings import Settings
from noetl.store.protocol import CatalogEntry


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "exec",
        "Runs a registered playbook to its end, as `noetl run` does a file.\n"
        "Exit codes: 0 completed, 1 failed, 2 not registered, 3 cancelled, 130 interrupted.",
        "noetl exec reports/daily@3 --set day=2024-05-01",
    )
    parser.add_argument("path", metavar="PATH[@VERSION]", help="the path of a registered playbook")
    add_start_options(parser)
    options = parser.parse_args(arguments)
    place = place_of(options, settings)
    given = payload(options.set, options.payload, settings)
    entry = asyncio.run(_entry(place, options.path))
    return run_registered(entry, given, options, settings, place)


async def _entry(place: Place, written: str) -> CatalogEntry:
    store = place.read()
    try:
        return await registered(store, written)
    finally:
        await store.close()
