"""Threads of blocking libraries, when the task that waits for them is cancelled."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from noetl.tools import threads
from noetl.tools.threads import in_thread


def test_work_that_cannot_be_interrupted_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PATIENCE_SECONDS", 0.1)
    over = threading.Event()
    told: list[float] = []

    async def scenario() -> None:
        async with asyncio.timeout(0.05):
            await in_thread(lambda: over.wait(20), lambda: told.append(time.monotonic()))

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(scenario())
    assert time.monotonic() - began < 10
    assert told
    left = [each for each in threading.enumerate() if each.name == "noetl-sql"]
    over.set()  # its loop is closed by now, which harms nobody
    for each in left:
        each.join(10)
        assert not each.is_alive()


def test_work_that_is_interrupted_is_waited_for() -> None:
    over, ended = threading.Event(), threading.Event()

    def work() -> None:
        over.wait(20)
        ended.set()

    async def scenario() -> None:
        async with asyncio.timeout(0.05):
            await in_thread(work, over.set)

    with pytest.raises(TimeoutError):
        asyncio.run(scenario())
    assert ended.is_set()
