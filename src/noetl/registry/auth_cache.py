"""The cache of what was handed out: decrypted credentials and fetched tokens, encrypted again.

An entry belongs to one execution or to all, lasts a while, and counts how often it was asked for. It is
bound to its key: an entry that was moved, altered or encrypted with a key that is gone counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from noetl.errors import NoetlError
from noetl.ids import Clock
from noetl.secrets.encryption import (
    KeyRing,
    KeyUnknownError,
    RecordDamagedError,
    packed,
    seal,
    unpacked,
    unseal,
)
from noetl.store.codec import decode_json, encode_json
from noetl.store.registry_protocol import CacheRow, CacheType, RegistryStore

CACHE_SECONDS: Final = 3600.0
LARGEST_ID: Final = 2**63


class ExecutionIdError(NoetlError):
    """An execution id that is none."""

    code = "execution.invalid_id"


class Scope(NamedTuple):
    """For whom an entry is: one execution (and its parent's end takes it along), or all."""

    execution_id: int | None = None
    parent_execution_id: int | None = None


GLOBAL: Final = Scope()


def scope_of(execution_id: str | None, parent_execution_id: str | None = None) -> Scope:
    """The scope a request names; without an execution it is everybody's."""
    if execution_id is None:
        return GLOBAL
    return Scope(_number(execution_id), None if parent_execution_id is None else _number(parent_execution_id))


def _number(written: str) -> int:
    if not (written.isascii() and written.isdigit() and len(written) < 20 and int(written) < LARGEST_ID):
        raise ExecutionIdError(f"`{written[:40]}` is no execution id")
    return int(written)


class AuthCache:
    def __init__(
        self, store: RegistryStore, ring: KeyRing, clock: Clock, *, lasts_seconds: float = CACHE_SECONDS
    ) -> None:
        self._store = store
        self._ring = ring
        self._clock = clock
        self._lasts_seconds = lasts_seconds

    async def keep(
        self,
        name: str,
        credential_type: str,
        data: dict[str, Any],
        *,
        scope: Scope = GLOBAL,
        cache_type: CacheType = "secret",
        lasts_seconds: float | None = None,
    ) -> CacheRow:
        """Puts an entry, or refreshes the one that is there: data, expiry, last access, count."""
        now = self._clock.now()
        key = cache_key(name, scope, cache_type)
        return await self._store.keep_cached(
            CacheRow(
                cache_key=key,
                credential_name=name,
                credential_type=credential_type,
                cache_type=cache_type,
                scope_type="global" if scope.execution_id is None else "execution",
                execution_id=scope.execution_id,
                parent_execution_id=scope.parent_execution_id,
                data_encrypted=packed(seal(self._ring, encode_json(data), ("auth_cache", key))),
                expires_at=now + (self._lasts_seconds if lasts_seconds is None else lasts_seconds),
                created_at=now,
                accessed_at=now,
            )
        )

    async def find(
        self, name: str, *, scope: Scope = GLOBAL, cache_type: CacheType = "token"
    ) -> dict[str, Any] | None:
        """What is kept and has not expired; asking counts."""
        key = cache_key(name, scope, cache_type)
        row = await self._store.cached(key, self._clock.now())
        if row is None:
            return None
        try:
            plain = unseal(self._ring, unpacked(row.data_encrypted), ("auth_cache", key))
        except (KeyUnknownError, RecordDamagedError):
            return None
        found: dict[str, Any] = decode_json(plain)
        return found

    async def forget_credential(self, name: str) -> int:
        return await self._store.forget_cached(credential_name=name)

    async def forget_executions(self, execution_ids: Iterable[str]) -> int:
        """What was kept for executions that are over, and for those that they started."""
        return await self._store.forget_cached_of([_number(each) for each in execution_ids])

    async def executions_with(self, name: str) -> list[tuple[str, float]]:
        """The executions that have an entry of a name of their own, and since when."""
        found = await self._store.cache_entries(name)
        return [(str(row.execution_id), row.created_at) for row in found if row.execution_id is not None]

    async def clean_up(self) -> int:
        """Removes what has expired, and says how many."""
        return await self._store.forget_cached(expired_by=self._clock.now())

    async def renew(self, kept: str) -> None:
        """Forgets what can be made again, and encrypts the entries of one name with the current key."""
        names = {row.credential_name for row in await self._store.cache_entries()}
        for name in names - {kept}:
            await self.forget_credential(name)
        for row in await self._store.cache_entries(kept):
            try:
                plain = unseal(self._ring, unpacked(row.data_encrypted), ("auth_cache", row.cache_key))
            except (KeyUnknownError, RecordDamagedError):
                continue
            sealed = packed(seal(self._ring, plain, ("auth_cache", row.cache_key)))
            await self._store.keep_cached(msgspec.structs.replace(row, data_encrypted=sealed))


def cache_key(name: str, scope: Scope, cache_type: CacheType) -> str:
    # No name of a credential holds a colon.
    where = "global" if scope.execution_id is None else f"execution:{scope.execution_id}"
    return f"{cache_type}:{where}:{name}"
