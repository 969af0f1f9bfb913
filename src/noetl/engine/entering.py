"""How tokens come to a step: joins, admission, the start of its run; and the end of an execution."""

from __future__ import annotations

from noetl.engine.bodies import readable
from noetl.engine.fold import step_key
from noetl.engine.loops import begin_loop
from noetl.engine.parking import ROUNDING, tend_parked
from noetl.engine.repeats import seconds
from noetl.engine.routing import end_step, fail
from noetl.engine.scope import holds, render_each
from noetl.engine.spreads import args_before_items, begin_spread, tend_spreads
from noetl.engine.state import Data, StepRun, Token
from noetl.engine.turn import MOST_RUNS_IN_A_TURN, Turn, error_data
from noetl.errors import TemplateError
from noetl.ids import seconds_of
from noetl.playbook.model import Step
from noetl.template import Budget, Scope

END = "end"


def deliver(turn: Turn) -> None:
    """Moves every token as far as it goes without a worker, and ends the execution if none is left."""
    for _ in range(MOST_RUNS_IN_A_TURN):
        if turn.state.is_over or turn.state.status == "paused":
            return
        if not _deliver_one(turn) and not tend_spreads(turn):
            tend_parked(turn)
            _finish_if_still(turn)
            return
    fail(
        turn,
        error_data(
            "workflow.runaway",
            f"more than {MOST_RUNS_IN_A_TURN} steps followed each other without calling a tool",
        ),
    )


def _deliver_one(turn: Turn) -> bool:
    """Lets one token, or the tokens of one join, enter. Whether there was one."""
    for token in list(turn.state.tokens.values()):
        if _is_delayed(turn, token):
            continue
        step = turn.plan.steps[token.step]
        if step.join is None or step.join.mode == "spread":
            enter(turn, step, [token], [], [])
            return True
        taken = _joined(turn, step)
        if taken is not None:
            enter(turn, step, *taken)
            return True
    return False


def _is_delayed(turn: Turn, token: Token) -> bool:
    return token.not_before is not None and token.not_before > seconds_of(turn.now) + ROUNDING


def _joined(turn: Turn, step: Step) -> tuple[list[Token], list[str], list[str]] | None:
    """The tokens a join fires with, those it discards, and the origins it will discard one of."""
    join = step.join
    assert join is not None
    waiting: dict[str, Token] = {}
    for token in turn.state.tokens.values():
        if token.step == step.name and token.origin is not None:
            waiting.setdefault(token.origin, token)
    here = [waiting[name] for name in join.of if name in waiting]
    if join.mode == "all":
        return (here, [], []) if len(here) == len(join.of) else None
    if join.mode == "any":
        if not here:
            return None
        first = min(here, key=lambda token: int(token.token_id))
        discarded = [token.token_id for token in here if token is not first]
        return [first], discarded, [name for name in join.of if name not in waiting]
    missing = [name for name in join.of if name not in waiting]
    return None if not here or any(_can_come(turn, step, name) for name in missing) else (here, [], [])


def _can_come(turn: Turn, join: Step, origin: str) -> bool:
    """Whether a token from `origin` can still arrive at a join."""
    live = {run.step for run in turn.state.runs.values()}
    live |= {token.step for token in turn.state.tokens.values() if token.step != join.name}
    return turn.plan.can_still_reach(live, origin)


def enter(turn: Turn, step: Step, tokens: list[Token], discarded: list[str], owed: list[str]) -> None:
    """Admits tokens to a step, or consumes them."""
    args: Data = {}
    for token in tokens:
        args.update(token.args)
    if step.join is not None and step.join.mode == "spread" and "join_results" not in args:
        # It joins an iterator, whose result is the list itself.
        name, steps = step.join.of[0], turn.state.steps
        joined = steps.get(step_key(name, tokens[-1].scope)) or steps.get(name)
        args["join_results"] = None if joined is None else joined.result
    ids = [token.token_id for token in tokens]
    candidate = StepRun(
        run_id=turn.run_id(),
        step=step.name,
        scope=tokens[-1].scope,
        args=args,
        scheduled_at=turn.now,
        event=tokens[-1].event,
    )
    scope = turn.around(candidate).boundary(candidate.event)
    deadline: Data = {}
    try:
        budget = Budget()  # one for all that is decided here: see `routing`
        if not _admitted(step, scope, budget):
            turn.step_event("step.skipped", step.name, None, "skipped", tokens=ids + discarded)
            return
        bound = {**render_each(args_before_items(step), scope, budget), **args}
        if step.deadline is not None:
            within = Scope({"workload": readable(turn.state.workload, turn.bodies), "args": bound})
            deadline = {"deadline": seconds_of(turn.now) + seconds(step.deadline, within, "deadline")}
    except TemplateError as problem:
        fail(
            turn, error_data(problem.code, f"entering step `{step.name}`: {problem.message}", step=step.name)
        )
        return
    extra: Data = {"discarded": discarded, **deadline} if discarded else deadline
    if owed:
        extra["owed"] = owed
    turn.step_event(
        "step.scheduled", step.name, candidate.run_id, "in_progress", tokens=ids, args=bound, **extra
    )
    _begin(turn, step, turn.state.runs[candidate.run_id])


def _admitted(step: Step, scope: Scope, budget: Budget) -> bool:
    if step.admit is None:
        return True
    for rule in step.admit:
        if rule.when is not None and holds(rule.when, scope, budget):
            return rule.allow
    return any(rule.allow for rule in step.admit if rule.when is None)


def _begin(turn: Turn, step: Step, run: StepRun) -> None:
    """Starts what a worker is not needed for; everything else is ready for one."""
    if step.spread is not None:
        begin_spread(turn, step, run)
    elif step.loop is not None:
        begin_loop(turn, step, run)
    elif step.body or step.vars or step.sink is not None:
        turn.add_command(run.run_id)
    else:
        turn.step_event("step.started", step.name, run.run_id, "in_progress", args=run.args)
        end_step(turn, run, None)


def _finish_if_still(turn: Turn) -> None:
    """Ends the execution when nothing is open and no token can move."""
    state = turn.state
    if state.runs or state.is_over or any(_is_delayed(turn, token) for token in state.tokens.values()):
        return
    if state.tokens:
        fail(turn, _stuck(turn))
        return
    result_step = END if state.steps.get(END) and state.steps[END].seq else None
    if result_step is None:
        ended = [name for name, found in state.steps.items() if found.seq]
        result_step = max(ended, key=lambda name: state.steps[name].seq, default=None)
    result = state.steps[result_step].result if result_step is not None else None
    turn.playbook_event("workflow.finished", result=result, result_step=result_step)
    turn.playbook_event("playbook.processed")


def _stuck(turn: Turn) -> Data:
    """What the joins that can never fire were waiting for."""
    told: list[str] = []
    for name in dict.fromkeys(token.step for token in turn.state.tokens.values()):
        join = turn.plan.steps[name].join
        assert join is not None
        here = {token.origin for token in turn.state.tokens.values() if token.step == name}
        missing = ", ".join(f"`{origin}`" for origin in join.of if origin not in here)
        told.append(f"step `{name}` still waits for {missing}")
    return error_data("join.stuck", "; ".join(told) + ", but nothing is left that could lead there")
