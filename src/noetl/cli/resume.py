"""`noetl resume`: goes on with an execution that was interrupted or paused, and watches it to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

from noetl.cli.arguments import Parser
from noetl.cli.reading import find_execution, log_pages
from noetl.cli.running import Run
from noetl.cli.steering import OVER, ask_owner
from noetl.cli.stores import Place, ServedPlace, place_of
from noetl.cli.summary import Source
from noetl.cli.watched import EXIT_CODES, add_run_options
from noetl.embedded import Embedded
from noetl.engine.state import State
from noetl.errors import UsageError
from noetl.settings import Settings


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "resume",
        "Goes on with an execution that was interrupted or paused. One that is paused in another process "
        "goes on there.\n"
        "Exit codes: 0 completed (or goes on elsewhere), 1 failed, 2 cannot be resumed, 3 cancelled, "
        "130 interrupted.",
        "noetl resume 412345678901234567",
    )
    parser.add_argument("id", metavar="ID", help="the execution")
    add_run_options(parser)
    options = parser.parse_args(arguments)
    place = place_of(options, settings)
    if isinstance(place, ServedPlace):
        # What talks HTTP is slow to import, and only commands to a server need it.
        from noetl.cli.served_run import ServedRun  # noqa: PLC0415

        return ServedRun(options, settings, place).resume(options.id)
    if asyncio.run(_goes_on_elsewhere(place, options.id)):
        print(f"execution {options.id} goes on in the process that runs it")
        return EXIT_CODES["completed"]
    return _resume(options.id, Run(options, settings, place, Path.cwd()))


async def _goes_on_elsewhere(place: Place, execution_id: str) -> bool:
    """Whether the store's owner has taken it up again; false where nobody owns the store."""
    store = place.read()
    try:
        row = await find_execution(store, execution_id)
        if row.status in OVER:
            raise UsageError(f"execution {execution_id} is over: it {OVER[row.status]}")
        if not store.owned_by_other():
            return False
        if row.status == "paused" and await ask_owner(store, "resume", execution_id, {}):
            return True
        raise UsageError(
            f"another process owns the store, so execution {execution_id} runs there or has to wait: "
            "try again when that process has ended"
        )
    finally:
        await store.close()


def _resume(execution_id: str, running: Run) -> int:
    async def begin(engine: Embedded) -> str:
        running.expect(execution_id)
        async for page in log_pages(engine.store, execution_id):
            for event in page:
                running.earlier(event)
        await engine.resume(execution_id)
        return execution_id

    def source_of(engine: Embedded, state: State) -> Source:
        live = engine.control.opened(state.execution_id)
        entry = live.entry
        name = f"{entry.path}@{entry.version}"
        return Source(name, entry.source.decode("utf-8", "replace"), live.plan.playbook)

    return running.to_the_end(begin, source_of)
