"""Sessions wherever they lie: in SQLite, in PostgreSQL, in NATS."""

from __future__ import annotations

import asyncio
import hashlib

import msgspec
import pytest

from noetl.ids import Snowflakes, timestamp
from noetl.registry.sessions import (
    Login,
    Session,
    SessionConflictError,
    SessionError,
    SessionRecords,
    Sessions,
)
from tests.contract.registry.conftest import START, PlaySessions, SetClock

HOUR = 3600.0


def desk(records: SessionRecords, clock: SetClock) -> Sessions:
    return Sessions(
        records,
        clock=clock,
        ids=Snowflakes(clock),
        sliding_seconds=HOUR,
        longest_seconds=3 * HOUR,
        slide_every_seconds=60.0,
    )


def login(user_id: int = 456) -> Login:
    return Login(
        user_id=user_id,
        email="user@example.com",
        display_name="User Name",
        roles=("admin", "developer"),
        client_ip="192.0.2.1",
        auth0_id="auth0|123",
    )


def test_a_session_is_found_by_its_token_and_holds_who_it_is_for(
    play_sessions: PlaySessions, clock: SetClock
) -> None:
    async def scenario(records: SessionRecords) -> None:
        sessions = desk(records, clock)
        token, made = await sessions.create(login())
        held = await sessions.get(token)
        assert held is not None
        assert held.session == made
        assert (made.user_id, made.email, made.roles) == (456, "user@example.com", ("admin", "developer"))
        assert (made.created_at, made.last_activity_at) == (timestamp(START),) * 2
        assert made.expires_at == timestamp(START + HOUR)
        found = await records.get(hashlib.sha256(token.encode()).hexdigest())
        assert found is not None
        assert token.encode() not in found[0]
        assert set(msgspec.json.decode(found[0])) == {
            "session_id",
            "user_id",
            "email",
            "display_name",
            "roles",
            "created_at",
            "expires_at",
            "last_activity_at",
            "client_ip",
            "auth0_id",
        }

    play_sessions(scenario)


def test_what_is_no_token_finds_nothing(play_sessions: PlaySessions, clock: SetClock) -> None:
    async def scenario(records: SessionRecords) -> None:
        sessions = desk(records, clock)
        token, _ = await sessions.create(login())
        for wrong in ("", "*", ">", "user.456", token[:-1], token + "a", "a" * 43, "é" * 43):
            assert await sessions.get(wrong) is None
            assert not await sessions.revoke(wrong)
            with pytest.raises(SessionConflictError):
                await sessions.update(wrong, 1, lambda session: session)

    play_sessions(scenario)


def test_use_moves_the_end_on_but_not_past_the_longest_time(
    play_sessions: PlaySessions, clock: SetClock
) -> None:
    async def scenario(records: SessionRecords) -> None:
        sessions = desk(records, clock)
        token, _ = await sessions.create(login())
        ends = []
        for passed in (59, 1, HOUR - 1, HOUR - 1, HOUR - 100):
            clock.at += passed
            held = await sessions.get(token)
            assert held is not None
            ends.append(held.session.expires_at)
        longest = timestamp(START + 3 * HOUR)
        assert ends == [
            timestamp(START + HOUR),
            timestamp(START + 60 + HOUR),
            timestamp(START + 59 + 2 * HOUR),
            longest,
            longest,
        ]
        clock.at = START + 3 * HOUR
        assert await sessions.get(token) is None

    play_sessions(scenario)


def test_a_session_that_nobody_uses_ends(play_sessions: PlaySessions, clock: SetClock) -> None:
    async def scenario(records: SessionRecords) -> None:
        sessions = desk(records, clock)
        token, _ = await sessions.create(login())
        clock.at += HOUR
        assert await sessions.get(token) is None
        assert await sessions.of_user(456) == []
        assert not await sessions.revoke(token)

    play_sessions(scenario)


def test_a_change_names_the_revision_it_was_decided_on(play_sessions: PlaySessions, clock: SetClock) -> None:
    def renamed(session: Session) -> Session:
        # Who it is for cannot be changed along the way.
        return msgspec.structs.replace(session, display_name="Other", user_id=1, session_id=1)

    async def scenario(records: SessionRecords) -> None:
        sessions = desk(records, clock)
        token, made = await sessions.create(login())
        held = await sessions.get(token)
        assert held is not None
        changed = await sessions.update(token, held.revision, renamed)
        assert (changed.session.display_name, changed.session.user_id) == ("Other", 456)
        assert changed.session.session_id == made.session_id
        with pytest.raises(SessionConflictError):
            await sessions.update(token, held.revision, renamed)
        assert await sessions.get(token) == changed
        again = await sessions.update(token, changed.revision, renamed)
        assert again.revision != changed.revision

    play_sessions(scenario)


def test_of_two_changes_at_once_one_is_told(play_sessions: PlaySessions, clock: SetClock) -> None:
    async def scenario(records: SessionRecords) -> None:
        sessions = desk(records, clock)
        token, _ = await sessions.create(login())
        held = await sessions.get(token)
        assert held is not None
        answers = await asyncio.gather(
            *(sessions.update(token, held.revision, lambda session: session) for _ in range(4)),
            return_exceptions=True,
        )
        assert sum(isinstance(answer, SessionConflictError) for answer in answers) == 3

    play_sessions(scenario)


def test_uses_at_the_same_moment_all_find_the_session(play_sessions: PlaySessions, clock: SetClock) -> None:
    async def scenario(records: SessionRecords) -> None:
        sessions = desk(records, clock)
        token, _ = await sessions.create(login())
        clock.at += 600
        found = await asyncio.gather(*(sessions.get(token) for _ in range(8)))
        assert {held.session.expires_at for held in found if held is not None} == {
            timestamp(START + 600 + HOUR)
        }
        assert None not in found

    play_sessions(scenario)


def test_a_revoked_session_is_over_and_a_late_change_does_not_bring_it_back(
    play_sessions: PlaySessions, clock: SetClock
) -> None:
    async def scenario(records: SessionRecords) -> None:
        sessions = desk(records, clock)
        token, _ = await sessions.create(login())
        held = await sessions.get(token)
        assert held is not None
        assert await sessions.revoke(token)
        assert not await sessions.revoke(token)
        assert await sessions.get(token) is None
        digest = hashlib.sha256(token.encode()).hexdigest()
        late = await records.update(digest, 456, msgspec.json.encode(held.session), held.revision, HOUR)
        assert late is None
        assert await sessions.get(token) is None
        assert await sessions.of_user(456) == []

    play_sessions(scenario)


def test_the_sessions_of_a_user_are_listed_and_ended_without_touching_others(
    play_sessions: PlaySessions, clock: SetClock
) -> None:
    async def scenario(records: SessionRecords) -> None:
        sessions = desk(records, clock)
        made = [await sessions.create(login(4)) for _ in range(3)]
        other, _ = await sessions.create(login(45))
        assert [each.session_id for each in await sessions.of_user(4)] == [
            session.session_id for _, session in made
        ]
        assert await sessions.of_user(5) == []
        assert await sessions.revoke_session(4, made[0][1].session_id)
        assert not await sessions.revoke_session(45, made[1][1].session_id)
        assert await sessions.revoke_user(4) == 2
        assert await sessions.revoke_user(4) == 0
        assert await sessions.of_user(4) == []
        for token, _ in made:
            assert await sessions.get(token) is None
        assert await sessions.get(other) is not None

    play_sessions(scenario)


def test_a_user_without_a_number_is_refused(play_sessions: PlaySessions, clock: SetClock) -> None:
    async def scenario(records: SessionRecords) -> None:
        for wrong in (-1, 2**63):
            with pytest.raises(SessionError):
                await desk(records, clock).create(login(wrong))

    play_sessions(scenario)
