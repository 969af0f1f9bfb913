"""Executions and playbooks of a server, read as those of a store are."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl.cli.contexts import Server
from noetl.client.api import Api, cursor_before
from noetl.client.connection import Connection, ServerError
from noetl.client.wire import CatalogRow, CatalogText, EventView, ExecutionSummary
from noetl.records.event import Event
from noetl.store.protocol import CatalogEntry, ExecutionRow, ListOrder

RETRY_SECONDS: Final = 5.0
"""How long a server that does not answer is tried."""
PAGE: Final = 500
UNKNOWN: Final = ("execution.unknown", "playbook.unknown")


def api_of(server: Server, trace: str | None = None) -> Api:
    return Api(Connection(server.url, token=server.token, trace=trace, retry_seconds=RETRY_SECONDS))


class ServedStore:
    """The part of a store that the command line reads."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def close(self) -> None:
        await self.api.close()

    def owned_by_other(self) -> bool:
        """Whether something else than this process carries executions out: the server does."""
        return True

    async def execution(self, execution_id: str) -> ExecutionRow | None:
        try:
            return row_of(await self.api.execution(execution_id))
        except ServerError as error:
            if error.code in UNKNOWN:
                return None
            raise

    async def executions(
        self,
        *,
        status: str | None = None,
        path: str | None = None,
        parent: str | None = None,
        since: str | None = None,
        order: ListOrder = "newest",
        before: str | None = None,
        limit: int = 50,
    ) -> list[ExecutionRow]:
        found: list[ExecutionRow] = []
        cursor = None if before is None else cursor_before(before)
        while len(found) < limit:
            page = await self.api.executions(
                status=status,
                path=path,
                parent=parent,
                since=since,
                order=order,
                cursor=cursor,
                limit=min(PAGE, limit - len(found)),
            )
            found.extend(map(row_of, page.executions))
            cursor = page.cursor
            if cursor is None:
                break
        return found

    async def events(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[Event]:
        found: list[Event] = []
        while limit is None or len(found) < limit:
            wanted = PAGE if limit is None else min(PAGE, limit - len(found))
            page = await self.api.events(execution_id, after=after, limit=wanted)
            found.extend(map(event_of, page.events))
            if len(page.events) < wanted:
                break
            after = page.after
        return found

    async def snapshot(self, execution_id: str) -> tuple[int, bytes] | None:
        return None

    async def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None:
        try:
            return entry_of(await self.api.playbook(path, version))
        except ServerError as error:
            if error.code in UNKNOWN:
                return None
            raise

    async def catalog(self, *, path: str | None = None, limit: int = 100) -> list[CatalogEntry]:
        page = await (self.api.catalog(limit) if path is None else self.api.versions(path, limit))
        return [entry_of(row) for row in page.entries]


def row_of(view: ExecutionSummary) -> ExecutionRow:
    return ExecutionRow(
        execution_id=view.execution_id,
        status=view.status,
        name=view.playbook.name,
        path=view.playbook.path,
        version=view.playbook.version,
        dialect=view.playbook.dialect,
        requested_at=view.started_at,
        finished_at=view.finished_at,
        parent_execution_id=view.parent_execution_id,
        error=None if view.error is None else msgspec.to_builtins(view.error),
    )


def event_of(view: EventView) -> Event:
    return msgspec.convert(msgspec.to_builtins(view), Event)


def entry_of(row: CatalogRow) -> CatalogEntry:
    return CatalogEntry(
        path=row.path,
        version=row.version,
        name=row.name,
        dialect=row.dialect,
        digest=row.digest,
        registered_at=row.registered_at,
        source=row.source.encode() if isinstance(row, CatalogText) else b"",
    )
