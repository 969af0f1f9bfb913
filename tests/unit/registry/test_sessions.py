"""Sessions that were not made by NoETL: values that somebody wrote into the bucket by himself."""

from __future__ import annotations

import asyncio
import hashlib

import msgspec
import pytest

from noetl.ids import Snowflakes, timestamp
from noetl.registry.sessions import LONGEST_SECONDS, HeldSession, Session, Sessions
from noetl.testing import FakeClock

TOKEN = "A" * 43
YEAR = 365 * 86_400.0


class OneRecord:
    """A bucket with one value in it."""

    def __init__(self, value: bytes) -> None:
        self.value = value

    async def create(self, digest: str, user_id: int, value: bytes, lasts_seconds: float) -> bool:
        raise AssertionError

    async def get(self, digest: str) -> tuple[bytes, int] | None:
        return (self.value, 1) if digest == hashlib.sha256(TOKEN.encode()).hexdigest() else None

    async def update(
        self, digest: str, user_id: int, value: bytes, revision: int, lasts_seconds: float
    ) -> int | None:
        self.value = value
        return revision + 1

    async def delete(self, digest: str, user_id: int) -> None:
        raise AssertionError

    async def of_user(self, user_id: int) -> list[str]:
        return []


def got(*, began: float, ends: float, used: float = 0.0) -> HeldSession | None:
    """What the token gives for a session with these moments, counted from now."""
    clock = FakeClock()
    now = clock.now()
    session = Session(
        session_id=1,
        user_id=1,
        email="",
        display_name="",
        roles=("admin",),
        created_at=timestamp(now + began),
        expires_at=timestamp(now + ends),
        last_activity_at=timestamp(now + used),
        client_ip="",
        auth0_id=None,
    )
    records = OneRecord(msgspec.json.encode(session))
    return asyncio.run(Sessions(records, clock=clock, ids=Snowflakes(clock)).get(TOKEN))


def test_a_session_within_its_longest_time_is_accepted() -> None:
    assert got(began=60.0 - LONGEST_SECONDS, ends=60.0) is not None


@pytest.mark.parametrize(
    ("began", "ends", "used"),
    [
        (-LONGEST_SECONDS, YEAR, 0.0),
        (-YEAR, YEAR, 0.0),
        (-YEAR, YEAR, -YEAR),
        (YEAR, YEAR, 0.0),
        (3600.0, 3600.0 + LONGEST_SECONDS, 0.0),
    ],
    ids=["one that has had its time", "an old one", "one long unused", "one to come", "one of a later hour"],
)
def test_a_session_that_says_it_lasts_longer_than_any_may_is_not_accepted(
    began: float, ends: float, used: float
) -> None:
    assert got(began=began, ends=ends, used=used) is None


def test_the_clocks_of_two_servers_may_differ_a_little() -> None:
    assert got(began=30.0, ends=3600.0) is not None
