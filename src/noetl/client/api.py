"""What the command line asks of a server: executions, their logs, the catalog, credentials, tokens, runtimes.

Each method is one call and gives a struct of `wire`. Following a log takes up again by itself where a
connection broke.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from noetl.client.connection import EVENT_STREAM, Connection, Query, ServerUnreachableError, path_of
from noetl.client.wire import (
    CatalogPage,
    CatalogText,
    EventPage,
    EventView,
    ExecutionPage,
    ExecutionView,
    Health,
    PlaybookSource,
    Readiness,
    Registered,
    ResultView,
    RetryRequest,
    Started,
    StepList,
    Variable,
    VariableList,
    VariableValue,
    Vocabulary,
)
from noetl.client.wire_access import (
    CredentialRequest,
    CredentialView,
    CredentialViews,
    IssuedTokenView,
    TokenRequest,
    TokenView,
    TokenViews,
)
from noetl.client.wire_work import (
    QueueView,
    RuntimeBeat,
    RuntimeKind,
    RuntimeKnown,
    RuntimeRequest,
    RuntimeView,
    RuntimeViews,
)

LAST_EVENT: Final = "playbook.processed"
AGAIN_SECONDS: Final = 1.0
MOST_FAILURES: Final = 30
"""How often in a row a stream is taken up again without anything coming."""

Reply = TypeVar("Reply")


_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {}


def _decoder(kind: type[Reply]) -> msgspec.json.Decoder[Reply]:
    """Made once for each struct, and only for those that are asked for."""
    known = _DECODERS.get(kind)
    if known is None:
        known = _DECODERS[kind] = msgspec.json.Decoder(kind)
    return known


def cursor_before(execution_id: str) -> str:
    """The cursor of the page that begins after an execution."""
    return base64.urlsafe_b64encode(f"e:{execution_id}".encode()).decode().rstrip("=")


class Api:
    def __init__(
        self, connection: Connection, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.connection = connection
        self._sleep = sleep

    async def close(self) -> None:
        await self.connection.close()

    async def _get(self, kind: type[Reply], path: str, /, **query: str | int | float | None) -> Reply:
        return await self.connection.call("GET", path, _decoder(kind), query=query)

    async def _post(
        self, kind: type[Reply], path: str, body: object = None, *, repeatable: bool = True
    ) -> Reply:
        return await self.connection.call("POST", path, _decoder(kind), body=body, repeatable=repeatable)

    # --- the server -------------------------------------------------------------------------------------

    async def health(self) -> Health:
        return await self._get(Health, "/api/health")

    async def ready(self) -> Readiness:
        return await self._get(Readiness, "/api/ready")

    async def queue(self, **filters: str | int | None) -> QueueView:
        return await self._get(QueueView, "/api/commands", **filters)

    # --- the catalog ------------------------------------------------------------------------------------

    async def register(self, source: str) -> Registered:
        """ServerError with its diagnostics in `problem` where the playbook is invalid."""
        return await self._post(Registered, "/api/catalog", PlaybookSource(source=source))

    async def catalog(self, limit: int = 100) -> CatalogPage:
        return await self._get(CatalogPage, "/api/catalog", limit=limit)

    async def versions(self, path: str, limit: int = 100) -> CatalogPage:
        return await self._get(CatalogPage, "/api/catalog/versions", path=path, limit=limit)

    async def playbook(self, path: str, version: int | None = None) -> CatalogText:
        return await self._get(CatalogText, "/api/catalog/entry", path=path, version=version)

    # --- executions -------------------------------------------------------------------------------------

    async def executions(
        self,
        *,
        status: str | None = None,
        path: str | None = None,
        parent: str | None = None,
        since: str | None = None,
        order: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> ExecutionPage:
        query: dict[str, str | int | float | None] = {
            "status": status,
            "path": path,
            "parent": parent,
            "since": since,
            "order": order,
            "cursor": cursor,
            "limit": limit,
        }
        return await self._get(ExecutionPage, "/api/executions", **query)

    async def execution(self, execution_id: str) -> ExecutionView:
        return await self._get(ExecutionView, path_of("executions", execution_id))

    async def steps(self, execution_id: str) -> StepList:
        return await self._get(StepList, path_of("executions", execution_id, "steps"))

    async def result(self, execution_id: str, step: str | None = None) -> Any:  # noqa: ANN401 - plain data
        path = path_of("executions", execution_id, "result")
        return (await self._get(ResultView, path, step=step)).result

    async def retry(self, execution_id: str, request: RetryRequest) -> str:
        """The id of the execution that runs again."""
        path = path_of("executions", execution_id, "retry")
        return (await self._post(Started, path, request, repeatable=False)).execution_id

    async def events(
        self,
        execution_id: str,
        *,
        after: int = 0,
        limit: int = 200,
        vocabulary: Vocabulary = "canonical",
    ) -> EventPage:
        path = path_of("executions", execution_id, "events")
        query: dict[str, str | int | float | None] = {
            "after": after,
            "limit": limit,
            "vocabulary": vocabulary,
        }
        return await self._get(EventPage, path, **query)

    async def follow(
        self, execution_id: str, *, after: int = 0, vocabulary: Vocabulary = "canonical"
    ) -> AsyncIterator[EventView]:
        """Every event after a place, as they come, until the execution is over."""
        path = path_of("executions", execution_id, "events")
        query: Query = {"vocabulary": vocabulary}
        failures = 0
        while True:
            headers = {"Accept": EVENT_STREAM, "Last-Event-ID": str(after)}
            try:
                async with self.connection.stream(path, query=query, headers=headers) as stream:
                    if stream is None:
                        return
                    async for place, event in _sent_events(stream):
                        failures = 0
                        yield event
                        if place is not None:
                            after = place
                            if event.event_type == LAST_EVENT:
                                return
            except ServerUnreachableError:
                failures += 1
                if failures > MOST_FAILURES:
                    raise
            await self._sleep(AGAIN_SECONDS)

    # --- variables --------------------------------------------------------------------------------------

    async def variables(self, execution_id: str) -> VariableList:
        return await self._get(VariableList, path_of("vars", execution_id))

    async def variable(self, execution_id: str, name: str) -> Variable:
        return await self._get(Variable, path_of("vars", execution_id, name))

    async def set_variable(self, execution_id: str, name: str, value: Any) -> Variable:  # noqa: ANN401
        path = path_of("vars", execution_id, name)
        body = VariableValue(value=value)
        return await self.connection.call("PUT", path, _decoder(Variable), body=body)

    async def delete_variable(self, execution_id: str, name: str) -> Variable:
        path = path_of("vars", execution_id, name)
        return await self.connection.call("DELETE", path, _decoder(Variable), repeatable=False)

    # --- credentials, tokens, runtimes ------------------------------------------------------------------

    async def set_credential(self, request: CredentialRequest) -> CredentialView:
        return await self._post(CredentialView, "/api/credentials", request)

    async def credentials(self, *, after: str = "", limit: int = 100) -> CredentialViews:
        return await self._get(CredentialViews, "/api/credentials", after=after, limit=limit)

    async def credential(
        self, identifier: str, *, include_data: bool = False, execution_id: str | None = None
    ) -> CredentialView:
        query: dict[str, str | int | float | None] = {
            "include_data": "true" if include_data else None,
            "execution_id": execution_id,
        }
        return await self._get(CredentialView, path_of("credentials", identifier), **query)

    async def delete_credential(self, identifier: str) -> CredentialView:
        path = path_of("credentials", identifier)
        return await self.connection.call("DELETE", path, _decoder(CredentialView))

    async def create_token(self, request: TokenRequest) -> IssuedTokenView:
        return await self._post(IssuedTokenView, "/api/tokens", request, repeatable=False)

    async def tokens(self) -> TokenViews:
        return await self._get(TokenViews, "/api/tokens")

    async def revoke_token(self, identifier: str) -> TokenView:
        path = path_of("tokens", identifier)
        return await self.connection.call("DELETE", path, _decoder(TokenView))

    async def runtimes(self, kind: RuntimeKind | None = None) -> RuntimeViews:
        return await self._get(RuntimeViews, "/api/runtime", kind=kind)

    async def register_runtime(self, request: RuntimeRequest) -> RuntimeView:
        return await self._post(RuntimeView, "/api/runtime", request)

    async def beat_runtime(self, kind: RuntimeKind, name: str) -> bool:
        """False where the server does not know it (any more): register again."""
        body = RuntimeBeat(kind=kind, name=name)
        return (await self._post(RuntimeKnown, "/api/runtime/heartbeat", body)).known

    async def leave_runtime(self, kind: RuntimeKind, name: str) -> bool:
        path = path_of("runtime", kind, name)
        return (await self.connection.call("DELETE", path, _decoder(RuntimeKnown))).known


async def _sent_events(stream: aiohttp.StreamReader) -> AsyncIterator[tuple[int | None, EventView]]:
    """The events of a server-sent stream, each with its place if the stream moves on with it."""
    place: int | None = None
    data: list[bytes] = []
    async for line in _lines(stream):
        if not line:
            if data:
                yield place, _decoder(EventView).decode(b"\n".join(data))
            place, data = None, []
        elif line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"id:"):
            place = int(line[3:])


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length: an event may be longer than what a reader takes for a line."""
    rest = b""
    async for piece in stream.iter_any():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
