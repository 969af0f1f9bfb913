"""What wakes idle workers. A bus carries hints, never work: the claim through the control plane decides.

Losing every message costs the time until a worker asks by itself; a message too many costs one claim that
finds nothing. So `publish` never waits for the other side, and `wait` never fails.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol


def wake_key(command_id: str, epoch: int) -> str:
    """Names one time that a command became free: told twice it wakes once, freed again it wakes again."""
    return f"{command_id}:{epoch}"


def until_poll(timeout: float, poll_seconds: float | None) -> float:
    """How long to wait for a wake-up before it is time to look all the same; not the same for everybody."""
    return timeout if poll_seconds is None else min(timeout, random.uniform(0.7, 1.3) * poll_seconds)


class Bus(Protocol):
    @property
    def is_up(self) -> bool:
        """False while wake-ups do not arrive and workers find work by asking."""
        ...

    async def publish(self, pool: str, command_ids: Sequence[str]) -> None:
        """Tells that these may be claimed; to be called after their commit. Give `wake_key`s."""
        ...

    async def wait(self, pool: str, timeout: float, limit: int = 1) -> bool:
        """Waits until something may be there; false when nothing was heard of in that many seconds.

        `limit` is how many commands the caller would claim: more wake-ups are left to others.
        """
        ...

    async def close(self) -> None:
        """Ends every `wait` with false; a bus that is closed swallows what is published."""
        ...
