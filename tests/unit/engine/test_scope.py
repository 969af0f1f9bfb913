"""Which of several things of one name a template sees, and how references are read."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.engine.bodies import Bodies, BodiesNeeded
from noetl.engine.limits import reference
from noetl.engine.scope import (
    Iteration,
    LastResult,
    StepResults,
    Surroundings,
    TaskResults,
    pipeline_scope,
    render,
)
from noetl.engine.state import Frame, StepResult
from noetl.template import Scope, Template

LAYERS = ("task args", "iterator", "args", "iter", "ctx", "vars", "task result", "step result", "workload")


def scope_with(*layers: str) -> Scope:
    """A scope where `x` is in the given layers, each with the layer's name as its value."""

    def has(layer: str) -> dict[str, Any]:
        return {"x": layer} if layer in layers else {}

    steps = {"x": StepResult(status="done", result="step result", seq=1)} if "step result" in layers else {}
    around = Surroundings(
        execution_id="1",
        workload=has("workload"),
        ctx=has("ctx"),
        vars=has("vars"),
        args=has("args"),
        keychain={},
        results=StepResults(steps, "", Bodies(), {}),
        bodies=Bodies(),
    )
    iteration = Iteration("x", "iterator", 0, None, {}) if "iterator" in layers else None
    frame = Frame(iter=has("iter"), results=has("task result"))
    return pipeline_scope(
        around, frame, iteration, label="t", action_id="a", task_args=has("task args"), outer_results={}
    )


def evaluated(text: str, scope: Scope) -> Any:
    return Template(text).evaluate(scope)


@pytest.mark.parametrize("place", range(len(LAYERS)))
def test_an_inner_name_hides_an_outer_one(place: int) -> None:
    assert evaluated("{{ x }}", scope_with(*LAYERS[place:])) == LAYERS[place]


def test_every_layer_can_be_reached_by_its_full_name() -> None:
    scope = scope_with(*LAYERS)
    assert evaluated("{{ ctx.x }}, {{ vars.x }}, {{ args.x }}", scope) == "ctx, vars, args"
    assert evaluated("{{ workload.x }}", scope) == "workload"
    assert evaluated("{{ iter.index }} {{ loop_index }}", scope) == "0 0"
    assert evaluated("{{ _task }} {{ _action_id }} {{ _attempt }}", scope) == "t a 1"


def test_inside_nested_loops_the_outer_element_keeps_its_name() -> None:
    around = Surroundings(
        execution_id="1", workload={}, ctx={}, vars={}, args={}, keychain={}, results={}, bodies=Bodies()
    )
    outer = Iteration("hotel", {"id": 1}, 2, None, {})
    inner = Iteration("room", 7, 0, outer, {"hotel": {"id": 1}, "index": 2, "page": 5})
    scope = pipeline_scope(around, Frame(), inner, label="t", action_id="a", task_args={}, outer_results={})
    assert evaluated("{{ hotel.id }}/{{ room }}/{{ iter.index }}", scope) == "1/7/0"
    assert evaluated("{{ iter.parent.index }}/{{ iter.parent.page }}", scope) == "2/5"


def result_scope(step: StepResult) -> Scope:
    return Scope({}, [StepResults({"s": step}, "", Bodies(), {})])


def test_a_result_shows_its_own_keys_before_what_is_known_about_it() -> None:
    scope = result_scope(StepResult(status="done", result={"status": "mine"}, seq=1, runs=2))
    assert evaluated("{{ s.status }}", scope) == "mine"
    assert evaluated("{{ s.meta.runs }}", scope) == 2
    assert evaluated("{{ s.result.status }}", scope) == "mine"


def test_a_failed_step_shows_its_error_first() -> None:
    error = {"kind": "k"}
    mine = {"status": "mine", "error": 1}
    scope = result_scope(StepResult(status="failed", result=mine, error=error, seq=1))
    assert evaluated("{{ s.status }} {{ s.error.kind }}", scope) == "failed k"


def test_a_list_shows_its_rows() -> None:
    scope = result_scope(StepResult(status="done", result=[{"a": 1}], seq=1))
    assert evaluated("{{ s.row_count }}", scope) == 1
    assert evaluated("{{ s.rows[0].a }}", scope) == 1
    assert evaluated("{{ s[0].a }}", scope) == 1


def test_a_step_that_has_not_ended_has_no_result() -> None:
    scope = result_scope(StepResult(status="running", runs=1))
    assert evaluated("{{ s is defined }}", scope) is False


def test_a_reference_stays_one_as_a_whole_value_and_is_loaded_where_it_is_read_into() -> None:
    ref, _ = reference("1", {"v": 5}, b'{"v":5}')
    bodies = Bodies()
    step = StepResult(status="done", result=ref, seq=1)
    scope = Scope({}, [StepResults({"s": step}, "", bodies, {})])
    assert render(Template("{{ s }}"), scope) == ref
    with pytest.raises(BodiesNeeded) as needed:
        evaluated("{{ s.v }}", scope)
    assert needed.value.refs == (ref,)
    bodies.keep(ref, {"v": 5})
    assert evaluated("{{ s.v }}", scope) == 5


def test_inside_a_spread_the_innermost_result_of_a_step_is_seen_and_a_second_name_leads_to_it() -> None:
    steps = {
        name: StepResult(status="done", result=result, seq=seq)
        for name, result, seq in (("s", "whole", 1), ("s@1.1:0", "outer", 2), ("s@1.1:0/1.2:3", "inner", 3))
    }
    for scope, seen in (
        ("", "whole"),
        ("1.1:0", "outer"),
        ("1.1:0/1.2:3", "inner"),
        ("1.1:0/1.2:4", "outer"),
    ):
        results = StepResults(steps, scope, Bodies(), {"second": "s"})
        assert str(results["s"]) == str(results["second"]) == seen
    assert list(results) == list(steps)
    assert len(results) == 3
    assert "other" not in results
    with pytest.raises(KeyError):
        results["other"]


def test_only_a_template_that_is_one_name_hands_a_reference_on() -> None:
    ref, _ = reference("1", "big", b'"big"')
    bodies = Bodies()
    bodies.keep(ref, "big")
    around = Surroundings(
        execution_id="1",
        workload={"w": ref},
        ctx={"rows": ref, "small": 1},
        vars={},
        args={},
        keychain={},
        results={},
        bodies=bodies,
    )
    scope = around.boundary(None)
    assert render(Template("{{ ctx.rows }}"), scope) == ref
    assert render(Template("{{ rows }}"), scope) == ref
    assert render(Template("{{ w }}"), scope) == ref
    assert render(Template("{{ ctx.small }}"), scope) == 1
    assert render(Template("{{ ctx.rows }}!"), scope) == "big!"
    assert render(Template("{{ ctx.rows | upper }}"), scope) == "BIG"
    assert render({"a": Template("{{ ctx.rows }}"), "b": [Template("{{ ctx.small }}")]}, scope) == {
        "a": "big",
        "b": [1],
    }
    assert render([Template("{{ ctx.rows }}"), 2], scope) == ["big", 2]


def test_what_led_to_a_step_is_an_event_and_without_one_there_is_none() -> None:
    around = Surroundings(
        execution_id="1",
        workload={},
        ctx={},
        vars={},
        args={"a": 1},
        keychain={"k": 2},
        results={},
        bodies=Bodies(),
    )
    assert evaluated("{{ event.name }} {{ a }} {{ keychain.k }}", around.boundary({"name": "step.done"})) == (
        "step.done 1 2"
    )
    assert evaluated("{{ event is defined }}", around.boundary(None)) is False


def test_a_parallel_iteration_has_a_context_of_its_own_and_all_else_in_common() -> None:
    around = Surroundings(
        execution_id="1",
        workload={"w": 1},
        ctx={"c": 1},
        vars={"v": 1},
        args={},
        keychain={},
        results={},
        bodies=Bodies(),
        elements={"n": ([7, 8], 1)},
    )
    twin = around.with_ctx({"c": 2}).boundary(None)
    assert evaluated("{{ c }} {{ w }} {{ v }} {{ n }} {{ execution_id }}", twin) == "2 1 1 8 1"
    assert evaluated("{{ c }}", around.boundary(None)) == 1


def test_an_iteration_around_is_a_parent_only_where_there_is_one() -> None:
    around = Surroundings(
        execution_id="1", workload={}, ctx={}, vars={}, args={}, keychain={}, results={}, bodies=Bodies()
    )
    for iteration in (None, Iteration("n", 7, 0, None, {})):
        scope = pipeline_scope(
            around,
            Frame(iter={"page": 3}),
            iteration,
            label="t",
            action_id="a",
            task_args={},
            outer_results={},
        )
        assert evaluated("{{ iter.parent is defined }} {{ iter.page }}", scope) == "False 3"
        assert evaluated("{{ loop_index is defined }}", scope) is (iteration is not None)


def test_what_a_case_has_set_is_seen_in_the_context() -> None:
    around = Surroundings(
        execution_id="1",
        workload={},
        ctx={"a": 1, "b": 1},
        vars={},
        args={},
        keychain={},
        results={},
        bodies=Bodies(),
    )
    frame = Frame(values={"b": 2})
    scope = pipeline_scope(
        around, frame, None, label="t", action_id="a", task_args={}, outer_results={"o": 5}
    )
    assert evaluated("{{ ctx.a }} {{ ctx.b }} {{ o }} {{ outcome is defined }}", scope) == "1 2 5 False"


def test_the_results_of_tasks_are_a_mapping_like_any_other() -> None:
    results = TaskResults({"a": 1, "b": {"n": 2}}, Bodies())
    assert (list(results), len(results), "a" in results, "c" in results) == (["a", "b"], 2, True, False)
    assert (results["a"].plain(), results["b"].lookup("n")) == (1, 2)
    assert results["a"].lookup("status") == "done"


def test_the_last_result_has_its_names_and_no_other() -> None:
    last = LastResult({"n": 2}, Bodies())
    assert (list(last), len(last)) == (["result", "response", "data", "this"], 4)
    assert (last["response"].lookup("n"), last["this"]["data"].lookup("n")) == (2, 2)
    assert last.get("other") is None
