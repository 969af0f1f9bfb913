"""Decides which dialect a document is written in, from its apiVersion and the keys of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from noetl.playbook.diagnostics import nearest
from noetl.playbook.findings import Findings
from noetl.playbook.reader import Mapping, Node, Scalar, Sequence

Dialect: TypeAlias = Literal["v1", "v2", "canonical"]

V1: Final = "noetl.io/v1"
V2: Final = "noetl.io/v2"
V2_STEP_KEYS: Final = ("case", "sink", "retry", "vars", "args")
V2_LOOP_KEYS: Final = ("mode", "collection", "element")
V1_STEP_KEYS: Final = ("call", "run", "type", "join", "with")
V1_ROOT_KEYS: Final = ("name", "path")


class Evidence(NamedTuple):
    """A key that only one dialect has."""

    key: str
    at: Scalar


def detect(root: Mapping, findings: Findings) -> Dialect:
    """The dialect; what contradicts it is reported."""
    _check_kind(root, findings)
    v2 = next(_v2_evidence(root), None)
    canonical = next(_canonical_evidence(root), None)
    version = root.entries.get("apiVersion")
    written = version.value.value if version is not None and isinstance(version.value, Scalar) else None
    if v2 and canonical and written != V1:
        findings.report(
            "dialect.mixed",
            v2.at,
            f"`{v2.key}` (line {v2.at.line}) is v2, "
            f"but `{canonical.key}` (line {canonical.at.line}) is canonical",
            "write the whole playbook in one of them; `noetl migrate` turns v2 into canonical",
        )
    if version is None:
        return _without_version(root, findings, v2)
    if written == V1:
        return "v1"
    if written != V2:
        meant = nearest(written, (V1, V2)) if isinstance(written, str) else None
        findings.report(
            "apiVersion.unknown",
            version.value,
            f"`apiVersion` cannot be `{written}`",
            f"did you mean `{meant}`?" if meant else f"`{V2}`, or `{V1}` for the first language",
        )
    return "v2" if v2 else "canonical"


def _without_version(root: Mapping, findings: Findings, v2: Evidence | None) -> Dialect:
    v1 = next(_v1_evidence(root), None)
    where = next(iter(root.entries.values())).key if root.entries else root
    if v1 is None and v2 is None:
        findings.report(
            "apiVersion.missing",
            where,
            "`apiVersion` is missing, so this is read as canonical",
            f"apiVersion: {V2}",
        )
        return "canonical"
    found, version = (v1, V1) if v1 is not None else (v2, V2)
    assert found is not None
    findings.report(
        "apiVersion.required",
        where,
        f"`apiVersion` is missing, and `{found.key}` (line {found.at.line}) is not canonical",
        f"apiVersion: {version}",
    )
    return "v1" if v1 is not None else "v2"


def _check_kind(root: Mapping, findings: Findings) -> None:
    kind = root.entries.get("kind")
    if kind is None:
        if "apiVersion" in root.entries:
            first = next(iter(root.entries.values())).key
            findings.report("key.missing", first, "a playbook needs `kind`", "kind: Playbook")
        return
    written = kind.value.value if isinstance(kind.value, Scalar) else None
    if written != "Playbook":
        findings.report("kind.unknown", kind.value, f"`kind` must be `Playbook`, not `{written}`")


def _steps(root: Mapping) -> Iterator[Mapping]:
    workflow = root.get("workflow")
    if isinstance(workflow, Sequence):
        for step in workflow.items:
            if isinstance(step, Mapping):
                yield step


def _v2_evidence(root: Mapping) -> Iterator[Evidence]:
    for step in _steps(root):
        entries = step.entries
        for key in V2_STEP_KEYS:
            if key in entries:
                yield Evidence(key, entries[key].key)
        way = entries.get("next")
        if way is not None and _is_v2_next(way.value):
            yield Evidence("next", way.key)
        loop = step.get("loop")
        if isinstance(loop, Mapping):
            for key in V2_LOOP_KEYS:
                if key in loop.entries:
                    yield Evidence(f"loop.{key}", loop.entries[key].key)


def _is_v2_next(node: Node) -> bool:
    return isinstance(node, Sequence) or (isinstance(node, Scalar) and isinstance(node.value, str))


def _canonical_evidence(root: Mapping) -> Iterator[Evidence]:
    for step in _steps(root):
        way = step.get("next")
        if isinstance(way, Mapping) and "arcs" in way.entries:
            yield Evidence("next.arcs", way.entries["arcs"].key)
        policy = _path(step, "spec", "policy")
        if policy is not None and "admit" in policy.entries:
            yield Evidence("spec.policy.admit", policy.entries["admit"].key)
        tool = step.get("tool")
        for task in tool.items if isinstance(tool, Sequence) else (tool,):
            yield from _task_rules(task)


def _task_rules(task: Node | None) -> Iterator[Evidence]:
    if not isinstance(task, Mapping):
        return
    if "kind" not in task.entries and len(task.entries) == 1:
        (entry,) = task.entries.values()
        if isinstance(entry.value, Mapping):
            task = entry.value
    policy = _path(task, "spec", "policy")
    if policy is not None and "rules" in policy.entries:
        yield Evidence("spec.policy.rules", policy.entries["rules"].key)


def _path(node: Mapping, *names: str) -> Mapping | None:
    for name in names:
        inner = node.get(name)
        if not isinstance(inner, Mapping):
            return None
        node = inner
    return node


def _v1_evidence(root: Mapping) -> Iterator[Evidence]:
    for key in V1_ROOT_KEYS:
        if key in root.entries:
            yield Evidence(key, root.entries[key].key)
    for step in _steps(root):
        for key in V1_STEP_KEYS:
            if key in step.entries:
                yield Evidence(key, step.entries[key].key)
