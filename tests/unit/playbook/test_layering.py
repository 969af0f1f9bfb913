"""How knobs under `spec` reach a task."""

from noetl.playbook.layering import effective_spec, merge
from noetl.playbook.model import Executor, Loop, Playbook, Step, Task

KINDS = frozenset({"http", "python"})


def effective(kind="http", *, defaults=None, executor=None, step=None, loop=None, task=None):
    playbook = Playbook(
        name="p", path="p", dialect="canonical", entry="start", executor=Executor(spec=executor or {})
    )
    return effective_spec(
        playbook,
        Step(name="start", spec=step or {}),
        [Loop(source=[], iterator="item", spec=loop or {})],
        Task(label="task_1", kind=kind, spec=task or {}),
        kind_defaults=defaults or {},
        kinds=KINDS,
    )


def test_the_inner_scalar_wins_at_every_layer():
    layers = {"defaults": {"timeout": 1}, "executor": {"timeout": 2}, "step": {"timeout": 3}}
    assert effective(**layers)["timeout"] == 3
    assert effective(**layers, loop={"timeout": 4})["timeout"] == 4
    assert effective(**layers, loop={"timeout": 4}, task={"timeout": 5})["timeout"] == 5


def test_mappings_are_merged_and_lists_replaced():
    spec = effective(
        executor={"result": {"inline_max_bytes": 10, "store": {"kind": "file"}}, "ok_status": [200, 404]},
        task={"result": {"store": {"prefix": "x"}}, "ok_status": [200]},
    )
    assert spec == {
        "result": {"inline_max_bytes": 10, "store": {"kind": "file", "prefix": "x"}},
        "ok_status": [200],
    }


def test_a_group_named_like_a_kind_reaches_only_tasks_of_that_kind():
    executor = {"http": {"timeout": {"connect": 10}}, "python": {"timeout": 3}}
    assert effective("http", executor=executor) == {"timeout": {"connect": 10}}
    assert effective("python", executor=executor) == {"timeout": 3}


def test_an_inner_plain_knob_wins_over_an_outer_kind_group():
    assert effective(executor={"http": {"timeout": 9}}, task={"timeout": 2}) == {"timeout": 2}


def test_knobs_that_belong_to_their_scope_are_not_inherited():
    assert effective(executor={"deadline": 5, "entry_step": "x"}, step={"on_error": "ignore"}) == {}


def test_merging_changes_neither_side():
    outer = {"a": {"b": 1}}
    inner = {"a": {"c": 2}}
    assert merge(outer, inner) == {"a": {"b": 1, "c": 2}}
    assert outer == {"a": {"b": 1}}
    assert inner == {"a": {"c": 2}}
