"""A tool that finds its lease over has not failed: what it would have said is nobody's any more."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from noetl.errors import NoetlError
from noetl.records.protocols import LeaseLostError, NotWrittenError, ToolCall, ToolContext, ToolKind
from noetl.records.tool import ToolDescription
from noetl.tools.noop import DESCRIPTION
from noetl.worker.calls import run_tool
from noetl.worker.quiet import QuietTasks

CALL = ToolCall(
    kind="noop",
    config={},
    args={},
    spec={},
    execution_id="1",
    step="a",
    task_label="t",
    task_run_id="1.1:0",
    attempt=1,
    action_id="x",
)


class Failing:
    DESCRIPTION: ToolDescription = DESCRIPTION

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def run(self, call: ToolCall, context: ToolContext) -> Any:
        raise self._error


def outcome_of(error: Exception) -> Any:
    async def run() -> Any:
        async def tell() -> None:
            raise AssertionError("it did not take long")

        kind = cast(ToolKind, Failing(error))
        quiet = QuietTasks().begin(tell)
        return await run_tool(kind, CALL, cast(ToolContext, None), quiet=quiet, now=lambda: 0.0)

    return asyncio.run(run())


@pytest.mark.parametrize("error", [LeaseLostError("the lease is over"), NotWrittenError("the disk is full")])
def test_it_is_told_to_whoever_holds_the_lease_and_is_no_outcome(error: NoetlError) -> None:
    with pytest.raises(type(error)):
        outcome_of(error)


def test_any_other_error_of_a_tool_is_its_outcome() -> None:
    found = outcome_of(NoetlError("no such thing"))
    assert (found.status, found.error.message) == ("error", "no such thing")
    assert outcome_of(KeyError("x")).error.kind == "tool.crashed"
