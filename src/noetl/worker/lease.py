"""One lease: a step run, from where its frames stand to its end or to the end of the lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.control.plane import Work
from noetl.engine.bodies import is_ref
from noetl.engine.frames import iteration_path, joined_values, left_to_run, writes_of
from noetl.engine.limits import reference
from noetl.engine.loops import loop_results
from noetl.engine.moments import value_names, with_names
from noetl.engine.repeats import seconds
from noetl.engine.scope import Iteration, StepResults, Surroundings, render_each, result_keys
from noetl.engine.state import Data, Frame, LoopRun, StepResult
from noetl.errors import NoetlError, TemplateError
from noetl.ids import timestamp
from noetl.playbook.layering import effective_spec
from noetl.playbook.model import Case, Loop, Playbook, Step, Task, WorkbookEntry
from noetl.records.protocols import ToolCall, ToolKind
from noetl.records.report import LeaseReport, ReportedEvent
from noetl.secrets.redaction import Redactor
from noetl.template import Scope, Template
from noetl.worker.calls import Refused, Shortened, with_bodies
from noetl.worker.cases import CaseRun, Failed
from noetl.worker.context import TaskContext
from noetl.worker.narration import Narrator
from noetl.worker.pipeline import Pipeline, PipelineEnd, Stopped, is_single

if TYPE_CHECKING:
    from noetl.worker.worker import Worker


LARGE_VALUE_BYTES: Final = 8 * 1024
"""What a case collects or sets as its result is stored above this, so that its events stay small."""


class StepLease:
    def __init__(self, worker: Worker, work: Work) -> None:
        self.worker = worker
        self.live = work.live
        self.run_id = work.run_id
        self.epoch = work.epoch
        state = self.live.state
        run = state.runs[self.run_id]
        self.execution_id: str = state.execution_id
        self.playbook: Playbook = self.live.plan.playbook
        self.step: Step = self.live.plan.steps[run.step]
        self.redactor: Redactor = worker.redactor(self.live)
        self.started = run.started_at is not None
        self.args: Data = run.args
        self._called: dict[int, Task] = {}
        self._specs: dict[int, dict[str, Any]] = {}
        """The knobs of each task, by the identity of the one in the body: its place there never changes."""
        # The state goes on while this lease runs; what the step may read is fixed here.
        self.frame = _copy(run.frame, Frame)
        self.loop_run = None if run.loop is None else _copy_loop(run.loop)
        self.around = self._surroundings(state, run)
        self.max_task_runs = self.number(self.step.max_task_runs)

    def _surroundings(self, state: Any, run: Any) -> Surroundings:  # noqa: ANN401 - the engine's state
        read = self.live.plan.names_read(self.step)
        bound = {second: name for second, name in self.live.plan.bound(state.steps).items() if second in read}
        frozen: dict[str, StepResult] = {
            key: msgspec.structs.replace(state.steps[key])
            for name in (*read, *bound.values())
            for key in result_keys(name, run.scope)
            if key in state.steps
        }
        return Surroundings(
            execution_id=self.execution_id,
            workload=state.workload,
            ctx=dict(state.ctx),
            vars=dict(state.vars),
            args=run.args,
            keychain=self.live.keychain,
            results=StepResults(frozen, run.scope, self.live.bodies, bound),
            bodies=self.live.bodies,
        )

    # --- the way of a lease -----------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            if self.step.loop is not None and self.loop_run is not None:
                await self._loop(self.step.loop, self.loop_run)
            else:
                await self._single()
        except Stopped:
            return

    async def _single(self) -> None:
        narrator = Narrator(self.run_id)
        pipeline = Pipeline(self, self.step.body, self.frame, self.around, narrator)
        if not self.started:
            pipeline.pending.append(
                narrator.step("step.started", self.timestamp(), "in_progress", args=self.args)
            )
        end = await pipeline.run()
        if end.error is None and not end.skipped:
            end = await self._complete(pipeline, end)
        await self._report_end(pipeline, end)

    async def _complete(self, pipeline: Pipeline, end: PipelineEnd) -> PipelineEnd:
        """What follows a good end of a step: its variables, then its sink."""
        step, names = self.step, value_names(end.result, {"status": "ok"}, self.around.bodies)
        try:
            await self._set_vars(pipeline, end.result)
        except Failed as failed:
            return end._replace(error=pipeline.located(failed.error, None))
        if step.sink is not None and not pipeline.frame.stored:
            problem_of_sink = await pipeline.run_sink(step.sink, names, of_step=True)
            if problem_of_sink is not None:
                # A way out that was chosen before does not take this failure.
                return end._replace(error=pipeline.located(problem_of_sink, step.sink.task.label), route=None)
        return end

    async def keep_vars(self, pipeline: Pipeline, case: CaseRun, shown: Any = None) -> None:  # noqa: ANN401
        """Sets the step's variables before the moment of its exit. Failed: they cannot be rendered."""
        if case.frame.phase == "exit" and not case.frame.skipped:
            await self._set_vars(pipeline, case.result if shown is None else shown)

    async def _set_vars(self, pipeline: Pipeline, result: Any) -> None:  # noqa: ANN401 - plain data
        written = self.step.vars
        if not written or pipeline.frame.kept:
            return
        names = value_names(result, {"status": "ok"}, self.around.bodies)
        scope = with_names(pipeline.case_scope(), names)
        try:
            found = await with_bodies(lambda: render_each(written, scope), self.load_body)
        except TemplateError as error:
            message = f"`vars`: {error.message}"
            raise Failed({"kind": error.code, "message": message, "retryable": False}) from error
        self.around.vars.update(found)
        pipeline.frame.kept = True
        pipeline.pending.append(pipeline.narrator.step("vars.set", self.timestamp(), vars=found))

    async def _report_end(self, pipeline: Pipeline, end: PipelineEnd, **payload: Any) -> None:  # noqa: ANN401
        narrator, at = pipeline.narrator, self.timestamp()
        extra = payload if end.route is None else {**payload, "next": end.route}
        if end.skipped:
            pipeline.pending.append(narrator.step("step.skipped", at, "skipped"))
        elif end.error is None:
            pipeline.pending.append(narrator.step("step.done", at, "success", result=end.result, **extra))
        else:
            pipeline.pending.append(narrator.step("step.failed", at, "error", error=end.error, **extra))
        await pipeline.commit()

    async def _loop(self, loop: Loop, running: LoopRun) -> None:
        items = running.items
        if is_ref(items):
            await self.load_body(items)
            items = self.live.bodies.get(items)
        width = self.number(loop.max_in_flight) if running.parallel else 1
        if not self.live.plan.is_closed_by_worker(self.step):
            await self.run_together(
                left_to_run(running), width, lambda index: self._iteration(loop, running, items, index)
            )
            return
        outer = Pipeline(self, self.step.body, self.frame, self.around, Narrator(self.run_id))
        case = self.step.body[0] if self.step.body and isinstance(self.step.body[0], Case) else None
        around_loop = None if case is None else CaseRun(outer, case)
        try:
            if around_loop is not None:
                await around_loop.enter()
                around_loop.tell_changes()  # the iterations go on from there
                await outer.commit()
            is_settled = around_loop is not None and (around_loop.frame.skipped or around_loop.route)
            if not is_settled and running.closing is None:
                await self.run_together(
                    left_to_run(running), width, lambda index: self._iteration(loop, running, items, index)
                )
            await self._close(outer, around_loop, running)
        except Failed as failed:
            error = outer.located(failed.error, failed.task)
            await self._report_end(outer, PipelineEnd(error=error))

    async def _close(self, outer: Pipeline, case: CaseRun | None, running: LoopRun) -> None:
        """Ends a loop step: the moment of its exit, its variables and its sink."""
        state_run = self.live.state.runs.get(self.run_id)
        if state_run is None or state_run.loop is None:
            raise Stopped
        closing = running.closing or {}
        if closing.get("error") is not None:
            end = PipelineEnd(error=closing["error"], route=closing.get("route"))
            await self._report_end(outer, end)
            return
        if running.parallel:
            self.frame.values = joined_values(self.frame.values, state_run.loop.collected)
        result = closing["result"][0] if closing.get("result") else loop_results(self.execution_id, state_run)
        route, skipped = closing.get("route"), False
        if case is not None:
            if case.frame.phase in ("call", "after"):
                case.move("exit")
            if not case.frame.result:
                case.shown = result
            await self.keep_vars(outer, case, result)
            await case.leave()
            if case.frame.result:
                result = case.frame.result[0]
            route, skipped = route or case.route, case.frame.skipped
        end = PipelineEnd(result, route=route, skipped=skipped)
        if not skipped:
            end = await self._complete(outer, end)
        await self._report_end(outer, end, has_result=True)

    async def _iteration(self, loop: Loop, running: LoopRun, items: list[Any], index: int) -> Data | None:
        narrator = Narrator(self.run_id, iteration_path(self.run_id, index), index)
        frame = running.open.pop(index, None)
        events: list[ReportedEvent] = []
        if frame is None:
            frame = Frame(begun=True)
            events.append(narrator.iterating("loop.iteration.started", self.timestamp(), "in_progress"))
        around = self.around
        if running.parallel:
            around = around.with_ctx({**around.ctx, **writes_of(frame)})
        pipeline = Pipeline(
            self,
            self.step.body,
            frame,
            around,
            narrator,
            iteration=Iteration(loop.iterator, items[index], index, None, {}),
            loops=(loop,),
            parallel=running.parallel,
        )
        pipeline.pending = events
        if not running.parallel:
            frame.values = self.frame.values
        elif events:
            frame.values = dict(self.frame.values)
        end = await pipeline.run()
        if end.route is not None:
            set_result = frame.case.result if frame.case is not None else []
            running.closing = {"route": end.route, "result": set_result, "error": end.error}
        pipeline.pending.append(self._iteration_end(narrator, end, running.closing))
        await pipeline.commit()
        if end.route is not None:
            return running.closing
        return end.error if loop.on_error == "fail" else None

    def _iteration_end(self, narrator: Narrator, end: PipelineEnd, closing: Data | None) -> ReportedEvent:
        at = self.timestamp()
        extra: Data = {"ends": closing} if end.route is not None else {}
        if end.case is not None:
            extra["case"] = end.case
        if end.error is None:
            return narrator.iterating("loop.iteration.done", at, "success", result=end.result, **extra)
        return narrator.iterating("loop.iteration.failed", at, "error", error=end.error, **extra)

    async def run_together(
        self, indexes: Iterable[int], width: int, run: Callable[[int], Awaitable[Data | None]]
    ) -> Data | None:
        """Runs iterations, `width` at a time, in index order; the first error ends them all."""
        waiting = iter(indexes)
        failures: list[Data] = []

        async def lane() -> None:
            for index in waiting:
                error = await run(index)
                if error is not None:
                    failures.append(error)
                if failures:
                    return

        lanes = [asyncio.create_task(lane()) for _ in range(width)] if width > 1 else []
        if not lanes:
            await lane()
            return failures[0] if failures else None
        try:
            await _first_trouble(lanes, failures)
        finally:
            for task in lanes:
                task.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)
        return failures[0] if failures else None

    # --- what pipelines need ----------------------------------------------------------------------------

    async def report(self, events: list[ReportedEvent]) -> None:
        """Waits until the events are in the log; Stopped if the lease is over."""
        report = LeaseReport(
            command_id=self.run_id, execution_id=self.execution_id, epoch=self.epoch, events=tuple(events)
        )
        verdict = await self.worker.control.report(report, self.run_id)
        if verdict.verdict == "refused" or verdict.stop:
            raise Stopped

    def redacted(self, data: Data) -> Data:
        found: Data = self.redactor.data(data)
        return found

    def now(self) -> float:
        return self.worker.control.clock.now()

    def timestamp(self) -> str:
        return timestamp(self.now())

    def chance(self) -> float:
        return self.worker.chance()

    def number(self, written: int | Template) -> int:
        """A count that may be a template over what is known when the lease begins."""
        if not isinstance(written, Template):
            return written
        found = written.evaluate(self.around.boundary(None))
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            raise NoetlError(
                f"`{written.source}` must give a whole number of at least 1, but it gave `{found}`"
            )
        return found

    def seconds(self, written: float | Template) -> float:
        """A duration that may be a template over what is known when the lease begins."""
        return seconds(written, self.around.boundary(None))

    async def load_body(self, ref: Data) -> None:
        self.live.bodies.keep(ref["ref"], await self.worker.control.load_body(self.live, ref))

    async def stored(self, value: Any, *, spread: bool = False) -> Any:  # noqa: ANN401 - plain data
        """The value, or for a large one the reference to it; `spread`: its elements count, not the list."""
        if is_ref(value) or not isinstance(value, str | list | dict):
            return value
        value = self.redactor.data(value)
        body = msgspec.json.encode(value)
        if len(body) <= LARGE_VALUE_BYTES:
            return value
        ref, taken = reference(self.execution_id, value, body)
        await self.worker.control.keep_body(self.execution_id, taken.key, taken.checksum, taken.body)
        self.live.bodies.keep(ref["ref"], value)
        return {**ref, "spread": True} if spread and isinstance(value, list) else ref

    async def keep_body(self, short: Shortened) -> None:
        await self.worker.keep_body(self.execution_id, short)

    def kind(self, name: str) -> ToolKind:
        try:
            return self.worker.kind(name)
        except NoetlError as error:
            raise Refused("tool.not_runnable", error.message) from error

    def spec(self, called: Task, task: Task, loops: tuple[Loop, ...]) -> dict[str, Any]:
        """The knobs that hold for a task; `called` stands in the body and may name `task` of the workbook."""
        known = self._specs.get(id(called))
        if known is None:
            known = self._specs[id(called)] = effective_spec(
                self.playbook,
                self.step,
                loops,
                task,
                kind_defaults=self.worker.default_spec(task.kind),
                kinds=self.worker.kind_names,
            )
        return known

    def tool_context(self, task: Task, call: ToolCall, began: float) -> TaskContext:
        return TaskContext(self, task, call, began)

    def workbook_entry(self, task: Task) -> WorkbookEntry:
        """What a workbook task names; the checks have made sure that it is there."""
        name = task.config.get("name")
        return next(entry for entry in self.playbook.workbook if entry.name == name)

    def called(self, task: Task) -> Task:
        """The task with what the workbook task it calls says about retries, conditions and errors."""
        if task.kind != "workbook" or not is_single(entry := self.workbook_entry(task)):
            return task
        known = self._called.get(id(task))
        if known is None:
            inner = entry.body[0]
            assert isinstance(inner, Task)
            inner = self.called(inner)
            parts = {field: getattr(task, field) for field in task.__struct_fields__}
            known = self._called[id(task)] = Task(
                **parts
                | {
                    "rules": inner.rules if task.rules is None else task.rules,
                    "retry": task.retry or inner.retry,
                    "poll": task.poll or inner.poll,
                    "sink": entry.sink or inner.sink,
                    "when": inner.when if task.when is None else task.when,
                    "on_error": inner.on_error if task.on_error == "fail" else task.on_error,
                }
            )
        return known

    def workbook_task(self, task: Task, args: Data, scope: Scope) -> tuple[Task, Data]:
        """The task a workbook call comes to, with the args its caller and its own defaults give."""
        entry = self.workbook_entry(task)
        inner = entry.body[0]
        assert isinstance(inner, Task)
        given = {**render_each(entry.args, scope), **args}
        if inner.kind == "workbook":
            return self.workbook_task(inner, given, scope)
        parts = {field: getattr(inner, field) for field in inner.__struct_fields__}
        return Task(**parts | {"label": task.label}), given


async def _first_trouble(lanes: list[asyncio.Task[None]], failures: list[Data]) -> None:
    """Waits until all lanes are through, or one has a failure or an exception."""
    left = set(lanes)
    while left:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if failures:
            return


def _copy(part: Any, kind: type) -> Any:  # noqa: ANN401 - a part of a state
    return msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=kind)


def _copy_loop(loop: LoopRun) -> LoopRun:
    """A loop run of one's own; its elements are shared, they never change."""
    return msgspec.structs.replace(
        loop, open={index: _copy(frame, Frame) for index, frame in loop.open.items()}
    )
