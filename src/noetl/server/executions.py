"""Executions over HTTP: starting, listing, looking at and steering them."""

from __future__ import annotations

import base64
import binascii
from importlib import import_module
from typing import Annotated, Any, Final

import msgspec
from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, HeaderParameter, JSONBody, PathParameter, QueryParameter
from structlog.contextvars import bind_contextvars

from noetl.client.wire import (
    Accepted,
    CancelRequest,
    ExecutionPage,
    ExecutionStatus,
    ExecutionView,
    GraphEdgeView,
    GraphFormat,
    GraphNodeView,
    GraphView,
    ResultView,
    RetryRequest,
    SignalRequest,
    Started,
    StartRequest,
    StepList,
)
from noetl.control.repeating import repeat
from noetl.ids import seconds_of, timestamp
from noetl.playbook.graph import Graph, graph_of
from noetl.playbook.load import load
from noetl.records.protocols import ExecutionRequest
from noetl.registry.roles import allows
from noetl.server.parts import Asking, ExecutionState, Given, Parts
from noetl.server.playbooks import checked_source, registered
from noetl.server.problems import (
    ForbiddenError,
    RequestError,
    UnfinishedError,
    UnknownExecutionError,
    UnknownPlaybookError,
    UnknownStepError,
)
from noetl.server.stored import whole
from noetl.server.tracing import is_traceparent
from noetl.server.views import execution_view, step_views, summary_of
from noetl.store.protocol import ExecutionRow, ListOrder

DRAWN: Final = {
    "text": "text/plain",
    "mermaid": "text/plain",
    "dot": "text/vnd.graphviz",
    "svg": "image/svg+xml",
}
PLAYBOOK_ID: Final = "@"

ExecutionPath = Annotated[str, PathParameter(pattern="^[0-9]{1,20}$", description="The id of an execution.")]
Limit = Annotated[int, QueryParameter(ge=1, le=500)]
Status = FromQuery[ExecutionStatus | None]
IdempotencyKey = Annotated[str | None, HeaderParameter(name="Idempotency-Key", min_length=1, max_length=200)]
TraceParent = Annotated[str | None, HeaderParameter(name="traceparent", max_length=200)]


async def found_row(parts: Parts, execution_id: str) -> ExecutionRow:
    row = await parts.store.execution(execution_id)
    if row is None:
        raise UnknownExecutionError(f"there is no execution {execution_id}")
    return row


@post("/api/executions", summary="Start an execution")
async def start(
    parts: Given,
    data: JSONBody[StartRequest],
    idempotency_key: IdempotencyKey = None,
    trace: TraceParent = None,
) -> Response[Started]:
    execution_id = await begun(parts, data, idempotency_key, trace)
    return Response(
        Started(execution_id=execution_id),
        status_code=201,
        headers={"Location": f"/api/executions/{execution_id}"},
    )


async def begun(
    parts: Parts, data: StartRequest, idempotency_key: str | None = None, trace: str | None = None
) -> str:
    path, version = _playbook(data)
    if data.parent_execution_id is not None:
        await found_row(parts, data.parent_execution_id)
    request = ExecutionRequest(
        path=path,
        version=version,
        payload=data.payload,
        idempotency_key=data.idempotency_key or idempotency_key,
        parent_execution_id=data.parent_execution_id,
        trace=trace if trace is not None and is_traceparent(trace) else None,
        secrets=data.secrets,
    )
    execution_id = await parts.control.start(request)
    bind_contextvars(execution_id=execution_id)
    return execution_id


def _playbook(data: StartRequest) -> tuple[str, int | None]:
    if (data.playbook_id is None) == (data.path is None):
        raise RequestError("name the playbook by `playbook_id` or by `path`, one of the two")
    if data.path is not None:
        return data.path, data.version
    if data.version is not None:
        raise RequestError("the version of a `playbook_id` stands in it: `path@version`")
    path, mark, version = str(data.playbook_id).rpartition(PLAYBOOK_ID)
    if not mark:
        return version, None
    if not path or not (version.isascii() and version.isdigit() and 0 < len(version) < 10):
        raise RequestError(f"`{data.playbook_id}` is not `path` or `path@version`")
    return path, int(version)


@get("/api/executions", summary="Executions, the newest or the oldest first")
async def listed(
    parts: Given,
    status: Status = None,
    path: Annotated[str | None, QueryParameter(min_length=1, max_length=500)] = None,
    parent: Annotated[str | None, QueryParameter(pattern="^[0-9]{1,20}$")] = None,
    since: Annotated[
        str | None, QueryParameter(max_length=40, description="RFC 3339: those asked for then or later.")
    ] = None,
    order: FromQuery[ListOrder] = "newest",
    cursor: Annotated[str | None, QueryParameter(min_length=1, max_length=100)] = None,
    limit: Limit = 50,
) -> ExecutionPage:
    """With `since` they go by when they were asked for, otherwise by when they came in."""
    found = await parts.store.executions(
        status=status,
        path=path,
        parent=parent,
        since=None if since is None else _moment(since),
        order=order,
        before=None if cursor is None else _uncovered(cursor),
        limit=limit + 1,  # one more than is shown tells whether there are more
    )
    rows = found[:limit]
    return ExecutionPage(
        executions=tuple(map(summary_of, rows)),
        cursor=_covered(rows[-1].execution_id) if len(found) > limit else None,
    )


def _moment(written: str) -> str:
    """As the store has moments."""
    try:
        return timestamp(seconds_of(written))
    except (ValueError, OverflowError) as error:
        raise RequestError("`since` is no moment as RFC 3339 writes it") from error


def _covered(execution_id: str) -> str:
    return base64.urlsafe_b64encode(f"e:{execution_id}".encode()).decode().rstrip("=")


def _uncovered(cursor: str) -> str:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    mark, _, execution_id = text.partition(":")
    if mark != "e" or not execution_id.isdigit():
        raise RequestError("the cursor is none that this server gave")
    return execution_id


@get("/api/executions/{execution_id:str}", summary="All about an execution")
async def shown(parts: Given, execution_id: ExecutionPath) -> ExecutionView:
    await found_row(parts, execution_id)
    state: ExecutionState = await parts.control.state(execution_id)
    return execution_view(await found_row(parts, execution_id), state)


@get("/api/executions/{execution_id:str}/steps", summary="The steps of an execution")
async def steps(parts: Given, execution_id: ExecutionPath) -> StepList:
    await found_row(parts, execution_id)
    state: ExecutionState = await parts.control.state(execution_id)
    return StepList(execution_id=execution_id, steps=step_views(state))


@get("/api/executions/{execution_id:str}/result", summary="The result, stored parts included")
async def result(
    parts: Given,
    execution_id: ExecutionPath,
    step: Annotated[str | None, QueryParameter(min_length=1, max_length=200)] = None,
) -> ResultView:
    await found_row(parts, execution_id)
    state: ExecutionState = await parts.control.state(execution_id)
    if step is None:
        if not state.is_over:
            raise UnfinishedError(f"execution {execution_id} is not over: name a step for its result so far")
        found = state.result
    else:
        named = {each.name: each for each in step_views(state)}
        if step not in named:
            raise UnknownStepError(f"step `{step}` has not run in execution {execution_id}")
        found = named[step].result
    return ResultView(execution_id=execution_id, step=step, result=await whole(parts, found))


@get(
    "/api/executions/{execution_id:str}/graph",
    summary="The playbook of an execution as a graph, and how far each step is",
    responses={200: ResponseSpec(data_container=GraphView, description="As `format` says.")},
)
async def graph(
    parts: Given,
    execution_id: ExecutionPath,
    drawing: Annotated[GraphFormat, QueryParameter(name="format")] = "json",
) -> Response[Any]:
    row = await found_row(parts, execution_id)
    entry = await parts.store.catalog_by_digest(row.playbook_digest)
    playbook = None if entry is None else load(entry.source, parts.kinds).playbook
    if playbook is None:
        raise UnknownPlaybookError(f"the playbook of execution {execution_id} cannot be read")
    found = graph_of(playbook)
    if drawing == "json":
        return Response(_with_progress(found, await parts.control.state(execution_id)))
    module = import_module(f"noetl.playbook.drawing.{drawing}")
    return Response(getattr(module, drawing)(found), media_type=DRAWN[drawing])


def _with_progress(found: Graph, state: ExecutionState) -> GraphView:
    known = {each.name: each for each in step_views(state)}
    return GraphView(
        name=found.name,
        dialect=found.dialect,
        nodes=tuple(
            GraphNodeView(
                name=node.name,
                role=node.role,
                is_entry=node.is_entry,
                marks=node.marks,
                tasks=node.tasks,
                status=known[node.name].status if node.name in known else None,
                runs=known[node.name].runs if node.name in known else 0,
            )
            for node in found.nodes
        ),
        edges=tuple(GraphEdgeView(**msgspec.structs.asdict(edge)) for edge in found.edges),
    )


# --- steering -------------------------------------------------------------------------------------------


async def accepted(parts: Parts, execution_id: str) -> Accepted:
    state: ExecutionState = await parts.control.state(execution_id)
    return Accepted(execution_id=execution_id, status=state.status)


@post("/api/executions/{execution_id:str}/cancel", summary="Cancel", status_code=200)
async def cancel(
    parts: Given, execution_id: ExecutionPath, data: JSONBody[CancelRequest | None] = None
) -> Accepted:
    """An execution that is over stays as it is."""
    await parts.control.cancel(execution_id, None if data is None else data.reason)
    return await accepted(parts, execution_id)


@post("/api/executions/{execution_id:str}/pause", summary="Schedule nothing more", status_code=200)
async def pause(parts: Given, execution_id: ExecutionPath) -> Accepted:
    await parts.control.pause(execution_id)
    return await accepted(parts, execution_id)


@post("/api/executions/{execution_id:str}/resume", summary="Go on", status_code=200)
async def resume(parts: Given, execution_id: ExecutionPath) -> Accepted:
    await parts.control.resume(execution_id)
    return await accepted(parts, execution_id)


@post("/api/executions/{execution_id:str}/signal", summary="Deliver a signal", status_code=200)
async def signal(parts: Given, execution_id: ExecutionPath, data: JSONBody[SignalRequest]) -> Accepted:
    await parts.control.signal(execution_id, data.name, data.payload)
    return await accepted(parts, execution_id)


@post("/api/executions/{execution_id:str}/retry", summary="Run again from a step, as a new execution")
async def retry(
    parts: Given,
    caller: Asking,
    execution_id: ExecutionPath,
    data: JSONBody[RetryRequest | None] = None,
) -> Response[Started]:
    """With `source`, which is registered on the way, whoever may register playbooks."""
    wanted = data or RetryRequest()
    if wanted.source is not None and caller.is_checked and not allows(caller.role, "catalog:write"):
        raise ForbiddenError(
            f"a token with the role `{caller.role}` does not have `catalog:write`, which `source` needs"
        )
    await found_row(parts, execution_id)
    entry = None
    if wanted.source is not None:
        entry = await registered(parts, checked_source(parts, wanted.source))
    started = await repeat(
        parts.control,
        execution_id,
        wanted.payload,
        entry=entry,
        step=wanted.step,
        failed_items=wanted.failed_items,
        secrets=wanted.secrets,
    )
    return Response(
        Started(execution_id=started), status_code=201, headers={"Location": f"/api/executions/{started}"}
    )


HANDLERS: Final = (start, listed, shown, steps, result, graph, cancel, pause, resume, signal, retry)
