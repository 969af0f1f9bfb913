"""Drives a case: its call, the moments around it, and the chains of actions they start.

A chain that asks for the call again ends there; the call is made when all branches that were selected at
the moment have run. Everything that moves a case is recorded by `case_record`, and its calls are made by
`case_calls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.engine.cases import ENTER, EXIT, after_call, branch_of, is_failed, select, winner
from noetl.engine.frames import finished_result
from noetl.engine.repeats import retries, seconds
from noetl.engine.scope import render_each
from noetl.engine.state import Data, Phase
from noetl.playbook.model import (
    Action,
    CallAction,
    Case,
    CaseBranch,
    CollectAction,
    FailAction,
    NextAction,
    ResultAction,
    Retry,
    RetryAction,
    SetAction,
    SinkAction,
    SkipAction,
    TaskAction,
)
from noetl.template import Scope, Template
from noetl.worker.case_calls import CALL, CaseCalls
from noetl.worker.case_record import CaseRecord, Failed

if TYPE_CHECKING:
    from noetl.worker.pipeline import Pipeline


class CaseRun:
    """One case in one pipeline: of a step, or of one iteration of its loop."""

    def __init__(self, pipeline: Pipeline, case: Case) -> None:
        self.pipeline = pipeline
        self.lease = pipeline.lease
        self.case = case
        self.record = CaseRecord(pipeline, case)
        self.outer = self.record.outer
        self.frame = self.record.frame
        self._calls = CaseCalls(self.record)

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
        frame = self.frame
        if self.case.call is None and self.pipeline.iteration is not None:
            # Without a tool the element is the answer: it is there again whenever the iteration goes on.
            frame.outcome = {"status": "ok", "result": self.pipeline.iteration.item}
        while frame.phase in ("call", "after") and not self._is_settled():
            if frame.phase == "call":
                if self.case.call is not None:
                    await self._calls.call()
                elif frame.outcome is None:
                    break
                else:
                    self.move("after")
            if not frame.asked:
                await self._ask_after_call()
            await self._chains()
            if frame.phase == "after":
                self._calls.tell_retried()
                break
        if frame.phase in ("call", "after"):
            self.move("exit")
        if is_failed(frame) and not frame.skipped:
            assert frame.outcome is not None
            assert self.case.call is not None
            raise Failed(frame.outcome["error"], self.case.call.label, by_call=True)

    async def leave(self) -> None:
        """The moment when the step is about to end well."""
        if self.frame.phase == "exit" and not self.frame.skipped:
            if not self.frame.asked:
                await self._ask(EXIT, decides=self.case.call is None and self.lease.step.loop is None)
            await self._chains()
        self.move("end")

    def _is_settled(self) -> bool:
        """Nothing more is called once the step is skipped, or a way out of it was decided on entry."""
        return self.frame.skipped or (self.frame.calls == 0 and bool(self.frame.routes))

    async def _ask(self, name: str, *, decides: bool) -> None:
        record = self.record
        matched = await record.evaluate(lambda: select(self.case, name, record.scope, decides=decides))
        record.selected(name, matched)

    async def _ask_after_call(self) -> None:
        outcome, record = self.frame.outcome, self.record
        assert outcome is not None
        name, matched = await record.evaluate(lambda: after_call(self.case, outcome, record.scope))
        record.selected(name, matched)

    # --- the chains -------------------------------------------------------------------------------------

    async def _chains(self) -> None:
        """Runs the selected branches one after the other; then the call is made again if one asked for it."""
        frame = self.frame
        await self.record.rest()
        while frame.queue and not frame.skipped:
            branch = branch_of(self.case, frame)
            try:
                await self._chain(branch)
            except Failed as failed:
                if branch.retry is None or not await self._chain_again(branch, branch.retry, failed):
                    self._tell_chain(branch, "error")
                    self._tell_dropped(self._drop_others(), branch, "fail")
                    raise
        if frame.again and not frame.skipped:
            await self._call_again()
        self.record.tell()

    async def _chain(self, branch: CaseBranch) -> None:
        """Runs the actions of one branch from where it stands."""
        frame = self.frame
        while frame.action < len(branch.actions):
            action = branch.actions[frame.action]
            if not isinstance(action, TaskAction | SinkAction):
                frame.action += 1  # those two move on when they are recorded as done
            await self._act(action)
            if not frame.queue or branch_of(self.case, frame) is not branch:
                return
        self._tell_chain(branch, "success")
        self._next_branch()

    def _next_branch(self) -> None:
        frame = self.frame
        frame.queue = frame.queue[1:]
        frame.action, frame.chain_attempt = 0, 1
        frame.visits = {key: visit for key, visit in frame.visits.items() if key.startswith(CALL)}

    def _drop_others(self) -> list[str]:
        """Drops the branches that were selected and have not run; their names."""
        names = [self.case.branches[index].id for index in self.frame.queue[1:]]
        self.frame.queue = []
        return names

    def _tell_dropped(self, names: list[str], branch: CaseBranch, reason: str) -> None:
        for name in names:
            told = {"branch": name, "winner_branch": branch.id, "reason": reason}
            self.record.mention("case.branch.suppressed", told)

    async def _chain_again(self, branch: CaseBranch, retry: Retry, failed: Failed) -> bool:
        frame = self.frame
        outcome: Data = {"status": "error", "result": None, "error": failed.error}
        delay = await self._delay(retry, outcome, frame.chain_attempt)
        if delay is None:
            return False
        frame.chain_attempt += 1
        frame.action = 0
        told = {"scope": "chain", "branch": branch.id, "chain_attempt": frame.chain_attempt}
        about = None
        if failed.about is not None:
            about = {**failed.about, "attempt": failed.about["attempt"] + 1}
        await self._again(told, delay, about)
        await self.record.rest()
        return True

    def _tell_chain(self, branch: CaseBranch, status: Any) -> None:  # noqa: ANN401 - a word of events
        """Records the end of a chain that started over."""
        attempts = self.frame.chain_attempt
        if attempts > 1:
            told = {"scope": "chain", "branch": branch.id, "attempts": attempts}
            at, narrator = self.lease.timestamp(), self.pipeline.narrator
            self.pipeline.pending.append(narrator.about_step("retry.processed", at, told, status))

    async def _delay(self, retry: Retry, outcome: Data, attempt: int) -> float | None:
        """The wait before another attempt; None: there is none."""
        bodies, record = self.pipeline.around.bodies, self.record
        delay: float | None = await record.evaluate(
            lambda: retries(retry, outcome, attempt, record.scope(self.frame.event), bodies)
        )
        return delay * (0.5 + self.lease.chance() / 2) if delay and retry.backoff.jitter else delay

    async def _again(self, told: Data, delay: float, about: Data | None) -> None:
        """Records that a chain or a call is to be repeated, and when."""
        self.outer.wake_at = self.lease.now() + delay
        payload = {**told, "delay": delay, "wake_at": self.outer.wake_at}
        if about is None:
            self.record.say("retry.started", payload)
        else:
            self.record.tell()
            at, narrator = self.lease.timestamp(), self.pipeline.narrator
            recorded = {**payload, "case": self.record.taken()}
            self.pipeline.pending.append(narrator.task("retry.started", at, payload=recorded, **about))
        await self.pipeline.commit()

    # --- the actions ------------------------------------------------------------------------------------

    async def _act(self, action: Action) -> None:
        """Carries out one action."""
        frame, record = self.frame, self.record
        match action:
            case SetAction():
                values = await record.each(action.values)
                for name, value in values.items():
                    values[name] = await self.lease.stored(value)
                record.change(["set", values])
            case CollectAction():
                value = await self.lease.stored(
                    await record.value(action.source), spread=action.mode == "extend"
                )
                record.change(["collect", action.into, action.mode, value])
            case ResultAction():
                frame.result = [await self.lease.stored(await record.value(action.source))]
                frame.handled = True
            case SinkAction():
                await self._calls.sink(action)
            case TaskAction():
                await self._calls.named(action.task)
            case CallAction():
                self._check_has_call("call", EXIT)
                self._ask_for_call({"do": "call", "overrides": await record.inner(action.overrides)})
            case RetryAction():
                await self._retry(action)
            case FailAction():
                message = await record.value(action.message)
                text = (
                    f"step `{self.lease.step.name}` failed by its case" if message is None else str(message)
                )
                raise Failed({"kind": "case.fail", "message": text, "retryable": False})
            case SkipAction():
                frame.skipped = frame.handled = True
                branch = branch_of(self.case, frame)
                self._tell_dropped(self._drop_others(), branch, "skip")
            case NextAction():
                await self._next(action)

    def _check_has_call(self, action: str, *without: str) -> None:
        """Failed: the action stands where no call of the step can be made."""
        event = self.frame.event
        around_loop = self.lease.step.loop is not None and self.pipeline.iteration is None
        if self.case.call is None:
            message = f"`{action}` needs a `tool` on the step: there is nothing to call"
        elif self.record.current is None and (event in without or around_loop):
            message = f"`{action}` has no call to make at `{event}`"
        else:
            return
        raise Failed({"kind": "case.no_call", "message": message, "retryable": False})

    async def _retry(self, action: RetryAction) -> None:
        self._check_has_call("retry", ENTER, EXIT)
        frame = self.frame
        outcome = frame.outcome or {"status": "ok", "result": None}
        always = msgspec.structs.replace(action.retry, on=("error",))
        if outcome["status"] != "error" and always.stop_when is None:
            # Whoever writes `retry` under a condition on the answer wants the call again.
            always = msgspec.structs.replace(always, stop_when=False)
        delay = await self._delay(always, outcome, frame.call_attempt)
        if delay is not None:
            self._ask_for_call({"do": "retry", "delay": delay})

    def _ask_for_call(self, again: Data) -> None:
        """Ends the chain; the call is made when the other branches have run. Of several the first counts."""
        frame = self.frame
        branch = branch_of(self.case, frame)
        if frame.again:
            told = {"branch": branch.id, "winner_branch": frame.again["branch"], "reason": frame.again["do"]}
            self.record.mention("case.branch.suppressed", told)
        else:
            frame.again = {**again, "branch": branch.id}
        self._next_branch()

    async def _call_again(self) -> None:
        """Goes back to the call, as a chain has asked."""
        frame = self.frame
        self.record.tell()
        again, frame.again = frame.again, {}
        was_entering = frame.phase == "enter"
        self.move("call")
        if again["do"] == "retry":
            frame.call_attempt += 1
            await self._again({}, again["delay"], self._calls.retry_about())
            return
        if not was_entering:
            self._calls.tell_retried()
            frame.page += 1
            self.record.turn_page()
        frame.overrides = again["overrides"]
        frame.call_attempt = 1
        frame.visits = {}

    async def _next(self, action: NextAction) -> None:
        """Requests a transition; the policy says what it ends."""
        frame, record = self.frame, self.record
        scope = record.scope(frame.event, with_iterators=False)
        targets = [await self._target(target, scope) for target in action.targets]
        policy = action.policy or self.case.next_policy
        branch = branch_of(self.case, frame)
        route: Data = {
            "selected": targets,
            "priority": action.priority,
            "policy": policy,
            "branch": branch.id,
            "delay": await record.evaluate(lambda: seconds(action.delay, scope, "delay")),
        }
        frame.routes.append(route)
        if policy == "end_step":
            record.tell()
            frame.again = {}
            route["suppressed_branches"] = self._drop_others()
            record.say("next.requested", route)
            self._tell_dropped(route["suppressed_branches"], branch, "next")
            return
        if policy == "break_chain":
            self._next_branch()
        record.say("next.requested", {**route, "pending": True})

    async def _target(self, target: Any, scope: Scope) -> Data:  # noqa: ANN401 - a target of the model
        def evaluate() -> Data:
            name = target.step.evaluate(scope) if isinstance(target.step, Template) else target.step
            return {"step": str(name), "args": render_each(target.args, scope)}

        found: Data = await self.record.evaluate(evaluate)
        if found["step"] not in self.lease.plan.steps and found["step"] != "end":
            message = f"`next` names no step: `{found['step']}`"
            raise Failed({"kind": "next.unknown_step", "message": message, "retryable": False})
        return found

    # --- how it ended -----------------------------------------------------------------------------------

    @property
    def result(self) -> Any:  # noqa: ANN401 - plain data
        """What a chain set; else what the call gave; without a tool, what the last named task gave."""
        if self.frame.result:
            return self.frame.result[0]
        if self.case.call is None and self.outer.last is not None:
            return finished_result(self.outer)
        return None if self.frame.outcome is None else self.frame.outcome["result"]

    @property
    def route(self) -> Data | None:
        """The way out that was chosen, with all branches that any choice has left out."""
        best = winner(self.frame.routes)
        if best is None:
            return None
        dropped = [name for route in self.frame.routes for name in route.get("suppressed_branches", ())]
        return {**best, "suppressed_branches": dropped}
