"""Calls to a server that fails: what is repeated, what is not, and what comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.client.connection import Connection, ServerError, ServerUnreachableError, error_of, path_of
from noetl.client.control import HttpControl
from noetl.client.wire import FieldProblem, Problem
from noetl.errors import NoetlError
from noetl.records.protocols import ExecutionRequest, LeaseLostError, NotWrittenError
from noetl.records.report import PROTOCOL

ANY = msgspec.json.Decoder(dict[str, Any])
OK = (200, {"ok": True})


def problem(status: int, code: str) -> tuple[int, dict[str, Any]]:
    return status, {"title": "no", "status": status, "code": code, "detail": "it is so"}


class Script:
    """Answers one after the other, the last one for ever; None breaks the connection off."""

    def __init__(self, *answers: tuple[Any, ...] | None) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.requests.append((request.method, request.path_qs, dict(request.headers), body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is None:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        return web.json_response(answer[1], status=answer[0], headers=answer[2] if answer[2:] else None)


def busy(status: int, seconds: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    return (*problem(status, "rate.exceeded"), {"Retry-After": seconds})


class Time:
    """Passes only by sleeping."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return sum(self.slept)

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def play(script: Script, scenario: Callable[[Connection, Time], Awaitable[None]], **about: Any) -> None:
    async def whole() -> None:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", script.answer)
        time = Time()
        async with TestServer(app) as server, asyncio.timeout(20):
            connection = Connection(str(server.make_url("/")), clock=time, sleep=time.sleep, **about)
            try:
                await scenario(connection, time)
            finally:
                await connection.close()

    asyncio.run(whole())


def test_a_server_that_is_away_for_a_moment_is_asked_again() -> None:
    script = Script(problem(503, "store.error"), None, problem(500, "server.fault"), OK)

    async def scenario(connection: Connection, time: Time) -> None:
        assert await connection.call("POST", "/api/x", ANY, body={"a": 1}) == {"ok": True}
        assert len(script.requests) == 4
        assert [body for *_, body in script.requests] == [b'{"a":1}'] * 4
        assert len(time.slept) == 3
        assert time.slept[2] > time.slept[0]

    play(script, scenario)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 426])
def test_what_the_server_refuses_is_not_asked_again(status: int) -> None:
    script = Script(problem(status, "some.code"))

    async def scenario(connection: Connection, time: Time) -> None:
        with pytest.raises(ServerError, match="it is so") as caught:
            await connection.call("POST", "/api/x", ANY, body={})
        assert caught.value.code == "some.code"
        assert caught.value.problem is not None
        assert caught.value.problem.status == status
        assert len(script.requests) == 1

    play(script, scenario)


def test_a_server_is_left_alone_for_as_long_as_it_asks() -> None:
    script = Script(busy(429, "7"), busy(503, "3"), busy(500, "9"), busy(503, "soon"), OK)

    async def scenario(connection: Connection, time: Time) -> None:
        assert await connection.call("POST", "/api/x", ANY, body={}) == {"ok": True}
        assert time.slept[:2] == [7.0, 3.0]
        assert all(slept < 1 for slept in time.slept[2:])
        assert len(time.slept) == 4

    play(script, scenario)


def test_a_server_that_asks_for_longer_than_anybody_waits_is_given_up_at_once() -> None:
    script = Script(busy(503, "3600"))

    async def scenario(connection: Connection, time: Time) -> None:
        with pytest.raises(NoetlError):
            await connection.call("GET", "/api/x", ANY)
        assert time.slept == []

    play(script, scenario, retry_seconds=60.0)


def test_a_request_too_many_is_sent_again_whatever_it_is() -> None:
    script = Script(problem(429, "rate.exceeded"), OK)

    async def scenario(connection: Connection, time: Time) -> None:
        assert await connection.call("POST", "/api/x", ANY, body={}, repeatable=False) == {"ok": True}
        assert len(script.requests) == 2

    play(script, scenario)


def test_what_would_count_twice_is_not_sent_twice() -> None:
    script = Script(None, OK)

    async def scenario(connection: Connection, time: Time) -> None:
        with pytest.raises(ServerUnreachableError):
            await connection.call("POST", "/api/x", ANY, body={}, repeatable=False)
        assert len(script.requests) == 1

    play(script, scenario)


def test_a_server_that_stays_away_is_given_up() -> None:
    async def scenario(connection: Connection, time: Time) -> None:
        with pytest.raises(NotWrittenError):
            await connection.call("GET", "/api/x", ANY)
        assert 4 < sum(time.slept) <= 10

    play(Script(problem(503, "store.error")), scenario, retry_seconds=10)


def test_an_address_where_nobody_listens_is_tried_whatever_is_asked() -> None:
    async def whole() -> None:
        time = Time()
        connection = Connection("http://127.0.0.1:9", clock=time, sleep=time.sleep, retry_seconds=3)
        with pytest.raises(ServerUnreachableError, match=r"127\.0\.0\.1:9"):
            await connection.call("POST", "/api/x", ANY, repeatable=False)
        assert len(time.slept) > 2
        await connection.close()

    asyncio.run(whole())


def test_token_trace_and_protocol_go_along() -> None:
    script = Script(OK)

    async def scenario(connection: Connection, time: Time) -> None:
        await connection.call("GET", "/api/x", ANY, query={"a": 1, "b": None, "c": "x y"})
        _, path, headers, _ = script.requests[0]
        assert path == "/api/x?a=1&c=x+y"
        assert headers["Authorization"] == "Bearer sesame"
        assert headers["traceparent"] == "00-1-2-01"
        assert headers["Noetl-Protocol"] == str(PROTOCOL)

    play(script, scenario, token="sesame", trace="00-1-2-01")


def test_an_answer_that_is_no_problem_document_is_told_by_its_status() -> None:
    async def scenario(connection: Connection, time: Time) -> None:
        with pytest.raises(ServerError, match="answered 404"):
            await connection.call("GET", "/api/x", ANY)

    play(Script((404, {"other": 1})), scenario)


def test_an_answer_that_is_not_understood_is_an_error() -> None:
    async def scenario(connection: Connection, time: Time) -> None:
        with pytest.raises(ServerError, match="not understood"):
            await connection.call("GET", "/api/x", msgspec.json.Decoder(Problem))

    play(Script(OK), scenario)


@pytest.mark.parametrize(
    ("code", "kind"),
    [("lease.lost", LeaseLostError), ("store.error", NotWrittenError), ("other", ServerError)],
)
def test_a_problem_becomes_the_error_of_its_code(code: str, kind: type[NoetlError]) -> None:
    error = error_of(Problem(title="no", status=409, code=code, detail="why"))
    assert isinstance(error, kind)
    assert (error.code, error.message) == (code, "why")


def test_a_problem_names_the_fields_that_do_not_fit() -> None:
    found = (FieldProblem(message="Expected `int`", field="a.b"), FieldProblem(message="odd"))
    error = error_of(Problem(title="no", status=422, code="request.invalid", detail="why", errors=found))
    assert error.message == "why (a.b: Expected `int`; odd)"


def test_a_start_is_repeated_only_with_a_key() -> None:
    script = Script(None, (201, {"execution_id": "7"}))

    async def scenario(connection: Connection, time: Time) -> None:
        control = HttpControl(connection)
        with pytest.raises(ServerUnreachableError):
            await control.start(ExecutionRequest(path="p"))
        script.answers.insert(0, None)
        assert await control.start(ExecutionRequest(path="p", idempotency_key="k")) == "7"
        assert len(script.requests) == 3

    play(script, scenario)


def test_parts_of_a_path_are_quoted() -> None:
    assert path_of("vars", "1", "a/b c") == "/api/vars/1/a%2Fb%20c"


def play_on_two(
    first: Script, second: Script, scenario: Callable[[Connection, Time], Awaitable[None]], *, ended: bool
) -> None:
    """On a server with two addresses; `ended`: nobody listens at the first."""

    async def whole() -> None:
        apps = web.Application(), web.Application()
        for app, script in zip(apps, (first, second), strict=True):
            app.router.add_route("*", "/{tail:.*}", script.answer)
        time = Time()
        async with TestServer(apps[0]) as one, TestServer(apps[1]) as two, asyncio.timeout(20):
            addresses = f"{one.make_url('/')}, {two.make_url('/')}"
            if ended:
                await one.close()
            connection = Connection(addresses, clock=time, sleep=time.sleep)
            try:
                await scenario(connection, time)
            finally:
                await connection.close()

    asyncio.run(whole())


def test_the_next_address_is_asked_at_once_when_one_does_not_answer_and_kept() -> None:
    first, second = Script(OK), Script(OK)

    async def scenario(connection: Connection, time: Time) -> None:
        for _ in range(3):
            assert await connection.call("POST", "/api/x", ANY, body={}, repeatable=False) == {"ok": True}
        assert (len(first.requests), len(second.requests), time.slept) == (0, 3, [])

    play_on_two(first, second, scenario, ended=True)


def test_a_server_without_its_store_is_left_for_another_and_both_are_tried_in_turn() -> None:
    away = problem(503, "store.error")
    first, second = Script(away, OK), Script(away, away, OK)

    async def scenario(connection: Connection, time: Time) -> None:
        assert await connection.call("POST", "/api/x", ANY, body={}) == {"ok": True}
        assert (len(first.requests), len(second.requests), len(time.slept)) == (2, 1, 1)

    play_on_two(first, second, scenario, ended=False)


def test_a_call_that_must_not_be_repeated_fails_and_the_next_call_goes_elsewhere() -> None:
    first, second = Script(None), Script(OK)

    async def scenario(connection: Connection, time: Time) -> None:
        with pytest.raises(ServerUnreachableError):
            await connection.call("POST", "/api/x", ANY, body={}, repeatable=False)
        assert await connection.call("POST", "/api/x", ANY, body={}, repeatable=False) == {"ok": True}
        assert (len(first.requests), len(second.requests)) == (1, 1)

    play_on_two(first, second, scenario, ended=False)
