"""Result bodies under a URL: a folder that all machines share (`file://`), or a bucket (`s3://`, `gs://`).

Buckets go through `obstore` (the extra `objects`), which finds its credentials where the cloud's own tools
do. A `file://` URL needs no library.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from noetl.records.result_ref import ResultRef
from noetl.results.bodies import (
    FileBodies,
    ResultDamagedError,
    ResultGoneError,
    ResultStoreError,
    is_execution_id,
)
from noetl.results.spooled import PIECE, Spooled

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

BUCKET_SCHEMES: Final = ("s3", "gs")
SCHEMES: Final = ("file", *BUCKET_SCHEMES)
RETRY_SECONDS: Final = 60.0


class UrlBodies:
    """Implements `ResultBodies` for stores named by a URL; a reference's key is the body's own URL."""

    async def put(
        self, execution_id: str, body: bytes | AsyncIterator[bytes], *, media_type: str, store: object
    ) -> ResultRef:
        url = str(store).rstrip("/")
        scheme = url.partition("://")[0]
        if scheme == "file":
            return _at(
                url,
                await FileBodies(_folder(url)).put(execution_id, body, media_type=media_type, store=store),
            )
        with Spooled() as spooled:
            await spooled.take(body)
            path = f"{execution_id}/results/{spooled.checksum}"
            await _upload(url, path, spooled)
            return ResultRef(
                ref=f"noetl://{execution_id}/{scheme}/{spooled.checksum}",
                store=scheme,
                key=f"{url}/{path}",
                checksum=spooled.checksum,
                size=spooled.size,
                schema_hint={"media_type": media_type},
            )

    async def get(self, ref: ResultRef) -> bytes:
        return b"".join([piece async for piece in self.stream(ref)])

    async def stream(self, ref: ResultRef) -> AsyncIterator[bytes]:
        url, path = _parts(ref)
        if url.startswith("file://"):
            inner = ResultRef(ref=ref.ref, store="file", key=path, checksum=ref.checksum, size=ref.size)
            async for piece in FileBodies(_folder(url)).stream(inner):
                yield piece
            return
        with Spooled() as arrived:
            async for piece in _download(url, path, ref):
                await arrived.add(piece)
            if arrived.checksum != ref.checksum:
                raise ResultDamagedError(f"the stored result {ref.ref} does not have its checksum")
            async for piece in arrived.pieces():
                yield piece


class BucketBodies:
    """The bodies under the URL of a bucket, for who takes away what nobody needs any more."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    async def executions(self) -> list[str]:
        """Those that have bodies here."""
        bucket = _bucket(self._url)
        # Found by `_bucket`.
        from obstore import list_with_delimiter_async  # noqa: PLC0415
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            found = await list_with_delimiter_async(bucket)
        except BaseError as error:
            raise ResultStoreError(f"{self._url} does not list its results: {error}") from error
        names = [prefix.rstrip("/") for prefix in found["common_prefixes"]]
        return [name for name in names if is_execution_id(name)]

    async def forget(self, execution_ids: Collection[str]) -> None:
        """Removes the bodies of executions."""
        bucket = _bucket(self._url)
        # Found by `_bucket`.
        from obstore import delete_async  # noqa: PLC0415
        from obstore import list as listed  # noqa: PLC0415
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            for execution_id in execution_ids:
                async for page in listed(bucket, f"{execution_id}/results/"):
                    await delete_async(bucket, [each["path"] for each in page])
        except BaseError as error:
            raise ResultStoreError(f"{self._url} does not remove results: {error}") from error


def place_at(url: str) -> FileBodies | BucketBodies:
    """Where the bodies of a store named by a URL lie; ResultStoreError where it is no URL of ours."""
    if not is_url(url):
        raise ResultStoreError(f"`{url}` names no store of results: write an s3://, gs:// or file:// URL")
    return FileBodies(_folder(url)) if url.startswith("file://") else BucketBodies(url)


def is_url(store: object) -> bool:
    return isinstance(store, str) and store.partition("://")[0] in SCHEMES and "://" in store


def _at(url: str, ref: ResultRef) -> ResultRef:
    return ResultRef(
        ref=ref.ref,
        store="file",
        key=f"{url}/{ref.key}",
        checksum=ref.checksum,
        size=ref.size,
        schema_hint=ref.schema_hint,
    )


def _folder(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ResultStoreError(f"`{url}` names no folder: write file:///an/absolute/path")
    return Path(unquote(parts.path))


def _parts(ref: ResultRef) -> tuple[str, str]:
    """The store's URL and the path under it."""
    pieces = ref.key.rsplit("/", 3)
    if len(pieces) != 4 or not is_url(pieces[0]):
        raise ResultGoneError(f"the stored result {ref.ref} lies nowhere: its key is no URL")
    return pieces[0], "/".join(pieces[1:])


def _bucket(url: str) -> ObjectStore:
    if importlib.util.find_spec("obstore") is None:
        raise ResultStoreError(f"results in {url} need a library: pip install 'noetl[objects]'")
    # An optional dependency, only for those who keep results in buckets.
    from obstore.exceptions import BaseError  # noqa: PLC0415
    from obstore.store import from_url  # noqa: PLC0415

    try:
        limits: RetryConfig = {"max_retries": 10, "retry_timeout": timedelta(seconds=RETRY_SECONDS)}
        return from_url(url, retry_config=limits)
    except BaseError as error:
        raise ResultStoreError(f"{url} cannot be used: {error}") from error


async def _upload(url: str, path: str, spooled: Spooled) -> None:
    bucket = _bucket(url)
    # Found by `_bucket`.
    from obstore import put_async  # noqa: PLC0415
    from obstore.exceptions import BaseError  # noqa: PLC0415

    try:
        await put_async(bucket, path, spooled.pieces())
    except BaseError as error:
        raise ResultStoreError(f"{url} does not take the result: {error}") from error


async def _download(url: str, path: str, ref: ResultRef) -> AsyncIterator[bytes]:
    bucket = _bucket(url)
    # Found by `_bucket`.
    from obstore import get_async  # noqa: PLC0415
    from obstore.exceptions import BaseError, NotFoundError  # noqa: PLC0415

    try:
        found = await get_async(bucket, path)
        async for piece in found.stream(min_chunk_size=PIECE):
            yield bytes(piece)
    except (NotFoundError, FileNotFoundError):
        raise ResultGoneError(f"the stored result {ref.ref} is gone") from None
    except BaseError as error:
        raise ResultStoreError(f"{url} does not give the result: {error}") from error
