"""Spans of executions for OpenTelemetry: one trace per execution, made from the events of its log.

The ids of spans follow from the ids of what they are about, so replicas that each commit a part of an
execution make one trace together. Needs the extra `tracing`; without an endpoint nothing is made.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from typing import Any, Final, NamedTuple, Protocol

from noetl.errors import UsageError
from noetl.ids import seconds_of
from noetl.records.event import Event

TRACEPARENT: Final = re.compile(r"^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$")
MOST_BEGINNINGS: Final = 100_000


class Trace(NamedTuple):
    """The trace an execution belongs to, and the span of whoever asked for it."""

    trace_id: int
    parent: int | None


def trace_of(execution_id: str, traceparent: str | None) -> Trace:
    found = None if traceparent is None else TRACEPARENT.match(traceparent)
    if found is not None and int(found[1], 16) and int(found[2], 16):
        return Trace(int(found[1], 16), int(found[2], 16))
    return Trace(_number(f"trace/{execution_id}", 16), None)


def is_traceparent(text: str) -> bool:
    return trace_of("", text).parent is not None


def span_id(entity: str) -> int:
    return _number(f"span/{entity}", 8)


def _number(text: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:size], "big") or 1


class Span(NamedTuple):
    """A span before a library has it."""

    name: str
    trace_id: int
    span_id: int
    parent: int | None
    began: float
    ended: float
    failed: str | None
    attributes: dict[str, str | int]


class Spans(Protocol):
    """Where spans go."""

    def add(self, span: Span) -> None: ...

    def close(self) -> None: ...


class Tracer:
    """Turns events into spans: of the execution, of each step run, of each attempt at a task."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._began: OrderedDict[str, float] = OrderedDict()
        self._traces: OrderedDict[str, Trace] = OrderedDict()

    def event(self, event: Event) -> None:
        match event.event_type:
            case "playbook.execution.requested":
                self._remember(event.execution_id, event.timestamp)
                trace = trace_of(event.execution_id, event.payload.get("trace"))
                self._traces[event.execution_id] = trace
            case "step.scheduled" | "task.started":
                self._remember(self._entity(event), event.timestamp)
            case "task.done":
                parent = span_id(str(event.step_run_id))
                self._add(event, f"task {event.task_label}", self._entity(event), parent)
            case "step.done" | "step.failed" | "loop.done" if "block" not in event.payload:
                root = span_id(event.execution_id)
                self._add(event, f"step {event.step}", str(event.step_run_id), root)
            case "playbook.processed":
                parent_span = self._trace(event).parent
                self._add(event, "execution", event.execution_id, parent_span)
                self._traces.pop(event.execution_id, None)

    def close(self) -> None:
        self._spans.close()

    def _entity(self, event: Event) -> str:
        if event.task_run_id is None:
            return str(event.step_run_id)
        return f"{event.task_run_id}/{event.attempt}"

    def _remember(self, entity: str, timestamp: str) -> None:
        self._began[entity] = seconds_of(timestamp)
        if len(self._began) > MOST_BEGINNINGS:
            self._began.popitem(last=False)
        if len(self._traces) > MOST_BEGINNINGS:
            self._traces.popitem(last=False)

    def _trace(self, event: Event) -> Trace:
        return self._traces.get(event.execution_id) or trace_of(event.execution_id, None)

    def _add(self, event: Event, name: str, entity: str, parent: int | None) -> None:
        ended = seconds_of(event.timestamp)
        outcome: dict[str, Any] = event.payload.get("outcome") or {}
        took = (outcome.get("meta") or {}).get("duration_ms")
        # Another replica may have seen the beginning.
        began = self._began.pop(entity, ended if took is None else ended - took / 1000)
        error = event.payload.get("error") or outcome.get("error") or {}
        attributes: dict[str, str | int] = {"noetl.execution_id": event.execution_id}
        if event.step is not None:
            attributes["noetl.step"] = event.step
        if event.attempt is not None:
            attributes["noetl.attempt"] = event.attempt
        failed = str(error.get("kind") or "error") if event.status == "error" else None
        self._spans.add(
            Span(name, self._trace(event).trace_id, span_id(entity), parent, began, ended, failed, attributes)
        )


def otlp_spans(endpoint: str, server: str) -> Spans:
    """Sends spans by OTLP over HTTP, in batches, from a thread of the library's."""
    try:
        # An optional dependency: most servers send no spans.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("sending spans needs the extra `tracing`: pip install 'noetl[tracing]'") from error
    processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint))
    resource = Resource.create({"service.name": "noetl", "service.instance.id": server})
    sampled = TraceFlags(TraceFlags.SAMPLED)

    class Otlp:
        def add(self, span: Span) -> None:
            parent = None
            if span.parent is not None:
                parent = SpanContext(span.trace_id, span.parent, is_remote=True, trace_flags=sampled)
            processor.on_end(
                ReadableSpan(
                    name=span.name,
                    context=SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=sampled),
                    parent=parent,
                    resource=resource,
                    attributes=span.attributes,
                    start_time=int(span.began * 1e9),
                    end_time=int(span.ended * 1e9),
                    status=Status(StatusCode.OK)
                    if span.failed is None
                    else Status(StatusCode.ERROR, span.failed),
                )
            )

        def close(self) -> None:
            processor.shutdown()  # type: ignore[no-untyped-call]

    return Otlp()
