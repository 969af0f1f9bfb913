"""The calls a case makes: the step's own, named tasks, and sinks of its chains.

Each is reported before the chain goes on, so a crash repeats none of them. A call that is made again by a
`retry`, or by a chain that starts over, is the same action with a higher attempt.
"""

from __future__ import annotations

from typing import Any

from noetl.engine.bodies import is_ref
from noetl.engine.frames import apply_case
from noetl.engine.pipeline import Then, action_id, repeat
from noetl.engine.state import Data
from noetl.playbook.layering import merge
from noetl.playbook.model import RetryAction, SinkAction, Task
from noetl.worker.calls import with_bodies
from noetl.worker.case_record import CaseRecord, ChainSink, Failed
from noetl.worker.narration import outcome_status

CALL = "call"
"""The key of the step's own call among the visits of a case."""


class CaseCalls:
    def __init__(self, record: CaseRecord) -> None:
        self._record = record
        self._pipeline = record.pipeline
        self._lease = record.lease
        self._may_retry = any(
            isinstance(action, RetryAction) for branch in record.case.branches for action in branch.actions
        )
        """An action can repeat the step's call: only the end of a chain tells whether it is over."""
        self._last: Data = {}
        """The last attempt that was made, as its events tell it."""

    async def call(self) -> None:
        """Calls the step's tool, with what a chain has overridden."""
        record = self._record
        frame = record.frame
        assert record.case.call is not None
        task = self._lease.called(record.case.call)
        if frame.overrides:
            task = _overridden(task, await self._whole(frame.overrides))
        frame.calls += 1
        frame.handled = False
        frame.outcome = await self._settle(task, CALL)

    async def _whole(self, values: Data) -> Data:
        """The values, those that were stored for their size too."""
        bodies = self._lease.bodies
        found: Data = await with_bodies(
            lambda: {name: bodies.get(value) if is_ref(value) else value for name, value in values.items()},
            self._lease,
        )
        return found

    async def named(self, task: Task) -> None:
        """Runs a task of a chain. Failed: it did."""
        key = str(self._record.frame.action)
        outcome = await self._settle(self._lease.called(task), key)
        if outcome["status"] == "error":
            raise self._failed(outcome["error"], task.label)

    async def sink(self, action: SinkAction) -> None:
        """Stores by a sink of the chain; it fails the step if it fails."""
        record = self._record
        frame, following = record.frame, record.frame.action + 1
        key = str(frame.action)
        place = f"{frame.epoch}/{frame.queue[0]}/{key}"
        before = frame.visits.get(key, [0, 0])[1]
        record.tell()

        def stored(attempt: int, again: bool) -> Data:
            if not again:
                if self._starts_over:
                    frame.visits[key] = [0, attempt]
                frame.action = following
            return record.taken()

        chain = ChainSink(place, before, stored)
        error = await self._pipeline.run_sink(action.sink, record.names(frame.event), chain=chain)
        frame.action = following
        if error is not None:
            raise Failed(error, action.sink.task.label)

    def retry_about(self) -> Data | None:
        """The next attempt of the step's call, as its events tell it; None: it has not been called."""
        call = self._record.case.call
        visit = self._record.frame.visits.get(CALL)
        return None if call is None or visit is None else self._about(call, visit[0], visit[1] + 1)

    def tell_retried(self) -> None:
        """Records the end of a call that an action repeated: no more attempts follow."""
        record, about = self._record, self.retry_about()
        if about is None or about["attempt"] <= 2 or not self._may_retry:
            return
        about = {**about, "attempt": about["attempt"] - 1}
        assert record.frame.outcome is not None
        narrator, at = self._pipeline.narrator, self._lease.timestamp()
        status = outcome_status(record.frame.outcome["status"])
        told = {"attempts": about["attempt"]}
        self._pipeline.pending.append(
            narrator.task("retry.processed", at, status=status, payload=told, **about)
        )

    @property
    def _starts_over(self) -> bool:
        """Whether the running chain may start over."""
        record = self._record
        return bool(record.frame.queue) and record.case.branches[record.frame.queue[0]].retry is not None

    def _failed(self, error: Data, label: str) -> Failed:
        failed = Failed(error, label)
        failed.about = self._last
        return failed

    async def _settle(self, task: Task, key: str) -> Data:
        """Runs a task with its retries and polls; its last outcome."""
        record, pipeline, lease = self._record, self._pipeline, self._lease
        outer, is_call = record.outer, key == CALL
        record.tell()
        while True:
            await record.rest()
            visit = f"{key}/{outer.polls}" if outer.polls else key
            entry, before = record.frame.visits.get(visit, (outer.entry, 0))
            about = self._about(task, entry, before + outer.attempt)
            self._last = dict(about)
            scope = record.task_scope(task, about, is_call=is_call)
            pipeline.pending.append(pipeline.narrator.task("task.started", lease.timestamp(), **about))
            outcome = await pipeline.call_and_store(task, scope, about)
            now, chance = lease.now(), lease.chance()
            then = await record.evaluate(
                lambda outcome=outcome, scope=scope, now=now, chance=chance: (
                    repeat(task, outer, outcome, scope, pipeline.around.bodies, now=now, chance=chance)
                    or Then("continue")
                ),
                task.label,
            )
            if then.do == "fail":
                outcome = {**outcome, "status": "error", "error": then.error}
            if then.do != "retry" and (self._may_retry if is_call else self._starts_over):
                record.frame.visits[visit] = [entry, about["attempt"]]
            self._decided(task, outcome, then, about, is_call=is_call)
            if is_call or then.do in ("retry", "poll") or outcome["status"] != "error":
                await pipeline.commit()
            # A named task that failed is recorded with what its failure leads to.
            if then.do not in ("retry", "poll"):
                return outcome

    def _about(self, task: Task, entry: int, attempt: int) -> dict[str, Any]:
        where = self._pipeline.where
        return {
            "label": task.label,
            "task_run_id": f"{where}:{entry}",
            "attempt": attempt,
            "action_id": action_id(self._lease.run_id, where, self._record.outer.position, entry),
        }

    def _decided(self, task: Task, outcome: Data, then: Then, about: Data, *, is_call: bool) -> None:
        """Records what a call came to and moves the frame by it."""
        record, pipeline = self._record, self._pipeline
        frame, outer, at = record.frame, record.outer, self._lease.timestamp()
        log, signal = about.pop("log", None), about.pop("signal", None)
        if then.do not in ("retry", "poll"):
            if is_call:
                frame.outcome = outcome
                frame.phase, frame.asked = "after", False
            else:
                frame.action += 1
        payload: Data = {"outcome": outcome, "then": then.to_data(), "case": record.taken()}
        if is_call and then.do not in ("retry", "poll"):
            payload["case"]["call"] = True
        if log:
            payload["log"] = log
        if signal is not None:
            payload["signal"] = signal
        narrator = pipeline.narrator
        status = outcome_status(outcome["status"])
        pipeline.pending.append(narrator.task("task.done", at, status=status, payload=payload, **about))
        if outer.attempt > 1 and not (is_call and self._may_retry):
            pipeline.pending += narrator.retried(then, outcome, at, about)
        if task.poll is not None:
            pipeline.pending += narrator.polling(outer, then, outcome, at, about)
        # The changes of the values were made when they were decided.
        recorded = {**payload, "case": {**payload["case"], "changes": []}}
        apply_case(outer, task.label, recorded, at, outer.values)
        # The frame that the running chain holds is the one that goes on.
        outer.case = frame
        if then.do == "retry":
            retrying = {**about, "attempt": about["attempt"] + 1}
            pipeline.pending.append(
                narrator.task("retry.started", at, payload={"delay": then.delay}, **retrying)
            )


def _overridden(task: Task, overrides: Data) -> Task:
    parts = {name: getattr(task, name) for name in task.__struct_fields__}
    config = {name: value for name, value in overrides.items() if name != "args"}
    args, given = task.args, overrides.get("args")
    if isinstance(args, dict) and isinstance(given, dict):
        args = merge(args, given)
    return Task(**parts | {"config": merge(task.config, config), "args": args})
