"""The fields that all kinds of object storage share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from noetl.tools.auth import Auth


class ObjectConfig(msgspec.Struct, frozen=True, kw_only=True):
    operation: Annotated[
        Literal["get", "put", "head", "list", "copy", "delete"],
        Meta(description="What to do with the object, or with those under a prefix (`list`)."),
    ]
    url: Annotated[str | None, Meta(description="The object's whole address, such as `s3://bucket/key`.")] = (
        None
    )
    key: Annotated[str | None, Meta(description="The object's name in its bucket.")] = None
    prefix: Annotated[str | None, Meta(description="With `list`: how the names begin.")] = None
    limit: Annotated[int | None, Meta(description="With `list`: how many names at most.")] = None
    body: Annotated[Any, Meta(description="With `put`: a text as it is, any other value as JSON.")] = None
    file: Annotated[
        str | None,
        Meta(description="With `get` and `put`: a file under the execution's folder, instead of a value."),
    ] = None
    content_type: Annotated[str | None, Meta(description="With `put`: the media type to store.")] = None
    to: Annotated[str | None, Meta(description="With `copy`: the address or name of the copy.")] = None
    auth: Auth = None


class BucketConfig(ObjectConfig, frozen=True, kw_only=True):
    bucket: Annotated[str | None, Meta(description="The bucket, where `url` does not name it.")] = None
