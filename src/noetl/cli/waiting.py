"""What a step waits for, in words: a moment, a signal, the answer of a person, another execution."""

from __future__ import annotations

from datetime import UTC, datetime

from noetl.engine.state import Waits
from noetl.playbook.wording import plural


def waits_text(waits: Waits) -> str:
    """One line; empty where the step waits for nothing that can be told."""
    awaited = [
        f"the signal `{name}`" + (f" ({asked})" if (asked := waits.questions.get(name)) else "")
        for name in waits.signals
    ]
    if len(waits.children) == 1:
        awaited.append(f"execution {waits.children[0]}")
    elif waits.children:
        awaited.append(plural(len(waits.children), "execution"))
    moments = [moment for moment in (waits.until, *waits.timers.values()) if moment is not None]
    if awaited:
        return "waits for " + " or ".join(awaited)
    return f"waits until {_moment(min(moments))}" if moments else ""


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
