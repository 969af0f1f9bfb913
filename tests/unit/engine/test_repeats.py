"""Whether a call is made again, and after which wait."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.bodies import Bodies
from noetl.engine.pipeline import repeat
from noetl.engine.repeats import backoff_delay, number, poll_ends, retries, seconds
from noetl.engine.state import Frame
from noetl.errors import TemplateValueError
from noetl.playbook.model import Backoff, Poll, Retry, Task
from noetl.template import Scope, Template
from noetl.testing import fails, play, replies

NOWHERE = Scope({})


def ok(result: Any = None) -> dict[str, Any]:
    return {"status": "ok", "result": result, "error": None}


def failed(status: int | None = None) -> dict[str, Any]:
    outcome: dict[str, Any] = {"status": "error", "result": None, "error": {"kind": "k", "message": "m"}}
    return outcome if status is None else {**outcome, "http": {"status": status}}


def guard(text: str) -> Template:
    return Template("{{ " + text + " }}")


def again(retry: Retry, outcome: dict[str, Any], attempt: int = 1) -> bool:
    return retries(retry, outcome, attempt, NOWHERE, Bodies()) is not None


@pytest.mark.parametrize(
    ("backoff", "waits"),
    [
        (Backoff(delay=3), [3, 3, 3, 3]),
        (Backoff(kind="linear", delay=3), [3, 6, 9, 12]),
        (Backoff(kind="exponential", delay=3), [3, 6, 12, 24]),
        (Backoff(kind="exponential", delay=1, multiplier=3), [1, 3, 9, 27]),
        (Backoff(kind="exponential", delay=3, max_delay=10), [3, 6, 10, 10]),
    ],
)
def test_waits_grow_by_their_kind_up_to_the_cap(backoff: Backoff, waits: list[float]) -> None:
    assert [backoff_delay(backoff, attempt, NOWHERE) for attempt in (1, 2, 3, 4)] == waits


def test_an_endless_exponential_wait_does_not_overflow() -> None:
    assert backoff_delay(Backoff(kind="exponential", delay=1, max_delay=60), 100_000, NOWHERE) == 60


def test_without_predicates_failures_are_repeated_up_to_the_number_of_attempts() -> None:
    assert again(Retry(max_attempts=3), failed(), 2)
    assert not again(Retry(max_attempts=3), failed(), 3)
    assert not again(Retry(), ok())


def test_the_trigger_may_be_an_exception_or_status_codes() -> None:
    assert again(Retry(on=("exception",)), failed())
    assert not again(Retry(on=("exception",)), failed(503))
    assert again(Retry(on=(503, 429)), failed(429))
    assert not again(Retry(on=(503,)), failed(404))


def test_retry_when_narrows_what_is_repeated() -> None:
    retry = Retry(retry_when=guard("status_code == 503 and attempt < max_attempts"))
    assert again(retry, failed(503))
    assert not again(retry, failed(404))
    assert not again(Retry(retry_when=guard("true")), ok())


def test_stop_when_repeats_good_answers_too_until_it_holds() -> None:
    retry = Retry(max_attempts=9, stop_when=guard("success and result.state == 'ready'"))
    assert again(retry, ok({"state": "pending"}))
    assert again(retry, failed())
    assert not again(retry, ok({"state": "ready"}))


def test_with_both_it_repeats_while_one_holds_and_the_other_does_not() -> None:
    retry = Retry(max_attempts=9, retry_when=guard("result.n < 3"), stop_when=guard("result.halt"))
    assert again(retry, ok({"n": 1, "halt": False}))
    assert not again(retry, ok({"n": 1, "halt": True}))
    assert not again(retry, ok({"n": 3, "halt": False}))


def polled(frame: Frame, outcome: dict[str, Any], poll: Poll, now: float = 0.0) -> Any:
    task = Task(label="t", kind="http", poll=poll)
    return repeat(task, frame, outcome, NOWHERE, Bodies(), now=now, chance=1.0)


def test_a_poll_looks_again_until_what_it_waits_for_is_there() -> None:
    poll = Poll(until=guard("result.ready"), interval=5)
    looked = polled(Frame(), ok({"ready": False}), poll)
    assert (looked.do, looked.delay) == ("poll", 5)
    assert polled(Frame(), ok({"ready": True}), poll) is None
    assert polled(Frame(), failed(), poll) is None


def test_a_poll_counts_its_looks() -> None:
    poll = Poll(until=guard("attempt >= 3"))
    assert polled(Frame(polls=1), ok(), poll).do == "poll"
    assert polled(Frame(polls=2), ok(), poll) is None


def test_a_poll_fails_when_its_looks_or_its_time_are_spent() -> None:
    poll = Poll(until=False, max_attempts=3, deadline=20)
    assert polled(Frame(polls=2), ok(), poll).error["kind"] == "poll.exhausted"
    assert polled(Frame(polls=1, polled_since=100.0), ok(), poll, now=118.0).do == "poll"
    assert polled(Frame(polls=1, polled_since=100.0), ok(), poll, now=120.0).do == "fail"


def test_a_poll_makes_no_look_that_would_begin_when_its_time_is_over() -> None:
    poll = Poll(until=False, interval=5, deadline=12)
    assert polled(Frame(since=100.0), ok(), poll, now=100.0).do == "poll"
    assert polled(Frame(polls=1, since=105.0, polled_since=100.0), ok(), poll, now=105.0).do == "poll"
    assert polled(Frame(polls=2, since=110.0, polled_since=100.0), ok(), poll, now=110.0).do == "fail"


def test_the_time_of_a_poll_runs_from_the_beginning_of_its_first_look() -> None:
    poll = Poll(until=False, interval=5, deadline=60)
    assert poll_ends(poll, Frame(since=100.0), NOWHERE) == 160
    assert poll_ends(poll, Frame(since=120.0, polled_since=100.0), NOWHERE) == 160
    assert poll_ends(Poll(until=False), Frame(since=100.0), NOWHERE) is None


def test_a_failed_look_is_not_tried_again_when_the_time_of_the_poll_is_over_by_then() -> None:
    task = Task(
        label="t", kind="http", poll=Poll(until=False, deadline=12), retry=Retry(backoff=Backoff(delay=5))
    )
    frame = Frame(since=100.0)
    soon = repeat(task, frame, failed(), NOWHERE, Bodies(), now=103, chance=1.0)
    assert soon is not None
    assert soon.do == "retry"
    assert repeat(task, frame, failed(), NOWHERE, Bodies(), now=108, chance=1.0) is None


def test_jitter_takes_at_most_half_of_the_wait() -> None:
    task = Task(label="t", kind="http", retry=Retry(backoff=Backoff(delay=10, jitter=True)))
    waits = [
        repeat(task, Frame(), failed(), NOWHERE, Bodies(), now=0, chance=chance) for chance in (0.0, 0.5, 1.0)
    ]
    assert [wait.delay for wait in waits if wait is not None] == [5, 7.5, 10]


def test_counts_and_durations_may_be_computed_but_must_be_such() -> None:
    scope = Scope({"workload": {"n": 4, "wait": "250ms", "bad": "soon"}})
    assert number(guard("workload.n"), scope, "attempts") == 4
    assert seconds(guard("workload.wait"), scope, "delay") == 0.25
    with pytest.raises(TemplateValueError, match=r"`attempts` must be a number .* gave `soon`"):
        number(guard("workload.bad"), scope, "attempts")
    with pytest.raises(TemplateValueError, match=r"`delay` must be a duration .*`250ms`.* gave `soon`"):
        seconds(guard("workload.bad"), scope, "delay")
    with pytest.raises(TemplateValueError, match="gave null"):
        seconds(guard("none"), scope, "delay")
    with pytest.raises(TemplateValueError, match="not `-1`"):
        seconds(-1, scope, "delay")


def test_a_poll_that_is_spent_says_how_often_it_looked() -> None:
    poll = Poll(until=False, max_attempts=2)
    assert polled(Frame(polls=1), ok(), poll).error == {
        "kind": "poll.exhausted",
        "message": "what the poll waits for was not there after 2 looks",
        "retryable": True,
    }
    once = polled(Frame(), ok(), Poll(until=False, max_attempts=1)).error
    assert once["message"].endswith("after 1 look")


def test_a_look_that_was_stopped_by_the_end_of_the_poll_is_its_end_and_another_failure_is_not() -> None:
    poll = Poll(until=False, deadline=20)
    frame = Frame(since=100.0)
    stopped = {**failed(), "error": {"kind": "timeout", "message": "m"}}
    assert polled(frame, stopped, poll, now=119.9995).error["kind"] == "poll.exhausted"
    assert polled(frame, stopped, poll, now=119.0) is None
    assert polled(frame, failed(), poll, now=120.0) is None
    assert polled(frame, stopped, Poll(until=False), now=120.0) is None


def test_nought_is_a_number_and_what_is_less_is_none() -> None:
    assert number(0, NOWHERE, "attempts") == 0
    assert number(Template("{{ 0.5 }}"), NOWHERE, "attempts") == 0.5
    with pytest.raises(TemplateValueError, match="`attempts` must be a number of at least 0, but"):
        number(Template("{{ -1 }}"), NOWHERE, "attempts")


MADE_OF_TWO = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workbook:
  - name: both
    tool: [{one: {kind: python, code: pass}}, {two: {kind: python, code: pass}}]
workflow:
  - step: start"""
BY_RULE = """
    tool:
      kind: workbook
      name: both
      spec: {policy: {rules: [{when: "{{ outcome.error }}", then: {do: retry, attempts: 2}}]}}
"""
BY_CASE = """
    tool: {kind: workbook, name: both, retry: {max_attempts: 2}}
    case: [{when: "{{ event.name == 'call.done' }}", then: [{result: {from: "{{ result }}"}}]}]
"""


@pytest.mark.parametrize("call", [BY_RULE, BY_CASE], ids=["by a rule", "in a case"])
def test_a_task_made_of_others_that_is_tried_again_runs_them_all_again(call: str) -> None:
    found = play(MADE_OF_TWO + call, tools={"start/one": 1, "start/two": replies(fails(), 2)})
    assert (found.status, found.result) == ("completed", 2), found.error
    assert [call.task_label for call in found.calls] == ["one", "two", "one", "two"]
