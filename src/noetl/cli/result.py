"""`noetl result`: the result of an execution or of one of its steps, stored parts included."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import msgspec

from noetl.cli.arguments import Parser
from noetl.cli.files import write_json
from noetl.cli.reading import find_execution, reading_plane, with_bodies_loaded
from noetl.cli.report import steps_by_name
from noetl.cli.stores import Place, ServedPlace, add_store_options, place_of
from noetl.control.replay import replayed
from noetl.engine.state import State
from noetl.errors import NoetlError, UsageError
from noetl.playbook.diagnostics import nearest
from noetl.records.result_ref import ResultRef, ref_from_data
from noetl.results.bodies import ResultBinaryError, described
from noetl.results.chosen import ChosenBodies
from noetl.settings import Settings

HOW_WITHOUT_RESULT: Final = {"failed": "failed", "cancelled": "was cancelled"}


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "result",
        "Prints the result of an execution, or of a step of it. Text is printed as it is, anything else as "
        "JSON;\na stored body that is neither is written byte by byte, but not to a terminal.\n"
        "Exit codes: 0 printed, 2 there is no such execution or step, or it has no result.",
        "noetl result 412345678901234567 fetch",
    )
    parser.add_argument("id", metavar="ID", help="the execution")
    parser.add_argument("step", metavar="STEP", nargs="?", help="one of its steps")
    parser.add_argument(
        "--json", action="store_true", help="print text as JSON too, and the reference of what is no text"
    )
    add_store_options(parser)
    options = parser.parse_args(arguments)
    place = place_of(options, settings)
    if isinstance(place, ServedPlace):
        result = asyncio.run(_served(place, options.id, options.step, as_json=options.json))
        _print(result, as_json=options.json)
    else:
        asyncio.run(_stored(place, options.id, options.step, as_json=options.json))
    return 0


def _print(result: Any, *, as_json: bool) -> None:  # noqa: ANN401 - plain data
    if isinstance(result, str) and not as_json:
        sys.stdout.write(result if result.endswith("\n") else result + "\n")
    elif as_json:
        write_json(result)
    else:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n")


async def _stored(place: Place, execution_id: str, step: str | None, *, as_json: bool) -> None:
    store = place.read()
    try:
        await find_execution(store, execution_id)
        with reading_plane(store, place) as (control, bodies):
            state = await control.replay(execution_id)
            found = _of_execution(state) if step is None else _of_step(state, step)
            result = await with_bodies_loaded(control, found)
            binary = None if as_json else ref_from_data(result)
            if binary is None:
                _print(result, as_json=as_json)
            else:
                await _write_bytes(bodies, binary)
    finally:
        await store.close()


async def _write_bytes(bodies: ChosenBodies, ref: ResultRef) -> None:
    """A body that is neither text nor JSON, as it is."""
    if sys.stdout.isatty():
        raise UsageError(
            f"{described(ref.size, ref)} is neither text nor JSON, and is not written to a terminal: "
            "send it to a file with `> FILE`"
        )
    sys.stdout.flush()
    async for piece in bodies.stream(ref):
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


async def _served(place: ServedPlace, execution_id: str, step: str | None, *, as_json: bool) -> Any:  # noqa: ANN401 - plain data
    served = place.read()
    try:
        row = await find_execution(served, execution_id)
        result = await served.api.result(execution_id, step)
        return result if step is not None else _unless_missing(result, execution_id, row.status)
    except NoetlError as error:
        if error.code != ResultBinaryError.code:
            raise
        state = await replayed(served, execution_id)
        found = _of_execution(state) if step is None else _of_step(state, step)
        return _as_references(found, as_json=as_json)
    finally:
        await served.close()


def _as_references(result: Any, *, as_json: bool) -> Any:  # noqa: ANN401 - plain data
    """A result that a server has and cannot give out, because bytes are in it that are no value."""
    ref = None if as_json else ref_from_data(result)
    if ref is None:
        return result
    raise UsageError(
        f"{described(ref.size, ref)} is neither text nor JSON, and servers give out no bytes: "
        "--json shows where it lies"
    )


def _unless_missing(result: Any, execution_id: str, status: str) -> Any:  # noqa: ANN401 - plain data
    """The result; null is one only of an execution that completed."""
    if result is None and status in HOW_WITHOUT_RESULT:
        raise UsageError(f"execution {execution_id} has no result: it {HOW_WITHOUT_RESULT[status]}")
    return result


def _of_execution(state: State) -> Any:  # noqa: ANN401 - plain data
    if not state.is_over:
        raise UsageError(f"execution {state.execution_id} is not over: name a step for its result so far")
    return _unless_missing(state.result, state.execution_id, state.status)


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
