"""How a worker keeps its leases: by a thread that nothing in its event loop can hold up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from noetl.errors import NoetlError
from noetl.records.command import Command, HeldLease, PlaybookVersion
from noetl.records.report import AnyCommand, Beat, BeatReply
from noetl.worker.beats import Beats
from noetl.worker.worker import Worker

LEASE_SECONDS = 0.3


def command(name: str) -> AnyCommand:
    return Command(
        lease=HeldLease(command_id=name, execution_id="1", epoch=1),
        lease_seconds=LEASE_SECONDS,
        playbook=PlaybookVersion(path="p", version=1, digest="d"),
        step="s",
        step_run_id="r",
        context=None,
    )


class PlayedWorker:
    """What beats see of a worker, and the server behind it."""

    def __init__(self, *names: str) -> None:
        self.worker_id = "w"
        self.held = {name: command(name) for name in names}
        self.source = self
        self.lost: tuple[str, ...] = ()
        self.is_away = False
        self.beats: list[tuple[str, ...]] = []
        self.beaten = threading.Condition()
        self.revoked: list[str] = []
        self.is_revoked = asyncio.Event()
        self.has_left = False

    async def beat(self, beat: Beat) -> BeatReply:
        assert beat.worker_id == "w"
        with self.beaten:
            self.beats.append(tuple(lease.command_id for lease in beat.leases))
            self.beaten.notify_all()
        if self.is_away:
            raise NoetlError("nobody answers")
        return BeatReply(lost=self.lost, lease_seconds=LEASE_SECONDS)

    def wait_for_beats(self, number: int) -> None:
        with self.beaten:
            assert self.beaten.wait_for(lambda: len(self.beats) >= number, 10)

    def revoke_lease(self, given_up: AnyCommand) -> None:
        self.revoked.append(given_up.lease.command_id)
        self.is_revoked.set()

    async def leave_loop(self) -> None:
        self.has_left = True


def play(worker: PlayedWorker, scenario: Callable[[], Awaitable[Any]]) -> None:
    async def played() -> None:
        beats = Beats(cast(Worker, worker))
        beats.start()
        async with asyncio.timeout(20):
            await scenario()
        await beats.stop()

    asyncio.run(played())
    assert worker.has_left


def test_all_leases_are_renewed_in_one_call() -> None:
    worker = PlayedWorker("a", "b")
    play(worker, lambda: asyncio.to_thread(worker.wait_for_beats, 3))
    assert set(worker.beats) == {("a", "b")}
    assert worker.revoked == []


def test_beats_go_on_while_the_event_loop_is_busy() -> None:
    worker = PlayedWorker("a")

    async def scenario() -> None:
        worker.wait_for_beats(4)  # holds the whole loop up

    play(worker, scenario)
    assert worker.revoked == []


def test_the_work_of_a_lost_lease_is_stopped_once_and_the_others_go_on() -> None:
    worker = PlayedWorker("a", "b")
    worker.lost = ("a",)

    async def scenario() -> None:
        await worker.is_revoked.wait()
        seen = len(worker.beats)
        await asyncio.to_thread(worker.wait_for_beats, seen + 3)

    play(worker, scenario)
    assert worker.revoked == ["a"]
    assert worker.beats[-1] == ("b",)


def test_a_lease_that_cannot_be_renewed_is_given_up_before_it_runs_out() -> None:
    worker = PlayedWorker("a")
    worker.is_away = True
    began = time.monotonic()
    play(worker, worker.is_revoked.wait)
    assert worker.revoked == ["a"]
    assert len(worker.beats) > 1
    # Counted from when the first beat was sent; a busy machine may be late with all of it.
    assert time.monotonic() - began >= LEASE_SECONDS * 0.8


def test_a_worker_without_leases_does_not_beat() -> None:
    worker = PlayedWorker()

    async def scenario() -> None:
        await asyncio.to_thread(time.sleep, 0.0)

    play(worker, scenario)
    assert worker.beats == []
