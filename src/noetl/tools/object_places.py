"""Where objects lie, as playbooks write it, and what can be done with every such place.

An address is read once, here, and judged as text; what it leads to is for the place itself to judge. The
places are folders (`object_folders.py`) and buckets (`object_buckets.py`).
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from typing import Final, Protocol, TypeAlias
from urllib.parse import unquote

import msgspec

from noetl.tools.call_failures import CallFailedError
from noetl.tools.objects import BucketConfig, ObjectConfig

SCHEMES: Final = {"object": ("s3", "gs", "file"), "s3": ("s3",), "gcs": ("gs",)}
"""Those of the addresses that a kind takes; where it takes one alone, `bucket` needs no address."""
PIECE: Final = 1 << 20
BYTES: Final = "application/octet-stream"
ENDINGS: Final = {
    "csv": "text/csv",
    "geojson": "application/geo+json",
    "gz": "application/gzip",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "log": "text/plain",
    "md": "text/markdown",
    "ndjson": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "png": "image/png",
    "sql": "application/sql",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
    "zst": "application/zstd",
}
"""The media types of names, for stores that do not know them."""
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,221}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

Pieces: TypeAlias = AsyncGenerator[bytes, None]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a place knows about an object."""

    name: str
    size: int
    etag: str | None
    modified: str
    """RFC 3339."""
    content_type: str | None = None
    is_encoded: bool = False
    """Its bytes are compressed, or encoded in another way, on top of its media type."""


class Place(Protocol):
    """A folder or a bucket; CallFailedError for whatever goes wrong in it."""

    async def head(self, key: str) -> Found: ...

    async def open(self, key: str) -> tuple[Found, Pieces]: ...

    async def put(self, key: str, body: bytes | Pieces, size: int, content_type: str) -> str | None:
        """The tag of what was written; `size` is that of the body."""
        ...

    async def listed(self, prefix: str, most: int) -> list[Found]:
        """Objects whose names begin so, in the order of their names."""
        ...

    async def copy(self, key: str, to: str) -> None: ...

    async def delete(self, key: str) -> None:
        """Also good where there is no such object."""
        ...


class Spot(msgspec.Struct, frozen=True):
    """One object's address, or with a prefix instead of a key that of several."""

    scheme: str
    bucket: str
    """Empty with `file`."""
    key: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.key}" if self.scheme == "file" else f"{self.store}/{self.key}"

    @property
    def store(self) -> str:
        return f"{self.scheme}://{self.bucket}"


def invalid(message: str) -> CallFailedError:
    return CallFailedError("config.invalid", message)


def spot_of(kind: str, config: ObjectConfig) -> Spot:
    """What a task is about: an object, or with `list` the beginning of names."""
    base = _base(kind, config)
    lists = config.operation == "list"
    written = config.prefix if lists and config.prefix is not None else config.key
    key = base.key
    if written is not None:
        key = f"{key.rstrip('/')}/{written}" if key else written
    return Spot(base.scheme, base.bucket, _checked(base.scheme, key, is_prefix=lists))


def target_of(kind: str, config: ObjectConfig, source: Spot) -> Spot:
    """Where a copy goes."""
    if not config.to:
        raise invalid("`to` is missing: the address of the copy, or its name in the same bucket")
    if "://" in config.to:
        found = _parsed(kind, config.to, "to")
        return Spot(found.scheme, found.bucket, _checked(found.scheme, found.key))
    return Spot(source.scheme, source.bucket, _checked(source.scheme, config.to))


def _base(kind: str, config: ObjectConfig) -> Spot:
    bucket = config.bucket if isinstance(config, BucketConfig) else None
    if config.url:
        found = _parsed(kind, config.url, "url")
        if bucket and bucket != found.bucket:
            raise invalid("`url` and `bucket` name two buckets")
        return found
    if not bucket:
        raise invalid("there is no address: `url` is missing" + (", or `bucket`" if kind != "object" else ""))
    return Spot(SCHEMES[kind][0], _bucket(bucket), "")


def _parsed(kind: str, written: str, field: str) -> Spot:
    scheme, mark, rest = written.partition("://")
    if not mark or scheme not in SCHEMES[kind]:
        takes = " or ".join(f"`{each}://…`" for each in SCHEMES[kind])
        raise invalid(f"`{field}` is not an address that a task of kind {kind} takes: {takes}")
    if scheme == "file":
        return Spot(scheme, "", unquote(rest))
    bucket, _, key = rest.partition("/")
    return Spot(scheme, _bucket(bucket), key)


def _bucket(written: str) -> str:
    if not _BUCKET.fullmatch(written):
        raise invalid("the bucket's name is not one that a bucket can have")
    return written


def _checked(scheme: str, key: str, *, is_prefix: bool = False) -> str:
    """The key, if the place can be asked for it; a path is judged where it leads, by the place."""
    if not key and not is_prefix:
        raise invalid("the object's name is missing: it stands in `url` or in `key`")
    if _CONTROL.search(key):
        raise invalid("the object's name has a control character in it")
    if scheme == "file":
        return key
    parts = key.split("/")
    if is_prefix:
        parts.pop()  # the beginning of a name, or nothing
    if not all(parts) or "." in parts or ".." in parts:
        raise invalid("the object's name begins or ends with `/`, or has a part that is empty, `.` or `..`")
    return key


def type_by_ending(name: str) -> str | None:
    return ENDINGS.get(name.rpartition("/")[2].rpartition(".")[2].lower())
