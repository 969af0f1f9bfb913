"""The fields that all kinds of object storage share, and how their calls begin.

What runs them (`object_calls.py`) is imported when the first one runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from noetl.tools.auth import Auth

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext

OUTCOME_FIELDS: Final = ("size", "etag", "truncated")


class ObjectConfig(msgspec.Struct, frozen=True, kw_only=True):
    operation: Annotated[
        Literal["get", "put", "head", "list", "copy", "delete"],
        Meta(description="What to do with the object, or with those under a prefix (`list`)."),
    ]
    url: Annotated[str | None, Meta(description="The object's whole address, such as `s3://bucket/key`.")] = (
        None
    )
    key: Annotated[
        str | None, Meta(description="The object's name in its bucket; beside `url`, its name below that.")
    ] = None
    prefix: Annotated[
        str | None, Meta(description="With `list`: how the names begin; beside `url`, below that.")
    ] = None
    limit: Annotated[
        int | None, Meta(description="With `list`: how many names at most; 1000 by default, up to 100000.")
    ] = None
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


async def run_object_call(call: ToolCall, context: ToolContext) -> Outcome:
    # Both it and the library of buckets that it needs take some time to import.
    from noetl.tools.object_calls import run_objects  # noqa: PLC0415

    return await run_objects(call, context)
