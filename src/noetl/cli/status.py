"""`noetl status`: how one execution stands, or its progress until it is over."""

from __future__ import annotations

import asyncio
import sys

from noetl.cli.arguments import Parser
from noetl.cli.diagnostics import Paint, output_width, paint_for, visible
from noetl.cli.files import write_json
from noetl.cli.listing import INTERRUPTED, shown_status
from noetl.cli.reading import ReadableStore, find_execution, followed_log
from noetl.cli.report import document, steps_by_name
from noetl.cli.stores import AnyPlace, add_store_options, place_of
from noetl.cli.tables import table
from noetl.cli.tree import STYLES, duration
from noetl.cli.waiting import waits_text
from noetl.cli.watching import Watcher, watcher_for
from noetl.control.replay import replayed
from noetl.engine.parking import waits_of_steps
from noetl.engine.state import State, Waits
from noetl.errors import UsageError
from noetl.ids import seconds_of
from noetl.settings import Settings
from noetl.store.protocol import ExecutionRow

HEADS = ("STEP", "STATUS", "RUNS", "TOOK", "ABOUT")
ENDS = {"completed": 0, "failed": 1, "cancelled": 3}
REDRAW_SECONDS = 0.1


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "status",
        "Shows how an execution stands.\n"
        "Exit codes: 0 shown, 2 there is no such execution; with -f as for `noetl run`.",
        "noetl status 412345678901234567 -f",
    )
    parser.add_argument("id", metavar="ID", help="the execution")
    parser.add_argument("-f", "--follow", action="store_true", help="show its progress until it is over")
    parser.add_argument("--json", action="store_true", help="print one JSON document, at the end of -f")
    add_store_options(parser)
    options = parser.parse_args(arguments)
    place = place_of(options, settings)
    paint = paint_for(sys.stdout, settings)
    watcher = watcher_for(sys.stdout, paint, quiet=options.json) if options.follow else None
    row, state, owned = asyncio.run(_looked(place, options.id, watcher))
    if options.json:
        # The state may be a moment younger than the row.
        interrupted = not state.is_over and shown_status(row, owned=owned) == INTERRUPTED
        write_json(document(state, row, status=INTERRUPTED if interrupted else None))
    else:
        _show(row, state, place, paint, owned=owned)
    if watcher is None:
        return 0
    if not state.is_over:
        raise UsageError(f"nothing runs execution {options.id} now; go on with `{_resume(place, state)}`")
    return ENDS[state.status]


def _resume(place: AnyPlace, state: State) -> str:
    return place.command("resume", state.execution_id)


async def _looked(
    place: AnyPlace, execution_id: str, watcher: Watcher | None
) -> tuple[ExecutionRow, State, bool]:
    store = place.read()
    try:
        await find_execution(store, execution_id)
        if watcher is not None:
            await _follow(store, execution_id, watcher)
        row = await find_execution(store, execution_id)
        state = await replayed(store, execution_id)
        return row, state, store.owned_by_other()
    finally:
        await store.close()


async def _follow(store: ReadableStore, execution_id: str, watcher: Watcher) -> None:
    async def redraw() -> None:
        while True:
            watcher.redraw()
            await asyncio.sleep(REDRAW_SECONDS)

    drawing = asyncio.create_task(redraw()) if watcher.is_drawn else None
    try:
        async for page in followed_log(store, execution_id):
            for event in page:
                watcher.event(event)
    finally:
        if drawing is not None:
            drawing.cancel()
        watcher.close()


def _show(row: ExecutionRow, state: State, place: AnyPlace, paint: Paint, *, owned: bool) -> None:
    status = shown_status(row, owned=owned)
    print(f"{visible(row.name)} ({visible(row.path)}@{row.version}), execution {row.execution_id}")
    took = ""
    if state.finished_at is not None:
        took = f" after {duration(seconds_of(state.finished_at) - seconds_of(state.requested_at))}"
    started = row.requested_at[:19].replace("T", " ")
    print(f"{paint(STYLES.get(status, 'warning'), status)}{took}, started {started}")
    rows = [
        (name, found.status, str(found.runs), _milliseconds(found.duration_ms), _about(state, name))
        for name, found in steps_by_name(state).items()
    ]
    if rows:
        sys.stdout.write("\n" + table(HEADS, rows, output_width(sys.stdout), paint))
    if state.error is not None:
        kind, message = visible(str(state.error.get("kind"))), visible(str(state.error.get("message")))
        print(f"\n{paint('error', kind)}: {message}")
    for question in sorted({name for waits in waits_of_steps(state).values() for name in waits.questions}):
        print(f"\ngrant it with: {place.command('signal', state.execution_id, question, '--data true')}")
    if not state.is_over and not owned:
        print(f"\nnothing runs it now; go on with: {_resume(place, state)}")


def _milliseconds(taken: float | None) -> str:
    return "" if taken is None else duration(taken / 1000)


def _about(state: State, name: str) -> str:
    """The progress of a loop that is open, what a step waits for, or the error it ended with."""
    parts = []
    loop = next((run.loop for run in state.runs.values() if run.step == name and run.loop is not None), None)
    if loop is not None:
        parts += [f"{loop.done + loop.failed}/{loop.total}", f"{len(loop.open)} in flight"]
        if loop.failed:
            parts.insert(1, f"{loop.failed} failed")
    if waited := waits_text(waits_of_steps(state).get(name, Waits())):
        parts.append(waited)
    if parts:
        return ", ".join(parts)
    error = steps_by_name(state)[name].error
    return "" if error is None else " ".join(str(error.get("message", "")).split())
