"""An execution's progress as lines for a terminal: the playbook, its steps, and what each is about.

Pure: what is drawn depends on the progress, the time and the size that are handed in. The lines never take
more room than there is; steps that are over give way to those that run.
"""

from __future__ import annotations

from typing import Final

from noetl.cli.diagnostics import Paint, cells, visible
from noetl.cli.progress import LoopProgress, Progress, StepProgress
from noetl.cli.waiting import waits_text
from noetl.engine.parking import together
from noetl.playbook.wording import ELLIPSIS, plural

SYMBOLS: Final = {"done": "✓", "failed": "✗", "skipped": "○", "cancelled": "◌"}
SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
STYLES: Final = {
    "done": "good",
    "completed": "good",
    "failed": "error",
    "cancelled": "warning",
    "paused": "warning",
    "running": "hint",
    "skipped": "gutter",
}
SMALLEST_HEIGHT: Final = 4
NAME_WIDTH: Final = 24


def duration(seconds: float) -> str:
    """`0.4s`, `12s`, `3m05s`, `1h02m`."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def fitted(text: str, width: int) -> str:
    """One line of at most `width` cells, control characters shown."""
    if len(text) <= width and text.isprintable() and text.isascii():
        return text
    shown, room = [], width
    all_cells = cells(text)
    if sum(cell.width for cell in all_cells) <= width:
        return visible(text)
    for cell in all_cells:
        if cell.width > room - 1:
            break
        shown.append(cell.text)
        room -= cell.width
    return "".join(shown) + ELLIPSIS


def draw(progress: Progress, now: float, width: int, height: int, paint: Paint) -> list[str]:
    """The lines to show, at most `height - 1`: the last row stays free for the cursor."""
    room = max(SMALLEST_HEIGHT, height) - 2
    steps = list(progress.steps.values())
    blocks = {view.name: _block(view, now) for view in steps}
    shown, hidden = _chosen(steps, {name: len(block) for name, block in blocks.items()}, room)
    name = progress.name or "playbook"
    head = f"{name}  {progress.status}  {duration(progress.elapsed(now))}"
    lines = [paint(STYLES.get(progress.status, "place"), fitted(head, width))]
    for number, view in enumerate(shown):
        last = number == len(shown) - 1 and not hidden
        first, *more = blocks[view.name]
        lines.append(_branch("└─" if last else "├─", view, first, now, width, paint))
        lines += [paint("gutter", fitted(f"{' ' if last else '│'}    {line}", width)) for line in more]
    if hidden:
        lines.append(paint("gutter", fitted(f"└─ {ELLIPSIS} {hidden} more", width)))
    return lines


def _chosen(steps: list[StepProgress], sizes: dict[str, int], room: int) -> tuple[list[StepProgress], int]:
    """The steps there is room for, in their order, those that run or failed first; and how many are not."""
    if sum(sizes.values()) <= room:
        return steps, 0
    room -= 1
    urgent = [view for view in steps if view.state in ("running", "failed")]
    others = [view for view in reversed(steps) if view.state not in ("running", "failed")]
    taken: set[str] = set()
    for view in (*urgent, *others):
        if sizes[view.name] <= room:
            taken.add(view.name)
            room -= sizes[view.name]
    return [view for view in steps if view.name in taken], len(steps) - len(taken)


def _branch(rail: str, view: StepProgress, rest: str, now: float, width: int, paint: Paint) -> str:
    symbol = SYMBOLS.get(view.state) or SPINNER[int(now * 10) % len(SPINNER)]
    name = fitted(view.name, NAME_WIDTH)
    text = fitted(f"{name:<{NAME_WIDTH}} {rest}", width - 5)
    return f"{paint('gutter', rail)} {paint(STYLES[view.state], symbol)} {text}"


def _block(view: StepProgress, now: float) -> list[str]:
    """What stands behind a step's name, and the lines below it."""
    parts = [f"{duration(view.elapsed(now)):>6}"]
    if view.runs > 1:
        parts.append(f"run {view.runs}")
    if view.loop is not None:
        parts.append(loop_text(view.loop, now, running=view.state == "running"))
    elif view.state == "running" and view.attempt > 1:
        parts.append(f"attempt {view.attempt}")
    if view.retries and view.loop is not None:
        parts.append(plural(view.retries, "retry"))
    if view.jumps:
        parts.append(plural(view.jumps, "page") if view.loop is not None else f"page {view.jumps + 1}")
    if view.state == "running" and view.retry_at is not None and view.retry_at > now:
        parts.append(f"again in {duration(view.retry_at - now)}")
    below = []
    if view.state == "failed" and view.error is not None:
        below.append(first_line(str(view.error.get("message", ""))))
    elif view.state == "running":
        if waited := waits_text(together(view.parked.values())):
            below.append(waited)
        elif view.log is not None:
            below.append(f"{view.task}: {view.log}" if view.task else view.log)
        elif view.task is not None and view.loop is None:
            below.append(view.task)
    return [" · ".join(parts), *below]


def loop_text(loop: LoopProgress, now: float, *, running: bool) -> str:
    parts = [f"{loop.finished}/{loop.total}"]
    if loop.failed:
        parts.append(f"{loop.failed} failed")
    if running:
        parts += [f"{loop.in_flight} in flight"] if loop.in_flight else []
        rate, remaining = loop.rate(now), loop.remaining(now)
        if rate is not None and remaining is not None:
            parts.append(f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s")
            parts.append(f"{duration(remaining)} left")
    return ", ".join(parts)


def first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), text)
