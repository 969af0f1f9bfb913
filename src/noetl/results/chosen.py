"""Result bodies where a playbook wants them: reads `spec.result.store` and hands on to the store it names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from noetl.records.protocols import ResultBodies
from noetl.records.result_ref import ResultRef
from noetl.results.bodies import ResultStoreError
from noetl.results.object_urls import BUCKET_SCHEMES, UrlBodies, is_url

AUTO: Final = "auto"
NAMES: Final = ("database", "file", "nats_object")


class ChosenBodies:
    """Implements `ResultBodies` over those that a process has; `auto` is the first of them."""

    def __init__(self, stores: Mapping[str, ResultBodies]) -> None:
        """`stores` by name, the one to use where a playbook has no wish first."""
        self._stores = dict(stores)
        self._urls = UrlBodies()

    async def put(
        self, execution_id: str, body: bytes | AsyncIterator[bytes], *, media_type: str, store: object
    ) -> ResultRef:
        wanted = place_of(store)
        return await self._of(wanted).put(execution_id, body, media_type=media_type, store=wanted)

    async def get(self, ref: ResultRef) -> bytes:
        return await self._holding(ref).get(ref)

    def stream(self, ref: ResultRef) -> AsyncIterator[bytes]:
        return self._holding(ref).stream(ref)

    def _of(self, wanted: str) -> ResultBodies:
        if is_url(wanted):
            return self._urls
        if wanted == AUTO:
            return next(iter(self._stores.values()))
        if (found := self._stores.get(wanted)) is None:
            raise ResultStoreError(
                f"results cannot be kept in `{wanted}` here: this process has {', '.join(self._stores)}"
                + (" (name a NATS server with --nats)" if wanted == "nats_object" else "")
            )
        return found

    def _holding(self, ref: ResultRef) -> ResultBodies:
        return self._urls if is_url(ref.key) else self._of(ref.store)


def place_of(store: object) -> str:
    """The name or URL that a value of `spec.result.store` stands for."""
    match store:
        case None | "":
            return AUTO
        case str() if store == AUTO or store in NAMES or is_url(store):
            return store
        case {"kind": str(kind), **fields}:
            return _of_mapping(kind, fields)
    raise ResultStoreError(
        f"`{store}` names no store of results: it is {AUTO}, {', '.join(NAMES)}, or an s3://, gs:// or "
        "file:// URL"
    )


def _of_mapping(kind: str, fields: Mapping[object, object]) -> str:
    bucket, prefix = fields.get("bucket"), str(fields.get("prefix") or "").strip("/")
    if kind in BUCKET_SCHEMES:
        if not bucket:
            raise ResultStoreError(f"a store of kind {kind} needs its `bucket`")
        return f"{kind}://{bucket}/{prefix}".rstrip("/")
    if kind == "file" and prefix:
        return f"file:///{prefix}"
    return place_of(kind)
