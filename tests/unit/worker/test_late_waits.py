"""A wait and its timeout that both pass while no process runs: whichever was first decides."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from noetl.control.plane import ControlPlane
from noetl.embedded import Embedded
from noetl.engine.state import State
from noetl.playbook.load import load
from noetl.store.memory import MemoryStore
from noetl.testing import FakeClock
from noetl.tools.registry import builtin_kinds

WAITING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: p}
workflow: [{step: start, tool: {kind: wait, duration: DURATION, timeout: TIMEOUT}}]
"""


def gone_on_with_after_an_hour(text: str, folder: Path, signal: str | None = None) -> State:
    """Begins an execution, stops its process after a second, and goes on an hour later.

    `signal`: comes after five minutes, when there is no worker to hear it.
    """
    clock = FakeClock()
    store = MemoryStore(clock)

    async def lives() -> State:
        async with Embedded(store, folder, clock=clock) as engine:
            await engine.start(load(text.encode(), builtin_kinds()), {}, execution_id="1")
            await asyncio.sleep(1)
        assert (await store.executions())[0].status == "running"
        await asyncio.sleep(300)
        if signal is not None:
            await ControlPlane(store, builtin_kinds(), clock=clock).signal("1", signal, "yes")
        await asyncio.sleep(3_300)
        async with Embedded(store, folder, clock=clock) as engine:
            await engine.resume("1")
            return await engine.finished("1")

    return clock.run(lives())


@pytest.mark.parametrize(
    ("duration", "timeout", "kind"),
    [("20m", "10m", "timeout"), ("10m", "20m", None), ("10m", "2h", None), ("20s", "4s", "timeout")],
)
def test_of_two_moments_that_have_passed_the_earlier_one_counts(
    duration: str, timeout: str, kind: str | None, tmp_path: Path
) -> None:
    text = WAITING.replace("DURATION", duration).replace("TIMEOUT", timeout)
    state = gone_on_with_after_an_hour(text, tmp_path)
    assert (state.status, (state.error or {}).get("kind")) == ("failed" if kind else "completed", kind)
    if kind is not None:
        assert state.error is not None
        assert "it did not finish within " in state.error["message"]
        assert state.error["retryable"] is True


@pytest.mark.parametrize(
    ("name", "status", "result"), [("go", "completed", "yes"), ("other", "failed", None)]
)
def test_a_signal_that_came_in_time_counts_though_nobody_has_heard_it_before_the_time_was_up(
    name: str, status: str, result: str | None, tmp_path: Path
) -> None:
    text = WAITING.replace("duration: DURATION, timeout: TIMEOUT", "signal: go, timeout: 10m")
    state = gone_on_with_after_an_hour(text, tmp_path, name)
    assert (state.status, state.result) == (status, result)
    assert (state.error or {}).get("kind") == (None if result else "timeout")
