"""The runtimes: servers, pools and workers, registered when they start and heard of by their beats.

Who has not been heard of for a while is shown as gone and later forgotten; nothing is decided by it, for
leases have clocks of their own.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from noetl.errors import NoetlError
from noetl.ids import Clock, timestamp
from noetl.store.registry_protocol import RegistryStore, RuntimeKind, RuntimeRow

ALIVE_SECONDS: Final = 30.0
FORGET_SECONDS: Final = 86_400.0
NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,199}")
MOST_SLOTS: Final = 100_000
MOST_LABELS: Final = 50


class RuntimeInvalidError(NoetlError):
    """A registration that makes no sense."""

    code = "runtime.invalid"


class Registration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a server, pool or worker says of itself."""

    kind: RuntimeKind
    name: str
    pool: str | None = None
    slots: int = 0
    """How many commands it works on at once."""
    labels: dict[str, str] = {}
    protocol: int = 1
    version: str = ""


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """A server, pool or worker, and whether it was heard of lately."""

    kind: RuntimeKind
    name: str
    pool: str | None
    slots: int
    labels: dict[str, str]
    protocol: int
    version: str
    started_at: str
    last_beat: str
    is_alive: bool


class Runtimes:
    def __init__(self, store: RegistryStore, *, clock: Clock, alive_seconds: float = ALIVE_SECONDS) -> None:
        self._store = store
        self._clock = clock
        self._alive_seconds = alive_seconds

    async def register(self, registration: Registration) -> Runtime:
        """Makes a runtime known, or again under the same name when it has started anew."""
        _check(registration)
        now = self._clock.now()
        row = RuntimeRow(**_fields(registration), started_at=now, last_beat=now)
        await self._store.save_runtime(row)
        return self._shown(row, now)

    async def beat(self, kind: RuntimeKind, name: str) -> bool:
        """False where the runtime is not known (any more): it should register again."""
        return await self._store.beat_runtime(kind, name, self._clock.now())

    async def list(self, *, kind: RuntimeKind | None = None, pool: str | None = None) -> list[Runtime]:
        now = self._clock.now()
        return [self._shown(row, now) for row in await self._store.runtimes(kind=kind, pool=pool)]

    async def leave(self, kind: RuntimeKind, name: str) -> bool:
        """One that stops says so, and is not missed."""
        return await self._store.delete_runtime(kind, name)

    async def clean_up(self, forget_seconds: float = FORGET_SECONDS) -> int:
        """Forgets those who have been silent for long, and says how many."""
        return await self._store.forget_runtimes(self._clock.now() - forget_seconds)

    def _shown(self, row: RuntimeRow, now: float) -> Runtime:
        fields = msgspec.structs.asdict(row) | {
            "started_at": timestamp(row.started_at),
            "last_beat": timestamp(row.last_beat),
            "is_alive": now - row.last_beat <= self._alive_seconds,
        }
        return Runtime(**fields)


def _fields(registration: Registration) -> dict[str, Any]:
    return msgspec.structs.asdict(registration)


def _check(registration: Registration) -> None:
    for what, text in (("name", registration.name), ("pool", registration.pool)):
        if text is not None and not NAME.fullmatch(text):
            raise RuntimeInvalidError(f"`{text[:60]}` cannot be the {what} of a {registration.kind}")
    if registration.kind == "worker" and registration.pool is None:
        raise RuntimeInvalidError("a worker belongs to a pool: name it")
    if not 0 <= registration.slots <= MOST_SLOTS or not 0 <= registration.protocol < 2**31:
        raise RuntimeInvalidError(f"slots are a number from 0 to {MOST_SLOTS}, and so is the protocol")
    if len(registration.labels) > MOST_LABELS:
        raise RuntimeInvalidError(f"a runtime has at most {MOST_LABELS} labels")
    for text in (registration.version, *registration.labels, *registration.labels.values()):
        if len(text) > 200 or not text.isprintable():
            raise RuntimeInvalidError("version and labels are printable texts of at most 200 characters")
