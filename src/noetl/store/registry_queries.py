"""The registry's store as named queries: the same for every database.

What differs is how statements are run and how a database writes JSON and moments; that is the work of
`registry_sqlite` and `registry_postgres`. Nothing here knows a driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from noetl.store.codec import encode_json
from noetl.store.registry_protocol import (
    CacheRow,
    CredentialRow,
    RuntimeKind,
    RuntimeRow,
    SessionRow,
    TokenRow,
)

Found: TypeAlias = list[dict[str, Any]]
Statement: TypeAlias = tuple[str, Mapping[str, Any]]
"""The name of a query, and its parameters."""
RowType = TypeVar("RowType")

JSON_COLUMNS: Final = ("tags", "meta", "labels")
MOMENTS: Final = (
    "now",
    "created_at",
    "updated_at",
    "expires_at",
    "accessed_at",
    "last_used_at",
    "revoked_at",
    "started_at",
    "last_beat",
    "expired_by",
    "silent_since",
)
"""Parameters and columns that are seconds since 1970 here."""


class Runner(Protocol):
    """Runs named statements in one transaction and gives what each returned.

    JSON columns leave it decoded, moments as seconds since 1970.
    """

    async def run(self, statements: Sequence[Statement]) -> list[Found]: ...

    async def close(self) -> None: ...


class QueryRegistry:
    """See `noetl.store.registry_protocol.RegistryStore`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def close(self) -> None:
        await self._runner.close()

    async def add_credential(self, row: CredentialRow) -> bool:
        return bool(await self._one("insert_credential", _values(row)))

    async def change_credential(self, row: CredentialRow) -> bool:
        changed, _ = await self._runner.run(
            [("update_credential", _values(row)), ("forget_cached", _cached_of(row))]
        )
        return bool(changed)

    async def credential(self, identifier: str) -> CredentialRow | None:
        return _first(await self._one("credential", {"identifier": identifier}), CredentialRow)

    async def credentials(
        self, *, of_type: str | None = None, text: str | None = None, after: str = "", limit: int = 100
    ) -> list[CredentialRow]:
        wanted = {"type": of_type, "text": text, "after": after, "limit": limit}
        return _all(await self._one("credentials", wanted), CredentialRow)

    async def delete_credential(self, row: CredentialRow) -> bool:
        deleted, _ = await self._runner.run(
            [
                ("delete_credential", {"credential_id": row.credential_id}),
                ("forget_cached", _cached_of(row)),
            ]
        )
        return bool(deleted)

    async def credentials_of_other_keys(
        self, key_id: str, *, after: str = "", limit: int = 100
    ) -> list[CredentialRow]:
        wanted = {"key_id": key_id, "after": after, "limit": limit}
        return _all(await self._one("credentials_of_other_keys", wanted), CredentialRow)

    async def rewrap_credential(self, row: CredentialRow) -> bool:
        changed = {
            "credential_id": row.credential_id,
            "version": row.version,
            "key_id": row.key_id,
            "data_key": row.data_key,
        }
        return bool(await self._one("rewrap_credential", changed))

    async def keep_cached(self, row: CacheRow) -> CacheRow:
        found = await self._one("keep_cached", {**_values(row), "now": row.accessed_at})
        return msgspec.convert(found[0], CacheRow)

    async def cached(self, cache_key: str, now: float) -> CacheRow | None:
        return _first(await self._one("cached", {"cache_key": cache_key, "now": now}), CacheRow)

    async def cache_entries(self, credential_name: str | None = None) -> list[CacheRow]:
        return _all(await self._one("cache_entries", {"credential_name": credential_name}), CacheRow)

    async def forget_cached(
        self, *, credential_name: str | None = None, expired_by: float | None = None
    ) -> int:
        wanted = {"credential_name": credential_name, "expired_by": expired_by}
        return len(await self._one("forget_cached", wanted))

    async def forget_cached_of(self, execution_ids: Sequence[int]) -> int:
        wanted = {"execution_ids": encode_json(list(execution_ids)).decode()}
        return len(await self._one("forget_cached_of", wanted))

    async def add_token(self, row: TokenRow) -> bool:
        return bool(await self._one("insert_token", _values(row)))

    async def token_by_digest(self, digest: str) -> TokenRow | None:
        return _first(await self._one("token_by_digest", {"digest": digest}), TokenRow)

    async def tokens(self) -> list[TokenRow]:
        return _all(await self._one("tokens", {}), TokenRow)

    async def use_token(self, token_id: str, now: float) -> None:
        await self._one("use_token", {"token_id": token_id, "now": now})

    async def revoke_token(self, identifier: str, now: float) -> TokenRow | None:
        return _first(await self._one("revoke_token", {"identifier": identifier, "now": now}), TokenRow)

    async def add_session(self, row: SessionRow) -> bool:
        return bool(await self._one("insert_session", _values(row)))

    async def session(self, digest: str, now: float) -> SessionRow | None:
        return _first(await self._one("session", {"digest": digest, "now": now}), SessionRow)

    async def sessions_of_user(self, user_id: int, now: float) -> list[SessionRow]:
        return _all(await self._one("sessions_of_user", {"user_id": user_id, "now": now}), SessionRow)

    async def change_session(self, digest: str, value: bytes, revision: int, expires_at: float) -> int | None:
        changed = {"digest": digest, "value": value, "revision": revision, "expires_at": expires_at}
        found = await self._one("update_session", changed)
        return found[0]["revision"] if found else None

    async def delete_session(self, digest: str) -> bool:
        return bool(await self._one("delete_session", {"digest": digest}))

    async def forget_sessions(self, expired_by: float) -> int:
        return len(await self._one("forget_sessions", {"expired_by": expired_by}))

    async def save_runtime(self, row: RuntimeRow) -> None:
        await self._one("save_runtime", _values(row))

    async def beat_runtime(self, kind: RuntimeKind, name: str, now: float) -> bool:
        return bool(await self._one("beat_runtime", {"kind": kind, "name": name, "now": now}))

    async def runtimes(self, *, kind: RuntimeKind | None = None, pool: str | None = None) -> list[RuntimeRow]:
        return _all(await self._one("runtimes", {"kind": kind, "pool": pool}), RuntimeRow)

    async def delete_runtime(self, kind: RuntimeKind, name: str) -> bool:
        return bool(await self._one("delete_runtime", {"kind": kind, "name": name}))

    async def forget_runtimes(self, silent_since: float) -> int:
        return len(await self._one("forget_runtimes", {"silent_since": silent_since}))

    async def _one(self, query: str, values: Mapping[str, Any]) -> Found:
        (found,) = await self._runner.run([(query, values)])
        return found


def _values(row: msgspec.Struct) -> dict[str, Any]:
    values = msgspec.structs.asdict(row)
    for column in JSON_COLUMNS:
        if column in values:
            values[column] = encode_json(values[column]).decode("utf-8")
    return values


def _cached_of(row: CredentialRow) -> dict[str, Any]:
    return {"credential_name": row.name, "execution_id": None, "expired_by": None}


def _first(found: Found, kind: type[RowType]) -> RowType | None:
    return msgspec.convert(found[0], kind) if found else None


def _all(found: Found, kind: type[RowType]) -> list[RowType]:
    return [msgspec.convert(row, kind) for row in found]
