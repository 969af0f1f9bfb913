"""Drives one pipeline: asks the interpreter what comes next, runs it, reports, moves the frame.

A task is finished when its `task.done` is committed; only then does the next one begin. The event that
ends the pipeline is left to whoever started it, so that it is committed together with the last task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from noetl.engine.bodies import whole
from noetl.engine.frames import apply_task_done, finished_result, leave_block, writes_of
from noetl.engine.moments import result_names, with_names
from noetl.engine.pipeline import Ended, Then, action_id, after, asks_about_outcome, before, runaway, upcoming
from noetl.engine.reducers import note_writes
from noetl.engine.repeats import poll_ends, retries
from noetl.engine.scope import Iteration, Surroundings, holds, pipeline_scope, with_task_args
from noetl.engine.state import Data, Frame
from noetl.errors import TemplateError
from noetl.ids import timestamp
from noetl.playbook.model import Block, Case, Loop, Node, Parallel, Poll, Sink, Task, WorkbookEntry
from noetl.records.outcome import outcome_to_data
from noetl.records.report import ReportedEvent
from noetl.results.bodies import ResultStoreError
from noetl.template import Scope
from noetl.worker.calls import (
    Refused,
    refusal,
    render_args,
    render_call,
    run_tool,
    shorten,
    with_bodies,
    within,
)
from noetl.worker.case_record import ChainSink, Failed
from noetl.worker.cases import CaseRun
from noetl.worker.groups import GroupRun, group_of, group_of_entry
from noetl.worker.narration import Narrator, outcome_status
from noetl.worker.waiting import WaitingCase

if TYPE_CHECKING:
    from noetl.worker.lease import StepLease


def is_single(entry: WorkbookEntry) -> bool:
    """Whether a workbook task is one call of a tool, not a pipeline or a loop."""
    return entry.loop is None and len(entry.body) == 1 and isinstance(entry.body[0], Task)


class PipelineEnd(NamedTuple):
    """How a pipeline ended: with a result, or with an error."""

    result: Any = None
    error: Data | None = None
    route: Data | None = None
    """The way out that a case decided."""
    skipped: bool = False
    case: Data | None = None
    """What a case has still to record: its last changes."""


class Stopped(Exception):  # noqa: N818 - not an error: the control plane wants no more of this work
    """The lease is over."""


class Pipeline:
    """One run of a body, in one frame."""

    def __init__(
        self,
        lease: StepLease,
        body: tuple[Node, ...],
        frame: Frame,
        around: Surroundings,
        narrator: Narrator,
        *,
        iteration: Iteration | None = None,
        loops: tuple[Loop, ...] = (),
        outer_results: Data | None = None,
        call_args: Data | None = None,
        parallel: bool = False,
        entries: str = "",
        noting: tuple[tuple[Frame, dict[str, str]], ...] = (),
    ) -> None:
        self.lease = lease
        self.body = body
        self.frame = frame
        self.around = around
        self.narrator = narrator
        self.iteration = iteration
        self.loops = loops
        self.outer_results = outer_results or {}
        self.call_args = call_args or {}
        """What the caller of a workbook task gave it."""
        self.parallel = parallel
        self.entries = entries
        """The entries into the blocks around: two blocks, or two visits of one, count their items alike."""
        self.noting = noting
        """The iterations around, of blocks that combine what is written to `ctx`, with the reducers."""
        self.pending: list[ReportedEvent] = []
        self._rests_until: float | None = None
        """When a repetition that was decided here is due, by the clock that cannot be set."""
        self.combined: Data = {}
        """What a block in this pipeline has combined, where that is still to be told of."""

    @property
    def visit(self) -> str:
        return f"{self.entries}:{self.frame.entry}"

    @property
    def where(self) -> str:
        """Which of the step's pipelines this is: another one never has the same."""
        return f"{self.narrator.iteration_id or self.lease.run_id}{self.entries}"

    async def run(self) -> PipelineEnd:
        while True:
            node = upcoming(self.body, self.frame)
            if isinstance(node, Ended):
                return PipelineEnd(finished_result(self.frame))
            error = runaway(self.frame, self.lease.max_task_runs)
            if error is not None:
                return PipelineEnd(error=self.located(error, None))
            if isinstance(node, Case):
                return await self._case(node)
            end = await (self._task(node) if isinstance(node, Task) else self._group(node))
            if end is not None:
                return end
            if not isinstance(upcoming(self.body, self.frame), Ended):
                await self.commit()

    async def commit(self) -> None:
        """Reports what is pending and waits until it is in the log."""
        if self.pending:
            events, self.pending = self.pending, []
            await self.lease.report(events)

    def located(self, error: Data, label: str | None) -> Data:
        details = {"details": error["details"]} if error.get("details") else {}
        return {
            "kind": error["kind"],
            "message": error["message"],
            "step": self.lease.step.name,
            "task": label,
            "retryable": bool(error.get("retryable")),
            **details,
        }

    # --- a task -----------------------------------------------------------------------------------------

    async def _task(self, task: Task) -> PipelineEnd | None:
        frame, lease = self.frame, self.lease
        task = lease.called(task)
        if frame.wake_at is not None:
            await lease.sleep_until(frame.wake_at, self._rests_until)
        where = self.where
        call_id = action_id(lease.run_id, where, frame.position, frame.entry)
        about: dict[str, Any] = {
            "label": task.label,
            "task_run_id": f"{where}:{frame.entry}",
            "attempt": frame.attempt,
            "action_id": call_id,
        }
        scope = self._scope(task, call_id, shows_last=True)
        skipped = await with_bodies(lambda: before(task, frame, scope), lease)
        if skipped is not None:
            outcome = {"status": "skipped", "result": None}
            return self._decided(task, outcome, skipped, about, lease.timestamp())
        self.pending.append(self.narrator.task("task.started", lease.timestamp(), **about))
        outcome = await self.call_and_store(task, scope, about)
        asks = asks_about_outcome(task)
        seen = self._scope(task, call_id, outcome, shows_last=True) if asks else scope
        chance, now = lease.chance(), lease.now()
        then = await with_bodies(
            lambda: after(task, self.body, frame, outcome, seen, self.around.bodies, now=now, chance=chance),
            lease,
        )
        return self._decided(task, outcome, then, about, timestamp(now))

    def _scope(
        self,
        task: Task,
        call_id: str,
        outcome: Data | None = None,
        args: Data | None = None,
        *,
        shows_last: bool = False,
    ) -> Scope:
        return pipeline_scope(
            self.around,
            self.frame,
            self.iteration,
            label=task.label,
            action_id=call_id,
            task_args={**self.call_args, **(args or {})},
            outer_results=self.outer_results,
            outcome=outcome,
            shows_last=shows_last,
        )

    async def call_and_store(self, task: Task, scope: Scope, about: Data) -> Data:
        """The outcome of a task whose answer its sink has stored."""
        outcome = await self.call_tool(task, scope, about)
        args = about.pop("args", None)
        if task.sink is not None and outcome["status"] == "ok":
            # Before the task is recorded as done: a crash in between repeats both rather than losing one.
            names = result_names(outcome, self.around.bodies)
            problem = await self.run_sink(task.sink, names, args=args)
            if problem is not None:
                return {**outcome, "status": "error", "error": problem}
        return outcome

    async def call_tool(self, task: Task, scope: Scope, about: Data) -> Data:
        """The outcome of the task's tool, shortened and without secrets."""
        lease = self.lease
        if task.kind == "workbook" and not is_single(lease.workbook_entry(task)):
            return await self._call_pipeline(task, scope)
        try:
            call, tool = await with_bodies(lambda: self._rendered(task, scope, about), lease)
            kind = lease.kind(tool.kind)
        except Refused as refused:
            return lease.redacted(refusal(task.label, self.frame.attempt, lease.now(), refused))
        if call.spec.get("on_lease_loss") == "fail" and not kind.DESCRIPTION.waits:
            if self.frame.since is not None:
                lost = Refused("worker.lost", "it had begun when its worker was lost, and may not run twice")
                return lease.redacted(refusal(task.label, self.frame.attempt, lease.now(), lost))
            await self.commit()  # that it begins is in the log before it does
        if self.frame.since is None:
            self.frame.since = lease.now()
        if task.poll is not None:
            try:
                # The time of a call that waits is counted from its beginning, under whichever lease that was.
                begins = self.frame.since if kind.DESCRIPTION.waits else lease.now()
                call = within(call, self._poll_left(task.poll, scope, begins))
            except TemplateError as error:
                wrong = Refused(error.code, error.message)
                return lease.redacted(refusal(task.label, self.frame.attempt, lease.now(), wrong))
        context = lease.tool_context(tool, call, self.frame.since, self.commit)
        quiet = lease.worker.quiet.begin(self.commit)
        raw = await run_tool(kind, call, context, quiet=quiet, now=lease.now)
        # Nothing that the tool did: whoever has the lease next calls it again.
        if context.lease_over is not None:
            raise context.lease_over
        outcome: Data = lease.redactor.outcome(outcome_to_data(raw))
        about["log"] = context.taken_log()
        about["signal"] = context.signal
        try:
            # The result of a child is what this engine made of it.
            made = None if tool.kind == "playbook" else context.made
            short = shorten(outcome, lease.execution_id, call.spec, made)
            return short.outcome if short.key is None else await lease.kept(short, call.spec)
        except ResultStoreError as error:
            problem = Refused(error.code, error.message)
        except Refused as refused:
            problem = refused
        return lease.redacted(refusal(task.label, self.frame.attempt, lease.now(), problem))

    def _poll_left(self, poll: Poll, scope: Scope, begins: float) -> float | None:
        """Seconds from the beginning of a call until its poll is over, whatever the call is doing then."""
        ends = poll_ends(poll, self.frame, scope)
        return None if ends is None else ends - begins

    async def _call_pipeline(self, task: Task, scope: Scope) -> Data:
        """The outcome of a workbook task that is a pipeline or a loop: it runs inside this one."""
        lease = self.lease
        try:
            args = await with_bodies(lambda: render_args(task.args, scope, lease.redactor), lease)
        except Refused as refused:
            return lease.redacted(refusal(task.label, self.frame.attempt, lease.now(), refused))
        group = group_of_entry(task.label, lease.workbook_entry(task), args)
        error, result = await GroupRun(self, group).run()
        meta = {"attempt": self.frame.attempt, "duration_ms": None, "ts": lease.timestamp()}
        return {"status": "ok" if error is None else "error", "result": result, "error": error, "meta": meta}

    def _rendered(self, task: Task, scope: Scope, about: Data) -> Any:  # noqa: ANN401 - a call and its task
        """The rendered call; a workbook task is replaced by what it names."""
        lease, called = self.lease, task
        args = render_args(task.args, scope, lease.redactor)
        call_args = args if isinstance(args, dict) else {}
        if task.kind == "workbook":
            task, call_args = lease.workbook_task(task, call_args, scope)
            inner = self._scope(task, about["action_id"], args=call_args)
            # A task without args of its own is given those of its call: its code names what it takes.
            args = render_args(task.args, inner, lease.redactor) if task.args else call_args
            call_args = {**call_args, **(args if isinstance(args, dict) else {})}
        elif not task.args:
            args = whole(self.call_args, self.around.bodies)
        about["args"] = call_args
        spec = lease.spec(called, task, self.loops)
        ids = {name: about[name] for name in ("label", "task_run_id", "attempt", "action_id")}
        call = render_call(
            task,
            with_task_args(scope, {**self.call_args, **call_args}, self.around.bodies)
            if call_args
            else scope,
            args,
            spec,
            lease.redactor,
            sql_fields=lease.worker.sql_fields(task.kind),
            execution_id=lease.execution_id,
            step=lease.step.name,
            **ids,
        )
        return call, task

    def _decided(self, task: Task, outcome: Data, then: Then, about: Data, at: str) -> PipelineEnd | None:
        """Records what was decided at a moment, and moves the frame by it."""
        log, signal = about.pop("log", None), about.pop("signal", None)
        if self.lease.redactor.knows_secrets:  # what this pipeline goes on with is what the log will say
            redacted = self.lease.redacted
            then = then._replace(set_iter=redacted(then.set_iter), set_ctx=redacted(then.set_ctx))
        if self.combined:
            then = then._replace(set_ctx={**self.combined, **then.set_ctx})
            self.combined = {}
        payload: Data = {"outcome": outcome, "then": then.to_data()}
        if log:
            payload["log"] = log
        if signal is not None:
            payload["signal"] = signal
        status = outcome_status(outcome["status"])
        self.pending.append(self.narrator.task("task.done", at, status=status, payload=payload, **about))
        self.pending += self.narrator.retried(then, outcome, at, about)
        if task.poll is not None:
            self.pending += self.narrator.polling(self.frame, then, outcome, at, about)
        if then.set_ctx:
            if not self.parallel:
                self.around.ctx.update(then.set_ctx)
                self.pending.append(self.narrator.step("ctx.patched", at, patch=then.set_ctx))
            else:
                self.around.ctx = {**self.around.ctx, **then.set_ctx}
            for frame, reducers in self.noting:
                note_writes(frame.reduced, then.set_ctx, reducers)
        apply_task_done(self.frame, task.label, payload, at)
        # A clock that is set back in between makes no short wait long.
        self._rests_until = self.lease.worker.clock.monotonic() + then.delay
        if then.do == "fail":
            assert then.error is not None
            return PipelineEnd(error=self.located(then.error, task.label))
        if then.do == "retry":
            retrying = {**about, "attempt": self.frame.attempt}
            delay = {"delay": then.delay}
            self.pending.append(self.narrator.task("retry.started", at, payload=delay, **retrying))
        return None

    # --- a case -----------------------------------------------------------------------------------------

    async def _case(self, case: Case) -> PipelineEnd:
        """Runs a case whole, or in an iteration only its call: entry and exit belong to the step."""
        if case.on_event:
            return await self._waiting(case)
        run = CaseRun(self, case)
        try:
            if self.iteration is None:
                await run.enter()
            else:
                run.begin_iteration()
            await run.cycle()
            if self.iteration is None:
                await self.lease.keep_vars(self, run)
                await run.leave()
        except Failed as failed:
            return self._failed_case(run, failed)
        return self._ended_case(run)

    def _failed_case(self, run: CaseRun, failed: Failed) -> PipelineEnd:
        """A way out takes only a failure that was there when it was chosen."""
        route = run.route if failed.by_call else None
        error = self.located(failed.error, failed.task)
        return PipelineEnd(error=error, route=route, case=run.record.left_to_tell())

    def _ended_case(self, run: CaseRun) -> PipelineEnd:
        skipped = run.frame.skipped
        result = None if skipped else run.result
        return PipelineEnd(result, route=run.route, skipped=skipped, case=run.record.left_to_tell())

    async def _waiting(self, case: Case) -> PipelineEnd:
        """Runs a case that waits for events."""
        run = WaitingCase(self, case)
        try:
            await run.wait()
            await self.lease.keep_vars(self, run)
            await run.leave()
        except Failed as failed:
            return self._failed_case(run, failed)
        return self._ended_case(run)

    def task_scope(self, task: Task, call_id: str) -> Scope:
        return self._scope(task, call_id)

    def case_scope(self, *, with_iterators: bool = True) -> Scope:
        """The scope of a case's guards and actions; a way out of a loop does not see its element."""
        iteration = self.iteration if with_iterators else None
        return pipeline_scope(
            self.around,
            self.frame,
            iteration,
            label="",
            action_id="",
            task_args=self.call_args,
            outer_results=self.outer_results,
        )

    async def run_sink(
        self,
        sink: Sink,
        names: Data,
        *,
        args: Data | None = None,
        chain: ChainSink | None = None,
        of_step: bool = False,
    ) -> Data | None:
        """Runs a sink whose predicate holds; its error, if it failed. `args`: of what it belongs to."""
        lease, task = self.lease, sink.task
        place = f"{self.where}/sink/{self.frame.attempt if chain is None else chain.place}"
        entry = self.frame.entry if chain is None else 0
        call_id = action_id(lease.run_id, place, self.frame.position, entry)
        scope = with_names(self._scope(task, call_id, args=args), names)
        try:
            wanted = await with_bodies(lambda: holds(sink.when, scope), lease)
        except TemplateError as error:
            return {"kind": error.code, "message": error.message, "retryable": False}
        about: Data = {
            "label": task.label,
            "task_run_id": f"{place}:{entry}",
            "attempt": self.frame.sink_attempt + (0 if chain is None else chain.before),
            "action_id": call_id,
        }
        if not wanted:
            self._sunk({"status": "skipped", "result": None}, about, chain, of_step=of_step)
            return None
        while True:
            self.pending.append(self.narrator.task("sink.started", lease.timestamp(), **about))
            outcome = await self.call_tool(task, scope, about)
            delay, outcome = await self._sink_delay(task, outcome, scope)
            for name in ("log", "signal", "args"):
                about.pop(name, None)
            self._sunk(outcome, about, chain, delay=delay, of_step=of_step)
            if delay is None:
                if outcome["status"] == "error":
                    problem: Data = outcome["error"]
                    return problem
                if chain is not None:
                    await self.commit()
                # Otherwise it is recorded with the task or the step it belongs to: neither is lost alone.
                return None
            about["attempt"] += 1
            await self.commit()
            await lease.sleep_until(lease.now() + delay)

    def _sunk(
        self,
        outcome: Data,
        about: Data,
        chain: ChainSink | None,
        *,
        delay: float | None = None,
        of_step: bool = False,
    ) -> None:
        """Records an attempt of a sink, and moves the frame by it."""
        at, again = self.lease.timestamp(), delay is not None
        payload: Data = {"outcome": outcome}
        if again:
            payload["again"] = True
        elif of_step:
            payload["of_step"] = True
        if chain is not None:
            payload["case"] = chain.recorded(about["attempt"], again)
        status = outcome_status(outcome["status"])
        self.pending.append(self.narrator.task("sink.processed", at, status=status, payload=payload, **about))
        if again:
            retrying = {**about, "attempt": about["attempt"] + 1}
            self.pending.append(self.narrator.task("retry.started", at, payload={"delay": delay}, **retrying))
        elif self.frame.sink_attempt > 1:
            told = {"attempts": about["attempt"]}
            self.pending.append(
                self.narrator.task("retry.processed", at, status=status, payload=told, **about)
            )
        self.frame.sink_attempt = self.frame.sink_attempt + 1 if again else 1

    async def _sink_delay(self, task: Task, outcome: Data, scope: Scope) -> tuple[float | None, Data]:
        """The wait before the next attempt of a sink, if there is one, and its outcome."""
        retry, attempt = task.retry, self.frame.sink_attempt
        if retry is None:
            return None, outcome
        try:
            delay = await with_bodies(
                lambda: retries(retry, outcome, attempt, scope, self.around.bodies), self.lease
            )
        except TemplateError as error:
            problem = {"kind": error.code, "message": error.message, "retryable": False}
            return None, {**outcome, "status": "error", "error": problem}
        return delay, outcome

    # --- pipelines inside this one ----------------------------------------------------------------------

    async def _group(self, node: Block | Parallel) -> PipelineEnd | None:
        """Runs a block or branches side by side, and moves past them."""
        frame, lease = self.frame, self.lease
        error, result = await GroupRun(self, group_of(node)).run()
        if error is not None:
            return PipelineEnd(error=error)
        at, following = lease.timestamp(), frame.position + 1
        payload = {"block": node.label, "visit": self.visit, "result": result, "next": following}
        patch, self.combined = self.combined, {}
        if patch:
            payload["patch"] = patch
        self.pending.append(self.narrator.iterating("loop.done", at, "success", **payload))
        leave_block(frame, node.label, result, following)
        return None

    def inner(
        self,
        body: tuple[Node, ...],
        frame: Frame,
        narrator: Narrator,
        *,
        iteration: Iteration | None,
        loop: Loop | None,
        results: Data,
        args: Data,
        reducers: dict[str, str],
    ) -> Pipeline:
        """A pipeline inside this one, with what it sees of it; one beside others has its own `ctx`."""
        is_beside_others = loop is not None and loop.mode == "parallel"
        around = self.around
        if is_beside_others:
            around = around.with_ctx({**around.ctx, **writes_of(frame)})
        return Pipeline(
            self.lease,
            body,
            frame,
            around,
            narrator,
            iteration=iteration,
            loops=self.loops if loop is None else (*self.loops, loop),
            outer_results={**self.outer_results, **self.frame.results, **results},
            call_args={**self.call_args, **args},
            parallel=self.parallel or is_beside_others,
            entries=self.visit,
            noting=(*self.noting, (frame, reducers)) if reducers else self.noting,
        )

    def take_writes(self, writes: Data, at: str) -> list[ReportedEvent]:
        """What a pipeline inside this one wrote beside others, now that it has ended."""
        if self.parallel:
            self.around.ctx = {**self.around.ctx, **writes}
            return []
        self.around.ctx.update(writes)
        return [self.narrator.step("ctx.patched", at, patch=writes)]

    def with_args(self, scope: Scope, args: Data) -> Scope:
        return with_task_args(scope, {**self.call_args, **args}, self.around.bodies) if args else scope
