"""`python`: inline Python code."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth


class PythonConfig(msgspec.Struct, frozen=True, kw_only=True):
    code: Annotated[str, Meta(description="Python that sets `result`, or defines `main`.")]
    libs: Annotated[
        dict[str, str] | None,
        Meta(description="Modules to import, by the name the code uses; nothing is installed."),
    ] = None
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="python",
    summary="Runs Python code; the result is what it sets as `result`, or what its `main` returns.",
    config=PythonConfig,
    outcome_group="py",
    outcome_fields=("exception_type",),
    default_spec={"isolation": "process"},
    code_fields=("code",),
)
