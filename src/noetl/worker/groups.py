"""Pipelines inside a pipeline: the iterations of a block, branches side by side, a workbook task's body.

They all run in the current lease, each in a frame of its own under the frame of the pipeline around
them, and are told of as iterations of a loop with a `block`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from noetl.engine.bodies import is_ref, parted
from noetl.engine.frames import begin_iteration, iteration_path, left_to_run, unreduced
from noetl.engine.loops import conflict, unfit_write
from noetl.engine.moments import value_names
from noetl.engine.reducers import combined, differing_key
from noetl.engine.scope import Iteration, holds, iter_names
from noetl.engine.state import BlockFrame, Data
from noetl.errors import TemplateError
from noetl.playbook.model import Block, Guard, Loop, Node, Parallel, Sink, Task, Value, WorkbookEntry
from noetl.records.report import ReportedEvent
from noetl.template import Scope
from noetl.worker.calls import Refused, render_args, shorten, with_bodies
from noetl.worker.narration import Narrator

if TYPE_CHECKING:
    from noetl.worker.pipeline import Pipeline


class Group:
    """What is run together, and how."""

    def __init__(
        self,
        label: str,
        bodies: tuple[tuple[Node, ...], ...],
        *,
        loop: Loop | None = None,
        after: tuple[tuple[int, ...], ...] = ((),),
        args: Value = None,
        when: Guard | None = None,
        sink: Sink | None = None,
    ) -> None:
        self.label = label
        self.bodies = bodies
        self.loop = loop
        self.after = after
        self.args = args or {}
        self.when = when
        self.sink = sink

    def body(self, index: int) -> tuple[Node, ...]:
        return self.bodies[0] if self.loop is not None else self.bodies[index]

    def waits_for(self, index: int) -> tuple[int, ...]:
        return () if self.loop is not None else self.after[index]

    def sibling_results(self, running: BlockFrame) -> Data:
        """What the branches beside it have given so far, by label."""
        if self.loop is not None or len(self.bodies) == 1:
            return {}
        return {
            node.label: running.results[index]
            for index, (node, *_) in enumerate(self.bodies)
            if index in running.results and isinstance(node, Task | Block | Parallel)
        }

    def result(self, running: BlockFrame) -> Any:  # noqa: ANN401 - plain data
        """A loop's results in index order; without a loop, that of the last one written."""
        results = [running.results.get(index) for index in range(running.total)]
        return parted(results) if self.loop is not None else results[-1]


def group_of(node: Block | Parallel) -> Group:
    if isinstance(node, Block):
        return Group(node.label, (node.body,), loop=node.loop, args=node.args, when=node.when, sink=node.sink)
    return Group(
        node.label,
        tuple((branch.node,) for branch in node.branches),
        after=tuple(branch.after for branch in node.branches),
        args=node.args,
        when=node.when,
    )


def group_of_entry(label: str, entry: WorkbookEntry, args: Data) -> Group:
    """The body of a workbook task, with the args its caller gave."""
    return Group(label, (entry.body,), loop=entry.loop, args={**entry.args, **args}, sink=entry.sink)


class GroupRun:
    """One group in one frame. `run` leaves the frame where it is: whoever asked moves it."""

    def __init__(self, pipeline: Pipeline, group: Group) -> None:
        self.pipeline = pipeline
        self.lease = pipeline.lease
        self.group = group
        self._ended: dict[int, asyncio.Event] = {}

    async def run(self) -> tuple[Data | None, Any]:
        """The error that ended the group, or its result."""
        frame, group = self.pipeline.frame, self.group
        if frame.block is None:
            problem, skipped = await self._open()
            if problem is not None:
                return self.pipeline.located(problem, group.label), None
            if skipped:
                return None, None
        running = frame.block
        assert running is not None
        if running.error is not None and not self._keeps_going:
            self._combine(running)
            return running.error, None  # it failed under an earlier lease
        items = running.items
        if is_ref(items):
            await self.lease.load_body(items)
            items = self.lease.bodies.get(items)
        self._ended = {index: asyncio.Event() for index in range(len(group.bodies))}
        for index in running.results:
            if index in self._ended:
                self._ended[index].set()
        error = await self.lease.run_together(
            left_to_run(running),
            await self._width(running),
            lambda index: self._child(running, items, index),
        )
        self._combine(running)
        if error is not None:
            return error, None
        return await self._stored(await self._kept(group.result(running)))

    def _reducers(self) -> dict[str, str]:
        """Those this group combines itself; a loop around it that has one for a key takes every write."""
        if self.group.loop is None or not self._is_parallel:
            return {}
        taken = {key for loop in self.pipeline.loops if loop.mode == "parallel" for key in loop.reduce}
        return {key: reducer for key, reducer in self.group.loop.reduce.items() if key not in taken}

    def _combine(self, running: BlockFrame) -> None:
        """Applies what the iterations wrote to keys with a reducer, now that none of them runs any more."""
        pipeline = self.pipeline
        writes = combined(pipeline.around.ctx, running)
        if writes:
            running.noted = {}
            pipeline.frame.writes.update(writes)
            pipeline.pending += pipeline.take_writes(writes, self.lease.timestamp())
            if pipeline.parallel:
                pipeline.combined = writes

    async def _kept(self, result: Any) -> Any:  # noqa: ANN401 - plain data
        """The result, or the reference to it where it is too large for an event."""
        short = shorten({"result": result}, self.lease.execution_id, {})
        if short.key is None:
            return result
        ref = (await self.lease.kept(short, {}))["result"]
        self.lease.bodies.keep(ref, result)
        self.lease.bodies.trim()
        return ref

    async def _stored(self, result: Any) -> tuple[Data | None, Any]:  # noqa: ANN401 - plain data
        sink = self.group.sink
        if sink is None:
            return None, result
        names = value_names(result, {"status": "ok"}, self.pipeline.around.bodies)
        block = self.pipeline.frame.block
        args = block.args if block is not None and isinstance(block.args, dict) else {}
        problem = await self.pipeline.run_sink(sink, names, args=args)
        return (None, result) if problem is None else (self.pipeline.located(problem, sink.task.label), None)

    @property
    def _keeps_going(self) -> bool:
        return self.group.loop is not None and self.group.loop.on_error == "continue"

    async def _width(self, running: BlockFrame) -> int:
        loop = self.group.loop
        if loop is None:
            return max(1, running.total)
        return 1 if loop.mode == "sequential" else await self.lease.number(loop.max_in_flight)

    async def _open(self) -> tuple[Data | None, bool]:
        """Evaluates condition, args and collection; a problem, or that the group is skipped."""
        pipeline, group, lease = self.pipeline, self.group, self.lease
        scope = pipeline.case_scope()
        try:
            if not await with_bodies(lambda: holds(group.when, scope), lease):
                return None, True
            args = await with_bodies(lambda: render_args(group.args, scope, lease.redactor), lease)
            items = await self._items(scope, args)
        except Refused as refused:
            return {"kind": refused.kind, "message": f"`{group.label}`: {refused.message}"}, False
        except TemplateError as error:
            return {"kind": error.code, "message": f"`{group.label}`: {error.message}"}, False
        if not isinstance(items, list):
            message = f"the loop's `in` of `{group.label}` gave no list"
            return {"kind": "loop.not_a_list", "message": message}, False
        reducers = self._reducers()
        pipeline.frame.block = BlockFrame(items=items, total=len(items), args=args, reduce=reducers)
        payload = {
            "block": group.label,
            "visit": pipeline.visit,
            "items": items,
            "total": len(items),
            "args": args,
        }
        if reducers:
            payload["reduce"] = reducers
        pipeline.pending.append(
            pipeline.narrator.iterating("loop.started", lease.timestamp(), "in_progress", **payload)
        )
        await pipeline.commit()
        return None, False

    async def _items(self, scope: Scope, args: Data) -> Any:  # noqa: ANN401 - plain data
        loop, lease = self.group.loop, self.lease
        if loop is None:
            return [None] * len(self.group.bodies)
        inner = self.pipeline.with_args(scope, args)
        items = await with_bodies(lambda: render_args(loop.source, inner, lease.redactor), lease)
        return [items] if loop.wrap_scalar and not isinstance(items, list) else items

    async def _child(self, running: BlockFrame, items: list[Any], index: int) -> Data | None:
        """Runs one of them; its error, if it is to end the group."""
        pipeline, lease, group = self.pipeline, self.lease, self.group
        for earlier in group.waits_for(index):
            if not self._ended[earlier].is_set():
                with lease.parking.resting():
                    await self._ended[earlier].wait()
        child, narrator = self._begin(running, items, index)
        about: Data = {"block": group.label, "visit": pipeline.visit}
        end = await child.run()
        at = lease.timestamp()
        problem = self._write_problem(running, child)
        if problem is not None:
            end = end._replace(error=end.error or pipeline.located(problem, group.label))
            about["conflict"] = True
        else:
            writes = unreduced(child.frame.writes, running)
            running.written.update(writes)
            pipeline.frame.writes.update(writes)
            if child.frame.reduced:
                running.noted[index] = child.frame.reduced
            if writes and self._is_parallel:
                child.pending += pipeline.take_writes(writes, at)
        if end.error is None:
            done = narrator.iterating("loop.iteration.done", at, "success", **about, result=end.result)
            running.results[index] = end.result
        else:
            done = narrator.iterating("loop.iteration.failed", at, "error", **about, error=end.error)
            running.results[index] = None
        child.pending.append(done)
        running.open.pop(index)
        await child.commit()
        if index in self._ended:
            self._ended[index].set()
        return None if end.error is None or self._keeps_going else end.error

    @property
    def _is_parallel(self) -> bool:
        return self.group.loop is not None and self.group.loop.mode == "parallel"

    def _write_problem(self, running: BlockFrame, child: Pipeline) -> Data | None:
        """What is wrong with the writes of an iteration beside others; keys with a reducer are safe."""
        if not self._is_parallel:
            return None
        safe = {key for loop in child.loops for key in loop.reduce}
        writes = {key: value for key, value in child.frame.writes.items() if key not in safe}
        key = differing_key(running.written, writes)
        if key is not None:
            return {"kind": "ctx.conflict", "message": conflict(key)}
        return unfit_write(child.frame, running.reduce)

    def _begin(self, running: BlockFrame, items: list[Any], index: int) -> tuple[Pipeline, Narrator]:
        pipeline, lease, group = self.pipeline, self.lease, self.group
        indexes = (pipeline.narrator.iteration_id or iteration_path(lease.run_id, None)).split("/")[1:]
        narrator = Narrator(lease.run_id, "/".join((lease.run_id, *indexes, str(index))), index)
        events: list[ReportedEvent] = []
        frame = running.open.get(index)
        if frame is None:
            frame = begin_iteration(running, index)
            about: Data = {"block": group.label, "visit": pipeline.visit}
            events.append(
                narrator.iterating("loop.iteration.started", lease.timestamp(), "in_progress", **about)
            )
        iteration = pipeline.iteration
        if group.loop is not None:
            outer_iter = iter_names(pipeline.frame, pipeline.iteration)
            iteration = Iteration(group.loop.iterator, items[index], index, pipeline.iteration, outer_iter)
        child = pipeline.inner(
            group.body(index),
            frame,
            narrator,
            iteration=iteration,
            loop=group.loop,
            results=group.sibling_results(running),
            args=running.args if isinstance(running.args, dict) else {},
            reducers=running.reduce,
        )
        child.pending = events
        return child, narrator
