"""Runs the calls of the kinds `object`, `s3` and `gcs`: one operation on one place, worded as an outcome.

Bodies pass through in pieces, whatever their size. The library of buckets is loaded when the first task
names a bucket, so addresses of scheme `file` do without it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl.errors import NoetlError
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.gcs import GcsConfig
from noetl.tools.object_folders import FolderPlace, file_pieces, path_in, write_file
from noetl.tools.object_places import (
    BYTES,
    Found,
    Pieces,
    Place,
    Spot,
    invalid,
    spot_of,
    target_of,
    type_by_ending,
)
from noetl.tools.objects import OUTCOME_FIELDS, ObjectConfig
from noetl.tools.outcomes import failed, failed_with, ok
from noetl.tools.s3 import S3Config

CONFIGS: Final[Mapping[str, type[ObjectConfig]]] = {
    "object": ObjectConfig,
    "s3": S3Config,
    "gcs": GcsConfig,
}
LIMIT: Final = 1_000
MOST: Final = 100_000
NOTHING_KNOWN: Final[Mapping[str, Any]] = dict.fromkeys(OUTCOME_FIELDS)


async def run_objects(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    group = dict(NOTHING_KNOWN)
    try:
        config = msgspec.convert(call.config, CONFIGS[call.kind])
        result = await _Operation(call, config, context, group).result()
    except CallFailedError as failure:
        return failed_with(call, started, failure, object=dict(NOTHING_KNOWN))
    except msgspec.ValidationError as mistake:
        return failed(call, started, "config.invalid", str(mistake), object=dict(NOTHING_KNOWN))
    except NoetlError as error:  # a credential that cannot be had, a result that cannot be stored
        return failed(call, started, error.code, error.message, object=dict(NOTHING_KNOWN))
    return ok(call, started, result, object=group)


class _Operation:
    """One call; what it learns about the object goes into `group`."""

    def __init__(
        self, call: ToolCall, config: ObjectConfig, context: ToolContext, group: dict[str, Any]
    ) -> None:
        self._call = call
        self._config = config
        self._context = context
        self._group = group
        self._spot = spot_of(call.kind, config)

    async def result(self) -> object:
        self._check_fields()
        match self._config.operation:
            case "get":
                return await self._get()
            case "put":
                return await self._put()
            case "head":
                return self._noted(await (await self._place(self._spot)).head(self._spot.key))
            case "list":
                return await self._list()
            case "copy":
                return await self._copy()
            case "delete":
                await (await self._place(self._spot)).delete(self._spot.key)
                return None

    def _check_fields(self) -> None:
        """A field that another operation is meant by would be passed over without a word."""
        takes = {
            "body": ("put",),
            "file": ("get", "put"),
            "content_type": ("put",),
            "to": ("copy",),
            "prefix": ("list",),
            "limit": ("list",),
        }
        operation = self._config.operation
        for field, operations in takes.items():
            if operation not in operations and getattr(self._config, field) is not None:
                raise invalid(f"`{field}` has no meaning with `operation: {operation}`")

    async def _place(self, spot: Spot) -> Place:
        if spot.scheme == "file":
            return FolderPlace(self._context.folder)
        try:
            # An optional dependency, only for those who use buckets; the rest imports it too.
            from noetl.tools.object_buckets import bucket_place  # noqa: PLC0415
            from noetl.tools.object_logins import login_of  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            raise CallFailedError(
                "tool.not_installed",
                f"the library of buckets is not installed (`{missing.name}`): install `noetl[objects]`",
            ) from None
        login = await login_of(spot.scheme, self._config, self._context)
        return await bucket_place(spot, login, self._context)

    async def _get(self) -> object:
        config = self._config
        path = None if config.file is None else self._path(config.file)
        found, pieces = await (await self._place(self._spot)).open(self._spot.key)
        self._noted(found)
        async with aclosing(pieces):
            if path is not None:
                await write_file(self._context.folder, path, pieces)
                return path.relative_to(self._context.folder.resolve()).as_posix()
            # What reads values is the HTTP client's, which takes a fifth of a second to import.
            from noetl.tools.object_values import value_of  # noqa: PLC0415

            return await value_of(found, pieces, self._spot.url, self._call, self._context)

    async def _put(self) -> object:
        config, spot = self._config, self._spot
        body: bytes | Pieces
        if config.file is not None:
            if config.body is not None:
                raise invalid("`put` takes a `body` or a `file`, not both")
            path = self._path(config.file)
            if not path.is_file():
                raise CallFailedError(
                    "object.file", f"there is no file `{config.file}` in the execution's folder"
                )
            body = file_pieces(self._context.folder, path)
            size, usual = path.stat().st_size, type_by_ending(spot.key) or BYTES
        elif "body" not in self._call.config:
            raise invalid("`put` needs a `body` or a `file`")
        elif isinstance(config.body, str):
            body = config.body.encode()
            size, usual = len(body), type_by_ending(spot.key) or "text/plain; charset=utf-8"
        else:
            body = msgspec.json.encode(config.body)
            size, usual = len(body), "application/json"
        place = await self._place(spot)
        tag = await place.put(spot.key, body, size, config.content_type or usual)
        self._group.update(size=size, etag=tag)
        return {"url": spot.url, "size": size, "etag": tag}

    async def _list(self) -> object:
        wanted = self._config.limit
        most = LIMIT if wanted is None else wanted
        if not 1 <= most <= MOST:
            raise invalid(f"`limit` is not a number from 1 to {MOST}")
        found = await (await self._place(self._spot)).listed(self._spot.key, most + 1)
        is_cut = len(found) > most
        self._group["truncated"] = is_cut
        if is_cut and wanted is None:
            self._context.log("stderr", f"the list was cut after {most} names: set `limit` for more\n")
        return [_described(each) for each in found[:most]]

    async def _copy(self) -> object:
        source, target = self._spot, target_of(self._call.kind, self._config, self._spot)
        place = await self._place(source)
        if target.store == source.store:
            await place.copy(source.key, target.key)
        else:
            await self._stream(place, target)
            place = await self._place(target)
        copied = await place.head(target.key)
        self._noted(copied)
        return {"url": target.url, "size": copied.size, "etag": copied.etag}

    async def _stream(self, place: Place, target: Spot) -> None:
        """Through the worker, from one store to another."""
        there = await self._place(target)
        found, pieces = await place.open(self._spot.key)
        async with aclosing(pieces):
            kind = found.content_type or type_by_ending(self._spot.key) or BYTES
            await there.put(target.key, pieces, found.size, kind)

    def _path(self, written: str) -> Path:
        path = path_in(self._context.folder, written)
        if path == self._context.folder.resolve():
            raise invalid("`file` names the execution's folder itself")
        return path

    def _noted(self, found: Found) -> dict[str, Any]:
        self._group.update(size=found.size, etag=found.etag)
        return _described(found) | {"content_type": found.content_type}


def _described(found: Found) -> dict[str, Any]:
    return {"name": found.name, "size": found.size, "etag": found.etag, "modified": found.modified}
