"""Which branches of a case fire at a moment, and which way out wins."""

from __future__ import annotations

from typing import Any

from noetl.engine.cases import after_call, at_event, evaluated, is_failed, ordered, select, winner
from noetl.engine.facts import Fact
from noetl.engine.frames import apply_case, apply_change, joined_values, was_taken
from noetl.engine.state import CaseFrame, Frame, StepRun
from noetl.playbook.model import Case, CaseBranch
from noetl.template import Scope, Template


def branch(name: str, when: str | None, *, priority: int = 0, every_moment: bool = True) -> CaseBranch:
    guard = None if when is None else Template("{{ " + when + " }}")
    return CaseBranch(id=name, when=guard, actions=(), priority=priority, every_moment=every_moment)


def scope_for(name: str) -> Scope:
    return Scope({"event": {"name": name}})


def case(*branches: CaseBranch, **more: Any) -> Case:
    return Case(call=None, branches=branches, **more)


DONE = branch("done", "event.name == 'call.done'")
ERROR = branch("error", "event.name == 'call.error'")
PLAIN = branch("plain", "true", every_moment=False)
ELSE = branch("else", None, every_moment=False)


def test_an_exclusive_case_takes_the_first_that_holds_and_an_inclusive_one_all() -> None:
    assert select(case(PLAIN, DONE), "call.done", scope_for, decides=True) == [0]
    assert select(case(PLAIN, DONE, mode="inclusive"), "call.done", scope_for, decides=True) == [0, 1]


def test_entries_that_do_not_name_the_event_wait_for_the_moment_that_decides() -> None:
    assert select(case(PLAIN, ELSE), "step.enter", scope_for, decides=False) == []
    assert select(case(ERROR, ELSE), "call.done", scope_for, decides=True) == [1]


def test_branches_of_equal_priority_keep_their_order() -> None:
    low, high, other = branch("l", "true"), branch("h", "true", priority=2), branch("o", "true", priority=2)
    assert ordered(case(low, high, other)) == [0, 1, 2]
    assert ordered(case(low, high, other, order="priority")) == [1, 2, 0]


def test_a_failed_call_is_an_error_first_and_done_only_if_nobody_took_it() -> None:
    failed: dict[str, Any] = {"status": "error", "result": None, "error": {}}
    assert after_call(case(DONE, ERROR), failed, scope_for) == ("call.error", [1])
    assert after_call(case(DONE, ELSE), failed, scope_for) == ("call.done", [0])
    assert after_call(case(DONE, ERROR), {"status": "ok", "result": 1}, scope_for) == ("call.done", [0])


def test_a_waiting_case_asks_every_entry_and_has_no_else() -> None:
    assert at_event(case(PLAIN, DONE, mode="inclusive"), scope_for("call.done")) == [0, 1]
    assert at_event(case(ERROR, ELSE), scope_for("signal")) == []


def test_the_first_way_out_wins_unless_a_later_one_has_a_higher_priority() -> None:
    first, second, high = {"priority": 0, "n": 1}, {"priority": 0, "n": 2}, {"priority": 1, "n": 3}
    assert winner([]) is None
    assert winner([first, second]) is first
    assert winner([first, high, second]) is high


def test_a_failed_call_that_was_answered_for_is_no_failure() -> None:
    outcome = {"status": "error", "result": None}
    assert is_failed(CaseFrame(outcome=outcome))
    assert not is_failed(CaseFrame(outcome=outcome, handled=True))
    assert not is_failed(CaseFrame())


def test_what_was_evaluated_is_told_with_modes_and_trigger() -> None:
    assert evaluated(case(DONE, mode="inclusive"), "call.done", [0]) == {
        "matched": ["done"],
        "order": ["done"],
        "case_mode": "inclusive",
        "eval_mode": "on_entry",
        "trigger_event": "call.done",
    }


def test_collect_appends_or_extends_and_set_replaces() -> None:
    values: dict[str, Any] = {"kept": 1}
    apply_change(values, ["collect", "all", "append", [1, 2]])
    apply_change(values, ["collect", "all", "extend", [3, 4]])
    apply_change(values, ["collect", "all", "extend", 5])
    apply_change(values, ["set", {"kept": 2}])
    assert values == {"kept": 2, "all": [[1, 2], 3, 4, 5]}


def test_what_parallel_iterations_gathered_is_joined_by_index_after_what_was_there() -> None:
    collected = {2: {"all": [0, 30], "last": 3}, 0: {"all": [0, 10], "last": 1}}
    assert joined_values({"all": [0], "same": 9}, collected) == {"all": [0, 10, 30], "same": 9, "last": 3}


def test_a_recorded_case_keeps_the_outcome_of_its_call_from_the_calls_own_event() -> None:
    frame, at = Frame(), "2025-06-15T15:06:40.000000Z"
    outcome = {"status": "ok", "result": 1}
    said = {"frame": {"phase": "after", "told": 1}, "call": True}
    apply_case(
        frame, "call", {"outcome": outcome, "then": {"do": "continue"}, "case": said}, at, frame.values
    )
    apply_case(frame, None, {"case": {"frame": {"phase": "exit", "told": 2}}}, at, frame.values)
    assert frame.case is not None
    assert (frame.case.phase, frame.case.outcome) == ("exit", outcome)
    assert (frame.entry, frame.results) == (2, {"call": 1})


def test_a_report_of_a_case_that_was_taken_is_known_by_its_number() -> None:
    run = StepRun(run_id="1.1", step="start", scope="", args={}, scheduled_at="")

    def told(number: int) -> list[Fact]:
        return [
            Fact(
                event_type="case.evaluated",
                timestamp="",
                source="worker",
                entity_type="case",
                entity_id="1.1",
                status="success",
                step_run_id="1.1",
                payload={"case": {"frame": {"told": number}}},
            )
        ]

    assert not was_taken(run, told(1))
    run.frame.case = CaseFrame(told=1)
    assert was_taken(run, told(1))
    assert not was_taken(run, told(2))


def called(frame: Frame, do: str, **about: Any) -> None:
    """The call of a case ends, and its clause says what follows."""
    payload = {
        "outcome": {"status": "ok", "result": 1},
        "then": {"do": do, "delay": 2},
        "case": {"frame": {"phase": "after", "told": 1}, "call": True},
        **about,
    }
    apply_case(frame, "call", payload, "2025-06-15T12:00:00.000000Z", frame.values)


def test_a_call_of_a_case_that_is_tried_again_counts_attempts_and_one_that_looks_again_visits() -> None:
    noon = 1_749_988_800.0
    frame = Frame(attempt=2, since=noon - 9)
    called(frame, "retry")
    assert (frame.attempt, frame.entry, frame.polls, frame.wake_at) == (3, 1, 0, noon + 2)
    assert (frame.polled_since, frame.since, frame.results) == (noon - 9, None, {})
    frame.since = noon - 1
    called(frame, "poll")
    assert (frame.attempt, frame.entry, frame.polls, frame.wake_at) == (1, 2, 1, noon + 2)
    assert (frame.polled_since, frame.task_runs) == (noon - 9, 2)
    frame.attempt = 4
    called(frame, "continue", wake_at=noon + 7)
    assert (frame.attempt, frame.entry, frame.polls, frame.polled_since) == (1, 3, 0, None)
    assert (frame.wake_at, frame.last, frame.results, frame.task_runs) == (noon + 7, "call", {"call": 1}, 3)
