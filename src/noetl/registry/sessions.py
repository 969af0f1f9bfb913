"""Sessions of people who logged in: a random token, and who it stands for until when.

The token is stored nowhere; sessions are found by its digest. Each use moves the end on, up to a limit that
is set when the session begins. They are kept in NATS K/V (`KeyValueSessions`), or in the `session` table
where NATS is not configured (`TableSessions`); the rules here are the same for both. The end written into
the value decides: what a store removes late is over all the same. So does the limit, which is counted from
when the session began: one that somebody else wrote does not last longer than those that are made here.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from noetl.errors import NoetlError
from noetl.ids import Clock, Snowflakes, seconds_of, timestamp
from noetl.store.registry_protocol import RegistryStore, SessionRow

SLIDING_SECONDS: Final = 86_400.0
"""How long a session lasts without being used."""
LONGEST_SECONDS: Final = 7 * 86_400.0
"""How long it lasts however much it is used."""
SLIDE_EVERY_SECONDS: Final = 60.0
"""A use is written down at most this often."""
CLOCKS_DIFFER_SECONDS: Final = 300.0
"""How far the clocks of two servers may be apart."""
RANDOM_BYTES: Final = 32
FORM: Final = re.compile(r"[A-Za-z0-9_-]{43}")
BUCKET: Final = "noetl_sessions"
PREFIX: Final = "noetl.sessions"
INDEX_VALUE: Final = b"1"
"""An index key says all by being there, but an empty value would be the mark of a removed one."""
MOST_ID: Final = 2**63


class SessionConflictError(NoetlError):
    """Somebody else has changed or ended the session since it was read."""

    code = "session.conflict"


class SessionError(NoetlError):
    """A session that cannot be begun as it was asked for."""

    code = "session.invalid"


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Who a session is for."""

    user_id: int
    email: str = ""
    display_name: str = ""
    roles: tuple[str, ...] = ()
    client_ip: str = ""
    auth0_id: str | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The value that is stored; moments are RFC 3339."""

    session_id: int
    user_id: int
    email: str
    display_name: str
    roles: tuple[str, ...]
    created_at: str
    expires_at: str
    last_activity_at: str
    client_ip: str
    auth0_id: str | None


class HeldSession(NamedTuple):
    """A session as it was read, and the revision a change of it must name."""

    session: Session
    revision: int


class SessionRecords(Protocol):
    """Where sessions lie: values under digests, each with a revision and a time to live."""

    async def create(self, digest: str, user_id: int, value: bytes, lasts_seconds: float) -> bool: ...

    async def get(self, digest: str) -> tuple[bytes, int] | None: ...

    async def update(
        self, digest: str, user_id: int, value: bytes, revision: int, lasts_seconds: float
    ) -> int | None:
        """The revision after; None where `revision` is not the last one."""
        ...

    async def delete(self, digest: str, user_id: int) -> None: ...

    async def of_user(self, user_id: int) -> list[str]:
        """Digests; some may be of sessions that are over."""
        ...


class Sessions:
    def __init__(
        self,
        records: SessionRecords,
        *,
        clock: Clock,
        ids: Snowflakes,
        sliding_seconds: float = SLIDING_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
        slide_every_seconds: float = SLIDE_EVERY_SECONDS,
    ) -> None:
        self._records = records
        self._clock = clock
        self._ids = ids
        self._sliding_seconds = sliding_seconds
        self._longest_seconds = longest_seconds
        self._slide_every_seconds = slide_every_seconds

    async def create(self, login: Login) -> tuple[str, Session]:
        """The token, which is seen only now, and the session."""
        if not 0 <= login.user_id < MOST_ID:
            raise SessionError("the id of a user is a whole number from 0 on")
        token = secrets.token_urlsafe(RANDOM_BYTES)
        now = self._clock.now()
        session = Session(
            session_id=int(self._ids.next()),
            created_at=timestamp(now),
            expires_at=timestamp(self._end(now, now)),
            last_activity_at=timestamp(now),
            **msgspec.structs.asdict(login),
        )
        value = msgspec.json.encode(session)
        if not await self._records.create(_digest(token), login.user_id, value, self._lasts(session, now)):
            raise SessionConflictError("two sessions drew the same token: log in again")
        return token, session

    async def get(self, token: str) -> HeldSession | None:
        """The session of a token, whose end this use moves on; None if it is over or never was."""
        held = await self._held(_digest(token)) if FORM.fullmatch(token) else None
        if held is None:
            return None
        now = self._clock.now()
        if seconds_of(held.session.last_activity_at) + self._slide_every_seconds > now:
            return held
        slid = await self._write(_digest(token), held, held.session, now)
        # Another use was written at the same time, or the session was ended: what is there now counts.
        return slid or await self._held(_digest(token))

    async def update(self, token: str, revision: int, change: Callable[[Session], Session]) -> HeldSession:
        """Changes a session that was read at `revision`; SessionConflictError if it is another by now.

        Who it is for, and when it began and ends, stay as they are.
        """
        held = await self._held(_digest(token)) if FORM.fullmatch(token) else None
        if held is None or held.revision != revision:
            raise SessionConflictError("the session was changed or ended by somebody else: read it again")
        wanted = msgspec.structs.replace(
            change(held.session),
            session_id=held.session.session_id,
            user_id=held.session.user_id,
            created_at=held.session.created_at,
        )
        changed = await self._write(_digest(token), held, wanted, self._clock.now())
        if changed is None:
            raise SessionConflictError("the session was changed or ended by somebody else: read it again")
        return changed

    async def revoke(self, token: str) -> bool:
        """Ends a session; false where there was none."""
        held = await self._held(_digest(token)) if FORM.fullmatch(token) else None
        if held is None:
            return False
        await self._records.delete(_digest(token), held.session.user_id)
        return True

    async def of_user(self, user_id: int) -> list[Session]:
        """The sessions of a user that are not over, the oldest first."""
        found = [await self._held(digest) for digest in await self._records.of_user(user_id)]
        live = [held.session for held in found if held is not None and held.session.user_id == user_id]
        return sorted(live, key=lambda session: session.session_id)

    async def revoke_session(self, user_id: int, session_id: int) -> bool:
        """Ends one session of a user by its id, for lists from which one is picked."""
        for digest in await self._records.of_user(user_id):
            held = await self._held(digest)
            if held is not None and held.session.session_id == session_id:
                await self._records.delete(digest, user_id)
                return True
        return False

    async def revoke_user(self, user_id: int) -> int:
        """Ends all sessions of a user, and says how many there were."""
        ended = 0
        for digest in await self._records.of_user(user_id):
            ended += await self._held(digest) is not None
            await self._records.delete(digest, user_id)
        return ended

    async def _held(self, digest: str) -> HeldSession | None:
        found = await self._records.get(digest)
        if found is None:
            return None
        session = msgspec.json.decode(found[0], type=Session)
        if not self._is_on(session, self._clock.now()):
            return None
        return HeldSession(session, found[1])

    def _is_on(self, session: Session, now: float) -> bool:
        """Whether it is not over yet, by its end and by the limit that holds whatever end was written."""
        began = seconds_of(session.created_at)
        if began > now + CLOCKS_DIFFER_SECONDS:
            return False
        return now < min(seconds_of(session.expires_at), began + self._longest_seconds)

    async def _write(self, digest: str, held: HeldSession, wanted: Session, now: float) -> HeldSession | None:
        """Writes a session with its end moved on; None where it is another by now."""
        # Never back: an older value with a later end could come to light when this one goes.
        end = max(self._end(now, seconds_of(wanted.created_at)), seconds_of(held.session.expires_at))
        session = msgspec.structs.replace(wanted, expires_at=timestamp(end), last_activity_at=timestamp(now))
        revision = await self._records.update(
            digest, session.user_id, msgspec.json.encode(session), held.revision, self._lasts(session, now)
        )
        return None if revision is None else HeldSession(session, revision)

    def _end(self, now: float, began: float) -> float:
        return min(now + self._sliding_seconds, began + self._longest_seconds)

    @staticmethod
    def _lasts(session: Session, now: float) -> float:
        return seconds_of(session.expires_at) - now


class KeyValue(Protocol):
    """Keys with a time to live that every write sets; see `noetl.bus.kv.NatsKeyValue`."""

    async def create(self, key: str, value: bytes, lasts_seconds: float) -> int | None: ...

    async def get(self, key: str) -> tuple[bytes, int] | None: ...

    async def update(self, key: str, value: bytes, revision: int, lasts_seconds: float) -> int | None: ...

    async def put(self, key: str, value: bytes, lasts_seconds: float) -> None: ...

    async def delete(self, key: str) -> None: ...

    async def keys(self, pattern: str) -> list[str]: ...


class KeyValueSessions:
    """Sessions as keys, with a second key for each by which those of a user are found.

    The index is always written before and removed after the session, so that none can be missed when all
    of a user are ended; one that leads nowhere does no harm.
    """

    def __init__(self, bucket: KeyValue) -> None:
        self._bucket = bucket

    async def create(self, digest: str, user_id: int, value: bytes, lasts_seconds: float) -> bool:
        await self._bucket.put(_index(user_id, digest), INDEX_VALUE, lasts_seconds)
        return await self._bucket.create(_key(digest), value, lasts_seconds) is not None

    async def get(self, digest: str) -> tuple[bytes, int] | None:
        return await self._bucket.get(_key(digest))

    async def update(
        self, digest: str, user_id: int, value: bytes, revision: int, lasts_seconds: float
    ) -> int | None:
        await self._bucket.put(_index(user_id, digest), INDEX_VALUE, lasts_seconds)
        return await self._bucket.update(_key(digest), value, revision, lasts_seconds)

    async def delete(self, digest: str, user_id: int) -> None:
        await self._bucket.delete(_key(digest))
        await self._bucket.delete(_index(user_id, digest))

    async def of_user(self, user_id: int) -> list[str]:
        return [key.rpartition(".")[2] for key in await self._bucket.keys(_index(user_id, "*"))]


class TableSessions:
    def __init__(self, store: RegistryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, digest: str, user_id: int, value: bytes, lasts_seconds: float) -> bool:
        end = self._clock.now() + lasts_seconds
        return await self._store.add_session(
            SessionRow(digest=digest, user_id=user_id, value=value, revision=1, expires_at=end)
        )

    async def get(self, digest: str) -> tuple[bytes, int] | None:
        row = await self._store.session(digest, self._clock.now())
        return None if row is None else (row.value, row.revision)

    async def update(
        self, digest: str, user_id: int, value: bytes, revision: int, lasts_seconds: float
    ) -> int | None:
        return await self._store.change_session(digest, value, revision, self._clock.now() + lasts_seconds)

    async def delete(self, digest: str, user_id: int) -> None:
        await self._store.delete_session(digest)

    async def of_user(self, user_id: int) -> list[str]:
        return [row.digest for row in await self._store.sessions_of_user(user_id, self._clock.now())]

    async def clean_up(self) -> int:
        """Removes sessions that are over, and says how many; NATS does so by itself."""
        return await self._store.forget_sessions(self._clock.now())


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("ascii")).hexdigest()


def _key(digest: str) -> str:
    return f"{PREFIX}.{digest}"


def _index(user_id: int, digest: str) -> str:
    return f"{PREFIX}.user.{user_id}.{digest}"
