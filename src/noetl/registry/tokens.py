"""API tokens: random, shown once, stored as a digest, each with one role; a worker's may be bound to pools.

A token that was good a moment ago is not looked up again for a few seconds; a revocation is known at once
where it was made, and elsewhere when that time is over. Nothing here knows HTTP.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import msgspec

from noetl.errors import NoetlError
from noetl.ids import Clock, Snowflakes, timestamp
from noetl.registry.roles import ROLES, Role
from noetl.registry.runtime import NAME as POOL_NAME
from noetl.store.registry_protocol import RegistryStore, TokenRow

PREFIX: Final = "noetl_"
"""So that a token that got into a repository or a log is found by those who look for such."""
RANDOM_BYTES: Final = 32
FORM: Final = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]{43}")
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,199}")
WORKER: Final = "worker"
MOST_POOLS: Final = 50
REMEMBER_SECONDS: Final = 5.0
MOST_REMEMBERED: Final = 10_000
ATTEMPTS: Final = 3
"""Two processes may draw the same id in the same millisecond; the next one is another."""
NOTE_USE_SECONDS: Final = 60.0
"""The last use is written at most this often."""


class TokenError(NoetlError):
    """A token that cannot be made as it was asked for."""

    code = "token.invalid"


class TokenUnknownError(NoetlError):
    code = "token.unknown"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What may be shown of a token."""

    id: str
    name: str
    role: Role
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None
    pools: tuple[str, ...] = ()
    """Whose work a worker may take with it; none named: any."""


class IssuedToken(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    """The token itself: this is the only time it is seen."""
    token: Token

    def __repr__(self) -> str:
        return f"IssuedToken(name={self.token.name!r})"


class Tokens:
    def __init__(
        self,
        store: RegistryStore,
        *,
        clock: Clock,
        ids: Snowflakes,
        remember_seconds: float = REMEMBER_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._remember_seconds = remember_seconds
        self._known: dict[str, _Remembered] = {}

    async def create(
        self, name: str, role: str, *, lasts_seconds: float | None = None, pools: Sequence[str] = ()
    ) -> IssuedToken:
        if not NAME.fullmatch(name):
            raise TokenError(
                "the name of a token begins with a letter or `_` and has at most 200 letters, digits, `_`, "
                f"`-`, `.` and `@`: `{name[:60]}` is none"
            )
        if role not in ROLES:
            raise TokenError(f"there is no role `{role[:60]}`: {', '.join(ROLES)}")
        if lasts_seconds is not None and lasts_seconds <= 0:
            raise TokenError("a token lasts longer than no time")
        _check_pools(role, pools)
        now = self._clock.now()
        text = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
        for _ in range(ATTEMPTS):
            row = TokenRow(
                token_id=self._ids.next(),
                name=name,
                role=role,
                digest=digest_of(text),
                created_at=now,
                expires_at=None if lasts_seconds is None else now + lasts_seconds,
                pools=",".join(pools),
            )
            if await self._store.add_token(row):
                return IssuedToken(text=text, token=_shown(row))
        raise TokenError(f"there is a token `{name}` already: revoke it first, or choose another name")

    async def verify(self, text: str) -> Token | None:
        """The token, if it is one, and neither expired nor revoked."""
        if not FORM.fullmatch(text):
            return None
        now, moment = self._clock.now(), self._clock.monotonic()
        digest = digest_of(text)
        known = self._known.get(digest)
        if known is None or known.until <= moment:
            row = await self._store.token_by_digest(digest)
            if row is None or row.revoked_at is not None:
                self._known.pop(digest, None)
                return None
            known = _Remembered(row, moment + self._remember_seconds)
            self._remember(digest, known)
        row = known.row
        if row.expires_at is not None and row.expires_at <= now:
            return None
        if row.last_used_at is None or row.last_used_at + NOTE_USE_SECONDS <= now:
            row = msgspec.structs.replace(row, last_used_at=now)
            self._remember(digest, known._replace(row=row))
            await self._store.use_token(row.token_id, now)
        return _shown(row)

    def has_met(self, text: str) -> bool:
        """Whether it was good when it was last looked up here: what was not may be a guess."""
        return digest_of(text) in self._known

    async def list(self) -> list[Token]:
        """All of them, the oldest first, revoked ones included."""
        return [_shown(row) for row in await self._store.tokens()]

    async def revoke(self, identifier: str) -> Token:
        """By name or id."""
        row = None
        if "\0" not in identifier:
            row = await self._store.revoke_token(identifier, self._clock.now())
        if row is None:
            raise TokenUnknownError(f"there is no token `{identifier[:200]}` that could be revoked")
        self._known.pop(row.digest, None)
        return _shown(row)

    def _remember(self, digest: str, known: _Remembered) -> None:
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known[digest] = known


class _Remembered(NamedTuple):
    row: TokenRow
    until: float
    """By the monotonic clock."""


def digest_of(text: str) -> str:
    """What is stored of a token: it is random enough that nothing slower is needed."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _check_pools(role: str, pools: Sequence[str]) -> None:
    if pools and role != WORKER:
        raise TokenError(f"only a token with the role `{WORKER}` can be bound to pools")
    if len(pools) > MOST_POOLS:
        raise TokenError(f"a token is bound to at most {MOST_POOLS} pools")
    for pool in pools:
        if not POOL_NAME.fullmatch(pool):
            raise TokenError(f"`{pool[:60]}` cannot be the name of a pool")


def _shown(row: TokenRow) -> Token:
    return Token(
        id=row.token_id,
        name=row.name,
        role=cast(Role, row.role),
        created_at=timestamp(row.created_at),
        expires_at=_written(row.expires_at),
        last_used_at=_written(row.last_used_at),
        revoked_at=_written(row.revoked_at),
        pools=tuple(row.pools.split(",")) if row.pools else (),
    )


def _written(moment: float | None) -> str | None:
    return None if moment is None else timestamp(moment)
