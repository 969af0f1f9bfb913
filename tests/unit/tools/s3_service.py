"""A small service that speaks S3, for the tests: signatures are checked, and it can be told to fail.

It also answers to the same paths as Google Cloud Storage does, whose requests carry a token instead of a
signature. What it was asked is kept in `asked`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolKind
from noetl.tools import gcs, object, s3  # noqa: A004 - the kind is called so
from tests.unit.tools.local_context import LocalContext, call

ACCESS_KEY = "AKIDEXAMPLE"
SECRET_KEY = "secret-key-of-the-tests"
LOGIN = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, "region": "eu-west-1"}
KEY = rsa.generate_private_key(65537, 2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()
KINDS: dict[str, ToolKind] = {"object": object, "s3": s3, "gcs": gcs}
TIME = "Wed, 21 Oct 2015 07:28:00 GMT"


class S3Service:
    """One bucket, `lake`, in memory; the other bucket, `open`, takes requests without a signature."""

    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, tuple[bytes, str]]] = {"lake": {}, "open": {}}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.failing: list[int] = []
        """Statuses with which the next requests are answered."""
        self.redirect_to: str | None = None
        self.page = 1000
        self.cut: int | None = None
        """After how many bytes the body of `broken` breaks off."""
        self.endpoint = ""
        self.bearers: list[str] = []
        self.stalls = asyncio.Event()
        """Set once a request for `stalling` has come, which is never answered."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = request.raw_path.partition("?")[0]
        _, bucket, *rest = raw.split("/", 2)
        key = unquote(rest[0]) if rest else ""
        self.asked.append(f"{request.method} {unquote(request.raw_path.partition('?')[0])}")
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        body = await request.read()
        if self.failing:
            status = self.failing.pop(0)
            return _error(status, "SlowDown" if status in (429, 503) else f"Status{status}")
        if self.redirect_to is not None:
            return web.Response(status=302, headers={"Location": self.redirect_to})
        if key == "stalling":
            self.stalls.set()
            await asyncio.Event().wait()
        if bucket not in self.buckets:
            return _error(404, "NoSuchBucket")
        if bucket != "open" and not self._is_allowed(request, body):
            return _error(403, "SignatureDoesNotMatch")
        if not key:
            return self._listed(self.buckets[bucket], request)
        if key == "broken" and request.method == "GET" and self.cut is not None:
            return await self._broken(self.buckets[bucket][key][0][: self.cut], request)
        return self._object(self.buckets[bucket], key, request, body)

    async def _broken(self, content: bytes, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Last-Modified": TIME, "Content-Length": str(len(content) + 1)})
        await answer.prepare(request)
        await answer.write(content)
        assert request.transport is not None
        request.transport.close()
        return answer

    def _is_allowed(self, request: web.Request, body: bytes) -> bool:
        authorization = request.headers.get("Authorization", "")
        if authorization.startswith("Bearer "):
            self.bearers.append(authorization.removeprefix("Bearer "))
            return True
        return authorization != "" and authorization == _authorization(request, body)

    def _object(
        self, objects: dict[str, tuple[bytes, str]], key: str, request: web.Request, body: bytes
    ) -> web.Response:
        query = request.query
        media_type = request.headers.get("Content-Type", "binary/octet-stream")
        source = request.headers.get("x-amz-copy-source") or request.headers.get("x-goog-copy-source")
        match request.method:
            case "POST" if "uploads" in query:
                self.uploads["u1"] = {}
                objects[f"upload of {key}"] = (b"", media_type)
                return _xml(
                    "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
                )
            case "POST" if "uploadId" in query:
                parts = self.uploads.pop(query["uploadId"])
                content = b"".join(parts[number] for number in sorted(parts))
                objects[key] = (content, objects.pop(f"upload of {key}")[1])
                return _xml(
                    f"<CompleteMultipartUploadResult><ETag>{_etag(content)}</ETag></CompleteMultipartUploadResult>"
                )
            case "PUT" if "uploadId" in query:
                self.uploads[query["uploadId"]][int(query["partNumber"])] = body
                return web.Response(headers={"ETag": _etag(body)})
            case "DELETE" if "uploadId" in query:
                self.uploads.pop(query["uploadId"], None)
                objects.pop(f"upload of {key}", None)
                return web.Response(status=204)
            case "PUT" if source is not None:
                found = objects.get(unquote(source).lstrip("/").partition("/")[2])
                if found is None:
                    return _error(404, "NoSuchKey")
                objects[key] = found
                return _xml(f"<CopyObjectResult><ETag>{_etag(found[0])}</ETag></CopyObjectResult>")
            case "PUT":
                objects[key] = (body, media_type)
                return web.Response(headers={"ETag": _etag(body)})
            case "DELETE":
                objects.pop(key, None)
                return web.Response(status=204)
        if key not in objects:
            return _error(404, "NoSuchKey")
        content, media_type = objects[key]
        headers = {"ETag": _etag(content), "Last-Modified": TIME, "Content-Type": media_type}
        if request.method == "HEAD":
            return web.Response(headers={**headers, "Content-Length": str(len(content))})
        return web.Response(body=content, headers=headers)

    def _listed(self, objects: dict[str, tuple[bytes, str]], request: web.Request) -> web.Response:
        query = request.query
        begins, after = query.get("prefix", ""), query.get("continuation-token", query.get("start-after", ""))
        names = sorted(name for name in objects if name.startswith(begins) and name > after)
        shown, more = names[: self.page], len(names) > self.page
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2015-10-21T07:28:00.000Z</LastModified>"
            f"<ETag>{escape(_etag(objects[name][0]))}</ETag><Size>{len(objects[name][0])}</Size></Contents>"
            for name in shown
        )
        token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if more else ""
        return _xml(
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}</ListBucketResult>"
        )


async def done(context: LocalContext, kind: str, operation: str, **config: Any) -> Outcome:
    spec = config.pop("spec", None)
    return await KINDS[kind].run(call(kind, {"operation": operation, **config}, spec=spec), context)


def kind_of(outcome: Outcome) -> tuple[str, bool]:
    assert outcome.error is not None
    assert outcome.groups == {"object": {"size": None, "etag": None, "truncated": None}}
    assert SECRET_KEY not in outcome.error.message
    return outcome.error.kind, outcome.error.retryable


Scenario = Callable[[S3Service, LocalContext, Callable[..., Awaitable[Outcome]]], Awaitable[None]]


def play(folder: Path, scenario: Scenario) -> None:
    """Runs a scenario with a service, a context, and what calls a task of kind `s3` on bucket `lake`."""

    async def whole() -> None:
        service = S3Service()
        async with s3_server(service) as server, LocalContext(folder) as context:
            endpoint = service.endpoint = str(server.make_url("/"))

            async def ask(operation: str, **config: Any) -> Outcome:
                fields = {"bucket": "lake", "endpoint": endpoint, "auth": LOGIN, **config}
                return await done(context, "s3", operation, **fields)

            await scenario(service, context, ask)

    asyncio.run(whole())


def s3_server(service: S3Service) -> TestServer:
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", service.handle)
    return TestServer(app)


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _xml(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/xml")


def _error(status: int, code: str) -> web.Response:
    return web.Response(
        status=status, text=f"<Error><Code>{code}</Code></Error>", content_type="application/xml"
    )


def _authorization(request: web.Request, body: bytes) -> str:
    """The header that the request must have: Signature Version 4, computed anew from what came."""
    given = request.headers["Authorization"]
    fields: dict[str, Any] = dict(
        part.strip().split("=", 1) for part in given.removeprefix("AWS4-HMAC-SHA256 ").split(",")
    )
    names = fields["SignedHeaders"].split(";")
    scope = fields["Credential"].partition("/")[2]
    declared = request.headers["x-amz-content-sha256"]
    if declared != "UNSIGNED-PAYLOAD" and declared != hashlib.sha256(body).hexdigest():
        return "the body is another one"
    query = "&".join(
        sorted(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in request.query.items())
    )
    canonical = "\n".join(
        [
            request.method,
            quote(unquote(request.raw_path.partition("?")[0]), safe="/~"),
            query,
            *(f"{name}:{request.headers[name].strip()}" for name in names),
            "",
            ";".join(names),
            declared,
        ]
    )
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{request.headers['x-amz-date']}\n{scope}\n{hashed}"
    key = f"AWS4{SECRET_KEY}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={';'.join(names)}, "
        f"Signature={signature}"
    )
