"""`noetl result`: the result of an execution or of one of its steps, stored parts included."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec

from noetl.cli.arguments import Parser
from noetl.cli.files import write_json
from noetl.cli.reading import find_execution, reading_plane, with_bodies_loaded
from noetl.cli.report import steps_by_name
from noetl.cli.stores import AnyPlace, ServedPlace, add_store_options, place_of
from noetl.engine.state import State
from noetl.errors import UsageError
from noetl.playbook.diagnostics import nearest
from noetl.settings import Settings


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "result",
        "Prints the result of an execution, or of a step of it. Text is printed as it is, anything else as "
        "JSON.\nExit codes: 0 printed, 2 there is no such execution or step, or it has no result yet.",
        "noetl result 412345678901234567 fetch",
    )
    parser.add_argument("id", metavar="ID", help="the execution")
    parser.add_argument("step", metavar="STEP", nargs="?", help="one of its steps")
    parser.add_argument("--json", action="store_true", help="print text as JSON too")
    add_store_options(parser)
    options = parser.parse_args(arguments)
    result = asyncio.run(_result(place_of(options, settings), options.id, options.step))
    if isinstance(result, str) and not options.json:
        sys.stdout.write(result if result.endswith("\n") else result + "\n")
    elif options.json:
        write_json(result)
    else:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")
    return 0


async def _result(place: AnyPlace, execution_id: str, step: str | None) -> Any:  # noqa: ANN401 - plain data
    if isinstance(place, ServedPlace):
        return await _served(place, execution_id, step)
    store = place.read()
    try:
        await find_execution(store, execution_id)
        with reading_plane(store, place) as control:
            state = await control.replay(execution_id)
            found = _of_execution(state) if step is None else _of_step(state, step)
            return await with_bodies_loaded(control, execution_id, found)
    finally:
        await store.close()


async def _served(place: ServedPlace, execution_id: str, step: str | None) -> Any:  # noqa: ANN401 - plain data
    served = place.read()
    try:
        await find_execution(served, execution_id)
        return await served.api.result(execution_id, step)
    finally:
        await served.close()


def _of_execution(state: State) -> Any:  # noqa: ANN401 - plain data
    if not state.is_over:
        raise UsageError(f"execution {state.execution_id} is not over: name a step for its result so far")
    return state.result


def _of_step(state: State, step: str) -> Any:  # noqa: ANN401 - plain data
    steps = steps_by_name(state)
    found = steps.get(step)
    if found is None:
        meant = nearest(step, list(steps))
        hint = f"; did you mean `{meant}`?" if meant else ""
        raise UsageError(f"step `{step}` has not run in execution {state.execution_id}{hint}")
    if not found.seq:
        raise UsageError(f"step `{step}` has no result: it is {found.status}")
    return found.result
