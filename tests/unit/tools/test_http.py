"""The `http` kind against real servers on loopback: what is sent, and what becomes of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.records.outcome import Outcome
from noetl.tools import http
from tests.unit.tools.local_context import LocalContext, call

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def exchange(
    folder: Path,
    handler: Handler,
    config: dict[str, Any] | None = None,
    *,
    spec: dict[str, Any] | None = None,
    credentials: dict[str, dict[str, Any]] | None = None,
) -> Outcome:
    """The outcome of one call to a server that answers everything with `handler`."""

    async def scenario() -> Outcome:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", handler)
        async with TestServer(app) as server, LocalContext(folder, credentials=credentials) as context:
            fields = {"url": str(server.make_url("/orders"))} | (config or {})
            return await http.run(call("http", fields, spec=spec), context)

    return asyncio.run(scenario())


async def echo(request: web.Request) -> web.Response:
    return web.json_response(
        {
            "method": request.method,
            "path": request.path,
            "query": [list(pair) for pair in request.query.items()],
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "body": (await request.read()).decode(),
        }
    )


def answering(**fields: Any) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(**fields)

    return handler


def test_a_json_body_becomes_data_and_the_outcome_shows_status_and_headers(tmp_path: Path) -> None:
    headers = {"X-A": "b", "X-Request-Id": "r-1"}
    outcome = exchange(
        tmp_path, answering(status=201, text='{"id": 9}', content_type="application/json", headers=headers)
    )
    assert outcome.status == "ok"
    assert outcome.result == {"id": 9}
    assert outcome.groups["http"]["status"] == 201
    assert outcome.groups["http"]["headers"]["x-a"] == "b"
    assert outcome.groups["http"]["request_id"] == "r-1"


def test_params_of_every_type_are_encoded_and_added_to_those_of_the_address(tmp_path: Path) -> None:
    params = {
        "n": 1,
        "f": 1.5,
        "yes": True,
        "none": None,
        "list": [1, "a b", None],
        "map": {"a": 1},
        "t": "é&=",
    }

    async def scenario() -> Any:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", echo)
        async with TestServer(app) as server, LocalContext(tmp_path) as context:
            fields = {"url": str(server.make_url("/x?page=1")), "params": params}
            return (await http.run(call("http", fields), context)).result["query"]

    assert asyncio.run(scenario()) == [
        ["page", "1"], ["n", "1"], ["f", "1.5"], ["yes", "true"], ["list", "1"], ["list", "a b"],
        ["map", '{"a":1}'], ["t", "é&="],
    ]  # fmt: skip


@pytest.mark.parametrize("field", ["body", "payload", "json", "data"])
def test_a_structure_is_sent_as_json_under_each_of_its_names(tmp_path: Path, field: str) -> None:
    sent = exchange(tmp_path, echo, {"method": "POST", field: {"rows": [1, None]}}).result
    assert sent["body"] == '{"rows":[1,null]}'
    assert sent["headers"]["content-type"] == "application/json"


def test_a_text_is_sent_as_it_is_with_the_content_type_that_was_set(tmp_path: Path) -> None:
    config = {"method": "PUT", "body": "a,b\n1,2", "headers": {"Content-Type": "text/csv"}}
    sent = exchange(tmp_path, echo, config).result
    assert (sent["body"], sent["headers"]["content-type"]) == ("a,b\n1,2", "text/csv")


def test_a_form_is_url_encoded(tmp_path: Path) -> None:
    sent = exchange(tmp_path, echo, {"method": "POST", "form": {"a": 1, "b": ["x", "y"], "c": None}}).result
    assert sent["body"] == "a=1&b=x&b=y"


def test_files_make_a_form_multipart(tmp_path: Path) -> None:
    async def parts(request: web.Request) -> web.Response:
        form = await request.post()
        found: dict[str, Any] = {}
        for name, value in form.items():
            if isinstance(value, web.FileField):
                found[name] = [value.filename, value.content_type, value.file.read().decode()]
            else:
                found[name] = value
        return web.json_response(found)

    (tmp_path / "execution").mkdir()
    (tmp_path / "execution" / "rows.csv").write_text("1,2")
    inline = {"content": "hello", "filename": "h.txt", "content_type": "text/x-h"}
    config = {"method": "POST", "form": {"kind": "k"}, "files": {"rows": "rows.csv", "note": inline}}
    assert exchange(tmp_path, parts, config).result == {
        "kind": "k",
        "rows": ["rows.csv", "text/csv", "1,2"],
        "note": ["h.txt", "text/x-h", "hello"],
    }


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link"])
def test_a_file_outside_the_execution_folder_is_not_sent(tmp_path: Path, path: str) -> None:
    (tmp_path / "execution").mkdir()
    (tmp_path / "secret").write_text("s")
    (tmp_path / "execution" / "link").symlink_to(tmp_path / "secret")
    outcome = exchange(tmp_path, echo, {"method": "POST", "files": {"f": path}})
    assert outcome.error is not None
    assert outcome.error.kind == "config.invalid"
    assert "out of the execution's folder" in outcome.error.message


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"X-A": "a\r\nX-B: b"}, "`X-A` holds a line break"),
        ({"X-A\r\nX-B": "a"}, "not the name of a header"),
        ({"X A": "a"}, "not the name of a header"),
        ({"Content-Length": 3}, "cannot be set"),
        ({"Transfer-Encoding": "chunked"}, "cannot be set"),
    ],
)
def test_a_header_that_would_break_the_request_is_refused(
    tmp_path: Path, headers: dict[str, Any], said: str
) -> None:
    error = exchange(tmp_path, echo, {"headers": headers}).error
    assert error is not None
    assert (error.kind, error.retryable) == ("config.invalid", False)
    assert said in error.message


def test_headers_take_numbers_and_leave_out_null(tmp_path: Path) -> None:
    sent = exchange(tmp_path, echo, {"headers": {"X-N": 5, "X-B": True, "X-None": None}}).result["headers"]
    assert (sent["x-n"], sent["x-b"], "x-none" in sent) == ("5", "true", False)


def test_a_call_that_is_not_idempotent_says_which_action_it_is(tmp_path: Path) -> None:
    key = "idempotency-key"
    assert exchange(tmp_path, echo, {"method": "POST"}).result["headers"][key] == "1/start/only/1"
    own = {"method": "PATCH", "headers": {"Idempotency-Key": "mine"}}
    assert exchange(tmp_path, echo, own).result["headers"][key] == "mine"
    assert key not in exchange(tmp_path, echo, {"method": "PUT"}).result["headers"]


@pytest.mark.parametrize(
    ("fields", "header", "value"),
    [
        ({"token": "t0k"}, "authorization", "Bearer t0k"),
        ({"access_token": "t0k", "token_type": "Bearer"}, "authorization", "Bearer t0k"),
        ({"token": "t0k", "scheme": "Token"}, "authorization", "Token t0k"),
        ({"username": "u", "password": "p"}, "authorization", "Basic dTpw"),
        ({"api_key": "k"}, "x-api-key", "k"),
        ({"api_key": "k", "header": "X-Mine"}, "x-mine", "k"),
        ({"headers": {"X-One": 1}}, "x-one", "1"),
    ],
)
def test_a_credential_becomes_a_header(
    tmp_path: Path, fields: dict[str, Any], header: str, value: str
) -> None:
    assert exchange(tmp_path, echo, {"auth": fields}).result["headers"][header] == value
    named = exchange(tmp_path, echo, {"auth": "shop"}, credentials={"shop": fields})
    assert named.result["headers"][header] == value


def test_a_key_can_go_into_the_query_and_a_header_of_the_task_wins(tmp_path: Path) -> None:
    key = {"api_key": "k", "in": "query", "name": "apikey"}
    assert exchange(tmp_path, echo, {"auth": key}).result["query"] == [["apikey", "k"]]
    config = {"auth": {"token": "other"}, "headers": {"authorization": "Mine"}}
    assert exchange(tmp_path, echo, config).result["headers"]["authorization"] == "Mine"
    assert "authorization" not in exchange(tmp_path, echo, {"auth": {}}).result["headers"]


def test_a_credential_that_is_missing_or_empty_fails_the_call(tmp_path: Path) -> None:
    missing = exchange(tmp_path, echo, {"auth": "shop"}).error
    assert missing is not None
    assert "`shop`" in missing.message
    useless = exchange(tmp_path, echo, {"auth": {"host": "h"}}).error
    assert useless is not None
    assert useless.kind == "config.invalid"


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False), (404, False), (408, True), (425, True), (429, True), (500, True),
     (501, False), (502, True), (503, True), (505, False)],
)  # fmt: skip
def test_an_error_status_is_an_error_that_keeps_the_body(
    tmp_path: Path, status: int, retryable: bool
) -> None:
    outcome = exchange(
        tmp_path, answering(status=status, text='{"why": "so"}', content_type="application/json")
    )
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("http.status", retryable)
    assert outcome.result == {"why": "so"}
    assert outcome.groups["http"]["status"] == status


@pytest.mark.parametrize("ok_status", [404, "404", [404, 409], "4xx", ["4xx"]])
def test_a_status_that_is_named_as_good_is_no_error(tmp_path: Path, ok_status: Any) -> None:
    assert exchange(tmp_path, answering(status=404, text="no"), spec={"ok_status": ok_status}).status == "ok"
    assert exchange(tmp_path, answering(status=500), spec={"ok_status": ok_status}).status == "error"


def test_the_wait_that_a_server_asks_for_is_in_the_details(tmp_path: Path) -> None:
    error = exchange(tmp_path, answering(status=429, headers={"Retry-After": "7"})).error
    assert error is not None
    assert error.details == {"status": 429, "retry_after": 7.0}


@pytest.mark.parametrize(
    ("body", "content_type", "result"),
    [
        (b"hello", "text/plain; charset=utf-8", "hello"),
        (b"gr\xfc\xdfe", "text/plain; charset=latin-1", "grüße"),
        (b"gr\xfc\xdfe", "text/plain; charset=no-such", "gr\ufffd\ufffde"),
        (b"<a/>", "application/atom+xml", "<a/>"),
        (b"a,b\n", "text/csv", "a,b\n"),
        (b'{"title": 1}', "application/problem+json", {"title": 1}),
        (b"\xef\xbb\xbf[1]", "application/json", [1]),
        ('["é"]'.encode("utf-16"), "application/json; charset=utf-16", ["é"]),
        (b"", "application/json", None),
        (b"12345678901234567890123", "application/json", 12345678901234567890123),
    ],
)
def test_a_body_is_decoded_by_its_content_type(
    tmp_path: Path, body: bytes, content_type: str, result: object
) -> None:
    assert exchange(tmp_path, answering(body=body, headers={"Content-Type": content_type})).result == result


@pytest.mark.parametrize("body", [b"<html>", b"NaN", b"{", b"[" * 100_000])
def test_a_body_that_is_not_the_json_it_is_declared_as_is_an_error(tmp_path: Path, body: bytes) -> None:
    outcome = exchange(tmp_path, answering(body=body, content_type="application/json"))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("http.protocol", False)
    assert outcome.result == body.decode()[: 1 << 16]


def test_an_error_page_that_is_not_the_json_it_is_declared_as_stays_an_error_of_its_status(
    tmp_path: Path,
) -> None:
    outcome = exchange(tmp_path, answering(status=502, body=b"<html>", content_type="application/json"))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.result) == ("http.status", "<html>")


@pytest.mark.parametrize("content_type", ["image/png", "application/octet-stream"])
def test_a_body_that_is_neither_json_nor_text_is_stored(tmp_path: Path, content_type: str) -> None:
    outcome = exchange(tmp_path, answering(body=b"\x89PNG", content_type=content_type))
    assert outcome.result["kind"] == "result_ref"
    assert Path(outcome.result["key"]).read_bytes() == b"\x89PNG"


def test_a_text_over_the_inline_limit_is_stored_and_one_below_it_is_not(tmp_path: Path) -> None:
    text = "x" * 1000
    stored = exchange(tmp_path, answering(text=text), spec={"result": {"inline_max_bytes": 999}})
    assert stored.result["size"] == 1000
    inline = exchange(tmp_path, answering(text=text), spec={"result": {"inline_max_bytes": 1000}})
    assert inline.result == text


@pytest.mark.parametrize("charset", ["latin-1", "utf-16", "shift_jis"])
def test_a_stored_text_is_kept_as_utf8_whatever_it_came_in(tmp_path: Path, charset: str) -> None:
    text = ("grüße\n" if charset != "shift_jis" else "日本語\n") * 20_000  # of several pieces
    body = text.encode(charset)
    outcome = exchange(
        tmp_path, answering(body=body, headers={"Content-Type": f"text/csv; charset={charset}"})
    )
    assert Path(outcome.result["key"]).read_text("utf-8") == text


@pytest.mark.parametrize("method", ["HEAD", "DELETE"])
def test_a_response_without_a_body_has_the_result_null(tmp_path: Path, method: str) -> None:
    outcome = exchange(tmp_path, answering(status=204), {"method": method})
    assert (outcome.status, outcome.result) == ("ok", None)


@pytest.mark.parametrize(
    "config",
    [
        {"url": "ftp://example.com/"},
        {"url": "file:///etc/passwd"},
        {"url": "no address"},
        {"url": "http:///x"},
        {"url": "http://h:99999/"},
        {"url": 5},
        {"method": "BREW"},
        {"redirects": "often"},
        {"params": "a=1"},
        {"tls": {"ca": "no-such-file.pem"}},
    ],
)
def test_a_field_that_makes_no_request_is_an_error_of_the_task(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    outcome = exchange(tmp_path, echo, config)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("config.invalid", False)
    assert outcome.groups["http"] == {"status": None, "headers": None, "request_id": None}


def test_the_user_part_of_an_address_is_sent_as_a_header_and_named_nowhere(tmp_path: Path) -> None:
    async def scenario() -> tuple[Outcome, Outcome]:
        app = web.Application()
        app.router.add_get("/bad", answering(status=500))
        app.router.add_get("/good", echo)
        async with TestServer(app) as server, LocalContext(tmp_path) as context:
            url = str(server.make_url("/")).replace("http://", "http://user:hunter22@")
            good = await http.run(call("http", {"url": f"{url}good"}), context)
            bad = await http.run(call("http", {"url": f"{url}bad?key=hunter22"}), context)
            return good, bad

    good, bad = asyncio.run(scenario())
    assert good.result["headers"]["authorization"] == "Basic dXNlcjpodW50ZXIyMg=="
    assert bad.error is not None
    assert "/bad answered with status 500" in bad.error.message
    assert "hunter22" not in repr(bad.error)
    assert "user" not in bad.error.message
