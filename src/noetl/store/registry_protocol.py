"""What the registry asks of a database, and the rows that cross that boundary.

Secrets arrive here encrypted and tokens as digests: a store of this kind never sees a value that opens
anything. Moments are seconds since 1970 and come from the caller, so that one clock decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

CacheType: TypeAlias = Literal["secret", "token"]
ScopeType: TypeAlias = Literal["execution", "global"]
RuntimeKind: TypeAlias = Literal["server", "pool", "worker"]


class CredentialRow(msgspec.Struct, frozen=True, kw_only=True):
    """A credential: what may be shown of it, and its encrypted data."""

    credential_id: str
    name: str
    type: str
    version: int
    """How often its data was set; part of what the encryption is bound to."""
    description: str
    tags: tuple[str, ...]
    meta: dict[str, Any]
    key_id: str
    """The master key that encrypts `data_key`."""
    data_key: bytes
    body: bytes
    created_at: float
    updated_at: float


class CacheRow(msgspec.Struct, frozen=True, kw_only=True):
    """A credential or token that was handed out, for whom, and how often."""

    cache_key: str
    credential_name: str
    credential_type: str
    cache_type: CacheType
    scope_type: ScopeType
    execution_id: int | None
    parent_execution_id: int | None
    data_encrypted: bytes
    expires_at: float
    created_at: float
    accessed_at: float
    access_count: int = 0


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    token_id: str
    name: str
    role: str
    digest: str
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    revoked_at: float | None = None
    pools: str = ""
    """With commas between them; empty: any."""


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    user_id: int
    value: bytes
    revision: int
    expires_at: float


class RuntimeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A server, a pool or a worker that has made itself known."""

    kind: RuntimeKind
    name: str
    pool: str | None
    slots: int
    labels: dict[str, str]
    protocol: int
    version: str
    started_at: float
    last_beat: float


class RegistryStore(Protocol):
    """All methods may raise StoreError."""

    async def close(self) -> None: ...

    async def add_credential(self, row: CredentialRow) -> bool:
        """False where its name or id is taken."""
        ...

    async def change_credential(self, row: CredentialRow) -> bool:
        """Writes the version after the one that is there, and forgets what is cached of it.

        False where that is not the version before.
        """
        ...

    async def credential(self, identifier: str) -> CredentialRow | None:
        """By name or id."""
        ...

    async def credentials(
        self, *, of_type: str | None = None, text: str | None = None, after: str = "", limit: int = 100
    ) -> list[CredentialRow]:
        """By name; `text` stands in name, description or tags, `after` is a name to page on from."""
        ...

    async def delete_credential(self, row: CredentialRow) -> bool:
        """With what is cached of it."""
        ...

    async def credentials_of_other_keys(
        self, key_id: str, *, after: str = "", limit: int = 100
    ) -> list[CredentialRow]:
        """Those whose data key another master key encrypts, by name."""
        ...

    async def rewrap_credential(self, row: CredentialRow) -> bool:
        """Writes only `key_id` and `data_key`; False where `version` is not the one that is there."""
        ...

    async def keep_cached(self, row: CacheRow) -> CacheRow:
        """Puts an entry, or refreshes and counts the one that is there; what stands there then."""
        ...

    async def cached(self, cache_key: str, now: float) -> CacheRow | None:
        """An entry that has not expired; asking counts."""
        ...

    async def cache_entries(self, credential_name: str | None = None) -> list[CacheRow]:
        """Without counting."""
        ...

    async def forget_cached(
        self, *, credential_name: str | None = None, expired_by: float | None = None
    ) -> int:
        """Removes the entries that meet all that is given, and says how many."""
        ...

    async def forget_cached_of(self, execution_ids: Sequence[int]) -> int:
        """Removes the entries of executions and of their children, and says how many."""
        ...

    async def add_token(self, row: TokenRow) -> bool:
        """False where a token that is not revoked has the name, or any has the id."""
        ...

    async def token_by_digest(self, digest: str) -> TokenRow | None: ...

    async def tokens(self) -> list[TokenRow]:
        """The oldest first."""
        ...

    async def use_token(self, token_id: str, now: float) -> None: ...

    async def revoke_token(self, identifier: str, now: float) -> TokenRow | None:
        """By name or id; None where there is none that could be revoked."""
        ...

    async def add_session(self, row: SessionRow) -> bool: ...

    async def session(self, digest: str, now: float) -> SessionRow | None: ...

    async def sessions_of_user(self, user_id: int, now: float) -> list[SessionRow]: ...

    async def change_session(self, digest: str, value: bytes, revision: int, expires_at: float) -> int | None:
        """The revision after; None where `revision` is not the one that is there."""
        ...

    async def delete_session(self, digest: str) -> bool: ...

    async def forget_sessions(self, expired_by: float) -> int: ...

    async def save_runtime(self, row: RuntimeRow) -> None: ...

    async def beat_runtime(self, kind: RuntimeKind, name: str, now: float) -> bool:
        """False where nobody of that name has made itself known."""
        ...

    async def runtimes(
        self, *, kind: RuntimeKind | None = None, pool: str | None = None
    ) -> list[RuntimeRow]: ...

    async def delete_runtime(self, kind: RuntimeKind, name: str) -> bool: ...

    async def forget_runtimes(self, silent_since: float) -> int: ...
