"""`noetl retry`: runs an execution again from a step, keeping the results of the rest."""

from __future__ import annotations

import argparse
from pathlib import Path

from noetl.cli.arguments import Parser
from noetl.cli.diagnostics import report_to_stderr
from noetl.cli.environment import variables
from noetl.cli.files import load_file
from noetl.cli.payload import payload
from noetl.cli.running import Run
from noetl.cli.stores import ServedPlace, place_of
from noetl.cli.summary import Source
from noetl.cli.watched import add_run_options, add_secrets_option
from noetl.embedded import Embedded
from noetl.engine.reuse import CannotRepeatError
from noetl.engine.state import State
from noetl.errors import UsageError
from noetl.playbook.load import Loaded
from noetl.settings import Settings


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "retry",
        "Runs an execution that is over again, as a new execution: from the step that failed, or from any "
        "other, with the results of the steps before it.\n"
        "Exit codes: 0 completed, 1 failed, 2 cannot be repeated, 3 cancelled, 130 interrupted.",
        "noetl retry 412345678901234567 --failed-items --set batch=10",
    )
    parser.add_argument("id", metavar="ID", help="the execution to run again")
    parser.add_argument("--from", dest="step", metavar="STEP", help="begin with this step")
    parser.add_argument(
        "--failed-items", action="store_true", help="of a loop, only what failed or never ran"
    )
    parser.add_argument(
        "--set",
        metavar="K=V",
        action="append",
        default=[],
        help="change one workload key; V is JSON, or text",
    )
    parser.add_argument("--playbook", metavar="FILE", help="run on this edited playbook")
    add_run_options(parser)
    add_secrets_option(parser)
    options = parser.parse_args(arguments)
    changes = payload(options.set, None, settings)
    loaded = None
    folder = Path.cwd()
    if options.playbook is not None:
        loaded = load_file(options.playbook, settings)
        folder = Path(options.playbook).parent
        if not loaded.valid:
            report_to_stderr(options.playbook, loaded, settings)
            return 2
    place = place_of(options, settings)
    if isinstance(place, ServedPlace):
        return _on_server(options, settings, place, loaded, changes)
    running = Run(options, settings, place, folder)
    return _retry(options.id, options.step, options.failed_items, loaded, changes, running)


def _on_server(
    options: argparse.Namespace,
    settings: Settings,
    place: ServedPlace,
    loaded: Loaded | None,
    changes: dict[str, object],
) -> int:
    # What talks HTTP is slow to import, and only commands to a server need it.
    from noetl.cli.sent_secrets import secrets_to_send  # noqa: PLC0415
    from noetl.cli.served_run import ServedRun  # noqa: PLC0415
    from noetl.client.wire import RetryRequest  # noqa: PLC0415

    request = RetryRequest(
        step=options.step,
        failed_items=options.failed_items,
        payload=changes,
        source=None if loaded is None else loaded.text,
        secrets=secrets_to_send(
            options.send_env, None if loaded is None else loaded.playbook, changes, variables()
        ),
    )
    return ServedRun(options, settings, place).retry(options.id, request)


def _retry(
    earlier: str,
    step: str | None,
    failed_items: bool,
    loaded: Loaded | None,
    changes: dict[str, object],
    running: Run,
) -> int:
    async def begin(engine: Embedded) -> str:
        def announce() -> str:
            return running.expect(engine.control.next_id())

        try:
            return await engine.repeat(
                earlier, loaded, changes, step=step, failed_items=failed_items, announce=announce
            )
        except CannotRepeatError as error:
            raise UsageError(error.message) from error

    def source_of(engine: Embedded, state: State) -> Source:
        live = engine.control.opened(state.execution_id)
        entry = live.entry
        return Source(
            f"{entry.path}@{entry.version}", entry.source.decode("utf-8", "replace"), live.plan.playbook
        )

    return running.to_the_end(begin, source_of)
