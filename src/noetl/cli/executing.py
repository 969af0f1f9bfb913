"""`noetl exec`: runs a registered playbook, by default its newest version."""

from __future__ import annotations

import argparse
import asyncio

from noetl.cli.arguments import Parser
from noetl.cli.catalog_paths import registered, split_version
from noetl.cli.environment import variables
from noetl.cli.payload import payload
from noetl.cli.run import add_start_options, run_registered
from noetl.cli.stores import AnyPlace, ServedPlace, place_of
from noetl.engine.state import Data
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
    if isinstance(place, ServedPlace) and not options.dry_run:
        return _on_server(options, settings, place, given)
    entry = asyncio.run(_entry(place, options.path))
    return run_registered(entry, given, options, settings, place)


def _on_server(options: argparse.Namespace, settings: Settings, place: ServedPlace, given: Data) -> int:
    # What talks HTTP is slow to import, and only commands to a server need it.
    from noetl.cli.sent_secrets import secrets_to_send  # noqa: PLC0415
    from noetl.cli.served_run import ServedRun  # noqa: PLC0415

    running = ServedRun(options, settings, place, variables().get("TRACEPARENT"))
    secrets = secrets_to_send(options.send_env, None, given, variables())
    return running.run_registered(*split_version(options.path), given, secrets)


async def _entry(place: AnyPlace, written: str) -> CatalogEntry:
    store = place.read()
    try:
        return await registered(store, written)
    finally:
        await store.close()
