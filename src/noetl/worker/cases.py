"""Drives a case: its call, the moments around it, and the chains of actions they start.

Pure actions change the case's frame at once and are recorded with the next event that is reported; a
call, a named task or a sink is reported before the chain goes on, so a crash repeats none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.engine.cases import DONE, ENTER, EXIT, after_call, branch_of, evaluated, is_failed, select, winner
from noetl.engine.frames import apply_case, apply_change
from noetl.engine.moments import result_names, value_names, with_names
from noetl.engine.pipeline import Then, action_id, repeat
from noetl.engine.repeats import retries, seconds
from noetl.engine.scope import render, render_each, render_inner
from noetl.engine.state import CaseFrame, Data, Phase
from noetl.errors import TemplateError
from noetl.playbook.layering import merge
from noetl.playbook.model import (
    Action,
    CallAction,
    Case,
    CollectAction,
    FailAction,
    NextAction,
    ResultAction,
    Retry,
    RetryAction,
    SetAction,
    SinkAction,
    SkipAction,
    Task,
    TaskAction,
)
from noetl.template import Scope, Template
from noetl.worker.calls import with_bodies
from noetl.worker.narration import outcome_status

if TYPE_CHECKING:
    from noetl.worker.pipeline import Pipeline


class Failed(Exception):  # noqa: N818 - not an error of ours: the step's failure on its way out
    """A chain failed the step."""

    def __init__(self, error: Data, task: str | None = None) -> None:
        super().__init__(error["message"])
        self.error = error
        self.task = task


class CaseRun:
    """One case in one pipeline: of a step, or of one iteration of its loop."""

    def __init__(self, pipeline: Pipeline, case: Case) -> None:
        self.pipeline = pipeline
        self.lease = pipeline.lease
        self.case = case
        self.outer = pipeline.frame
        if self.outer.case is None:
            self.outer.case = CaseFrame()
        self.frame = self.outer.case
        self.shown: Any = None
        """The result that is seen on exit where no chain has set one: a loop's list."""
        self.changes: list[list[Any]] = []
        """What `set` and `collect` did since the last recorded event."""

    # --- the moments ------------------------------------------------------------------------------------

    async def enter(self) -> None:
        """The moment before anything runs."""
        if self.frame.phase == "enter":
            if not self.frame.asked:
                await self._ask(ENTER, decides=False)
            await self._chains()
            self.move("call")

    def begin_iteration(self) -> None:
        """An iteration begins with its call: the step was entered before its loop."""
        if self.frame.phase == "enter":
            self.move("call")

    def move(self, phase: Phase) -> None:
        """Goes on to a phase about which nothing was asked yet."""
        self.frame.phase, self.frame.asked = phase, False

    async def cycle(self) -> None:
        """Calls the tool, and again as often as the chains say."""
        while self.frame.phase in ("call", "after") and not self._is_settled():
            if self.frame.phase == "call":
                if self.case.call is None:
                    break
                await self._call()
            if not self.frame.asked:
                await self._ask_after_call()
            await self._chains()
            if self.frame.phase == "after":
                break
        if self.frame.phase in ("call", "after"):
            self.move("exit")
        if is_failed(self.frame) and not self.frame.skipped:
            assert self.frame.outcome is not None
            assert self.case.call is not None
            raise Failed(self.frame.outcome["error"], self.case.call.label)

    async def leave(self) -> None:
        """The moment when the step is about to end well."""
        if self.frame.phase == "exit" and not self.frame.skipped:
            if not self.frame.asked:
                await self._ask(EXIT, decides=self.case.call is None)
            await self._chains()
        self.move("end")

    def _is_settled(self) -> bool:
        """Nothing more is called once the step is skipped, or a way out of it was decided on entry."""
        return self.frame.skipped or (self.frame.calls == 0 and bool(self.frame.routes))

    async def _ask(self, name: str, *, decides: bool) -> None:
        matched = await self._evaluated(lambda: select(self.case, name, self._scope, decides=decides))
        self._selected(name, matched)

    async def _ask_after_call(self) -> None:
        outcome = self.frame.outcome
        assert outcome is not None
        name, matched = await self._evaluated(lambda: after_call(self.case, outcome, self._scope))
        self._selected(name, matched)

    def _selected(self, name: str, matched: list[int], **extra: Any) -> None:  # noqa: ANN401 - plain data
        frame = self.frame
        frame.event, frame.queue, frame.action, frame.chain_attempt = name, matched, 0, 1
        frame.asked = True
        if matched or name == DONE or extra:
            self._say("case.evaluated", {**evaluated(self.case, name, matched), **extra})

    # --- the chains -------------------------------------------------------------------------------------

    async def _chains(self) -> None:
        """Runs the selected branches one after the other."""
        frame = self.frame
        await self._rest()
        while frame.queue and not frame.skipped:
            branch = branch_of(self.case, frame)
            try:
                while frame.action < len(branch.actions):
                    action = branch.actions[frame.action]
                    if not isinstance(action, TaskAction | SinkAction):
                        frame.action += 1  # those two move on when they are recorded as done
                    if await self._act(action):
                        return
                    if not frame.queue or branch_of(self.case, frame) is not branch:
                        break
                else:
                    self._next_branch()
            except Failed as failed:
                if branch.retry is None or not await self._chain_again(branch.retry, failed):
                    raise

    def _next_branch(self) -> None:
        frame = self.frame
        frame.queue = frame.queue[1:]
        frame.action, frame.chain_attempt = 0, 1

    async def _chain_again(self, retry: Retry, failed: Failed) -> bool:
        frame = self.frame
        outcome: Data = {"status": "error", "result": None, "error": failed.error}
        delay = await self._delay(retry, outcome, frame.chain_attempt)
        if delay is None:
            return False
        frame.chain_attempt += 1
        frame.action = 0
        await self._again({"scope": "chain"}, delay)
        await self._rest()
        return True

    async def _delay(self, retry: Retry, outcome: Data, attempt: int) -> float | None:
        """The wait before another attempt; None: there is none."""
        bodies = self.pipeline.around.bodies
        delay: float | None = await self._evaluated(
            lambda: retries(retry, outcome, attempt, self._scope(self.frame.event), bodies)
        )
        return delay * (0.5 + self.lease.chance() / 2) if delay and retry.backoff.jitter else delay

    async def _again(self, about: Data, delay: float) -> None:
        """Records that a chain or a call is to be repeated, and when."""
        self.outer.wake_at = self.lease.now() + delay
        self._say("retry.started", {**about, "delay": delay, "wake_at": self.outer.wake_at})
        await self.pipeline.commit()

    async def _rest(self) -> None:
        """Waits until the moment for which the last repetition was recorded."""
        if self.outer.wake_at is not None:
            if self.outer.wake_at > self.lease.now():
                await self.pipeline.commit()
            await self.lease.sleep_until(self.outer.wake_at)

    async def _act(self, action: Action) -> bool:
        """Carries out one action. True: control goes back to the call."""
        frame = self.frame
        match action:
            case SetAction():
                values = await self._rendered_each(action.values)
                for name, value in values.items():
                    values[name] = await self.lease.stored(value)
                self._change(["set", values])
            case CollectAction():
                value = await self.lease.stored(
                    await self._value(action.source), spread=action.mode == "extend"
                )
                self._change(["collect", action.into, action.mode, value])
            case ResultAction():
                frame.result = [await self.lease.stored(await self._value(action.source))]
                frame.handled = True
            case SinkAction():
                await self._sink(action)
            case TaskAction():
                await self._named(action.task)
            case CallAction():
                frame.overrides = await self._rendered_inner(action.overrides)
                frame.call_attempt = 1
                return self._back_to_call()
            case RetryAction():
                return await self._retry(action)
            case FailAction():
                message = await self._value(action.message)
                text = (
                    f"step `{self.lease.step.name}` failed by its case" if message is None else str(message)
                )
                raise Failed({"kind": "case.fail", "message": text, "retryable": False})
            case SkipAction():
                frame.skipped = frame.handled = True
                frame.queue = []
                self._say("case.evaluated", {"skipped": True})
            case NextAction():
                await self._next(action)
        return False

    def _back_to_call(self) -> bool:
        self.frame.queue = []
        self.move("call")
        return True

    async def _retry(self, action: RetryAction) -> bool:
        frame = self.frame
        outcome = frame.outcome or {"status": "ok", "result": None}
        always = msgspec.structs.replace(action.retry, on=("error",))
        if outcome["status"] != "error" and always.stop_when is None:
            # Whoever writes `retry` under a condition on the answer wants the call again.
            always = msgspec.structs.replace(always, stop_when=False)
        delay = await self._delay(always, outcome, frame.call_attempt)
        if delay is None:
            return False
        frame.call_attempt += 1
        self._back_to_call()
        await self._again({}, delay)
        return True

    async def _next(self, action: NextAction) -> None:
        """Requests a transition; the policy says what it ends."""
        frame = self.frame
        scope = self._scope(frame.event, with_iterators=False)
        targets = [await self._target(target, scope) for target in action.targets]
        policy = action.policy or self.case.next_policy
        branch = branch_of(self.case, frame)
        frame.routes.append(
            {
                "selected": targets,
                "priority": action.priority,
                "policy": policy,
                "branch": branch.id,
                "delay": await self._evaluated(lambda: seconds(action.delay, scope)),
            }
        )
        if policy == "end_step":
            suppressed = [self.case.branches[index].id for index in frame.queue[1:]]
            frame.queue = []
            self._say("next.requested", {**frame.routes[-1], "suppressed_branches": suppressed})
            for name in suppressed:
                self._say("case.branch.suppressed", {"branch": name, "winner_branch": branch.id})
        elif policy == "break_chain":
            self._next_branch()
            self._say("next.requested", {**frame.routes[-1], "pending": True})
        else:
            self._say("next.requested", {**frame.routes[-1], "pending": True})

    async def _target(self, target: Any, scope: Scope) -> Data:  # noqa: ANN401 - a target of the model
        def evaluate() -> Data:
            name = target.step.evaluate(scope) if isinstance(target.step, Template) else target.step
            return {"step": str(name), "args": render_each(target.args, scope)}

        found: Data = await self._evaluated(evaluate)
        if found["step"] not in self.lease.plan.steps and found["step"] != "end":
            message = f"`next` names no step: `{found['step']}`"
            raise Failed({"kind": "next.unknown_step", "message": message, "retryable": False})
        return found

    # --- calls of tools ---------------------------------------------------------------------------------

    async def _call(self) -> None:
        assert self.case.call is not None
        task = self.lease.called(self.case.call)
        if self.frame.overrides:
            parts = {name: getattr(task, name) for name in task.__struct_fields__}
            config = {name: value for name, value in self.frame.overrides.items() if name != "args"}
            given = self.frame.overrides.get("args")
            args = (
                merge(task.args, given)
                if isinstance(task.args, dict) and isinstance(given, dict)
                else task.args
            )
            task = Task(**parts | {"config": merge(task.config, config), "args": args})
        self.frame.calls += 1
        self.frame.handled = False
        self.frame.outcome = await self._settle(task, is_call=True)

    async def _named(self, task: Task) -> None:
        outcome = await self._settle(self.lease.called(task), is_call=False)
        if outcome["status"] == "error":
            raise Failed(outcome["error"], task.label)

    async def _settle(self, task: Task, *, is_call: bool) -> Data:
        """Runs a task with its retries and polls; its last outcome."""
        pipeline, outer, lease = self.pipeline, self.outer, self.lease
        while True:
            await self._rest()
            about = self._about(task)
            scope = self._task_scope(task, about["action_id"], is_call=is_call)
            pipeline.pending.append(pipeline.narrator.task("task.started", lease.timestamp(), **about))
            outcome = await pipeline.call_and_store(task, scope, about)
            now, chance = lease.now(), lease.chance()
            then = await self._evaluated(
                lambda outcome=outcome, scope=scope, now=now, chance=chance: (
                    repeat(task, outer, outcome, scope, pipeline.around.bodies, now=now, chance=chance)
                    or Then("continue")
                )
            )
            if then.do == "fail":
                outcome = {**outcome, "status": "error", "error": then.error}
            self._record(task, outcome, then, about, is_call=is_call)
            if is_call or then.do in ("retry", "poll") or outcome["status"] != "error":
                await pipeline.commit()
            # A named task that failed is recorded with what its failure leads to.
            if then.do not in ("retry", "poll"):
                return outcome

    def _about(self, task: Task) -> dict[str, Any]:
        where, outer = self.pipeline.where, self.outer
        return {
            "label": task.label,
            "task_run_id": f"{where}:{outer.entry}",
            "attempt": outer.attempt,
            "action_id": action_id(self.lease.run_id, where, outer.position, outer.entry),
        }

    def _record(self, task: Task, outcome: Data, then: Then, about: Data, *, is_call: bool) -> None:
        at = self.lease.timestamp()
        log, signal = about.pop("log", None), about.pop("signal", None)
        frame = self.frame
        if then.do not in ("retry", "poll"):
            if is_call:
                frame.outcome = outcome
                self.move("after")
            else:
                frame.action += 1
        payload: Data = {"outcome": outcome, "then": then.to_data(), "case": self._taken()}
        if is_call and then.do not in ("retry", "poll"):
            payload["case"]["call"] = True
        if log:
            payload["log"] = log
        if signal is not None:
            payload["signal"] = signal
        narrator = self.pipeline.narrator
        status = outcome_status(outcome["status"])
        self.pipeline.pending.append(narrator.task("task.done", at, status=status, payload=payload, **about))
        self.pipeline.pending += narrator.retried(then, outcome, at, about)
        if task.poll is not None:
            self.pipeline.pending += narrator.polling(self.outer, then, outcome, at, about)
        # The changes of the values were made when they were decided.
        apply_case(
            self.outer,
            task.label,
            {**payload, "case": {**payload["case"], "changes": []}},
            at,
            self.outer.values,
        )
        # The frame that the running chain holds is the one that goes on.
        self.outer.case = frame
        if then.do == "retry":
            retrying = {**about, "attempt": self.outer.attempt}
            self.pipeline.pending.append(
                narrator.task("retry.started", at, payload={"delay": then.delay}, **retrying)
            )

    async def _sink(self, action: SinkAction) -> None:
        """Stores by a sink of the chain; it fails the step if it fails."""
        frame, following = self.frame, self.frame.action + 1

        def stored(again: bool) -> Data:
            frame.action = frame.action if again else following
            return self._taken()

        error = await self.pipeline.run_sink(action.sink, self._names(frame.event), case=stored)
        frame.action = following
        if error is not None:
            raise Failed(error, action.sink.task.label)

    # --- what is recorded ---------------------------------------------------------------------------------

    def tell_changes(self) -> None:
        """Records what was set and collected, if anything was since the last event."""
        if self.changes:
            self._say("case.evaluated", {"trigger_event": self.frame.event, "changed": True})

    def left_to_tell(self) -> Data | None:
        """What is to be recorded with the end of an iteration: what changed since the last event."""
        return self._taken() if self.changes else None

    def _taken(self) -> Data:
        """The case as it stands, with the changes of its values since it was last recorded."""
        changes, self.changes = self.changes, []
        self.frame.told += 1
        said: Data = {"frame": msgspec.to_builtins(msgspec.structs.replace(self.frame, outcome=None))}
        if changes:
            said["changes"] = changes
        return said

    def _say(self, event_type: str, payload: Data) -> None:
        said = {**payload, "case": self._taken()} if event_type in _MOVING else payload
        at = self.lease.timestamp()
        self.pipeline.pending.append(self.pipeline.narrator.about_step(event_type, at, said))

    def _change(self, change: list[Any]) -> None:
        apply_change(self.outer.values, change)
        self.changes.append(change)

    # --- what templates see -------------------------------------------------------------------------------

    def _names(self, event: str) -> Data:
        outcome = self.frame.outcome
        names: Data = {"event": self.event_data(event)}
        bodies = self.pipeline.around.bodies
        if self.frame.result:
            return {**names, **value_names(self.frame.result[0], {"status": "ok"}, bodies)}
        if self.shown is not None:
            return {**names, **value_names(self.shown, {"status": "ok"}, bodies)}
        if outcome is not None:
            return {**names, **result_names(outcome, bodies)}
        return names

    def event_data(self, event: str) -> Data:
        """What `event` shows at a moment of the step itself."""
        return {
            "name": event,
            "step": self.lease.step.name,
            "data": {},
            "payload": {},
            "timestamp": self.lease.timestamp(),
        }

    def _scope(self, event: str, *, with_iterators: bool = True) -> Scope:
        return with_names(self.pipeline.case_scope(with_iterators=with_iterators), self._names(event))

    def _task_scope(self, task: Task, call_id: str, *, is_call: bool) -> Scope:
        scope = self.pipeline.task_scope(task, call_id)
        return scope if is_call else with_names(scope, self._names(self.frame.event))

    async def _evaluated(self, evaluate: Any) -> Any:  # noqa: ANN401 - whatever is evaluated
        try:
            return await with_bodies(evaluate, self.lease.load_body)
        except TemplateError as error:
            raise Failed({"kind": error.code, "message": error.message, "retryable": False}) from error

    async def _rendered_each(self, values: Data) -> Data:
        found: Data = await self._evaluated(lambda: render_each(values, self._scope(self.frame.event)))
        return found

    async def _rendered_inner(self, values: Data) -> Data:
        found: Data = await self._evaluated(lambda: render_inner(values, self._scope(self.frame.event)))
        return found

    async def _value(self, value: Any) -> Any:  # noqa: ANN401 - plain data
        return await self._evaluated(lambda: render(value, self._scope(self.frame.event)))

    # --- how it ended -------------------------------------------------------------------------------------

    @property
    def result(self) -> Any:  # noqa: ANN401 - plain data
        if self.frame.result:
            return self.frame.result[0]
        return None if self.frame.outcome is None else self.frame.outcome["result"]

    @property
    def route(self) -> Data | None:
        return winner(self.frame.routes)


_MOVING = frozenset({"case.evaluated", "next.requested", "retry.started"})
