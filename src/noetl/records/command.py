"""What a worker leases: the command to run one step run, or a share of a loop's iterations.

A command holds all that the worker needs to go on from where the log stands; the worker never reads
the log. Ids are text, as in events.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

Context = TypeVar("Context")


class PlaybookVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A registered playbook as it was when the execution began."""

    path: str
    version: int
    digest: str
    """The SHA-256 of its text: a worker keeps parsed playbooks by it."""


def process_key(digest: str, isolation: str = "process") -> str:
    """Names the code processes of one playbook version: they never run another's code."""
    return f"{digest}/{isolation}"


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to work on one command; `epoch` fences it: a late word of an earlier lease is refused."""

    command_id: str
    execution_id: str
    epoch: int


class Command(msgspec.Struct, Generic[Context], frozen=True, kw_only=True):
    """One lease of work."""

    lease: HeldLease
    lease_seconds: float
    """How long the lease lasts from the moment it was asked for; a beat renews it."""
    playbook: PlaybookVersion
    step: str
    step_run_id: str
    context: Context
    """Where the interpreter stands and what is in scope; large values are references."""
    has_secrets: bool = False
    """The playbook has a keychain, to be asked for before the work begins."""
    parent_execution_id: str | None = None
    trace: str | None = None
    """The W3C trace context that the execution belongs to."""
