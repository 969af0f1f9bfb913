"""`python`: inline Python code, run in warm processes that can be killed.

Only the description is here, and the door to what runs it (`processes/python_call.py`): checking a
playbook must not cost the imports that running one does.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


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


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    return await _run_python()(call, context)


@cache
def _run_python() -> Callable[[ToolCall, ToolContext], Awaitable[Outcome]]:
    # asyncio, sockets and subprocesses: some thirty milliseconds that `validate` would pay for nothing
    from noetl.tools.processes.python_call import run_python  # noqa: PLC0415

    return run_python
