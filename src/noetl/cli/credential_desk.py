"""What `noetl credential` needs of the place where credentials are kept: a store, or a server.

Both are the same interface; the verb does not know which one it has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from noetl.cli.contexts import Server
from noetl.client.connection import Connection, path_of
from noetl.ids import Snowflakes, SystemClock
from noetl.registry.credentials import Credential, CredentialDraft, Credentials, Rotation
from noetl.registry.opening import open_registry
from noetl.secrets.encryption import KeyRing

RETRY_SECONDS: Final = 10.0
"""How long a server that does not answer is tried."""


class CredentialDesk(Protocol):
    """The credential API of a server, and `Credentials` on a store."""

    async def set(self, draft: CredentialDraft, *, expected_version: int | None = None) -> Credential: ...

    async def get(self, identifier: str, *, include_data: bool = False) -> Credential: ...

    async def list(
        self, *, of_type: str | None = None, text: str | None = None, after: str = "", limit: int = 100
    ) -> list[Credential]: ...

    async def delete(self, identifier: str) -> Credential: ...

    async def rotate(self) -> Rotation: ...


@asynccontextmanager
async def stored_credentials(url: str, ring: KeyRing, *, create: bool = True) -> AsyncIterator[Credentials]:
    """The credentials in a store."""
    registry = await open_registry(url, create=create)
    clock = SystemClock()
    try:
        yield Credentials(registry, ring, clock=clock, ids=Snowflakes(clock))
    finally:
        await registry.close()


@asynccontextmanager
async def served_credentials(server: Server) -> AsyncIterator[CredentialDesk]:
    """The credentials of a server, through its API."""
    connection = Connection(server.url, token=server.token, retry_seconds=RETRY_SECONDS)
    try:
        yield ServedCredentials(connection)
    finally:
        await connection.close()


class ServedCredentials:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def set(self, draft: CredentialDraft, *, expected_version: int | None = None) -> Credential:
        query = {"expected_version": expected_version}
        return await self._connection.call(
            "POST", path_of("credentials"), _CREDENTIAL, body=draft, query=query
        )

    async def get(self, identifier: str, *, include_data: bool = False) -> Credential:
        query = {"include_data": "true"} if include_data else {}
        return await self._connection.call(
            "GET", path_of("credentials", identifier), _CREDENTIAL, query=query
        )

    async def list(
        self, *, of_type: str | None = None, text: str | None = None, after: str = "", limit: int = 100
    ) -> list[Credential]:
        query = {"type": of_type, "text": text, "after": after or None, "limit": limit}
        page = await self._connection.call("GET", path_of("credentials"), _PAGE, query=query)
        return [*page.credentials]

    async def delete(self, identifier: str) -> Credential:
        path = path_of("credentials", identifier)
        return await self._connection.call("DELETE", path, _CREDENTIAL, repeatable=False)

    async def rotate(self) -> Rotation:
        return await self._connection.call("POST", path_of("credentials", "rotate"), _ROTATION)


class _Page(msgspec.Struct, frozen=True):
    credentials: tuple[Credential, ...]


_CREDENTIAL: Final = msgspec.json.Decoder(Credential)
_PAGE: Final = msgspec.json.Decoder(_Page)
_ROTATION: Final = msgspec.json.Decoder(Rotation)
