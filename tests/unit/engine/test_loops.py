"""Loop steps: what their events tell, how iterations that contradict each other end, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.testing import Run, fails, play

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\n"


def looped(
    items: str, spec: str = "{}", task: str = "kind: python, code: pass", answer: Any = None, **payload: Any
) -> Run:
    text = f"""{HEAD}workload: {{items: {items}, most: 2}}
workflow:
  - step: start
    loop: {{in: "{{{{ workload.items }}}}", iterator: n, spec: {spec}}}
    tool: [{{work: {{{task}}}}}]
"""
    return play(text, payload, tools={"start": answer})


def task(*rules: str) -> str:
    policy = f"spec: {{policy: {{rules: [{', '.join(rules)}]}}}}"
    return f"kind: python, code: pass, args: {{n: '{{{{ n }}}}'}}, {policy}"


def n_of(call: Any) -> Any:
    return call.args["n"]


def told(found: Run, event_type: str) -> list[dict[str, Any]]:
    return [event.payload for event in found.named(event_type)]


def test_a_loop_tells_how_many_elements_it_has_and_how_they_ended() -> None:
    found = looped(
        "[1, 2, 3]", "{on_error: continue}", task(), lambda call: fails() if n_of(call) == 2 else n_of(call)
    )
    (done,) = told(found, "loop.done")
    assert (done["done"], done["failed"], done["result"]) == (2, 1, [1, None, 3])
    assert found.result == [1, None, 3]


def test_an_empty_loop_is_done_at_once_with_nothing() -> None:
    found = looped("[]")
    (done,) = told(found, "loop.done")
    assert (done["done"], done["failed"], done["result"]) == (0, 0, [])
    assert found.calls == ()


def test_what_is_looped_over_must_be_a_list() -> None:
    found = looped("{a: 1}")
    assert found.error is not None
    assert found.error["kind"] == "loop.not_a_list"
    assert found.error["message"] == "the loop's `in` must give a list, but it gave a value of type dict"
    assert found.error["step"] == "start"


def test_parallel_iterations_that_write_different_values_to_one_key_are_in_conflict() -> None:
    found = looped(
        "[1, 2]", "{mode: parallel}", task("{else: {then: {do: continue, set_ctx: {key: '{{ n }}'}}}}"), n_of
    )
    assert found.error is not None
    assert found.error["kind"] == "ctx.conflict"
    assert found.error["step"] == "start"
    assert "ctx key `key`" in found.error["message"]
    assert "loop.spec.reduce: {key: last}" in found.error["message"]
    (failed,) = found.named("loop.iteration.failed")
    assert (failed.status, failed.payload["conflict"]) == ("error", True)


@pytest.mark.parametrize("mode", ["mode: sequential", "mode: parallel, reduce: {key: append}"])
def test_iterations_in_sequence_or_with_a_reducer_may_all_write_one_key(mode: str) -> None:
    found = looped(
        "[1, 2]", f"{{{mode}}}", task("{else: {then: {do: continue, set_ctx: {key: '{{ n }}'}}}}"), n_of
    )
    assert found.status == "completed"
    assert found.state.ctx == {"key": 2 if "sequential" in mode else [1, 2]}


def test_a_write_that_its_reducer_cannot_take_fails_the_iteration_and_is_shown_short() -> None:
    long = "x" * 80
    found = looped(
        f"[1, {long}]",
        "{mode: parallel, reduce: {key: sum}}",
        task("{else: {then: {do: continue, set_ctx: {key: '{{ n }}'}}}}"),
        n_of,
    )
    assert found.error is not None
    assert found.error["kind"] == "ctx.reduce"
    assert found.error["message"] == "reducer `sum` of ctx key `key` cannot take a value of 80 characters"


@pytest.mark.parametrize("most", [0, -1, True, "many", 1.5])
def test_a_computed_number_of_iterations_at_once_must_be_one(most: Any) -> None:
    found = looped("[1]", "{mode: parallel, max_in_flight: '{{ workload.most }}'}", most=most)
    assert found.error is not None
    assert "`max_in_flight` must be a whole number of at least 1" in found.error["message"]
    assert found.error["step"] == "start"


def test_no_more_iterations_run_at_once_than_was_computed() -> None:
    found = looped("[1, 2, 3, 4, 5]", "{mode: parallel, max_in_flight: '{{ workload.most }}'}")
    (started,) = told(found, "loop.started")
    assert (started["leases"], started["total"], started["mode"]) == ([2], 5, "parallel")
    assert found.status == "completed"


def test_a_loop_that_has_nothing_to_run_gives_its_elements() -> None:
    text = f"{HEAD}workflow: [{{step: start, loop: {{in: '{{{{ [1, 2] }}}}', iterator: n}}}}]\n"
    found = play(text)
    (done,) = told(found, "loop.done")
    assert (done["done"], done["failed"], done["result"]) == (2, 0, [1, 2])


@pytest.mark.parametrize(("batch", "first"), [(1, 3), (2, 4), (4, 4), (5, 5)])
def test_iterations_are_handed_out_in_whole_batches(batch: int, first: int) -> None:
    found = looped("[1, 2, 3, 4, 5, 6, 7]", f"{{mode: parallel, max_in_flight: 3, batch_size: {batch}}}")
    kinds = [event.event_type for event in found.events if event.event_type.startswith("loop.iteration")]
    assert kinds[: first + 1] == ["loop.iteration.started"] * first + ["loop.iteration.done"]
    assert found.status == "completed"


def test_one_at_a_time_may_be_computed_too() -> None:
    found = looped("[1, 2]", "{mode: parallel, max_in_flight: '{{ workload.most }}'}", most=1)
    (started,) = told(found, "loop.started")
    assert (found.status, started["leases"]) == ("completed", [1])
