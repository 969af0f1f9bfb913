"""`noetl run`: runs a playbook from a file, or a registered one by its path, here or on a server."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.cli.arguments import Parser
from noetl.cli.catalog_paths import find_registered, split_version
from noetl.cli.diagnostics import report_to_stderr
from noetl.cli.environment import variables
from noetl.cli.files import STDIN, load_bytes, load_file, shown_name, write_json
from noetl.cli.payload import add_payload_options, payload
from noetl.cli.running import Run
from noetl.cli.stores import AnyPlace, Place, ServedPlace, place_of
from noetl.cli.summary import Source
from noetl.cli.watched import add_run_options, add_secrets_option
from noetl.engine.state import Data
from noetl.playbook.check.pipelines import tasks_in
from noetl.playbook.load import Loaded
from noetl.playbook.model import Playbook
from noetl.records.command import process_key
from noetl.settings import Settings
from noetl.store.protocol import CatalogEntry

if TYPE_CHECKING:
    from noetl.embedded import Embedded

EXIT_INVALID = 2


def run(arguments: list[str], settings: Settings) -> int:
    options = _parser().parse_args(arguments)
    place = place_of(options, settings)
    given = payload(options.set, options.payload, settings)
    if isinstance(place, ServedPlace) and not options.dry_run:
        return _on_server(options, settings, place, given)
    if options.file != STDIN and not os.path.exists(options.file) and place.exists():
        entry = asyncio.run(find_registered(place, options.file))
        if entry is not None:
            return run_registered(entry, given, options, settings, place)
    loaded = load_file(options.file, settings)
    if not loaded.valid:
        return _invalid(options, loaded, settings)
    if options.dry_run:
        return _dry_run(loaded, given, options)
    assert isinstance(place, Place)
    folder = Path.cwd() if options.file == STDIN else Path(options.file).absolute().parent
    return _run_file(loaded, given, Run(options, settings, place, folder), shown_name(options.file))


def _on_server(options: argparse.Namespace, settings: Settings, place: ServedPlace, given: Data) -> int:
    # What talks HTTP is slow to import, and only commands to a server need it.
    from noetl.cli.sent_secrets import secrets_to_send  # noqa: PLC0415
    from noetl.cli.served_run import ServedRun  # noqa: PLC0415

    running = ServedRun(options, settings, place, variables().get("TRACEPARENT"))
    if options.file != STDIN and not os.path.exists(options.file):
        secrets = secrets_to_send(options.send_env, None, given, variables())
        return running.run_registered(*split_version(options.file), given, secrets)
    loaded = load_file(options.file, settings)
    if not loaded.valid:
        return _invalid(options, loaded, settings)
    secrets = secrets_to_send(options.send_env, loaded.playbook, given, variables())
    return running.run_file(loaded.text, given, secrets)


def _invalid(options: argparse.Namespace, loaded: Loaded, settings: Settings) -> int:
    if options.json:
        write_json({"status": "invalid", "diagnostics": loaded.diagnostics})
    else:
        report_to_stderr(options.file, loaded, settings)
    return EXIT_INVALID


def _run_file(loaded: Loaded, given: Data, running: Run, name: str) -> int:
    playbook = loaded.playbook
    assert playbook is not None

    if _begins_with_code(playbook):
        running.code_key = process_key(hashlib.sha256(loaded.text.encode()).hexdigest())

    async def begin(engine: Embedded) -> str:
        return await engine.start(loaded, given, execution_id=running.expect(engine.control.next_id()))

    return running.to_the_end(begin, lambda _engine, _state: Source(name, loaded.text, playbook))


def _begins_with_code(playbook: Playbook) -> bool:
    entry = next(step for step in playbook.steps if step.name == playbook.entry)
    return any(task.kind == "python" for task in tasks_in(entry.body))


def run_registered(
    entry: CatalogEntry, given: Data, options: argparse.Namespace, settings: Settings, place: AnyPlace
) -> int:
    """Runs one version of a registered playbook; its keychain's files lie in the current folder."""
    loaded = load_bytes(entry.source, settings)
    playbook = loaded.playbook
    name = f"{entry.path}@{entry.version}"
    if playbook is None:
        report_to_stderr(name, loaded, settings)
        return EXIT_INVALID
    if options.dry_run:
        return _dry_run(loaded, given, options)
    assert isinstance(place, Place)
    running = Run(options, settings, place, Path.cwd())
    if _begins_with_code(playbook):
        running.code_key = process_key(entry.digest)

    async def begin(engine: Embedded) -> str:
        execution_id = running.expect(engine.control.next_id())
        return await engine.start_registered(entry, given, execution_id=execution_id)

    return running.to_the_end(begin, lambda _engine, _state: Source(name, loaded.text, playbook))


def _dry_run(loaded: Loaded, given: Data, options: argparse.Namespace) -> int:
    # Only a dry run draws.
    from noetl.cli.dry_run import dry_run  # noqa: PLC0415

    assert loaded.playbook is not None
    return dry_run(loaded.playbook, given, as_json=options.json)


def add_start_options(parser: argparse.ArgumentParser) -> None:
    add_payload_options(parser)
    add_run_options(parser)
    add_secrets_option(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="show the entry, the graph and the first step; run nothing"
    )


def _parser() -> Parser:
    parser = Parser(
        "run",
        "Runs a playbook to its end and shows what happens on the way.\n"
        "Exit codes: 0 completed, 1 failed, 2 invalid or unreadable, 3 cancelled, 130 interrupted.",
        "noetl run report.yaml --set day=2024-05-01",
    )
    parser.add_argument(
        "file", metavar="FILE|PATH", help="a playbook, - for stdin, or the path of a registered one"
    )
    add_start_options(parser)
    return parser
