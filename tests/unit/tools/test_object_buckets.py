"""Objects in buckets, against a service that speaks S3 and checks signatures."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from noetl.records.outcome import Outcome
from noetl.tools.http_session import HttpPolicy
from tests.unit.tools.local_context import LocalContext
from tests.unit.tools.s3_service import (
    KEY,
    LOGIN,
    PEM,
    SECRET_KEY,
    S3Service,
    Scenario,
    done,
    kind_of,
    play,
    s3_server,
)

MIB = 1 << 20


@pytest.fixture
def on_s3(tmp_path: Path) -> Callable[[Scenario], None]:
    return partial(play, tmp_path)


def test_objects_are_put_got_listed_copied_and_deleted_with_signed_requests(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        put = await ask("put", key="daily/a b~ü.json", body={"rows": [1, 2]})
        assert put.result["url"] == "s3://lake/daily/a b~ü.json"
        assert service.buckets["lake"]["daily/a b~ü.json"] == (b'{"rows":[1,2]}', "application/json")
        got = await ask("get", key="daily/a b~ü.json")
        assert got.result == {"rows": [1, 2]}
        assert got.groups["object"] == {"size": 14, "etag": put.result["etag"], "truncated": None}
        head = await ask("head", key="daily/a b~ü.json")
        assert head.result == {
            "name": "daily/a b~ü.json",
            "size": 14,
            "etag": put.result["etag"],
            "modified": "2015-10-21T07:28:00.000000Z",
            "content_type": "application/json",
        }
        copied = await ask("copy", key="daily/a b~ü.json", to="daily/b.json")
        assert copied.result == {**put.result, "url": "s3://lake/daily/b.json"}
        assert (await ask("delete", key="daily/b.json")).status == "ok"
        assert (await ask("delete", key="daily/b.json")).status == "ok"
        assert [each["name"] for each in (await ask("list", prefix="")).result] == ["daily/a b~ü.json"]
        assert "/eu-west-1/s3/aws4_request" in service.headers[-1]["authorization"]
        assert SECRET_KEY in context.secrets
        clients = [name for name in context.made if name.startswith("object:client")]
        assert len(clients) == 1
        assert SECRET_KEY not in clients[0]

    on_s3(scenario)


def test_names_are_listed_by_their_beginning_page_by_page_and_a_cut_is_told(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        names = [*(f"daily/2026-{month:02}.csv" for month in range(1, 13)), "daily/2025.csv", "dail", "e/x"]
        service.buckets["lake"] = dict.fromkeys(names, (b"x", "text/csv"))
        service.page = 5
        listed = await ask("list", prefix="daily/2026-0")
        assert [each["name"] for each in listed.result] == [f"daily/2026-{n:02}.csv" for n in range(1, 10)]
        assert listed.groups["object"] == {"size": None, "etag": None, "truncated": False}
        cut = await ask("list", url="s3://lake/daily/", limit=3)
        assert [each["name"] for each in cut.result] == [
            "daily/2025.csv",
            "daily/2026-01.csv",
            "daily/2026-02.csv",
        ]
        assert cut.groups["object"]["truncated"] is True
        assert (await ask("list", prefix="", limit=len(names))).groups["object"]["truncated"] is False
        service.buckets["lake"] = {f"{n:04}": (b"x", "text/csv") for n in range(1001)}
        service.page = 1000
        usual = await ask("list", prefix="")
        assert len(usual.result) == 1000
        assert usual.groups["object"]["truncated"] is True
        assert "cut after 1000 names" in context.errors_logged

    on_s3(scenario)


@pytest.mark.parametrize(
    ("name", "media_type", "body", "result"),
    [
        ("a.json", "application/json", b'{"a": 1}', {"a": 1}),
        ("a.json", "binary/octet-stream", b'{"a": 1}', {"a": 1}),
        ("a", "application/ld+json", b"[1]", [1]),
        ("a.csv", "application/octet-stream", b"a,b\n", "a,b\n"),
        ("a", "text/plain; charset=latin-1", "ü".encode("latin-1"), "ü"),
        ("a", "binary/octet-stream", b"plain", "plain"),
        ("a.json", "text/plain", b"{", "{"),
        ("a.json", "application/json", b"", None),
    ],
)
def test_what_an_object_gives_is_decided_by_its_type_and_then_by_its_ending(
    on_s3, name, media_type, body, result
) -> None:
    async def scenario(service, context, ask) -> None:
        service.buckets["lake"][name] = (body, media_type)
        assert (await ask("get", key=name)).result == result

    on_s3(scenario)


def test_what_is_no_text_and_what_is_large_is_stored_in_pieces(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        large = b"0123456789abcdef" * (5 * MIB // 16)
        service.buckets["lake"] = {
            "x.png": (b"\x89PNG", "image/png"),
            "x": (b"\x00\x01", "binary/octet-stream"),
            "x.csv": (large, "text/csv"),
            "bad.json": (b"{", "application/json"),
        }
        assert (await ask("get", key="x.png")).result["size"] == 4
        assert (await ask("get", key="x")).result["size"] == 2
        stored = await ask("get", key="x.csv")
        assert (stored.result["kind"], stored.result["size"]) == ("result_ref", 5 * MIB)
        assert Path(stored.result["key"]).read_bytes() == large
        assert context.results.media_types == ["image/png", "application/octet-stream", "text/csv"]
        assert context.results.largest_piece <= 2 * MIB
        bad = await ask("get", key="bad.json")
        assert kind_of(bad) == ("object.content", False)
        assert bad.result == "{"

    on_s3(scenario)


def test_an_object_larger_than_results_may_be_is_refused_unless_it_goes_to_a_file(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        context.made["http.policy"] = HttpPolicy(max_body_bytes=1000)
        service.buckets["lake"]["x.bin"] = (b"x" * 1001, "application/x")
        refused = await ask("get", key="x.bin")
        assert kind_of(refused) == ("object.too_large", False)
        assert "`file`" in refused.error.message
        assert (await ask("get", key="x.bin", file="in/x.bin")).result == "in/x.bin"
        assert (context.folder / "in" / "x.bin").stat().st_size == 1001

    on_s3(scenario)


def test_files_go_up_in_parts_and_come_down_in_pieces(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        content = bytes(range(256)) * (17 * MIB // 256)
        (context.folder / "big.parquet").write_bytes(content)
        put = await ask("put", key="big.parquet", file="big.parquet")
        assert put.result["size"] == len(content)
        assert service.buckets["lake"]["big.parquet"] == (content, "application/vnd.apache.parquet")
        assert service.asked.count("PUT /lake/big.parquet") == 3
        got = await ask("get", key="big.parquet", file="back/big.parquet")
        assert got.result == "back/big.parquet"
        assert (context.folder / "back" / "big.parquet").read_bytes() == content
        assert [each.name for each in (context.folder / "back").iterdir()] == ["big.parquet"]
        typed = await ask("put", key="y", file="back/big.parquet", content_type="application/x-own")
        assert typed.status == "ok"
        assert service.buckets["lake"]["y"][1] == "application/x-own"

    on_s3(scenario)


def test_copies_within_a_bucket_are_the_store_s_and_others_are_streamed(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        service.buckets["lake"]["a.csv"] = (b"x" * (9 * MIB), "text/csv")
        await ask("copy", key="a.csv", to="b.csv")
        assert service.asked == ["PUT /lake/b.csv", "HEAD /lake/b.csv"]
        streamed = await ask("copy", key="a.csv", to="s3://open/c.csv")
        assert streamed.result["url"] == "s3://open/c.csv"
        assert service.buckets["open"]["c.csv"] == service.buckets["lake"]["a.csv"]
        login = {**LOGIN, "endpoint": service.endpoint}
        down = await done(context, "object", "copy", url="s3://lake/a.csv", to="file://in/a.csv", auth=login)
        assert (down.status, down.groups["object"]["size"]) == ("ok", 9 * MIB)
        up = await done(context, "object", "copy", url="file://in/a.csv", to="s3://open/up.csv", auth=login)
        assert up.status == "ok"
        assert service.buckets["open"]["up.csv"] == (b"x" * (9 * MIB), "text/csv")
        missing = await ask("copy", key="nothing", to="s3://open/d.csv")
        assert kind_of(missing) == ("object.missing", False)

    on_s3(scenario)


def test_a_body_that_breaks_off_leaves_nothing_behind(on_s3) -> None:
    async def scenario(service, context, ask) -> None:
        service.buckets["lake"]["broken"] = (b"x" * (12 * MIB), "text/csv")
        service.cut = 9 * MIB
        got = await ask("get", key="broken", file="x.csv")
        assert kind_of(got) == ("object.connection", True)
        assert list(context.folder.iterdir()) == []
        copied = await ask("copy", key="broken", to="s3://open/x.csv")
        assert kind_of(copied) == ("object.connection", True)
        assert service.buckets["open"] == {}
        assert service.uploads == {}

    on_s3(scenario)


@pytest.mark.parametrize("auth", [{}, {"region": "eu-west-1"}])
def test_without_a_login_requests_are_not_signed(on_s3, auth) -> None:
    async def scenario(service, context, ask) -> None:
        service.buckets["open"]["a.txt"] = (b"free", "text/plain")
        assert (await ask("get", bucket="open", key="a.txt", auth=auth)).result == "free"
        assert "authorization" not in service.headers[-1]
        assert kind_of(await ask("get", key="a.txt", auth=auth)) == ("object.denied", False)

    on_s3(scenario)


def test_the_login_is_the_credential_s_and_never_the_worker_s_own(on_s3, monkeypatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKWORKER",
        "AWS_SECRET_ACCESS_KEY": "key-of-the-worker",
        "AWS_SESSION_TOKEN": "token-of-the-worker",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AWS_SKIP_SIGNATURE": "true",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "*",
    }.items():
        monkeypatch.setenv(name, value)

    async def scenario(service, context, ask) -> None:
        context._credentials = {"lake_login": {**LOGIN, "session_token": "short-lived"}}
        assert (await ask("put", key="a", body="x", auth="lake_login")).status == "ok"
        assert service.headers[-1]["x-amz-security-token"] == "short-lived"
        assert (await ask("put", key="a", body="x")).status == "ok"
        assert "x-amz-security-token" not in service.headers[-1]
        assert (await ask("put", bucket="open", key="a", body="x", auth={})).status == "ok"
        assert "authorization" not in service.headers[-1]
        wrong = await ask("get", key="a", auth={**LOGIN, "secret_access_key": "another-key"})
        assert kind_of(wrong) == ("object.denied", False)
        assert wrong.error.details == {"status": 403, "code": "SignatureDoesNotMatch"}

    on_s3(scenario)


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.mark.parametrize("form", ["mapping", "text", "field", "entry"])
def test_google_is_shown_a_token_that_the_service_account_signed(tmp_path: Path, form: str) -> None:
    account = {"type": "service_account", "client_email": "a@b", "private_key_id": "1", "private_key": PEM}

    async def scenario() -> None:
        service = S3Service()
        async with s3_server(service) as server, LocalContext(tmp_path) as context:
            # A Google credential has no endpoint of its own; a test has one.
            account["endpoint"] = str(server.make_url("/"))
            auth: Any = account
            if form == "text":
                auth = json.dumps(account)
            elif form == "field":
                auth = {"service_account": json.dumps(account), "endpoint": account["endpoint"]}
            elif form == "entry":
                context._credentials = {"google": {"value": json.dumps(account)}}
                auth = "google"
            put = await done(
                context, "gcs", "put", bucket="lake", key="x.json", body=[1], auth=auth, project="billed"
            )
            assert put.result["url"] == "gs://lake/x.json"
            assert service.headers[-1]["x-goog-user-project"] == "billed"
            head, claims, signature = service.bearers[-1].split(".")
            assert decoded(claims)["iss"] == "a@b"
            KEY.public_key().verify(
                base64.urlsafe_b64decode(signature + "=="),
                f"{head}.{claims}".encode(),
                padding.PKCS1v15(),
                hashes.SHA256(),
            )
            assert PEM in context.secrets
            assert (await done(context, "object", "get", url="gs://lake/x.json", auth=auth)).result == [1]

    asyncio.run(scenario())


def test_google_s_objects_are_worked_with_in_the_same_way(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent.json")
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:9")

    async def scenario() -> None:
        service = S3Service()
        async with s3_server(service) as server, LocalContext(tmp_path) as context:
            auth = {"access_token": "ya29.token", "endpoint": str(server.make_url("/"))}

            async def ask(operation: str, **config: Any) -> Outcome:
                return await done(context, "gcs", operation, **{"bucket": "lake", "auth": auth, **config})

            assert (await ask("put", key="a.txt", body="x")).status == "ok"
            assert (await ask("copy", key="a.txt", to="b.txt")).status == "ok"
            assert [each["name"] for each in (await ask("list", prefix="")).result] == ["a.txt", "b.txt"]
            assert (await ask("head", key="a.txt")).result["content_type"] == "text/plain"
            service.failing = [404]  # Google tells that an object was not there
            assert (await ask("delete", key="b.txt")).status == "ok"
            assert set(service.bearers) == {"ya29.token"}
            anonymous = {"endpoint": auth["endpoint"]}
            service.buckets["open"]["a.txt"] = (b"free", "text/plain")
            assert (await ask("get", bucket="open", key="a.txt", auth=anonymous)).result == "free"
            assert "authorization" not in service.headers[-1]

    asyncio.run(scenario())
