"""What a worker leases: the command to run one step run, or a range of a loop's iterations.

A command holds all that the worker needs to go on from where the log stands; the worker never reads
the log. Ids are text, as in events.
"""

from __future__ import annotations

from typing import Any

import msgspec


class PlaybookVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A registered playbook as it was when the execution began."""

    path: str
    version: int
    digest: str
    """The SHA-256 of its text: a worker keeps parsed playbooks by it."""


class IterationRange(msgspec.Struct, frozen=True, kw_only=True):
    """The iterations of one lease: those from `first` up to, not including, `stop`."""

    first: int
    stop: int
    width: int = 1
    """How many of them may run at once."""

    def __post_init__(self) -> None:
        if not 0 <= self.first < self.stop:
            raise ValueError("a range of iterations has a first one, and a stop after it")
        if self.width < 1:
            raise ValueError("at least one iteration runs at a time")


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One lease of work; `epoch` fences it, so that a late report of an earlier lease is refused."""

    command_id: str
    execution_id: str
    epoch: int
    lease_seconds: float
    """How long the lease lasts from the moment it was asked for; a beat renews it."""
    playbook: PlaybookVersion
    workflow_run_id: str
    step: str
    step_run_id: str
    attempt: int = 1
    """How often this work has been leased, this lease included."""
    iterations: IterationRange | None = None
    frames: dict[str, Any] = {}
    """Where the interpreter stands in work begun earlier, by iteration index; `""` without a loop."""
    context: dict[str, Any] = {}
    """The names in scope (`workload`, `ctx`, `vars`, `args`, results); large values are references."""
    credentials: tuple[str, ...] = ()
    """The keychain entries and credentials this work may fetch; no others are given out."""
    deadline: str | None = None
    """When the step run or the execution must be over, as RFC 3339."""
