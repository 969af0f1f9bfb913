"""The `http` kind and the network: redirects, refused addresses, large bodies, TLS, time, broken servers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import resource
import shutil
import socket
import ssl
import subprocess
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from noetl.records.outcome import Outcome
from noetl.tools import http, http_response
from noetl.tools.addresses import AddressPolicy
from noetl.tools.http_session import HttpPolicy
from tests.unit.tools.local_context import LocalContext, call

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
MIB = 1 << 20


def kind_of(outcome: Outcome) -> tuple[str, bool]:
    assert outcome.error is not None, outcome
    return outcome.error.kind, outcome.error.retryable


async def fetch(context: LocalContext, url: object, **config: Any) -> Outcome:
    spec = config.pop("spec", None)
    return await http.run(call("http", {"url": str(url)} | config, spec=spec), context)


def app_of(**handlers: Handler) -> web.Application:
    app = web.Application()
    for path, handler in handlers.items():
        app.router.add_route("*", f"/{path}", handler)
    return app


def redirecting(location: str, status: int = 302) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": location})

    return handler


async def told(request: web.Request) -> web.Response:
    headers = {name.lower(): value for name, value in request.headers.items()}
    return web.json_response(
        {"method": request.method, "headers": headers, "body": (await request.read()).decode()}
    )


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def against(folder: Path, talk: Talk, **config: Any) -> Outcome:
    """The outcome of a call to a server that speaks for itself, HTTP or not."""

    async def scenario() -> Outcome:
        ended = asyncio.Event()

        async def spoken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            await talk(reader, writer)
            await closed(writer)
            ended.set()

        server = await asyncio.start_server(spoken, "127.0.0.1", 0)
        async with server:
            async with LocalContext(folder) as context:
                port = server.sockets[0].getsockname()[1]
                outcome = await fetch(context, f"http://127.0.0.1:{port}/x?token=hunter22", **config)
            await ended.wait()
            return outcome

    return asyncio.run(scenario())


# Redirects


@pytest.mark.parametrize(
    ("status", "method", "sent"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "PUT", "GET"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
    ],
)
def test_a_redirect_is_followed_with_the_method_its_status_asks_for(
    tmp_path: Path, status: int, method: str, sent: str
) -> None:
    async def scenario() -> Outcome:
        app = app_of(a=redirecting("/b", status), b=told)
        async with TestServer(app) as server, LocalContext(tmp_path) as context:
            return await fetch(
                context, server.make_url("/a"), method=method, body={"x": 1}, headers={"Authorization": "B t"}
            )

    result = asyncio.run(scenario()).result
    assert (result["method"], result["body"]) == (sent, "" if sent == "GET" else '{"x":1}')
    assert result["headers"]["authorization"] == "B t"
    assert ("content-type" in result["headers"]) == (sent != "GET")


def test_credentials_do_not_follow_a_redirect_to_another_origin(tmp_path: Path) -> None:
    async def scenario() -> dict[str, str]:
        async with TestServer(app_of(b=told)) as other:
            app = app_of(a=redirecting(str(other.make_url("/b")).replace("//", "//eve:pass@")))
            async with TestServer(app) as server, LocalContext(tmp_path) as context:
                outcome = await fetch(
                    context,
                    server.make_url("/a"),
                    auth={"token": "hunter22"},
                    headers={"X-Api-Key": "hunter22", "Cookie": "s=hunter22", "Accept": "text/x"},
                )
                headers: dict[str, str] = outcome.result["headers"]
                return headers

    headers = asyncio.run(scenario())
    assert "hunter22" not in repr(headers)
    assert "authorization" not in headers
    assert headers["accept"] == "text/x"


def test_a_redirect_loop_ends_with_an_error(tmp_path: Path) -> None:
    async def scenario() -> tuple[Outcome, Outcome, Outcome]:
        asked = []

        async def again(request: web.Request) -> web.Response:
            asked.append(request.path)
            return web.Response(status=302, headers={"Location": "/a"})

        async with TestServer(app_of(a=again)) as server, LocalContext(tmp_path) as context:
            looped = await fetch(context, server.make_url("/a"))
            assert len(asked) == 11
            twice = await fetch(context, server.make_url("/a"), redirects=2)
            assert len(asked) == 14
            return looped, twice, await fetch(context, server.make_url("/a"), redirects=False)

    looped, twice, unfollowed = asyncio.run(scenario())
    assert kind_of(looped) == kind_of(twice) == ("http.redirects", False)
    assert (unfollowed.status, unfollowed.groups["http"]["status"]) == ("ok", 302)


@pytest.mark.parametrize(
    "location",
    ["http://169.254.169.254/latest/meta-data", "http://[::ffff:169.254.169.254]/", "http://2852039166/",
     "http://0xa9.0xfe.0xa9.0xfe/", "http://0251.0376.0251.0376/", "file:///etc/passwd", "gopher://h/"],
)  # fmt: skip
def test_a_redirect_to_an_address_that_is_not_allowed_is_refused(tmp_path: Path, location: str) -> None:
    async def scenario() -> Outcome:
        async with TestServer(app_of(a=redirecting(location))) as server, LocalContext(tmp_path) as context:
            return await fetch(context, server.make_url("/a"))

    assert kind_of(asyncio.run(scenario())) == ("http.address_refused", False)


# Addresses


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[::ffff:a9fe:a9fe]", "0.0.0.0", "2130706433"]
)
def test_an_address_that_is_not_allowed_is_refused_before_anything_is_sent(tmp_path: Path, host: str) -> None:
    async def scenario() -> Outcome:
        async with LocalContext(tmp_path) as context:
            return await fetch(context, f"http://{host}/?token=hunter22")

    outcome = asyncio.run(scenario())
    assert kind_of(outcome) == ("http.address_refused", False)
    assert "hunter22" not in repr(outcome)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_an_operator_can_close_what_a_name_resolves_to(tmp_path: Path, host: str) -> None:
    async def scenario() -> Outcome:
        async with TestServer(app_of(a=told)) as server, LocalContext(tmp_path) as context:
            closed = AddressPolicy(deny=("127.0.0.0/8", "::1/128"))
            context.made["http.policy"] = HttpPolicy(addresses=closed)
            return await fetch(context, f"http://{host}:{server.port}/a")

    assert kind_of(asyncio.run(scenario())) == ("http.address_refused", False)


def test_a_port_that_nobody_listens_at_is_retryable(tmp_path: Path) -> None:
    async def scenario() -> Outcome:
        with socket.socket() as held:  # bound and not listening, so the port stays refused
            held.bind(("127.0.0.1", 0))
            async with LocalContext(tmp_path) as context:
                return await fetch(context, f"http://127.0.0.1:{held.getsockname()[1]}/p?token=hunter22")

    outcome = asyncio.run(scenario())
    assert kind_of(outcome) == ("http.connect", True)
    assert outcome.error is not None
    assert "/p: " in outcome.error.message
    assert "hunter22" not in repr(outcome)
    assert outcome.groups["http"]["status"] is None


def test_a_name_that_does_not_exist_is_retryable(tmp_path: Path) -> None:
    async def scenario() -> Outcome:
        async with LocalContext(tmp_path) as context:
            return await fetch(context, "http://no-such-host.invalid/")

    assert kind_of(asyncio.run(scenario())) == ("http.connect", True)


def test_connections_are_used_again(tmp_path: Path) -> None:
    connections = set()

    async def counted(request: web.Request) -> web.Response:
        connections.add(request.transport)
        return web.json_response({})

    async def scenario() -> None:
        app = app_of(a=counted, r=redirecting("/a"))
        async with TestServer(app) as server, LocalContext(tmp_path) as context:
            for path in ("/a", "/r", "/a"):
                assert (await fetch(context, server.make_url(path))).status == "ok"

    asyncio.run(scenario())
    assert len(connections) == 1


def test_cookies_of_one_task_are_not_sent_by_another(tmp_path: Path) -> None:
    async def baking(_: web.Request) -> web.Response:
        return web.Response(headers={"Set-Cookie": "session=hunter22"})

    async def scenario() -> Outcome:
        async with TestServer(app_of(a=baking, b=told)) as server, LocalContext(tmp_path) as context:
            await fetch(context, server.make_url("/a"))
            return await fetch(context, server.make_url("/b"))

    assert "cookie" not in asyncio.run(scenario()).result["headers"]


# Large bodies


def test_a_body_of_200_megabytes_is_streamed_with_little_memory(tmp_path: Path) -> None:
    piece = bytes(range(256)) * 4096
    expected = hashlib.sha256()

    async def large(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/csv"})
        await response.prepare(request)
        for _ in range(200):
            expected.update(piece)
            await response.write(piece)
        return response

    async def scenario() -> tuple[Outcome, int]:
        async with TestServer(app_of(a=large)) as server, LocalContext(tmp_path) as context:
            outcome = await fetch(context, server.make_url("/a"))
            assert context.results.media_types == ["text/csv"]
            return outcome, context.results.largest_piece

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome, largest = asyncio.run(scenario())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (outcome.result["size"], outcome.result["checksum"]) == (200 * MIB, expected.hexdigest())
    assert largest < MIB
    assert grown < 40 * 1024  # kilobytes


def test_json_over_the_limit_of_decoding_is_stored_as_it_came(tmp_path: Path) -> None:
    body = b"[" + b"1," * 5000 + b"1]"

    async def scenario() -> Outcome:
        async def long(_: web.Request) -> web.Response:
            return web.Response(body=body, content_type="application/json")

        async with TestServer(app_of(a=long)) as server, LocalContext(tmp_path) as context:
            context.made["http.policy"] = HttpPolicy(max_decoded_bytes=1000)
            return await fetch(context, server.make_url("/a"))

    result = asyncio.run(scenario()).result
    assert result["checksum"] == hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/zip"])
def test_a_small_compressed_body_cannot_become_a_large_one(tmp_path: Path, content_type: str) -> None:
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(300)) + packer.flush()

    async def bombing(_: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Type": content_type, "Content-Encoding": "gzip"})

    async def scenario() -> Outcome:
        async with TestServer(app_of(a=bombing)) as server, LocalContext(tmp_path) as context:
            context.made["http.policy"] = HttpPolicy(max_body_bytes=8 * MIB, max_decoded_bytes=MIB)
            return await fetch(context, server.make_url("/a"))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = asyncio.run(scenario())
    assert kind_of(outcome) == ("http.too_large", False)
    assert outcome.groups["http"]["status"] == 200
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * 1024


def test_a_compressed_body_is_decoded(tmp_path: Path) -> None:
    async def zipped(_: web.Request) -> web.Response:
        response = web.json_response({"a": 1})
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async def scenario() -> Outcome:
        async with TestServer(app_of(a=zipped)) as server, LocalContext(tmp_path) as context:
            return await fetch(context, server.make_url("/a"))

    assert asyncio.run(scenario()).result == {"a": 1}


# Time


def test_a_cancelled_call_closes_its_connection(tmp_path: Path) -> None:
    async def scenario() -> object:
        asked, rest = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            rest.set_result(await reader.read())
            await closed(writer)

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with server, LocalContext(tmp_path) as context:
            running = asyncio.create_task(
                fetch(context, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            )
            await asked.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            return await asyncio.wait_for(rest, 5)

    assert asyncio.run(scenario()) == b""


@pytest.mark.parametrize("timeout", [{"read": 0.05}, {"total": "50ms"}, {"connect": 5, "read": 0.05}])
def test_a_server_that_does_not_answer_in_time_is_a_retryable_timeout(
    tmp_path: Path, timeout: dict[str, Any]
) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    assert kind_of(against(tmp_path, silent, spec={"timeout": timeout})) == ("timeout", True)


def test_a_body_that_stalls_is_a_timeout_that_shows_the_status(tmp_path: Path) -> None:
    async def stalling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        await reader.read()

    outcome = against(tmp_path, stalling, spec={"timeout": {"read": 0.05}})
    assert kind_of(outcome) == ("timeout", True)
    assert outcome.groups["http"]["status"] == 200


def test_a_timeout_that_is_no_duration_is_an_error_of_the_task(tmp_path: Path) -> None:
    async def scenario() -> Outcome:
        async with LocalContext(tmp_path) as context:
            return await fetch(context, "http://127.0.0.1:1/", spec={"timeout": {"read": "soon"}})

    assert kind_of(asyncio.run(scenario())) == ("config.invalid", False)


# Broken servers


@pytest.mark.parametrize(
    ("answer", "kind", "retryable"),
    [
        (b"", "http.connect", True),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "http.protocol", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "http.protocol", True),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", "http.protocol", True),
        (b"HTTP/1.1 200 OK\r\nX-A: " + b"x" * 100_000 + b"\r\n\r\n", "http.protocol", False),
        (
            b"HTTP/1.1 200 OK\r\n"
            + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 7000) for n in range(100))
            + b"\r\n",
            "http.protocol",
            False,
        ),
    ],
    ids=["hangs up", "no HTTP", "short body", "bad encoding", "a long header", "many headers"],
)
def test_a_server_that_breaks_the_protocol_is_named(
    tmp_path: Path, answer: bytes, kind: str, retryable: bool
) -> None:
    async def broken(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    outcome = against(tmp_path, broken)
    assert kind_of(outcome) == (kind, retryable)
    assert "hunter22" not in repr(outcome)


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    )
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    return cert, key


def tls_fetch(folder: Path, certificate: tuple[Path, Path], host: str, **config: Any) -> Outcome:
    async def scenario() -> Outcome:
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(*certificate)
        server = TestServer(app_of(a=told), scheme="https")
        await server.start_server(ssl=serving)
        try:
            async with LocalContext(folder) as context:
                for _ in range(2):
                    outcome = await fetch(context, f"https://{host}:{server.port}/a", **config)
                return outcome
        finally:
            await server.close()

    return asyncio.run(scenario())


def test_a_certificate_that_nobody_vouches_for_is_refused_and_not_retryable(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    outcome = tls_fetch(tmp_path, certificate, "localhost")
    assert kind_of(outcome) == ("http.tls", False)
    assert outcome.error is not None
    assert "certificate is not accepted" in outcome.error.message


def test_a_certificate_is_accepted_if_its_authority_is_named_and_it_fits_the_host(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    (tmp_path / "execution").mkdir()
    shutil.copy(certificate[0], tmp_path / "execution" / "ca.pem")
    trusted = {"ca": "ca.pem"}
    assert tls_fetch(tmp_path, certificate, "localhost", tls=trusted).status == "ok"
    assert kind_of(tls_fetch(tmp_path, certificate, "127.0.0.1", tls=trusted)) == ("http.tls", False)
    assert tls_fetch(tmp_path, certificate, "127.0.0.1", tls={"verify": False}).status == "ok"


def test_certificates_that_cannot_be_loaded_are_an_error_of_the_task(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    (tmp_path / "execution").mkdir()
    shutil.copy(certificate[1], tmp_path / "execution" / "key.pem")
    bad = tls_fetch(tmp_path, certificate, "localhost", tls={"cert": "key.pem"})
    assert kind_of(bad) == ("config.invalid", False)


@pytest.mark.parametrize("field", ["ca", "cert", "key"])
@pytest.mark.parametrize("kind", ["absolute", "upwards", "link"])
def test_files_of_tls_lie_in_the_folder_of_the_execution(
    tmp_path: Path, certificate: tuple[Path, Path], field: str, kind: str
) -> None:
    folder = tmp_path / "execution"
    folder.mkdir()
    shutil.copy(certificate[0], tmp_path / "outside.pem")
    (folder / "link.pem").symlink_to(tmp_path / "outside.pem")
    named = {"absolute": str(certificate[0]), "upwards": "../outside.pem", "link": "link.pem"}[kind]
    refused = tls_fetch(tmp_path, certificate, "localhost", tls={field: named})
    assert kind_of(refused) == ("config.invalid", False)
    assert refused.error is not None
    assert f"`tls.{field}`: the path leads out of the execution's folder" in refused.error.message
    assert "keychain" in refused.error.message


def test_certificates_and_keys_may_be_given_as_text(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = (path.read_text() for path in certificate)
    tls = {"ca": cert, "cert": cert, "key": key}
    assert tls_fetch(tmp_path, certificate, "localhost", tls=tls).status == "ok"
    broken = tls_fetch(tmp_path, certificate, "localhost", tls={"ca": "-----BEGIN CERTIFICATE-----\nx"})
    assert kind_of(broken) == ("config.invalid", False)


def test_speaking_tls_to_a_server_that_does_not_is_an_error_of_tls(tmp_path: Path) -> None:
    async def scenario() -> Outcome:
        async with TestServer(app_of(a=told)) as server, LocalContext(tmp_path) as context:
            return await fetch(context, f"https://127.0.0.1:{server.port}/a")

    assert kind_of(asyncio.run(scenario())) == ("http.tls", False)


def saying(body: bytes, content_type: str, *headers: bytes) -> Talk:
    """A server that answers with bytes that no library would let it send."""

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (b"HTTP/1.1 200 OK", b"Content-Type: " + content_type.encode("latin-1"), *headers)
        writer.write(b"\r\n".join((*head, b"Content-Length: %d" % len(body), b"", b"")) + body)

    return talk


def test_headers_that_are_not_utf8_are_read_as_latin_1(tmp_path: Path) -> None:
    headers = (b"X-Name: J\xfcrgen", "X-Other: Jürgen".encode(), b"X-Odd: \xff\xfe")
    outcome = against(tmp_path, saying(b"x", "text/plain; a=\xff", *headers))
    assert outcome.error is None
    seen = outcome.groups["http"]["headers"]
    assert (seen["x-name"], seen["x-other"], seen["x-odd"]) == ("Jürgen", "Jürgen", "ÿþ")
    msgspec.json.encode(outcome.groups)


@pytest.mark.parametrize(
    ("charset", "body"),
    [
        ("utf-7", b"+2AA-"),
        ("unicode_escape", rb"\ud800"),
        ("raw_unicode_escape", rb"\ud800"),
        ("idna", b"a"),
        ("undefined", b"a"),
        ("utf-16", b"\x00\xd8"),
        ("utf-32", b"\x00\xd8\x00\x00"),
        ("utf-8", b"\xed\xa0\x80"),
    ],
)
@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_no_charset_gives_text_that_cannot_be_written_again(
    tmp_path: Path, charset: str, body: bytes, kind: str
) -> None:
    quoted = '"'.encode("utf-16-le" if charset == "utf-16" else charset if charset == "utf-32" else "ascii")
    said = quoted + body + quoted if kind == "application/json" else body
    outcome = against(tmp_path, saying(said, f"{kind}; charset={charset}"))
    assert outcome.error is None or kind_of(outcome) == ("http.protocol", False)
    msgspec.json.encode(outcome)


def test_a_lone_surrogate_in_json_is_not_json(tmp_path: Path) -> None:
    for body in (rb'"\ud800"', rb'"\udc00x"', rb'{"\ud800": 1}'):
        assert kind_of(against(tmp_path, saying(body, "application/json"))) == ("http.protocol", False)


def test_a_charset_that_takes_quadratic_time_is_not_used(tmp_path: Path) -> None:
    outcome = against(tmp_path, saying(b"a-" + b"9" * 60_000, "text/plain; charset=punycode"))
    assert outcome.result == "a-" + "9" * 60_000


def test_json_that_would_take_far_more_memory_than_its_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_response, "MAX_DATA_BYTES", 40 * MIB)
    plain = b"[" + b"1234567," * (MIB // 7) + b"1]"
    assert len(against(tmp_path, saying(plain, "application/json")).result) == MIB // 7 + 1
    bomb = b"[" + b"[]," * (MIB // 2) + b"1]"
    assert kind_of(against(tmp_path, saying(bomb, "application/json"))) == ("http.too_large", False)
