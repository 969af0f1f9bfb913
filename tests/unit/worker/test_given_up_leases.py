"""A worker keeps its leases by beats, and gives up in time what it could not renew."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from noetl.errors import NoetlError
from noetl.records.command import Command, HeldLease, PlaybookVersion
from noetl.records.report import Beat, BeatReply
from noetl.worker.beats import Beats

LEASE = 30.0


class Server:
    """Answers beats after a while, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.takes = 0.0
        self.is_away = False
        self.lost: tuple[str, ...] = ()
        self.beats: list[Beat] = []

    async def beat(self, beat: Beat) -> BeatReply:
        self.now += self.takes
        self.beats.append(beat)
        if self.is_away:
            raise NoetlError("nobody answers")
        return BeatReply(lost=self.lost, lease_seconds=LEASE)


def command(name: str, epoch: int = 1) -> Command[Any]:
    return Command(
        lease=HeldLease(command_id=name, execution_id="1", epoch=epoch),
        lease_seconds=LEASE,
        playbook=PlaybookVersion(path="p", version=1, digest="d"),
        step="start",
        step_run_id=name,
        context=None,
    )


class Holding:
    """A worker that holds commands, its beats, and what it was told to give up."""

    def __init__(self, *names: str) -> None:
        self.server = Server()
        self.held = {name: command(name) for name in names}
        worker: Any = SimpleNamespace(held=self.held, source=self.server, worker_id="w")
        self._beats = Beats(worker, monotonic=lambda: self.server.now)
        self.given_up: list[str] = []

    def beat(self, after: float = 0.0) -> float:
        """One beat, so long after the last; how long to wait for the next."""
        self.server.now += after
        return asyncio.run(self._beats._beat(lambda lost: self.given_up.append(lost.lease.command_id)))


def test_all_leases_are_renewed_in_one_call_three_times_as_often_as_they_last() -> None:
    holding = Holding("a", "b")
    assert holding.beat() == LEASE / 3
    (beat,) = holding.server.beats
    assert {lease.command_id for lease in beat.leases} == {"a", "b"}
    assert holding.given_up == []


def test_without_a_lease_nobody_is_asked() -> None:
    holding = Holding()
    assert holding.beat() > 0
    assert holding.server.beats == []


def test_a_lease_that_the_server_names_is_given_up() -> None:
    holding = Holding("a", "b")
    holding.server.lost = ("a",)
    holding.beat()
    assert holding.given_up == ["a"]


def test_what_cannot_be_renewed_is_given_up_before_its_lease_ends() -> None:
    holding = Holding("a")
    holding.beat()
    holding.server.is_away = True
    waited = 0.0
    while not holding.given_up:
        pause = holding.beat(after=0.5)
        waited += 0.5
        assert 0 < pause <= 0.5
    assert LEASE - 3 <= waited < LEASE


def test_a_lease_is_counted_from_when_the_beat_was_sent_not_from_its_answer() -> None:
    holding = Holding("a")
    holding.server.takes = 20.0
    assert holding.beat() == 0.0
    holding.server.takes, holding.server.is_away = 0.0, True
    holding.beat(after=LEASE - 20.0 - 2.5)
    assert holding.given_up == []
    holding.beat(after=0.5)
    assert holding.given_up == ["a"]


def test_a_server_that_is_back_in_time_costs_no_lease() -> None:
    holding = Holding("a")
    holding.beat()
    holding.server.is_away = True
    holding.beat(after=20.0)
    holding.server.is_away = False
    holding.beat(after=5.0)
    holding.server.is_away = True
    holding.beat(after=25.0)
    assert holding.given_up == []


@pytest.mark.parametrize("again", [True, False])
def test_a_command_that_is_leased_again_has_its_own_time(again: bool) -> None:
    holding = Holding("a")
    holding.beat()
    holding.server.is_away = True
    if again:
        holding.held["a"] = command("a", epoch=2)
    holding.beat(after=LEASE - 1.0)
    assert holding.given_up == ([] if again else ["a"])
