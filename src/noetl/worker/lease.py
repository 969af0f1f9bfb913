"""One lease: a step run, from where its frames stand to its end or to the end of the lease."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.engine.bodies import PARTS_STORE, Bodies, is_ref
from noetl.engine.frames import iteration_path, joined_values, writes_of
from noetl.engine.leases import Leased
from noetl.engine.limits import reference
from noetl.engine.loops import LOG_STORE
from noetl.engine.masking import masked
from noetl.engine.moments import value_names, with_names
from noetl.engine.parking import waits_payload
from noetl.engine.plan import Plan
from noetl.engine.repeats import seconds
from noetl.engine.scope import Iteration, StepResults, Surroundings, render_each
from noetl.engine.state import Data, Frame, LoopRun, Waits
from noetl.errors import NoetlError, TemplateError
from noetl.ids import timestamp
from noetl.playbook.layering import effective_spec
from noetl.playbook.model import Case, Loop, Playbook, Step, Task, WorkbookEntry
from noetl.records.command import Command
from noetl.records.event import EventStatus
from noetl.records.protocols import LeaseLostError, NotWrittenError, ToolCall, ToolKind
from noetl.records.report import LeaseReport, ReportedEvent, Verdict
from noetl.records.result_ref import ref_to_data
from noetl.secrets.redaction import KeychainInUse, Redactor
from noetl.template import Scope, Template
from noetl.worker.calls import Refused, Shortened, with_bodies
from noetl.worker.case_record import Failed
from noetl.worker.cases import CaseRun
from noetl.worker.context import TaskContext
from noetl.worker.lanes import LoopShare, run_lanes
from noetl.worker.lease_reports import LeaseReports
from noetl.worker.narration import Narrator
from noetl.worker.parking import PATIENCE_SECONDS, Parking
from noetl.worker.pipeline import Pipeline, PipelineEnd, Stopped, is_single

if TYPE_CHECKING:
    from noetl.worker.worker import KnownPlaybook, Worker


KEPT_BY_CONTROL: Final = ("database", LOG_STORE, PARTS_STORE)
"""The stores that only the control plane can read; any other a worker reads by itself."""
LARGE_VALUE_BYTES: Final = 8 * 1024
"""What a case collects or sets as its result is stored above this, so that its events stay small."""


class StepLease:
    def __init__(
        self,
        worker: Worker,
        command: Command[Leased],
        known: KnownPlaybook,
        keychain: Mapping[str, Any],
    ) -> None:
        self.worker = worker
        self.command = command
        self.held = command.lease
        self.known = known
        self.run_id = command.step_run_id
        self.execution_id = command.lease.execution_id
        self.context = command.context
        self.plan: Plan = known.plan
        self.playbook: Playbook = known.plan.playbook
        self.step: Step = known.plan.steps[command.step]
        self.redactor: Redactor = worker.redactor(self.execution_id, keychain)
        self.keychain = KeychainInUse(keychain, self.redactor)
        self.bodies: Bodies = worker.bodies(self.execution_id)
        self.args: Data = command.context.args
        self._called: dict[int, Task] = {}
        self._specs: dict[int, dict[str, Any]] = {}
        """The knobs of each task, by the identity of the one in the body: its place there never changes."""
        self.frame: Frame = command.context.frame
        self.loop_run: LoopRun | None = command.context.loop
        self.around = self._surroundings(command.context)
        self.max_task_runs = 0
        self._task = asyncio.current_task()
        self.parking = Parking(self._stop_for_parking)
        self._lanes: LeaseReports | None = None
        """Gathers what is reported side by side."""
        self.signals: dict[int, str] = {}
        """The signals that calls of this lease have taken, by place: the id of the call."""

    def _surroundings(self, context: Leased) -> Surroundings:
        return Surroundings(
            execution_id=self.execution_id,
            workload=context.workload,
            ctx=context.ctx,
            vars=context.vars,
            args=context.args,
            keychain=self.keychain,
            results=StepResults(context.steps, context.scope, self.bodies, context.bound),
            bodies=self.bodies,
            elements=context.elements,
        )

    # --- the way of a lease -----------------------------------------------------------------------------

    async def run(self) -> None:
        self.max_task_runs = await self.number(self.step.max_task_runs)
        try:
            if self.step.loop is not None and self.loop_run is not None:
                await self._loop(self.step.loop, self.loop_run)
            else:
                await self._single()
        except Stopped:
            return
        except asyncio.CancelledError:
            if self.parking.parked is None or self._task is None or self._task.uncancel() > 0:
                raise
            await self._give_back(self.parking.parked)
        finally:
            if self._lanes is not None:
                await self._lanes.close()

    def _stop_for_parking(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _give_back(self, waits: Waits) -> None:
        """Reports that all this lease has left is waiting."""
        payload = {"lease": self.context.lease, "waits": waits_payload(waits)}
        paused = Narrator(self.run_id).step("step.paused", self.timestamp(), "in_progress", **payload)
        with contextlib.suppress(Stopped):
            await self.report([paused])

    async def _single(self) -> None:
        narrator = Narrator(self.run_id)
        pipeline = Pipeline(self, self.step.body, self.frame, self.around, narrator)
        if not self.context.started:
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
        """Sets the step's variables before the moment of its exit. Failed: they cannot be rendered.

        Without a tool it is that moment which gives the result: there they are set at the end of the step.
        """
        if case.case.call is None and self.step.loop is None:
            return
        if case.frame.phase == "exit" and not case.frame.skipped:
            await self._set_vars(pipeline, case.result if shown is None else shown)

    async def _set_vars(self, pipeline: Pipeline, result: Any) -> None:  # noqa: ANN401 - plain data
        written = self.step.vars
        if not written or pipeline.frame.kept:
            return
        names = value_names(result, {"status": "ok"}, self.around.bodies)
        scope = with_names(pipeline.case_scope(), names)
        try:
            found = await with_bodies(lambda: render_each(written, scope), self)
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
            items = self.bodies.get(items)
        width = running.widths[self.context.lease]
        if width > 1:
            self._lanes = LeaseReports(self._send)
        share = LoopShare(self, width, list(running.open))
        run = partial(self._iteration, loop, running, items, share)
        if not self.plan.is_closed_by_worker(self.step):
            await share.run(run)
            return
        outer = Pipeline(self, self.step.body, self.frame, self.around, Narrator(self.run_id))
        case = self.step.body[0] if self.step.body and isinstance(self.step.body[0], Case) else None
        around_loop = None if case is None else CaseRun(outer, case)
        try:
            if around_loop is not None:
                await around_loop.enter()
                around_loop.record.tell_changes()  # the iterations go on from there
                await outer.commit()
            is_settled = around_loop is not None and (around_loop.frame.skipped or around_loop.route)
            if self.step.body and not is_settled and running.closing is None:
                if not share.waiting:
                    await share.ask()
                await share.run(run)
            await self._close(outer, around_loop, running)
        except Failed as failed:
            error = outer.located(failed.error, failed.task)
            await self._report_end(outer, PipelineEnd(error=error))

    async def _close(self, outer: Pipeline, case: CaseRun | None, running: LoopRun) -> None:
        """Ends a loop step: the moment of its exit, its variables and its sink."""
        closing = running.closing or {}
        if closing.get("error") is not None:
            end = PipelineEnd(error=closing["error"], route=closing.get("route"))
            await self._report_end(outer, end)
            return
        so_far = await self.worker.source.loop_so_far(self.held)
        if running.parallel:
            self.frame.values = joined_values(self.frame.values, so_far.collected)
        result = closing["result"][0] if closing.get("result") else so_far.result
        if not self.step.body:
            result = running.items
        route, skipped = closing.get("route"), False
        if case is not None:
            if case.frame.phase in ("call", "after"):
                case.move("exit")
            if not case.frame.result:
                case.record.shown = result
            await self.keep_vars(outer, case, result)
            await case.leave()
            if case.frame.result:
                result = case.frame.result[0]
            route, skipped = route or case.route, case.frame.skipped
        end = PipelineEnd(result, route=route, skipped=skipped)
        if not skipped:
            end = await self._complete(outer, end)
        await self._report_end(outer, end, has_result=True)

    async def _iteration(
        self, loop: Loop, running: LoopRun, items: list[Any], share: LoopShare, index: int
    ) -> Data | None:
        narrator = Narrator(self.run_id, iteration_path(self.run_id, index), index)
        frame = running.open.pop(index, None)
        if frame is None:
            frame = Frame()
            if running.parallel:
                frame.values = dict(self.frame.values)
        if not running.parallel:
            frame.values = self.frame.values
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
        end = await pipeline.run()
        if end.route is not None:
            set_result = frame.case.result if frame.case is not None else []
            running.closing = {"route": end.route, "result": set_result, "error": end.error}
        pipeline.pending.append(self._iteration_end(narrator, end, running.closing))
        await share.tell(pipeline)
        if end.route is not None:
            return running.closing
        return end.error if loop.on_error == "fail" else None

    def _iteration_end(self, narrator: Narrator, end: PipelineEnd, closing: Data | None) -> ReportedEvent:
        at = self.timestamp()
        extra: Data = {"ends": closing} if end.route is not None else {}
        if end.case is not None:
            extra["case"] = end.case
        if end.error is None:
            status: EventStatus = "skipped" if end.skipped else "success"
            return narrator.iterating("loop.iteration.done", at, status, result=end.result, **extra)
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

        if width == 1:
            await lane()
        else:
            await run_lanes([lane] * width, self.parking, lambda: bool(failures))
        return failures[0] if failures else None

    # --- what pipelines need ----------------------------------------------------------------------------

    async def report(self, events: list[ReportedEvent], *, asks: bool = False) -> Verdict:
        """Waits until the events are in the log; Stopped if the lease is over."""
        verdict = await (
            self._send(events, asks) if self._lanes is None else self._lanes.put(events, asks=asks)
        )
        if verdict.stop:
            raise Stopped
        return verdict

    async def _send(self, events: list[ReportedEvent], asks: bool) -> Verdict:
        if self.redactor.knows_secrets:
            # What templates made of secrets is known here alone.
            for place, event in enumerate(events):
                payload = masked(event.payload, self.redactor.data)
                events[place] = msgspec.structs.replace(event, payload=payload)
        report = LeaseReport(lease=self.held, events=tuple(events), asks_for_iterations=asks)
        try:
            return await self.worker.report(report)
        except (LeaseLostError, NotWrittenError):
            self.worker.given_up.add(self.held)
            raise

    async def sleep_until(self, moment: float, monotonic: float | None = None) -> None:
        """Sleeps until a moment in seconds since 1970; the lease may be given back meanwhile.

        What is pending must have been committed. `monotonic`: the same moment, where it is known, by the
        clock that cannot be set; the earlier of the two counts.
        """
        left = moment - self.now()
        if monotonic is not None:
            left = min(left, monotonic - self.worker.clock.monotonic())
            moment = self.now() + left
        if left <= PATIENCE_SECONDS:
            await asyncio.sleep(max(0.0, left))
            return
        async with self.parking.waiting(Waits(until=moment), at_once=True):
            await asyncio.sleep(left)

    def redacted(self, data: Data) -> Data:
        found: Data = self.redactor.data(data)
        return found

    def now(self) -> float:
        return self.worker.clock.now()

    def timestamp(self) -> str:
        return timestamp(self.now())

    def chance(self) -> float:
        return self.worker.chance()

    async def number(self, written: int | Template) -> int:
        """A count that may be a template over what is known when the lease begins."""
        if not isinstance(written, Template):
            return written
        found = await with_bodies(lambda: written.evaluate(self.around.boundary(None)), self)
        if isinstance(found, bool) or not isinstance(found, int) or found < 1:
            raise NoetlError(
                f"`{written.source}` must give a whole number of at least 1, but it gave `{found}`"
            )
        return found

    async def seconds(self, written: float | Template, name: str) -> float:
        """A duration that may be a template over what is known when the lease begins."""
        found: float = await with_bodies(lambda: seconds(written, self.around.boundary(None), name), self)
        return found

    async def load_body(self, ref: Data) -> None:
        if ref.get("store") in KEPT_BY_CONTROL:
            value = await self.worker.source.load_body(self.held, ref)
        else:
            value = await self.worker.load_stored(ref)
        self.bodies.keep(ref, value)

    async def stored(self, value: Any, *, spread: bool = False) -> Any:  # noqa: ANN401 - plain data
        """The value, or for a large one the reference to it; `spread`: its elements count, not the list."""
        if is_ref(value) or not isinstance(value, str | list | dict):
            return value
        value = self.redactor.data(value)
        body = msgspec.json.encode(value)
        if len(body) <= LARGE_VALUE_BYTES:
            return value
        ref, taken = reference(self.execution_id, value, body)
        await self.worker.source.keep_body(self.held, taken.key, taken.checksum, taken.body)
        self.bodies.keep(ref, value)
        self.bodies.trim()
        return {**ref, "spread": True} if spread and isinstance(value, list) else ref

    async def kept(self, short: Shortened, spec: Data) -> Data:
        """The outcome of a call whose large result is stored: in the database, or where `spec` says."""
        assert short.key is not None
        wished = spec.get("result")
        store = wished.get("store") if isinstance(wished, dict) else None
        if store in (None, "", "auto", "database"):
            await self.worker.source.keep_body(self.held, short.key, short.checksum, short.body)
            return short.outcome
        found = await self.worker.results.put(
            self.execution_id, short.body, media_type="application/json", store=store
        )
        about = {name: short.outcome["result"][name] for name in ("schema_hint", "preview", "extracted")}
        return {**short.outcome, "result": {**ref_to_data(found), **about}}

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

    def tool_context(
        self, task: Task, call: ToolCall, began: float, commit: Callable[[], Awaitable[None]]
    ) -> TaskContext:
        return TaskContext(self, task, call, began, commit)

    def abandon_child(self, call_id: str) -> None:
        """The call of a playbook was stopped; where only this lease ends, a later one finds the child."""
        is_given_up = self.held in self.worker.given_up
        if self.parking.parked is None and not self.worker.is_stopping and not is_given_up:
            self.worker.abandon_child(self, call_id)

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
