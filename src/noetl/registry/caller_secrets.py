"""Secrets that a caller sent along with a request to start an execution, kept as long as that runs.

They are values of the caller's own environment for variables that the playbook's keychain names. With a
master key they lie encrypted in `auth_cache`, so that every server has them, and one that is started again;
without one they are in this process alone. Nothing here resolves a keychain or ends an execution.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from noetl.ids import Clock
from noetl.registry.auth_cache import AuthCache, scope_of

CALLER: Final = "@caller"
"""What their entries in the cache are called; no credential can have that name."""
CALLER_TYPE: Final = "env"
LASTS_SECONDS: Final = 366 * 86_400.0
"""The end of an execution takes them away; this is for one that never ends."""


class CallerSecrets(Protocol):
    async def keep(
        self, execution_id: str, values: Mapping[str, str], parent_execution_id: str | None = None
    ) -> None: ...

    async def find(self, execution_id: str) -> Mapping[str, str]:
        """What was sent along with this execution; empty where nothing was, or it is over."""
        ...

    async def forget(self, execution_ids: Collection[str]) -> None:
        """Theirs, once they are over, and whatever else is kept in the same place for them."""
        ...

    async def executions(self) -> list[tuple[str, float]]:
        """Those whose secrets are kept, and since when (seconds since 1970)."""
        ...


class CachedCallerSecrets:
    """Encrypted in `auth_cache`, with the scope of the execution."""

    def __init__(self, cache: AuthCache) -> None:
        self._cache = cache

    async def keep(
        self, execution_id: str, values: Mapping[str, str], parent_execution_id: str | None = None
    ) -> None:
        scope = scope_of(execution_id, parent_execution_id)
        await self._cache.keep(CALLER, CALLER_TYPE, dict(values), scope=scope, lasts_seconds=LASTS_SECONDS)

    async def find(self, execution_id: str) -> Mapping[str, str]:
        return await self._cache.find(CALLER, scope=scope_of(execution_id), cache_type="secret") or {}

    async def forget(self, execution_ids: Collection[str]) -> None:
        await self._cache.forget_executions(execution_ids)

    async def executions(self) -> list[tuple[str, float]]:
        return await self._cache.executions_with(CALLER)


class CallerSecretsInMemory:
    """In this process alone: other servers do not have them, and its end takes them away."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, tuple[dict[str, str], float]] = {}

    async def keep(
        self, execution_id: str, values: Mapping[str, str], parent_execution_id: str | None = None
    ) -> None:
        self._kept[execution_id] = (dict(values), self._clock.now())

    async def find(self, execution_id: str) -> Mapping[str, str]:
        return self._kept[execution_id][0] if execution_id in self._kept else {}

    async def forget(self, execution_ids: Collection[str]) -> None:
        for execution_id in execution_ids:
            self._kept.pop(execution_id, None)

    async def executions(self) -> list[tuple[str, float]]:
        return [(execution_id, since) for execution_id, (_, since) in self._kept.items()]
