"""What a replica makes of the events it commits: measurements and spans; and the work in its background."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from noetl.playbook.load import load
from noetl.records.event import Event
from noetl.server.metrics import Metrics, TaskKinds, task_kinds
from noetl.server.options import ServerOptions
from noetl.server.request_log import configure_logs
from noetl.server.tracing import Span, Tracer, is_traceparent, otlp_spans, span_id, trace_of
from noetl.store.protocol import StoreError
from tests.contract.control.replicas import KINDS, Replica, replica, served
from tests.unit.server.conftest import Play

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\n"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def event(event_type: str, second: float, **about: Any) -> Event:
    fields: dict[str, Any] = {
        "event_id": "1",
        "execution_id": "77",
        "seq": 1,
        "timestamp": f"2025-06-15T12:00:{second:09.6f}Z",
        "source": "server",
        "entity_type": "tool",
        "entity_id": "e",
        "status": "success",
    }
    return Event(event_type=event_type, **fields | about)


def done(label: str, milliseconds: float, status: str = "success", **about: Any) -> Event:
    outcome = {"meta": {"duration_ms": milliseconds}}
    given = {"step": "s", "task_label": label, "status": status, "payload": {"outcome": outcome}}
    return event("task.done", 1, **given | about)


def measured(metrics: Metrics) -> dict[tuple[str, str], float]:
    """Every sample by its name and the values of its labels."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.page().decode())
        for sample in family.samples
    }


# --- metrics -----------------------------------------------------------------------------------------------


def test_tasks_are_measured_by_their_kind() -> None:
    async def kinds_of(execution_id: str) -> TaskKinds | None:
        return {("s", "fetch"): "http"} if execution_id == "77" else None

    metrics = Metrics()
    metrics.event(done("fetch", 250))
    metrics.event(done("fetch", 20, "error", execution_id="77"))
    metrics.event(done("fetch", 20, execution_id="gone"))
    asyncio.run(metrics.settle(kinds_of))
    metrics.event(done("fetch", 10, "error"))
    found = measured(metrics)
    assert found["noetl_task_seconds_count", "http"] == 3
    assert found["noetl_task_seconds_sum", "http"] == pytest.approx(0.28)
    assert found["noetl_task_failures_total", "http"] == 2
    assert found["noetl_task_seconds_count", "unknown"] == 1


def test_events_leases_and_decisions_are_counted() -> None:
    metrics = Metrics()
    metrics.event(event("command.expired", 1))
    metrics.event(event("playbook.processed", 1, payload={"status": "failed"}))
    metrics.decided(0.002)
    metrics.request("GET", "/api/health", 200, 0.01)
    found = measured(metrics)
    assert found["noetl_lease_expiries_total", ""] == 1
    assert found["noetl_events_total", "command.expired"] == 1
    assert found["noetl_executions_total", "failed"] == 1
    assert found["noetl_decide_seconds_count", ""] == 1
    assert found["noetl_request_seconds_count", "GET,/api/health,200"] == 1


def test_what_the_control_plane_decides_is_measured(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(HEAD + "workflow: [{step: start, tool: {kind: noop}}]\n")
        async with server.client() as client:
            await client.post("/api/executions", json={"path": "p"})
            await client.get("/metrics")
        found = measured(server.app.parts.observer.metrics)
        assert found["noetl_decide_seconds_count", ""] >= 1
        assert found["noetl_queue_depth", "default,free"] == 1
        assert found["noetl_queue_age_seconds", "default"] >= 0

    play(scenario)


def test_the_kinds_of_nested_tasks_are_known() -> None:
    text = HEAD + (
        "workflow:\n"
        "  - step: start\n"
        "    tool:\n"
        "      - first: {kind: noop}\n"
        "      - second: {kind: http, url: 'http://localhost'}\n"
    )
    loaded = load(text.encode(), KINDS)
    assert loaded.playbook is not None, loaded.diagnostics
    assert task_kinds(loaded.playbook) == {("start", "first"): "noop", ("start", "second"): "http"}


# --- traces ------------------------------------------------------------------------------------------------


class Kept:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, span: Span) -> None:
        self.spans.append(span)

    def close(self) -> None:
        self.spans.append(Span("closed", 0, 0, None, 0, 0, None, {}))


def told(tracer: Tracer, payload: dict[str, Any]) -> None:
    task: dict[str, Any] = {
        "step": "s",
        "step_run_id": "77.1",
        "task_run_id": "77.1:1",
        "task_label": "fetch",
        "attempt": 1,
    }
    failed = {"status": "error", "payload": {"outcome": {"error": {"kind": "http.500"}}}}
    tracer.event(event("playbook.execution.requested", 0, payload=payload))
    tracer.event(event("step.scheduled", 1, step="s", step_run_id="77.1"))
    tracer.event(event("task.started", 2, **task))
    tracer.event(event("task.done", 3, **task | failed))
    tracer.event(event("step.done", 4, step="s", step_run_id="77.1"))
    tracer.event(event("playbook.processed", 5))


def test_an_execution_is_one_trace_with_its_steps_and_tasks() -> None:
    kept = Kept()
    told(Tracer(kept), {"trace": TRACE})
    task, step, whole = kept.spans
    assert [span.name for span in kept.spans] == ["task fetch", "step s", "execution"]
    assert {span.trace_id for span in kept.spans} == {0x4BF92F3577B34DA6A3CE929D0E0E4736}
    assert whole.parent == 0x00F067AA0BA902B7
    assert step.parent == whole.span_id == span_id("77")
    assert task.parent == step.span_id
    assert [round(span.ended - span.began) for span in kept.spans] == [1, 3, 5]
    assert (task.failed, step.failed) == ("http.500", None)


def test_replicas_that_share_an_execution_make_one_trace() -> None:
    first, second = Kept(), Kept()
    told(Tracer(first), {})
    Tracer(second).event(event("step.done", 4, step="s", step_run_id="77.1"))
    assert second.spans[0].trace_id == first.spans[1].trace_id
    assert second.spans[0].span_id == first.spans[1].span_id


@pytest.mark.parametrize("text", ["", "00-0-0-00", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", TRACE + "x"])
def test_what_is_no_trace_context_is_not_taken_for_one(text: str) -> None:
    assert not is_traceparent(text)
    assert trace_of("77", text) == trace_of("77", None)


def test_spans_are_handed_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(trace_exporter, "OTLPSpanExporter", lambda endpoint: exporter)
    tracer = Tracer(otlp_spans("http://localhost:4318/v1/traces", "s1"))
    told(tracer, {"trace": TRACE})
    tracer.close()
    sent = {span.name: span for span in exporter.get_finished_spans()}
    assert set(sent) == {"task fetch", "step s", "execution"}
    parent, whole = sent["step s"].parent, sent["execution"].context
    assert parent is not None
    assert whole is not None
    assert (parent.trace_id, parent.span_id) == (whole.trace_id, whole.span_id)
    assert sent["task fetch"].status.description == "http.500"
    assert sent["execution"].resource.attributes["service.instance.id"] == "s1"


# --- the log of the server ---------------------------------------------------------------------------------


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What the server writes to its log."""
    written = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    monkeypatch.setattr("sys.stderr", written)
    configure_logs("info")

    def told() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in written.getvalue().splitlines()]
        return [line for line in found if line["logger"].startswith("noetl.")]

    yield told
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def test_every_line_of_a_request_has_its_id_and_its_execution(
    play: Play, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    async def scenario(server: Replica) -> None:
        await server.register(HEAD + "workflow: [{step: start, tool: {kind: noop}}]\n")
        async with server.client(**{"X-Request-Id": "r-1"}) as client:
            started = (await client.post("/api/executions", json={"path": "p"})).json()["execution_id"]
            await client.post(f"/api/executions/{started}/cancel", headers={"X-Request-Id": "r-2"})
            await client.get("/api/health", headers={"X-Request-Id": "quiet"})
            await client.get("/api/none", headers={"X-Request-Id": "a forged\tid"})
        told = lines()
        (begun,) = [line for line in told if line.get("event_type") == "playbook.execution.requested"]
        assert (begun["execution_id"], begun["request_id"], begun["level"]) == (started, "r-1", "info")
        cancelled = [line for line in told if line["request_id"] == "r-2"]
        assert {line["execution_id"] for line in cancelled} == {started}
        assert cancelled[-1]["event"] == "request"
        assert cancelled[-1]["status"] == 200
        assert not any(line["request_id"] == "quiet" for line in told)
        assert told[-1]["status"] == 404
        assert told[-1]["request_id"] != "a forged\tid"

    play(scenario)


# --- in the background -------------------------------------------------------------------------------------


def test_background_work_that_failed_is_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.server.app.AGAIN_SECONDS", 0)

    async def whole() -> None:
        attempts = 0
        enough = asyncio.Event()

        async def failing() -> None:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                raise StoreError("the database is away")
            if attempts == 2:
                raise ValueError("a bug")
            enough.set()
            await asyncio.Event().wait()

        async with asyncio.timeout(10), replica(background=[failing]) as server, served(server.app):
            await enough.wait()
        assert attempts == 3

    asyncio.run(whole())


def test_a_replica_is_in_runtime_while_it_runs(play: Play) -> None:
    async def scenario(server: Replica) -> None:
        async with served(server.app), server.client() as client:
            while not (found := (await client.get("/api/runtime")).json()["runtimes"]):
                await asyncio.sleep(0)
            assert [(each["kind"], each["name"], each["is_alive"]) for each in found] == [
                ("server", "server", True)
            ]
        async with server.client() as client:
            assert (await client.get("/api/runtime")).json()["runtimes"] == []

    play(scenario)


SAID = 'connection to server at "db.example.internal", user "canary" failed'


def test_why_a_server_is_not_ready_is_told_to_those_who_may_know(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(**about: object) -> list[object]:
        raise StoreError(SAID)

    async def scenario(server: Replica) -> None:
        monkeypatch.setattr(server.store, "commands", away)
        told: dict[str, Any] = {}
        for name in (None, "viewer", "worker"):
            token = None if name is None else await server.token("viewer" if name == "viewer" else "worker")
            async with server.client(token) as client:
                response = await client.get("/api/ready")
            assert response.status_code == 503
            told[str(name)] = response.json()["checks"][0]
        nothing = {"name": "store", "ok": False, "detail": None}
        assert told == {"None": nothing, "viewer": nothing | {"detail": SAID}, "worker": nothing}

    with structlog.testing.capture_logs() as lines:
        play(scenario, ServerOptions(auth=True))
    assert SAID in [line.get("detail") for line in lines]


def test_a_token_that_cannot_be_looked_up_tells_nothing_of_the_database(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(text: str) -> None:
        raise StoreError(SAID)

    async def scenario(server: Replica) -> None:
        monkeypatch.setattr(server.tokens, "verify", away)
        async with server.client("noetl_" + "x" * 43) as client:
            refused = await client.get("/api/executions")
            assert (refused.status_code, refused.json()["code"]) == (503, "store.error")
            assert "canary" not in refused.text
            # Whoever asks for the state of the server gets it, token or not.
            assert (await client.get("/api/ready")).json()["ready"] is True
            assert (await client.get("/api/health")).status_code == 200

    play(scenario, ServerOptions(auth=True))
