"""`wait`: a pause until a time, a signal or an approval; `waits.py` waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class WaitConfig(msgspec.Struct, frozen=True, kw_only=True):
    duration: Annotated[
        float | str | None, Meta(description="How long to wait: seconds, or `250ms`, `5s`, `2m`, `1h`, `1d`.")
    ] = None
    until: Annotated[str | None, Meta(description="The moment to wait for, as RFC 3339.")] = None
    signal: Annotated[
        str | None, Meta(description="The name of the signal to wait for; its data is the result.")
    ] = None
    approval: Annotated[
        str | None, Meta(description="What a person is asked to approve; a refusal is an error.")
    ] = None
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="wait",
    summary="Waits for a time, a signal or an approval; no worker is held meanwhile.",
    config=WaitConfig,
    one_of=(("duration", "until", "signal", "approval"),),
    waits=True,
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    from noetl.tools.waits import wait  # noqa: PLC0415 - checking needs no event loop

    return await wait(call, context)
