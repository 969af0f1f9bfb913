"""Writes a model as canonical YAML text.

The writer says what the model holds and decides nothing: a model with something that canonical YAML
has no words for is a TypeError, and `migrate` must have rewritten it before. What a key's default
already says is left out, so lowering the text gives the same model again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from noetl.playbook.emitter import Data, Section, Spaced, emit
from noetl.playbook.model import (
    AdmitRule,
    Arc,
    Backoff,
    Block,
    Directive,
    Duration,
    Executor,
    Guard,
    Join,
    KeychainEntry,
    Loop,
    Node,
    Playbook,
    Router,
    Rule,
    Sink,
    Step,
    Task,
    Value,
    WorkbookEntry,
)
from noetl.records.durations import write_duration
from noetl.template import Template

API_VERSION: Final = "noetl.io/v2"
CODE_LAST: Final = ("code",)


def write(playbook: Playbook, comments: str = "") -> str:
    """The playbook as canonical YAML, under the comments that stood at the top of its file."""
    root: dict[str, Data] = {"apiVersion": API_VERSION, "kind": "Playbook"}
    root["metadata"] = Section(_metadata(playbook))
    if playbook.keychain:
        root["keychain"] = [_keychain_entry(entry) for entry in playbook.keychain]
    if executor := _executor(playbook.executor, playbook.entry):
        root["executor"] = Section(executor)
    if playbook.workload:
        root["workload"] = Section(_plain(playbook.workload))
    if playbook.workbook:
        root["workbook"] = Spaced(Section(_workbook_entry(entry)) for entry in playbook.workbook)
    root["workflow"] = Spaced(Section(_step(step)) for step in playbook.steps)
    head = comments.rstrip("\n")
    return f"{head}\n{emit(root)}" if head else emit(root)


def _metadata(playbook: Playbook) -> dict[str, Data]:
    data: dict[str, Data] = {"name": playbook.name}
    if playbook.path != playbook.name:
        data["path"] = playbook.path
    return data | {name: _plain(value) for name, value in playbook.metadata.items()}


def _keychain_entry(entry: KeychainEntry) -> Data:
    return {"name": entry.name, "kind": entry.kind} | {
        name: _plain(value) for name, value in entry.fields.items()
    }


def _executor(executor: Executor, entry: str) -> dict[str, Data]:
    spec: dict[str, Data] = {} if entry == "start" else {"entry_step": entry}
    if executor.deadline is not None:
        spec["deadline"] = _duration(executor.deadline)
    return _present(profile=executor.profile, version=executor.version, spec=spec | _plain(executor.spec))


def _workbook_entry(entry: WorkbookEntry) -> dict[str, Data]:
    _refuse(entry.args, "args on a workbook entry")
    data = _present(name=entry.name, desc=entry.description, spec=_plain(entry.spec))
    if entry.loop is not None:
        data["loop"] = Section(_loop(entry.loop))
    data["tool"] = _body(entry.body)
    if entry.sink is not None:
        data["sink"] = _sink(entry.sink)
    return data


# --- steps --------------------------------------------------------------------------------------------


def _step(step: Step) -> dict[str, Data]:
    _refuse(step.args, "args on a step")
    _refuse(step.vars, "vars")
    _refuse(step.sink, "sink on a step")
    _refuse(step.spread, "tokens for each item of a loop")
    _refuse(step.binds, "second name for a result")
    data = _present(step=step.name, desc=step.description, spec=_step_spec(step))
    if step.loop is not None:
        data["loop"] = Section(_loop(step.loop))
    if step.body:
        data["tool"] = _body(step.body)
    if step.router.arcs or step.router.mode != "exclusive":
        data["next"] = Section(_router(step.router))
    return data


def _step_spec(step: Step) -> dict[str, Data]:
    spec: dict[str, Data] = {}
    if step.admit is not None:
        spec["policy"] = {"admit": {"rules": [_admit_rule(rule) for rule in step.admit]}}
    if step.join is not None:
        spec["join"] = _join(step.join)
    if step.deadline is not None:
        spec["deadline"] = _duration(step.deadline)
    if step.max_task_runs != 10_000:
        spec["limits"] = {"task_runs": _plain(step.max_task_runs)}
    if step.on_error != "fail":
        spec["on_error"] = step.on_error
    return {**spec, **_plain(step.spec)}


def _admit_rule(rule: AdmitRule) -> Data:
    return _rule_data(rule.when, {"allow": rule.allow})


def _join(join: Join) -> Data:
    if join.mode == "spread":
        raise TypeError("canonical YAML has no join of a loop's tokens")
    return {"of": list(join.of)} | ({} if join.mode == "all" else {"mode": join.mode})


def _router(router: Router) -> dict[str, Data]:
    data: dict[str, Data] = {} if router.mode == "exclusive" else {"spec": {"mode": router.mode}}
    return data | {"arcs": [Section(_arc(arc)) for arc in router.arcs]}


def _arc(arc: Arc) -> dict[str, Data]:
    if len(arc.targets) != 1 or not isinstance(arc.targets[0].step, str):
        raise TypeError("a canonical arc leads to one step, known beforehand")
    if arc.takes_failure != (arc.when is not None):
        raise TypeError("a canonical arc is asked at failures exactly when it has a guard")
    (target,) = arc.targets
    data: dict[str, Data] = {"step": target.step}
    if arc.when is not None:
        data["when"] = _plain(arc.when)
    if target.args:
        data["args"] = _plain(target.args)
    if not target.carry:
        data["spec"] = {"carry": False}
    return data


def _loop(loop: Loop) -> dict[str, Data]:
    _refuse(loop.wrap_scalar, "loop over a single value")
    spec = _present(
        mode=None if loop.mode == "sequential" else loop.mode,
        max_in_flight=None if loop.max_in_flight == 16 else _plain(loop.max_in_flight),
        batch_size=None if loop.batch_size == 1 else _plain(loop.batch_size),
        on_error=None if loop.on_error == "fail" else loop.on_error,
        policy=None if loop.execution is None else {"exec": loop.execution},
        reduce=_plain(loop.reduce),
        checkpoint=_plain(loop.checkpoint),
    )
    return {"in": _plain(loop.source), "iterator": loop.iterator} | _present(spec=spec | _plain(loop.spec))


# --- bodies -------------------------------------------------------------------------------------------


def _body(nodes: tuple[Node, ...]) -> Data:
    if len(nodes) == 1 and isinstance(nodes[0], Task | Block) and nodes[0].label == "task_1":
        return _node(nodes[0])
    return [_labelled(node, number) for number, node in enumerate(nodes, start=1)]


def _labelled(node: Node, number: int) -> Data:
    data = _node(node)
    assert isinstance(node, Task | Block)
    return data if node.label == f"task_{number}" else Section({node.label: data})


def _node(node: Node) -> Data:
    if isinstance(node, Task):
        data = _task(node)
        return data if len(data) == 1 else Section(data)
    if isinstance(node, Block):
        return Section(_iterator(node) if node.sink is not None else _block(node))
    raise TypeError(f"canonical YAML has no {type(node).__name__.lower()} in a pipeline")


def _task(task: Task) -> dict[str, Data]:
    _refuse(task.retry, "retry clause")
    _refuse(task.poll, "poll")
    _refuse(task.sink, "sink on a task")
    _refuse(task.when is not None, "when on a task")
    _refuse(task.on_error != "fail", "on_error on a task")
    spec = _plain(task.spec)
    if task.rules is not None:
        spec["policy"] = {"rules": [_rule(rule) for rule in task.rules]}
    config = _plain(task.config)
    # Code reads better behind what it is given.
    code = {name: config.pop(name) for name in CODE_LAST if name in config}
    return {"kind": task.kind, **config, **_present(args=_plain(task.args)), **code, **_present(spec=spec)}


def _block(block: Block) -> dict[str, Data]:
    _refuse(block.loop is None, "block without a loop")
    _refuse(block.args, "args on a block")
    _refuse(block.when is not None, "when on a block")
    assert block.loop is not None
    return {"loop": Section(_loop(block.loop)), "tool": _body(block.body)} | _present(spec=_plain(block.spec))


def _iterator(block: Block) -> dict[str, Data]:
    """A block with a sink, which only the kind `iterator` has."""
    plain = Loop(source=None, iterator="") if block.loop is None else block.loop
    known = Loop(source=plain.source, iterator=plain.iterator, mode=plain.mode)
    same = msgspec.structs.replace(plain, at=known.at, mode_at=known.mode_at) == known
    _refuse(block.loop is None or not same or block.spec or block.args, "sink on this block")
    assert block.sink is not None
    data = {"kind": "iterator", "in": _plain(plain.source), "iterator": plain.iterator}
    data |= {} if plain.mode == "sequential" else {"mode": plain.mode}
    return data | {"task": _body(block.body), "save": _sink(block.sink)}


def _sink(sink: Sink) -> Data:
    data: dict[str, Data] = {"tool": _node(sink.task)}
    return Section(data if sink.when is None else data | {"when": _plain(sink.when)})


# --- rules --------------------------------------------------------------------------------------------


def _rule(rule: Rule) -> Data:
    return _rule_data(rule.when, _directive(rule.then))


def _rule_data(when: Guard | None, then: dict[str, Data]) -> Data:
    if when is None:
        return Section({"else": Section({"then": then})})
    return Section({"when": _plain(when), "then": then})


def _directive(directive: Directive) -> dict[str, Data]:
    data: dict[str, Data] = {"do": directive.do}
    if directive.to is not None:
        data["to"] = directive.to
    if directive.attempts != 3 or directive.do == "retry":
        data["attempts"] = _plain(directive.attempts)
    return (
        data
        | _backoff(directive.backoff)
        | _present(set_iter=_plain(directive.set_iter), set_ctx=_plain(directive.set_ctx))
    )


def _backoff(backoff: Backoff) -> dict[str, Data]:
    return _present(
        backoff=None if backoff.kind == "none" else backoff.kind,
        delay=None if backoff.delay == 0 else _duration(backoff.delay),
        max_delay=None if backoff.max_delay is None else _duration(backoff.max_delay),
        jitter=backoff.jitter or None,
    )


# --- values -------------------------------------------------------------------------------------------


def _plain(value: Value) -> Data:
    """A value with its templates as text."""
    if isinstance(value, Template):
        return value.source
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _duration(duration: Duration) -> Data:
    return duration.source if isinstance(duration, Template) else write_duration(duration)


def _present(**entries: Data) -> dict[str, Data]:
    """The entries that say something."""
    return {name: value for name, value in entries.items() if value is not None and value != {}}


def _refuse(found: object, what: str) -> None:
    if found:
        raise TypeError(f"canonical YAML has no {what}")
