"""What is said of an execution at its end: the result, or what went wrong, where, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from noetl.cli.diagnostics import Paint, visible
from noetl.cli.progress import Progress
from noetl.cli.stores import AnyPlace
from noetl.cli.tree import STYLES, duration
from noetl.engine.state import Data, State
from noetl.ids import seconds_of
from noetl.playbook.model import Block, Case, Node, Parallel, Playbook, Task, TaskAction
from noetl.playbook.wording import plural
from noetl.records.result_ref import ref_from_data

if TYPE_CHECKING:
    from noetl.cli.watched import Ended

SHORT_RESULT: Final = 200
"""Bytes of JSON that stand on one line."""
RESULT_LINES: Final = 20
MESSAGE_LINES: Final = 12
SYMBOLS: Final = {"completed": "✓", "failed": "✗", "cancelled": "◌", "interrupted": "‖"}


class Source(NamedTuple):
    """Where a playbook comes from, for pointing at its lines."""

    name: str
    text: str
    playbook: Playbook


def summary(ended: Ended, progress: Progress, source: Source, place: AnyPlace, paint: Paint) -> str:
    state = ended.state
    status = "interrupted" if ended.interrupted else state.status
    style = STYLES.get(status, "warning")
    head = f"{SYMBOLS[status]} {visible(source.playbook.name)} {status}"
    lines = [paint(style, head) + (f" after {took}" if (took := _took(state, progress)) else "")]
    if ended.interrupted:
        lines.append(f"  {place.hint_after_interruption(state.execution_id)}")
    elif state.error is not None:
        lines += _failure(state, state.error, progress, source, paint)
        lines += _commands(state, place) if place.is_kept else []
    elif state.status == "completed":
        command = place.command("result", state.execution_id) if place.is_kept else None
        lines += result_lines(state.result, command)
    return "\n".join(lines) + "\n"


def _took(state: State, progress: Progress) -> str:
    if state.finished_at is not None:
        return duration(seconds_of(state.finished_at) - seconds_of(state.requested_at))
    return ""


def result_lines(result: Any, command: str | None) -> list[str]:  # noqa: ANN401 - plain data
    """The result, as much of it as a person reads, and the command that shows all of it, if there is one."""
    if result is None:
        return []
    ref = ref_from_data(result)
    if ref is not None:
        size = plural(ref.size, "byte")
        return [f"  result: {size}, stored; show it with: {command}" if command else f"  result: {size}"]
    compact = msgspec.json.encode(result)
    if len(compact) <= SHORT_RESULT:
        return [f"  result: {visible(compact.decode())}"]
    text = msgspec.json.format(compact, indent=2).decode()
    shown = [visible(line) for line in text.splitlines()]
    if len(shown) > RESULT_LINES:
        shown = [*shown[:RESULT_LINES], f"… all of it: {command}" if command else "…"]
    return ["  result:", *(f"    {line}" for line in shown)]


def _failure(state: State, error: Data, progress: Progress, source: Source, paint: Paint) -> list[str]:
    step, task = error.get("step"), error.get("task")
    parts = [f"step {visible(str(step))}"] if step else []
    if task:
        parts.append(f"task {visible(str(task))}")
        attempt = progress.failed_attempts.get((str(step), str(task)))
        if attempt is not None:
            parts.append(f"attempt {attempt}")
    lines = [f"  {', '.join(parts)}"] if parts else []
    message, *more = str(error.get("message", "")).splitlines() or [""]
    lines.append(f"  {paint('error', visible(str(error.get('kind'))))}: {visible(message)}")
    if len(more) > MESSAGE_LINES:
        more = ["…", *more[-MESSAGE_LINES:]]
    lines += [f"    {visible(line)}" for line in more]
    return lines + _source_line(source, step, task, paint)


def _source_line(source: Source, step: str | None, task: str | None, paint: Paint) -> list[str]:
    """`playbook.yaml:12 |   the line`, of the task if it is known, else of the step."""
    found = next((each for each in source.playbook.steps if each.name == step), None)
    if found is None:
        return []
    node = None if task is None else find_task(found.body, task)
    line = (node or found).at.line
    lines = source.text.splitlines()
    if not 1 <= line <= len(lines):
        return []
    place = paint("place", f"{visible(source.name)}:{line}")
    return [f"  {place} {paint('gutter', '|')} {visible(lines[line - 1])}"]


def find_task(body: tuple[Node, ...], label: str) -> Task | None:
    """The task of that label, in blocks, parallels and cases too."""
    for node in body:
        if isinstance(node, Task):
            if node.label == label:
                return node
            continue
        found = find_task(_inner(node), label)
        if found is not None:
            return found
    return None


def _inner(node: Block | Parallel | Case) -> tuple[Node, ...]:
    if isinstance(node, Block):
        return node.body
    if isinstance(node, Parallel):
        return tuple(branch.node for branch in node.branches)
    called = () if node.call is None else (node.call,)
    named = (
        action.task for branch in node.branches for action in branch.actions if isinstance(action, TaskAction)
    )
    return (*called, *named)


def _commands(state: State, place: AnyPlace) -> list[str]:
    assert state.error is not None
    words = ["events", state.execution_id]
    if state.error.get("step"):
        words += ["--step", str(state.error["step"])]
    return [f"  look into it with: {place.command(*words)}"]
