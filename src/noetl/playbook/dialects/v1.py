"""The v1 dialect: steps call the tasks of a workbook, `next` lists clauses, loops are joined by a step.

This file holds the root and the steps; `v1_tasks` reads task definitions and `v1_flow` the ways
between steps.
"""

from __future__ import annotations

from typing import Final

from noetl.playbook.diagnostics import nearest
from noetl.playbook.dialects import sections
from noetl.playbook.dialects.loops import ITERATOR_LOOP_KEYS, iterator_loop
from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.dialects.steps import unique_entries, unique_steps
from noetl.playbook.dialects.v1_flow import Draft, link, named, read_next, read_spread
from noetl.playbook.dialects.v1_tasks import TaskReader, read_save, workbook_names
from noetl.playbook.fields import Fields
from noetl.playbook.model import Loop, Playbook, Sink, Step, Task, Value
from noetl.playbook.model import Node as BodyNode
from noetl.playbook.reader import Mapping, Node, Scalar

DESCRIPTIONS: Final = ("description", "desc")
ROOT_KEYS: Final = frozenset(
    {"apiVersion", "kind", "name", "path", "workload", "workflow", "workbook", "keychain", "executor"}
    | set(DESCRIPTIONS)
)
ROOT_HINTS: Final = {
    "metadata": "write `name` and `path` at the root",
    "vars": "put inputs under `workload`",
    "steps": "write `workflow`",
    "tasks": "write `workbook`",
}
STEP_KEYS: Final = frozenset({"step", "desc", "loop", "join", "with", "call", "type", "next"})
ITERATOR_KEYS: Final = ITERATOR_LOOP_KEYS | {"task", "save"}
STEP_HINTS: Final = {
    "tool": "define a task in `workbook` and write `call: {task: …}`",
    "args": "write `with`",
    "case": "write conditions under `next`: {when: …, then: [ … ]}",
    "when": "write the condition on the way that leads here: next: [{when: …, then: [ … ]}]",
    "vars": "later steps read a result by the task's name; pass values by `with`",
    "sink": "write `save` on an iterator step or on a task",
    "retry": "write `retry` on the task",
    "on_error": "write `on_error` on the task",
    "spec": "write `spec` on the task, or under `loop`",
    "as": "a result is read by the task's name",
    "then": "write it under `next`",
    "else": "write it under `next`",
}
"""Keys of other dialects and likely slips, with what to write on a step instead."""
ITERATOR: Final = "iterator"
CALL_KEYS: Final = frozenset({"task", "with"})


def lower(low: Lowering, root: Mapping) -> Playbook:
    fields = _open_root(low, root)
    executor, _ = sections.executor(low, fields)
    definitions = sections.items(low, fields, "workbook")
    tasks = TaskReader(low, workbook_names(definitions))
    read = [_step(low, tasks, item) for item in sections.items(low, fields, "workflow")]
    drafts = [draft for draft in read if draft is not None]
    names = [draft.step.name for draft in drafts]
    entry = sections.choose_entry(low, fields, names, None, first_will_do=False)
    name = fields.name("name") or ""
    return Playbook(
        name=name,
        path=fields.name("path") or name,
        metadata=_metadata(fields),
        dialect="v1",
        entry=entry,
        keychain=sections.keychain(low, fields),
        executor=executor,
        workload=sections.workload(low, fields),
        workbook=unique_entries(low, [tasks.entry(item) for item in definitions]),
        steps=unique_steps(low, link(low, drafts, entry)),
    )


def _open_root(low: Lowering, root: Mapping) -> Fields:
    refused = root.entries.keys() & ROOT_HINTS.keys()
    for name in refused:
        low.findings.report(
            "root.vars" if name == "vars" else "key.replaced",
            root.entries[name].key,
            f"`{name}` is not a root section",
            ROOT_HINTS[name],
        )
    fields = Fields(low.findings, root, "a playbook", ROOT_KEYS | refused)
    fields.require("name", "path", "workflow")
    return fields


def _metadata(fields: Fields) -> dict[str, Value]:
    for key in DESCRIPTIONS:
        if (text := fields.text(key)) is not None:
            return {"description": text}
    return {}


# --- steps ----------------------------------------------------------------------------------------


def _step(low: Lowering, tasks: TaskReader, node: Node) -> Draft | None:
    fields = _open_step(low, node)
    if fields is None:
        return None
    name = fields.name("step")
    if name is not None:
        low.declare("a step", name, fields.place("step"))
    loop: Loop | None = None
    sink: Sink | None = None
    binds: str | None = None
    if _is_iterator(low, fields):
        loop, body = _iterator(low, tasks, fields)
        sink = read_save(low, fields)
    else:
        call = _call(low, fields)
        body = () if call is None else (call,)
        binds = None if call is None else call.label
    spread, loop_join = (None, None) if loop is not None else read_spread(low, fields)
    step = Step(
        name=name or "",
        at=position(fields.place("step")),
        description=fields.text("desc"),
        args=fields.values("with"),
        loop=loop,
        spread=spread,
        body=body,
        sink=sink,
        binds=binds,
        router=read_next(low, fields),
    )
    join = named(fields, "join")
    if name is None:
        return None
    return Draft(step, None if spread is None else fields.key("loop"), loop_join, join)


def _open_step(low: Lowering, node: Node) -> Fields | None:
    if not isinstance(node, Mapping):
        low.findings.report("value.type", node, "a step must be a mapping with `step`, its name")
        return None
    written = node.get("type")
    iterates = isinstance(written, Scalar) and written.value == ITERATOR
    hinted = node.entries.keys() & STEP_HINTS.keys()
    for name in hinted:
        low.findings.report(
            "key.replaced", node.entries[name].key, f"`{name}` is not a key of a step", STEP_HINTS[name]
        )
    misplaced = node.entries.keys() & ({"run"} if iterates else {"run", *ITERATOR_KEYS})
    for name in misplaced:
        _report_misplaced(low, node, name)
    known = STEP_KEYS | ITERATOR_KEYS if iterates else STEP_KEYS
    own_name = getattr(node.get("step"), "value", None)
    what = f"step `{own_name}`" if isinstance(own_name, str) else "a step"
    fields = Fields(low.findings, node, what, known | hinted | misplaced)
    fields.require("step")
    return fields


def _report_misplaced(low: Lowering, node: Mapping, name: str) -> None:
    if name == "run":
        message = "`run` may be used only inside task definitions"
        hint = "define a workbook task with `type: task` and call it from the step"
    elif name == "task":
        message = "`task` stands on a step only with `type: iterator`"
        hint = "to call a workbook task, write `call: {task: …}`"
    else:
        message = f"`{name}` stands on a step only with `type: iterator`"
        hint = "add `type: iterator`, or write `loop: {in: …, iterator: …}`"
        if name == "save":
            hint = "write `save` on the task"
    low.findings.report("key.misplaced", node.entries[name].key, message, hint)


def _is_iterator(low: Lowering, fields: Fields) -> bool:
    node = fields.raw("type")
    if node is None:
        return False
    written = node.value if isinstance(node, Scalar) else None
    if written == ITERATOR:
        return True
    slip = isinstance(written, str) and nearest(written, (ITERATOR,))
    low.findings.report(
        "value.choice",
        node,
        f"`type` of {fields.what} cannot be `{written}`" if written else "a step's `type` must be `iterator`",
        f"did you mean `{ITERATOR}`?"
        if slip
        else "only `iterator`; define a task of that type in `workbook` and write `call: {task: …}`",
    )
    return False


def _iterator(low: Lowering, tasks: TaskReader, fields: Fields) -> tuple[Loop, tuple[BodyNode, ...]]:
    """A step that runs one nested task for each element; its result is the list."""
    for name in ("call", "loop"):
        if fields.has(name):
            low.findings.report(
                "key.misplaced",
                fields.key(name),
                f"`{name}` cannot stand beside `type: iterator`",
                "what it runs is its `task`" if name == "call" else "give each loop a step of its own",
            )
    loop = iterator_loop(low, fields, fields.what, wrap_scalar=True)
    fields.require("task")
    node = fields.raw("task")
    body = None if node is None else tasks.iterated(node)
    return loop, () if body is None else (body,)


def _call(low: Lowering, fields: Fields) -> Task | None:
    """The one workbook task a step calls."""
    node = fields.raw("call")
    if node is None:
        return None
    if not isinstance(node, Mapping):
        shown = f"call: {{task: {node.value}}}" if isinstance(node, Scalar) else "a step calls one task"
        low.findings.report("value.type", node, f"`call` of {fields.what} must be a mapping", shown)
        return None
    replaced = {"args", "name"} & node.entries.keys()
    for name in replaced:
        low.findings.report(
            "key.replaced",
            node.entries[name].key,
            f"`{name}` is not a key of `call`",
            "write `with`" if name == "args" else "write `task`",
        )
    inner = Fields(low.findings, node, f"`call` of {fields.what}", CALL_KEYS | replaced)
    inner.require("task")
    name_of_task = inner.name("task")
    args = inner.values("with")
    if name_of_task is None:
        return None
    at = position(inner.place("task"))
    return Task(
        label=name_of_task,
        kind="workbook",
        at=at,
        config={"name": name_of_task},
        config_at={"name": at},
        first_at=position(inner.first),
        args=args,
    )
