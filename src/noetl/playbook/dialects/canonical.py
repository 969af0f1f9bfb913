"""The canonical dialect: policies under `spec`, arcs under `next`, `when` the only condition."""

from __future__ import annotations

from typing import Any, Final

from noetl.playbook.dialects import sections
from noetl.playbook.dialects.loops import read_loop
from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.dialects.routing import admission, join, router
from noetl.playbook.dialects.specs import check_group, knobs
from noetl.playbook.dialects.steps import open_step, step_spec, unique_entries, unique_steps, workbook_entry
from noetl.playbook.dialects.tasks import body
from noetl.playbook.fields import Fields
from noetl.playbook.knobs import STEP_KNOBS, TASK_KNOBS
from noetl.playbook.model import Count, Playbook, Step
from noetl.playbook.reader import Mapping, Node

STEP_KEYS: Final = frozenset({"step", "desc", "spec", "loop", "tool", "next"})


def lower(low: Lowering, root: Mapping) -> Playbook:
    fields = sections.open_root(low, root)
    data = sections.metadata(low, fields)
    executor, wanted = sections.executor(low, fields)
    steps = unique_steps(low, [_step(low, item) for item in sections.items(low, fields, "workflow")])
    names = [step.name for step in steps]
    return Playbook(
        name=data.name,
        path=data.path,
        metadata=data.rest,
        dialect="canonical",
        entry=sections.choose_entry(low, fields, names, wanted, first_will_do=True),
        keychain=sections.keychain(low, fields),
        executor=executor,
        workload=sections.workload(low, fields),
        workbook=unique_entries(
            low, [workbook_entry(low, item) for item in sections.items(low, fields, "workbook")]
        ),
        steps=steps,
    )


def _step(low: Lowering, node: Node) -> Step | None:
    fields = open_step(low, node, STEP_KEYS)
    if fields is None:
        return None
    name = fields.name("step")
    loop = read_loop(low, fields)
    nodes = body(low, fields.raw("tool"), loop)
    routes = router(low, fields)
    spec = step_spec(low, fields)
    if not fields.has("tool") and not fields.has("next"):
        low.findings.report("step.idle", fields.first, f"{fields.what} has neither `tool` nor `next`")
    built: dict[str, Any] = {
        "description": fields.text("desc"),
        "admit": admission(low, spec),
        "join": join(low, spec),
        "loop": loop,
        "body": nodes,
        "on_error": spec.choice("on_error", ("fail", "ignore")) or "fail",
        "router": routes,
        "spec": knobs(low, spec, TASK_KNOBS, STEP_KNOBS),
        "deadline": spec.duration("deadline"),
        "max_task_runs": task_runs(low, spec),
    }
    return None if name is None else Step(name=name, at=position(fields.place("step")), **built)


def task_runs(low: Lowering, spec: Fields) -> Count:
    limits = spec.mapping("limits")
    if limits is None:
        return 10_000
    check_group(low, spec, "limits")
    found = Fields(low.findings, limits, "`limits`", limits.entries).count("task_runs")
    return 10_000 if found is None else found
