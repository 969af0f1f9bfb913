"""What counts as standing still: the check behind the invariant `never.stuck`."""

from __future__ import annotations

from noetl.engine.state import LoopRun, State, StepRun, Waits
from noetl.store.protocol import CommandRow, TimerRow
from tests.simulation.standing import left_standing

AT = "2025-06-15T15:06:40.000000Z"


def opened(**parts: object) -> State:
    run = StepRun(run_id="1.1", step="s", scope="", args={}, scheduled_at=AT, **parts)  # type: ignore[arg-type]
    return State(execution_id="1", status="running", runs={"1.1": run})


def row(name: str = "1.1", *, is_held: bool = False) -> dict[str, CommandRow]:
    return {name: CommandRow(command_id=name, execution_id="1", step="s", step_run_id="1.1", is_held=is_held)}


def test_a_step_run_needs_a_command() -> None:
    assert left_standing(opened(), row(), {}) is None
    assert left_standing(opened(), {}, {}) == "1.1 of step `s`: it has no command"


def test_a_lease_of_a_loop_that_is_through_needs_none() -> None:
    through = LoopRun(items=[1], total=1, cursor=1, parallel=True, keeps_going=False, widths=[1, 1])
    assert left_standing(opened(loop=through), row(), {}) is None
    left = LoopRun(items=[1, 2], total=2, cursor=1, parallel=True, keeps_going=False, widths=[1, 1])
    assert left_standing(opened(loop=left), row(), {}) == "1.1~1 of step `s`: it has no command"


def test_a_held_command_must_wait_for_something() -> None:
    assert left_standing(opened(), row(is_held=True), {}) is not None
    paused = opened()
    paused.status = "paused"
    assert left_standing(paused, row(is_held=True), {}) is None
    assert left_standing(opened(parked={0: Waits()}), row(is_held=True), {}) is not None
    waiting = opened(parked={0: Waits(signals=["go"])})
    assert left_standing(waiting, row(is_held=True), {}) is None
    waiting.mailbox[7] = {"name": "go", "data": None}
    assert left_standing(waiting, row(is_held=True), {}) is not None


def test_what_is_due_has_its_timer() -> None:
    timed = opened(parked={0: Waits(until=50.0)})
    assert left_standing(timed, row(is_held=True), {}) is not None
    late = {"due": TimerRow(timer_id="due", execution_id="1", due=60.0)}
    assert left_standing(timed, row(is_held=True), late) is not None
    right = {"due": TimerRow(timer_id="due", execution_id="1", due=50.0)}
    assert left_standing(timed, row(is_held=True), right) is None


def test_nothing_is_left_of_what_is_over() -> None:
    over = State(execution_id="1", status="completed")
    assert left_standing(over, {}, {}) is None
    assert left_standing(over, row(), {}) == "commands are left: ['1.1']"
