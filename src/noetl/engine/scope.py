"""The names templates see, place by place, built from a state or from a command's context.

The order of lookup is the language's: names of the language, iterators and task args, token args,
`iter`, `ctx`, `vars`, results of tasks and steps, workload keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from noetl.engine.bodies import Bodies, BodyView, ResultView, collected, is_ref, readable, view
from noetl.engine.state import Data, Frame, State, StepResult, StepRun
from noetl.playbook.model import Guard, Value
from noetl.template import ON_SECRET, UNDEFINED, Budget, Scope, Template


def result_keys(step: str, scope: str) -> Iterator[str]:
    """The keys under which a step's result is looked for, innermost scope first."""
    while scope:
        yield f"{step}@{scope}"
        scope = scope.rpartition("/")[0]
    yield step


class StepResults(Mapping[str, Any]):
    """The results of steps by name, innermost scope first."""

    def __init__(
        self, steps: dict[str, StepResult], scope: str, bodies: Bodies, bound: dict[str, str]
    ) -> None:
        self._steps = steps
        self._scope = scope
        self._bodies = bodies
        self._bound = bound
        """Second names of results, with the step that gave the last one."""

    def _find(self, name: object) -> StepResult | None:
        if not isinstance(name, str):
            return None
        for key in result_keys(self._bound.get(name, name), self._scope):
            found = self._steps.get(key)
            # A step that is open for the first time, or was skipped, has no result to show.
            if found is not None and found.seq:
                return found
        return None

    def __contains__(self, name: object) -> bool:
        return self._find(name) is not None

    def __getitem__(self, name: str) -> ResultView:
        found = self._find(name)
        if found is None:
            raise KeyError(name)
        about: Data = {
            "status": found.status,
            "error": found.error,
            "results": readable(found.results, self._bodies),
            "meta": {"runs": found.runs, "duration_ms": found.duration_ms},
        }
        return ResultView(found.result, about, self._bodies)

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


class TaskResults(Mapping[str, Any]):
    """The results of a pipeline's earlier tasks by label."""

    def __init__(self, results: Data, bodies: Bodies) -> None:
        self._results = results
        self._bodies = bodies

    def __contains__(self, name: object) -> bool:
        return name in self._results

    def __getitem__(self, name: str) -> ResultView:
        return ResultView(self._results[name], {"status": "done"}, self._bodies)

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)


class LastResult(Mapping[str, Any]):
    """The result before a task, or in its rules its own, by the names that cases have for it."""

    NAMES = ("result", "response", "data", "this")

    def __init__(self, result: Any, bodies: Bodies) -> None:  # noqa: ANN401 - plain data
        self._result = result
        self._bodies = bodies

    def __contains__(self, name: object) -> bool:
        return name in self.NAMES

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - plain data
        if name not in self.NAMES:
            raise KeyError(name)
        found = ResultView(self._result, {"status": "done"}, self._bodies)
        return {"data": found} if name == "this" else found

    def __iter__(self) -> Iterator[str]:
        return iter(self.NAMES)

    def __len__(self) -> int:
        return len(self.NAMES)


class Elements(Mapping[str, Any]):
    """The elements of the loops whose items a step run is on the way of, by the names of their iterators."""

    def __init__(self, held: Mapping[str, tuple[Any, int]], bodies: Bodies) -> None:
        """`held`: the elements of each loop, or the reference to them, and the index of the item."""
        self._held = held
        self._bodies = bodies

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - plain data
        items, index = self._held[name]
        return (self._bodies.get(items) if is_ref(items) else items)[index]

    def __contains__(self, name: object) -> bool:
        return name in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


def elements_of(state: State, scope: str) -> dict[str, tuple[Any, int]]:
    """The loops a scope is inside of, by iterator: inner ones hide outer ones."""
    found: dict[str, tuple[Any, int]] = {}
    for part in scope.split("/") if scope else ():
        run_id, _, index = part.rpartition(":")
        run = state.runs.get(run_id)
        if run is not None and run.spread is not None:
            found[run.spread.iterator] = (run.spread.items, int(index))
    return found


class Surroundings:
    """What all templates of one step run have in common."""

    __slots__ = (
        "_fixed",
        "args",
        "bodies",
        "ctx",
        "elements",
        "execution_id",
        "keychain",
        "results",
        "vars",
        "workload",
    )

    def __init__(
        self,
        *,
        execution_id: str,
        workload: Data,
        ctx: Data,
        vars: Data,  # noqa: A002 - the language's word
        args: Data,
        keychain: Mapping[str, Any],
        results: Mapping[str, Any],
        bodies: Bodies,
        elements: Mapping[str, tuple[Any, int]] | None = None,
    ) -> None:
        self.execution_id = execution_id
        self.workload = workload
        self.ctx = ctx
        self.vars = vars
        self.args = args
        self.keychain = keychain
        self.results = results
        self.bodies = bodies
        self.elements = Elements(elements or {}, bodies)
        self._fixed: Data | None = None

    def with_ctx(self, ctx: Data) -> Surroundings:
        """The same with a `ctx` of its own, for a parallel iteration."""
        twin = Surroundings(
            execution_id=self.execution_id,
            workload=self.workload,
            ctx=ctx,
            vars=self.vars,
            args=self.args,
            keychain=self.keychain,
            results=self.results,
            bodies=self.bodies,
        )
        twin.elements = self.elements
        twin._fixed = self._names_but_ctx()
        return twin

    def reserved(self) -> dict[str, Any]:
        return {**self._names_but_ctx(), "ctx": readable(self.ctx, self.bodies)}

    def _names_but_ctx(self) -> Data:
        """They stay what they are while a step runs."""
        if self._fixed is None:
            self._fixed = {
                "workload": readable(self.workload, self.bodies),
                "vars": readable(self.vars, self.bodies),
                "args": readable(self.args, self.bodies),
                # Templates know plain data alone.
                "keychain": dict(self.keychain),
                ON_SECRET: getattr(self.keychain, "on_secret", None),
                "execution_id": self.execution_id,
            }
        return self._fixed

    def boundary(self, event: Data | None) -> Scope:
        """The scope of arcs and admission."""
        names = self.reserved()
        layers = [names["args"], self.elements, names["ctx"], names["vars"], self.results, names["workload"]]
        if event is not None:
            names["event"] = event
        return Scope(names, layers)


def surroundings(
    state: State, run: StepRun, bodies: Bodies, keychain: Mapping[str, Any], bound: dict[str, str]
) -> Surroundings:
    """The surroundings of a step run on the server."""
    return Surroundings(
        execution_id=state.execution_id,
        workload=state.workload,
        ctx=state.ctx,
        vars=state.vars,
        args=run.args,
        keychain=keychain,
        results=StepResults(state.steps, run.scope, bodies, bound),
        bodies=bodies,
        elements=elements_of(state, run.scope),
    )


class Iteration:
    """The loop a pipeline runs in: its element and index, and the loop around it."""

    __slots__ = ("index", "item", "iterator", "outer")

    def __init__(
        self,
        iterator: str,
        item: Any,  # noqa: ANN401 - plain data
        index: int,
        outer: Iteration | None,
        outer_iter: Data,
    ) -> None:
        self.iterator = iterator
        self.item = item
        self.index = index
        self.outer = (outer, outer_iter)


def iter_names(frame: Frame, iteration: Iteration | None) -> Data:
    """What `iter` shows: the scratchpad, the element, the index, and the iteration around."""
    if iteration is None:
        return frame.iter
    outer, outer_iter = iteration.outer
    parent: Data = dict(outer_iter)
    names: Data = {"index": iteration.index, iteration.iterator: iteration.item, **frame.iter}
    if outer is not None or outer_iter:
        names["parent"] = parent
    return names


def iterator_names(iteration: Iteration | None) -> Data:
    """The elements of the loops around, by their bare names; inner ones hide outer ones."""
    names: Data = {}
    while iteration is not None:
        names.setdefault(iteration.iterator, iteration.item)
        iteration = iteration.outer[0]
    return names


def pipeline_scope(
    around: Surroundings,
    frame: Frame,
    iteration: Iteration | None,
    *,
    label: str,
    action_id: str,
    task_args: Data,
    outer_results: Data,
    outcome: Data | None = None,
    shows_last: bool = False,
) -> Scope:
    """The scope of a task's fields and, with an outcome, of its rules.

    `shows_last`: the last result has the names that it has in cases, where nothing else is called so.
    """
    bodies = around.bodies
    names = around.reserved()
    if frame.values:
        names["ctx"] = readable({**around.ctx, **collected(frame.values, bodies)}, bodies)
    scratch = readable(iter_names(frame, iteration), bodies)
    names["iter"] = scratch
    if iteration is not None:
        names["loop_index"] = iteration.index
    names["_prev"] = view(frame.prev, bodies)
    names["_task"] = label
    names["_attempt"] = frame.attempt
    names["_action_id"] = action_id
    if outcome is not None:
        names["outcome"] = readable(outcome, bodies)
    layers = [
        readable(task_args, bodies),
        iterator_names(iteration),
        names["args"],
        around.elements,
        scratch,
        names["ctx"],
        names["vars"],
        TaskResults(frame.results, bodies),
        TaskResults(outer_results, bodies),
        around.results,
        names["workload"],
    ]
    if shows_last and (outcome is not None or frame.last is not None):
        layers.append(LastResult(frame.prev if outcome is None else outcome["result"], bodies))
    return Scope(names, layers)


def with_task_args(scope: Scope, args: Data, bodies: Bodies) -> Scope:
    """The scope of a task's fields once its args are known: they are the first layer."""
    return Scope(scope.reserved, [readable(args, bodies), *scope.layers[1:]])


# --- rendering --------------------------------------------------------------------------------------------


def render(value: Value, scope: Scope, budget: Budget | None = None) -> Any:  # noqa: ANN401 - plain data
    """The data of a value, its templates evaluated. A whole value that is a reference stays one."""
    if isinstance(value, Template):
        stored = stored_value(value, scope)
        return value.evaluate(scope, budget=budget) if stored is None else stored
    if isinstance(value, dict):
        return {name: render_inner(item, scope, budget) for name, item in value.items()}
    if isinstance(value, list):
        return [render_inner(item, scope, budget) for item in value]
    return value


def render_inner(value: Value, scope: Scope, budget: Budget | None = None) -> Any:  # noqa: ANN401 - plain data
    """Like `render`, but references are loaded: they may only stand for whole values."""
    if isinstance(value, Template):
        return value.evaluate(scope, budget=budget)
    if isinstance(value, dict):
        return {name: render_inner(item, scope, budget) for name, item in value.items()}
    if isinstance(value, list):
        return [render_inner(item, scope, budget) for item in value]
    return value


def render_each(values: dict[str, Value], scope: Scope, budget: Budget | None = None) -> Data:
    """The values of a mapping of args or patches."""
    return {name: render(value, scope, budget) for name, value in values.items()}


def stored_value(template: Template, scope: Scope) -> Data | None:
    """The reference a template reads as a whole: `{{ step }}`, `{{ ctx.rows }}`."""
    reads = template.reads
    if len(reads) != 1 or "".join(template.source.split()) != "{{" + ".".join(reads[0].path) + "}}":
        return None
    found: Any = scope.resolve(reads[0].path[0])
    for name in reads[0].path[1:]:
        if isinstance(found, BodyView | ResultView):
            return None
        if isinstance(found, Mapping):
            found = found.get(name, UNDEFINED)
        else:
            return None
    if isinstance(found, BodyView):
        return found.ref
    if isinstance(found, ResultView):
        return found.stored
    return found if is_ref(found) else None


def holds(guard: Guard | None, scope: Scope, budget: Budget | None = None) -> bool:
    """Whether a guard holds; a missing one does."""
    if guard is None:
        return True
    return guard if isinstance(guard, bool) else guard.test(scope, budget=budget)
