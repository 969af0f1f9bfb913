"""The v2 dialect: `case` reacts to the moments of a call, `next` is unconditional, `vars` and `sink`."""

from __future__ import annotations

from typing import Any, Final

from noetl.playbook.dialects import sections
from noetl.playbook.dialects.canonical import task_runs
from noetl.playbook.dialects.cases import Defaults, branches, with_repeats
from noetl.playbook.dialects.loops import read_loop
from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.dialects.repeats import is_step_scoped, read_retry
from noetl.playbook.dialects.routing import admission, join
from noetl.playbook.dialects.specs import knobs
from noetl.playbook.dialects.steps import open_step, step_spec, unique_entries, unique_steps, workbook_entry
from noetl.playbook.dialects.tasks import body, read_sink
from noetl.playbook.dialects.transitions import POLICIES, structural_next
from noetl.playbook.fields import Fields
from noetl.playbook.knobs import CASE_KNOBS, STEP_KNOBS, TASK_KNOBS
from noetl.playbook.model import (
    Block,
    CallAction,
    Case,
    Duration,
    Playbook,
    Retry,
    SinkAction,
    Step,
    Task,
    TaskAction,
    WorkbookEntry,
)
from noetl.playbook.model import (
    Node as BodyNode,
)
from noetl.playbook.reader import Mapping, Node

STEP_KEYS: Final = frozenset(
    {"step", "desc", "spec", "args", "tool", "loop", "vars", "case", "next", "sink", "retry"}
)


def lower(low: Lowering, root: Mapping) -> Playbook:
    fields = sections.open_root(low, root)
    data = sections.metadata(low, fields)
    executor, _ = sections.executor(low, fields)
    iterators: list[WorkbookEntry] = []
    steps = unique_steps(
        low, [_step(low, item, iterators) for item in sections.items(low, fields, "workflow")]
    )
    names = [step.name for step in steps]
    return Playbook(
        name=data.name,
        path=data.path,
        metadata=data.rest,
        dialect="v2",
        entry=sections.choose_entry(low, fields, names, None, first_will_do=False),
        keychain=sections.keychain(low, fields),
        executor=executor,
        workload=sections.workload(low, fields),
        workbook=unique_entries(
            low,
            [*(workbook_entry(low, item) for item in sections.items(low, fields, "workbook")), *iterators],
        ),
        steps=steps,
    )


def _workbook(low: Lowering, fields: Fields) -> list[WorkbookEntry | None]:
    return [workbook_entry(low, item) for item in sections.items(low, fields, "workbook")]


def _step(low: Lowering, node: Node, iterators: list[WorkbookEntry]) -> Step | None:
    fields = open_step(low, node, STEP_KEYS)
    if fields is None:
        return None
    name = fields.name("step")
    loop = read_loop(low, fields)
    spec = step_spec(low, fields)
    on_error = spec.choice("on_error", ("fail", "ignore", "retry"))
    retry = read_retry(low, fields) or (Retry() if on_error == "retry" else None)
    on_event = spec.choice("eval_mode", ("on_entry", "on_event")) == "on_event"
    nodes = tuple(inherit(node, retry) for node in body(low, fields.raw("tool"), loop))
    if fields.has("case") or on_event:
        nodes = _case(low, fields, spec, _callable(nodes, name or "", iterators), Defaults(retry, on_event))
        if on_event and loop is not None:
            low.findings.report(
                "case.loop_on_event",
                fields.key("loop"),
                "a step that waits for events cannot loop",
                "give the loop a step of its own",
            )
    else:
        _case_knobs(low, spec, on_event)  # for what is wrong with them: there is no case to hold them
    _check_step_scope(low, fields, nodes, on_event)
    if not any(fields.has(key) for key in ("tool", "next", "case")):
        low.findings.report("step.idle", fields.first, f"{fields.what} has neither `tool` nor `next`")
    built: dict[str, Any] = {
        "description": fields.text("desc"),
        "admit": admission(low, spec),
        "join": join(low, spec),
        "args": fields.values("args"),
        "loop": loop,
        "body": nodes,
        "vars": fields.values("vars"),
        "sink": read_sink(low, fields),
        "on_error": "ignore" if on_error == "ignore" else "fail",
        "router": structural_next(low, fields),
        "spec": knobs(low, spec, TASK_KNOBS, STEP_KNOBS | CASE_KNOBS),
        "deadline": spec.duration("deadline"),
        "max_task_runs": task_runs(low, spec),
    }
    if on_event:
        built["spec"].pop("timeout", None)  # there it is a timer of the case
    return None if name is None else Step(name=name, at=position(fields.place("step")), **built)


def _check_step_scope(low: Lowering, fields: Fields, nodes: tuple[BodyNode, ...], on_event: bool) -> None:
    """`scope: step` makes sense only for a step whose one call is its tool."""
    if not is_step_scoped(fields):
        return
    if any(_calls_tools(node) for node in nodes):
        low.findings.report(
            "retry.step_scope",
            fields.key("retry"),
            "`scope: step` cannot repeat a step whose case calls tools",
            "write `scope: tool`, or `scope: chain` on the case entry",
        )
    elif on_event:
        low.findings.report(
            "retry.step_scope_on_event",
            fields.key("retry"),
            "`scope: step` has no clear meaning under `on_event`",
        )


def _calls_tools(node: BodyNode) -> bool:
    """Whether a case calls tools of its own, besides deciding what follows the step's call."""
    return isinstance(node, Case) and any(
        isinstance(action, CallAction | SinkAction | TaskAction)
        for branch in node.branches
        for action in branch.actions
    )


def inherit(node: BodyNode, retry: Retry | None) -> BodyNode:
    """The node with the step's retry on each call that has none of its own."""
    if retry is None:
        return node
    if isinstance(node, Task):
        return with_repeats(node, retry)
    if isinstance(node, Block):
        parts = {name: getattr(node, name) for name in node.__struct_fields__}
        return Block(**parts | {"body": tuple(inherit(child, retry) for child in node.body)})
    return node


def _callable(nodes: tuple[BodyNode, ...], step: str, iterators: list[WorkbookEntry]) -> tuple[BodyNode, ...]:
    """A case is around one call: an iterator becomes a workbook task, which can be called."""
    if len(nodes) != 1 or not isinstance(nodes[0], Block):
        return nodes
    block = nodes[0]
    entry = WorkbookEntry(name=f"{step}_{block.label}", body=(block,), at=block.at)
    iterators.append(entry)
    config = {"name": entry.name}
    return (Task(label=block.label, kind="workbook", config=config, at=block.at, first_at=block.at),)


def _case(
    low: Lowering, fields: Fields, spec: Fields, nodes: tuple[BodyNode, ...], defaults: Defaults
) -> tuple[BodyNode, ...]:
    """The step's body as a case around its one call."""
    entries = branches(low, fields, defaults)
    if defaults.on_event and not entries:
        low.findings.report(
            "case.missing", spec.key("eval_mode"), "a step that waits for events needs a `case` to end by"
        )
    if len(nodes) > 1 or (nodes and not isinstance(nodes[0], Task)):
        low.findings.report("case.one_tool", fields.key("tool"), "a step with `case` has exactly one tool")
    call = nodes[0] if nodes and isinstance(nodes[0], Task) else None
    return (
        Case(
            call=call,
            branches=entries,
            on_event=defaults.on_event,
            at=position(fields.key("case")),
            **_case_knobs(low, spec, defaults.on_event),
        ),
    )


def _case_knobs(low: Lowering, spec: Fields, on_event: bool) -> dict[str, Any]:
    return {
        "mode": spec.choice("case_mode", ("exclusive", "inclusive")) or "exclusive",
        "order": spec.choice("branch_order", ("source", "priority")) or "source",
        "next_policy": spec.choice("next_policy", POLICIES) or "end_step",
        "timers": _timers(low, spec, on_event),
    }


def _timers(low: Lowering, spec: Fields, on_event: bool) -> dict[str, Duration]:
    found: dict[str, Duration] = {}
    node = spec.mapping("timers")
    if node is not None:
        if not on_event:
            low.findings.report(
                "case.idle_timers",
                spec.key("timers"),
                "`timers` have no effect without `eval_mode: on_event`",
            )
        fields = Fields(low.findings, node, "`timers`", node.entries)
        for name in node.entries:
            seconds = fields.duration(name)
            if seconds is not None:
                found[name] = seconds
    if on_event:
        timeout = spec.duration("timeout")
        if timeout is not None:
            found["timeout"] = timeout
    return found
