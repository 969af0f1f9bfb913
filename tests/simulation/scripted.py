"""Tools that do what the args of a call say, and tell the watcher of every call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from noetl.records.outcome import Outcome, OutcomeError, OutcomeMeta
from noetl.tools.registry import builtin_kinds, runnable

if TYPE_CHECKING:
    from tests.simulation.world import World

DELAYS = (0.0, 0.0, 0.001, 0.05, 0.3, 2.0, 7.0)
"""Seconds a tool takes; some longer than a start is held back."""
LONG = 45.0
"""Longer than a lease that nobody renews."""


class ScriptedTask:
    DESCRIPTION = builtin_kinds()["python"]

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self, call: Any, context: Any) -> Outcome:
        world = self._world
        with world.calling(call, context._lease):
            return await self._run(call, call.args, context)

    async def _run(self, call: Any, args: dict[str, Any], context: Any) -> Outcome:
        world = self._world
        await asyncio.sleep(LONG if args.get("long") else world.chance.choice(DELAYS))
        meta = OutcomeMeta(attempt=call.attempt, duration_ms=1.0, ts="")
        if args.get("log"):
            context.log("stdout", "l" * args["log"])
        if args.get("hang"):
            world.tally["timeouts"] += 1
            await asyncio.sleep(10_000)
        if args.get("crash"):
            raise RuntimeError("a bug of the tool")
        groups = {"http": {"status": args["http"], "headers": {}}} if "http" in args else {}
        if call.attempt <= args.get("fails", 0):
            error = OutcomeError(kind="scripted", message="as told", retryable=call.attempt % 2 == 1)
            return Outcome(status="error", meta=meta, error=error, result={"v": args.get("v")}, groups=groups)
        return Outcome(status="ok", meta=meta, result=_result(args), groups=groups)


def _result(args: dict[str, Any]) -> Any:
    match args.get("shape"):
        case "list":
            return [{"v": args.get("v")}, 2]
        case "text":
            return str(args.get("v"))
        case "number":
            return 3
        case "none":
            return None
    return {"v": args.get("v"), "pad": "r" * args["size"]} if args.get("size") else {"v": args.get("v")}


class RealWait:
    """The tool `wait`, or `playbook`, as it is; the signal that a wait is for is sent while it waits."""

    def __init__(self, world: World, kind: str) -> None:
        self._world = world
        self._kind = runnable(kind)
        self.DESCRIPTION = builtin_kinds()[kind]

    async def run(self, call: Any, context: Any) -> Outcome:
        world = self._world
        name = call.config.get("signal")
        if name is not None:
            world.send_signal_soon(call.execution_id, name)
        with world.calling(call, context._lease, waits=True):
            return await self._kind.run(call, context)
