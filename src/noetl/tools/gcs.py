"""`gcs`: objects in Google Cloud Storage."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.objects import BucketConfig


class GcsConfig(BucketConfig, frozen=True, kw_only=True):
    project: Annotated[str | None, Meta(description="The project that is billed.")] = None


DESCRIPTION = ToolDescription(
    kind="gcs",
    summary="Reads, writes, lists, copies and deletes objects in Google Cloud Storage.",
    config=GcsConfig,
    one_of=(("url", "bucket"), ("url", "key", "prefix")),
    outcome_group="object",
    outcome_fields=("size", "etag"),
)
