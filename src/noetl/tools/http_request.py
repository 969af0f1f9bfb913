"""What an `http` task sends: address, headers, credentials and body, made from its rendered fields.

Values come from templates, so numbers, booleans, null and lists are given the form a request needs, and
whatever could break out of a header line is refused. Nothing here opens a connection. A `RequestError`
names the field and never the value, which may be a secret.
"""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from noetl import __version__
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.paths import PathRefusedError, open_under, under

TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
BREAKS_A_LINE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
BODY_FIELDS: Final = ("body", "payload", "json", "data")
NOT_IDEMPOTENT: Final = ("POST", "PATCH")
METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
OURS: Final = frozenset({"content-length", "transfer-encoding", "connection"})
"""Headers that say where a message ends: a wrong one would let a body be read as a second request."""
USER_AGENT: Final = f"noetl/{__version__}"
KEPT_ACROSS_ORIGINS: Final = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-type", "range", "user-agent"}
)
"""Any other header may be a credential, whatever its name, and stays with the origin it was meant for."""


class RequestError(Exception):
    """A field that no request can be made of."""


class Request(msgspec.Struct, frozen=True):
    """One request, ready to be sent; `payload` makes its body anew each time it is sent."""

    method: str
    url: URL
    headers: CIMultiDict[str]
    body: Any = None
    form: tuple[tuple[str, str], ...] = ()
    files: tuple[File, ...] = ()

    def payload(self) -> Any:  # noqa: ANN401 - whatever aiohttp takes as a body
        if self.files:
            multipart = aiohttp.FormData()
            for name, value in self.form:
                multipart.add_field(name, value)
            for each in self.files:
                content = each.content if each.path is None else each.opened(each.path)
                multipart.add_field(
                    each.field, content, filename=each.filename, content_type=each.content_type
                )
            return multipart
        if self.form:
            return aiohttp.FormData(list(self.form))
        return self.body

    def takes_its_body_elsewhere(self, status: int, url: URL) -> bool:
        """Whether following a redirect would show the body to an origin that it was not meant for."""
        has_body = bool(self.files or self.form or self.body)
        return has_body and not self._becomes_get(status) and url.origin() != self.url.origin()

    def redirected(self, status: int, url: URL) -> Request:
        """The request after a redirect: a GET where the status says so, without credentials elsewhere."""
        headers = self.headers.copy()
        if url.origin() != self.url.origin():
            for name in {each for each in headers if each.lower() not in KEPT_ACROSS_ORIGINS}:
                headers.popall(name, None)
        if not self._becomes_get(status):
            return Request(self.method, url, headers, self.body, self.form, self.files)
        headers.popall("Content-Type", None)
        return Request("GET", url, headers)

    def _becomes_get(self, status: int) -> bool:
        return (status == 303 and self.method != "HEAD") or (status in (301, 302) and self.method == "POST")


class File(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    filename: str
    content_type: str | None
    content: bytes = b""
    folder: Path = Path()
    path: Path | None = None

    def opened(self, path: Path) -> BinaryIO:
        try:
            return open_under(self.folder, str(path))
        except (PathRefusedError, FileNotFoundError):
            raise RequestError(f"`files.{self.field}`: the file is not there any more") from None


def name_of(url: URL) -> str:
    """The address for messages: no user, no query and no fragment, since those hold secrets."""
    return str(url.with_user(None).with_query(None).with_fragment(None))


async def request_for(call: ToolCall, context: ToolContext) -> Request:
    config = call.config
    method = str(config.get("method") or "GET").upper()
    if method not in METHODS:
        raise RequestError("`method` is none of " + ", ".join(METHODS))
    url = address(config.get("url") or config.get("endpoint"))
    headers = _headers(config["headers"]) if config.get("headers") else CIMultiDict()
    if url.raw_user is not None or url.raw_password is not None:
        headers.setdefault("Authorization", _basic(url.user or "", url.password or ""))
        url = url.with_user(None)
    query = _pairs("params", config["params"]) if config.get("params") else []
    if auth := config.get("auth"):
        query += _authorise(await _credential(auth, context), headers)
    if query:
        url = url.extend_query(query)
    if method in NOT_IDEMPOTENT and "Idempotency-Key" not in headers:
        _add_header(headers, "Idempotency-Key", call.action_id)
    if "User-Agent" not in headers:
        headers.add("User-Agent", USER_AGENT)
    form = tuple(_pairs("form", config["form"])) if config.get("form") else ()
    files: tuple[File, ...] = ()
    if written := config.get("files"):
        files = tuple(_file(name, each, context.folder) for name, each in written.items())
    body = None if form or files else _body(config, headers)
    return Request(method, url, headers, body, form, files)


async def request_to(written: str, auth: object, context: ToolContext) -> Request:
    """A GET of an address with a credential."""
    headers: CIMultiDict[str] = CIMultiDict({"User-Agent": USER_AGENT})
    url = address(written)
    query = _authorise(await _credential(auth, context), headers)
    return Request("GET", url.extend_query(query) if query else url, headers)


def address(written: object) -> URL:
    """An address that a request can be sent to."""
    if not isinstance(written, str):
        raise RequestError("`url` is not an address")
    return _address(written)


@lru_cache(maxsize=512)  # the pages of one address differ in their query alone
def _address(written: str) -> URL:
    if BREAKS_A_LINE.search(written):
        raise RequestError("`url` is not an address")
    try:
        url = URL(written.strip())
        host = url.host
    except ValueError:
        host = None
    if not host or any(each.isspace() for each in host):
        raise RequestError("`url` is not an address")
    if url.scheme not in ("http", "https"):
        raise RequestError("`url` is neither `http` nor `https`")
    return url


def text_of(value: object) -> str:
    """A value where only text can stand: booleans and structures as JSON writes them."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _pairs(field: str, values: object) -> list[tuple[str, str]]:
    if not isinstance(values, Mapping):
        raise RequestError(f"`{field}` is not a mapping")
    return [
        (str(name), text_of(each))
        for name, value in values.items()
        for each in (value if isinstance(value, list | tuple) else (value,))
        if each is not None
    ]


def _headers(written: object) -> CIMultiDict[str]:
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in _pairs("headers", written):
        _add_header(headers, name, value)
    return headers


def _add_header(headers: CIMultiDict[str], name: str, value: str) -> None:
    if not TOKEN.fullmatch(name):
        raise RequestError("a name in `headers` is not the name of a header")
    if BREAKS_A_LINE.search(value):
        raise RequestError(f"the header `{name}` holds a line break or a control character")
    if name.lower() in OURS:
        raise RequestError(f"the header `{name}` follows from the body and cannot be set")
    headers.add(name, value.strip())


def _body(config: Mapping[str, Any], headers: CIMultiDict[str]) -> Any:  # noqa: ANN401 - a body for aiohttp
    value = next((config[field] for field in BODY_FIELDS if config.get(field) is not None), None)
    if value is None or isinstance(value, str | bytes):
        return value
    headers.setdefault("Content-Type", "application/json")
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"`body` cannot be written as JSON ({type(error).__name__})") from None


def _file(field: str, written: object, folder: Path) -> File:
    if isinstance(written, str):
        try:
            path = under(folder, written)
        except PathRefusedError as refused:
            raise RequestError(f"`files.{field}`: {refused}") from None
        if not path.is_file():
            raise RequestError(f"`files.{field}`: there is no such file in the execution's folder")
        content_type = mimetypes.guess_type(path.name)[0]
        return File(field=field, filename=path.name, content_type=content_type, folder=folder, path=path)
    if not isinstance(written, Mapping) or written.get("content") is None:
        raise RequestError(f"`files.{field}` is neither a path nor a mapping with `content`")
    filename = str(written.get("filename") or field)
    content_type = written.get("content_type")
    if BREAKS_A_LINE.search(f"{filename}{content_type or ''}{field}"):
        raise RequestError(f"`files.{field}` holds a line break or a control character")
    content = written["content"]
    return File(
        field=field,
        filename=filename,
        content_type=None if content_type is None else str(content_type),
        content=content if isinstance(content, bytes) else text_of(content).encode(),
    )


async def _credential(auth: object, context: ToolContext) -> Mapping[str, Any]:
    """The fields of `auth`, fetched if it is a name."""
    if not auth:
        return {}
    if isinstance(auth, str):
        return await context.credential(auth)
    if isinstance(auth, Mapping):
        return auth
    raise RequestError("`auth` is neither a name nor a mapping of fields")


def _authorise(fields: Mapping[str, Any], headers: CIMultiDict[str]) -> list[tuple[str, str]]:
    """Adds the credential to the headers, where they do not have it; gives the query it needs, if any."""
    if not fields:
        return []
    for name, value in _pairs("auth.headers", fields.get("headers") or {}):
        if name not in headers:
            _add_header(headers, name, value)
    key = _first(fields, "api_key", "key")
    token = _first(fields, "token", "access_token", "bearer", "value")
    user = _first(fields, "username", "user")
    if key is not None:
        if fields.get("in") == "query":
            return [(str(fields.get("name") or "api_key"), key)]
        header = str(fields.get("header") or fields.get("name") or "X-API-Key")
        if header not in headers:
            _add_header(headers, header, key)
    elif token is not None:
        if "Authorization" not in headers:
            _add_header(headers, "Authorization", f"{fields.get('scheme') or 'Bearer'} {token}")
    elif user is not None:
        headers.setdefault("Authorization", _basic(user, _first(fields, "password", "pass") or ""))
    elif not fields.get("headers"):
        raise RequestError("`auth` has neither `token`, `username`, `api_key` nor `headers`")
    return []


def _first(fields: Mapping[str, Any], *names: str) -> str | None:
    return next((text_of(fields[name]) for name in names if fields.get(name) is not None), None)


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
