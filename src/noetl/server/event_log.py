"""The log of an execution over HTTP, by pages or as a stream that goes on; and events from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, JSONBody, QueryParameter
from litestar.response import Stream

from noetl.client.connection import EVENT_STREAM
from noetl.client.wire import Accepted, EventPage, EventView, OutsideEvent, Vocabulary
from noetl.records.event import Event
from noetl.records.vocabulary import canonical_words, v2_words
from noetl.server.auth import bearer_of, is_still_good
from noetl.server.executions import ExecutionPath, accepted, found_row
from noetl.server.parts import Given, Parts
from noetl.server.problems import RequestError

STREAM_PAGE: Final = 500
SHORT_LOOK: Final = 0.2
LONG_LOOK: Final = 2.0
"""How often the log of a quiet execution is looked at, for what other replicas wrote."""
ALIVE_SECONDS: Final = 15.0
"""How often a quiet stream says that it is there: proxies close what says nothing."""
LAST_EVENT: Final = "playbook.processed"
WORDS: Final[dict[Vocabulary, Callable[[Event], list[dict[str, Any]]]]] = {
    "canonical": canonical_words,
    "v2": v2_words,
}
MOST_PLACE: Final = 9_007_199_254_740_991


@get(
    "/api/executions/{execution_id:str}/events",
    summary="The log of an execution; with `Accept: text/event-stream` as it grows",
    responses={200: ResponseSpec(data_container=EventPage, description="A page, or a stream of events.")},
)
async def events(
    request: Request[Any, Any, Any],
    parts: Given,
    execution_id: ExecutionPath,
    after: Annotated[int, QueryParameter(ge=0, le=MOST_PLACE, description="A place in the log.")] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=1_000)] = 200,
    vocabulary: FromQuery[Vocabulary] = "canonical",
) -> Response[Any]:
    row = await found_row(parts, execution_id)
    if EVENT_STREAM in request.headers.get("accept", ""):
        after = _resumed(request.headers.get("last-event-id"), after)
        if row.finished_at is not None and not await parts.store.events(execution_id, after, limit=1):
            # The one answer that ends the reconnecting of a browser's EventSource.
            return Response(None, status_code=204)
        return Stream(
            event_stream(parts, execution_id, after, vocabulary, bearer_of(request.headers)),
            media_type=EVENT_STREAM,
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
    found = await parts.store.events(execution_id, after, limit=limit + 1)
    shown = found[:limit]
    return Response(
        EventPage(
            events=tuple(
                msgspec.convert(each, EventView) for event in shown for each in WORDS[vocabulary](event)
            ),
            after=shown[-1].seq if shown else after,
            more=len(found) > limit,
        )
    )


def _resumed(last_event_id: str | None, after: int) -> int:
    if last_event_id is None:
        return after
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 16):
        raise RequestError("`Last-Event-ID` is no place in a log")
    return int(last_event_id)


async def event_stream(
    parts: Parts, execution_id: str, after: int, vocabulary: Vocabulary, token: str | None
) -> AsyncIterator[bytes]:
    """Every event after a place, until the last one of the execution, until the server stops, or until the
    token with which it was asked for is over."""
    words = WORDS[vocabulary]
    quiet, look = 0.0, SHORT_LOOK
    with parts.observer.feed.watching(execution_id) as grown:
        yield b"retry: 1000\n\n"
        while not parts.stopping.is_set():
            grown.clear()
            page = await parts.store.events(execution_id, after, limit=STREAM_PAGE)
            if not await is_still_good(parts, token):
                return
            for event in page:
                yield sent_event(event, words)
            if page:
                after, quiet, look = page[-1].seq, 0.0, SHORT_LOOK
                if page[-1].event_type == LAST_EVENT:
                    return
                continue
            try:
                async with asyncio.timeout(look):
                    await grown.wait()
            except TimeoutError:
                quiet, look = quiet + look, min(look * 2, LONG_LOOK)
                if quiet >= ALIVE_SECONDS:
                    quiet = 0.0
                    yield b": still here\n\n"


def sent_event(event: Event, words: Callable[[Event], list[dict[str, Any]]]) -> bytes:
    """The event as a stream has it. Where it is shown as two, only the second one moves the place on."""
    shown = words(event)
    parts = [
        b"event: %s\ndata: %s\n\n" % (str(each["event_type"]).encode(), msgspec.json.encode(each))
        for each in shown
    ]
    parts[-1] = b"id: %d\n" % event.seq + parts[-1]
    return b"".join(parts)


@post("/api/events", summary="Tell an execution of something that happened outside", status_code=202)
async def outside(parts: Given, data: JSONBody[OutsideEvent]) -> Accepted:
    """It is kept as a signal of that name until something waits for it."""
    await found_row(parts, data.execution_id)
    payload = data.payload if data.step is None else {**data.payload, "step": data.step}
    await parts.control.signal(data.execution_id, data.name, payload)
    return await accepted(parts, data.execution_id)


HANDLERS: Final = (events, outside)
