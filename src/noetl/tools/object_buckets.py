"""Objects in buckets: S3, what speaks S3, and Google Cloud Storage, through the library `obstore`.

The library would look for credentials in the environment of the worker and ask the metadata service of its
machine; here it is always told who asks, or that nobody does, and all its connections go through the gate.
Its texts are read to name a failure and never passed on, because they show whole answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
import obstore
from obstore.exceptions import BaseError
from obstore.store import GCSStore, S3Store

from noetl.ids import timestamp
from noetl.records.protocols import ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.http_session import address_policy
from noetl.tools.object_failures import MISSING, NO_BUCKET, bucket_failure
from noetl.tools.object_gate import Gate, open_gate
from noetl.tools.object_logins import GcsLogin, S3Login, check_endpoint
from noetl.tools.object_places import PIECE, Found, Pieces, Spot, invalid

if TYPE_CHECKING:
    from obstore import Attributes, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig

CONNECT_SECONDS: Final = 10
READ_SECONDS: Final = 60
PART: Final = 8 << 20
MOST_PARTS: Final = 9_000
"""S3 takes ten thousand parts of one upload."""
PARTS_AT_ONCE: Final = 4
PAGE: Final = 1000
_RETRIES: Final[RetryConfig] = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}
"""For a kept connection that is closed, and short trouble; more is for the playbook to decide."""


class BucketPlace:
    """Implements `Place` over a client of the library."""

    def __init__(self, url: str, client: S3Store | GCSStore) -> None:
        self._url = url
        self._client = client

    async def head(self, key: str) -> Found:
        with self._translated(key):
            answer = await obstore.get_async(self._client, key, options={"head": True})
            return _found(answer.meta, answer.attributes)

    async def open(self, key: str) -> tuple[Found, Pieces]:
        with self._translated(key):
            answer = await obstore.get_async(self._client, key)
            return _found(answer.meta, answer.attributes), self._pieces(key, answer)

    async def _pieces(self, key: str, answer: obstore.GetResult) -> Pieces:
        with self._translated(key):
            async for piece in answer.stream(min_chunk_size=PIECE):
                yield bytes(piece)

    async def put(self, key: str, body: bytes | Pieces, size: int, content_type: str) -> str | None:
        with self._translated(key):
            stored = await obstore.put_async(
                self._client,
                key,
                body,
                attributes={"Content-Type": content_type},
                chunk_size=max(PART, size // MOST_PARTS),
                max_concurrency=PARTS_AT_ONCE,
            )
        return _tag(stored["e_tag"])

    async def listed(self, prefix: str, most: int) -> list[Found]:
        """The library asks for whole folders; it begins right before the prefix and ends behind it."""
        folder, _, begun = prefix.rpartition("/")
        found: list[Found] = []
        with self._translated(prefix):
            pages = obstore.list(
                self._client, folder or None, offset=prefix[:-1] if begun else None, chunk_size=PAGE
            )
            async for page in pages:
                for meta in page:
                    name = meta["path"]
                    if name.startswith(prefix):
                        found.append(_found(meta))
                    if len(found) == most or (name > prefix and not name.startswith(prefix)):
                        return found
        return found

    async def copy(self, key: str, to: str) -> None:
        with self._translated(key):
            await obstore.copy_async(self._client, key, to)

    async def delete(self, key: str) -> None:
        try:
            with self._translated(key):
                await obstore.delete_async(self._client, key)
        except CallFailedError as failure:  # some stores tell that it was not there, others do not
            if failure.kind != MISSING or failure.details.get("code") == NO_BUCKET:
                raise

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise bucket_failure(error, f"{self._url}/{key}") from None


async def bucket_place(spot: Spot, login: S3Login | GcsLogin, context: ToolContext) -> BucketPlace:
    """The bucket that a login opens; the client is the same for the same login, with its connections."""
    policy = await address_policy(context)
    await check_endpoint(login.endpoint, policy, spot.store)

    async def make_gate() -> Gate:
        return await open_gate(policy)

    gate = await context.shared("object:gate", make_gate)

    async def make() -> S3Store | GCSStore:
        return _client(spot.bucket, login, gate.url)

    digest = hashlib.sha256(msgspec.json.encode((spot.store, login))).hexdigest()
    return BucketPlace(spot.store, await context.shared(f"object:client:{digest}", make))


def _client(bucket: str, login: S3Login | GcsLogin, proxy: str) -> S3Store | GCSStore:
    # A field that is left out would be taken from the environment.
    options: ClientConfig = {
        "allow_http": login.endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=READ_SECONDS),
        "timeout": timedelta(days=7),  # of a whole body; the task has a timeout of its own
        "proxy_url": proxy,
    }
    try:
        if isinstance(login, S3Login):
            return _s3_client(bucket, login, options)
        return _gcs_client(bucket, login, options)
    except BaseError as error:
        if "ServiceAccountPathAndKeyProvided" in str(error):
            raise invalid("the worker's environment names a service account of its own: unset it") from None
        raise invalid("`auth` is not a login that the store's client can use") from None


def _s3_client(bucket: str, login: S3Login, options: ClientConfig) -> S3Store:
    def credential() -> Any:  # noqa: ANN401 - a mapping that the library has no name for at run time
        return {
            "access_key_id": login.access_key_id or "",
            "secret_access_key": login.secret_access_key or "",
            "token": login.session_token,
            "expires_at": None,
        }

    return S3Store(
        bucket,
        endpoint=login.endpoint,
        aws_endpoint_url_s3=login.endpoint,
        region=login.region,
        skip_signature=login.access_key_id is None,
        virtual_hosted_style_request=False,
        s3_express=False,
        disable_bulk_delete=True,  # not every service that speaks S3 can do it
        client_options=options,
        retry_config=_RETRIES,
        credential_provider=credential,
    )


def _gcs_client(bucket: str, login: GcsLogin, options: ClientConfig) -> GCSStore:
    def credential() -> Any:  # noqa: ANN401 - see above
        return {"token": login.token or "", "expires_at": None}

    if login.project is not None:
        options["default_headers"] = {"x-goog-user-project": login.project}
    if login.account is not None:
        return GCSStore(
            bucket,
            base_url=login.endpoint,
            service_account_key=login.account,
            skip_signature=False,
            client_options=options,
            retry_config=_RETRIES,
        )
    return GCSStore(
        bucket,
        base_url=login.endpoint,
        skip_signature=login.token is None,
        client_options=options,
        retry_config=_RETRIES,
        credential_provider=credential,
    )


def _found(meta: ObjectMeta, attributes: Attributes | None = None) -> Found:
    known = attributes or {}
    encoding = known.get("Content-Encoding") or "identity"
    return Found(
        name=meta["path"],
        size=meta["size"],
        etag=_tag(meta["e_tag"]),
        modified=timestamp(meta["last_modified"].timestamp()),
        content_type=known.get("Content-Type"),
        is_encoded=encoding.lower() != "identity",
    )


def _tag(written: str | None) -> str | None:
    return None if written is None else written.removeprefix("W/").strip('"')
