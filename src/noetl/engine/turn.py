"""One turn of the engine: the facts it leads to, each folded as soon as it is made.

A turn works on the live state. Whoever takes it must append its facts to the log before anything else
may see them, and throw the state away if that fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from noetl.engine.bodies import Bodies
from noetl.engine.facts import Fact, of_playbook, of_step
from noetl.engine.fold import fold
from noetl.engine.leases import command_id
from noetl.engine.limits import StoredBody, fit
from noetl.engine.masking import Mask, masked
from noetl.engine.plan import Plan
from noetl.engine.scope import Surroundings, surroundings
from noetl.engine.state import Data, State, StepRun

RUN_ENDS: Final = frozenset({"step.done", "step.failed", "step.skipped", "loop.done"})
"""Events that end a step run, and with it all its commands."""
MOST_RUNS_IN_A_TURN: Final = 10_000
"""Steps without tools can lead to each other for ever; this many at once are taken for that."""


Wanted: TypeAlias = Literal["add", "free", "hold", "remove"]


class Turn:
    def __init__(
        self,
        plan: Plan,
        state: State,
        now: str,
        bodies: Bodies,
        *,
        keychain: Mapping[str, Any] | None = None,
        mask: Mask | None = None,
        distributed: bool = False,
    ) -> None:
        """`mask` takes the execution's secrets out of data, where there are any.

        `distributed`: a parallel loop is shared out among workers unless its playbook says otherwise.
        """
        self.plan = plan
        self.state = state
        self.now = now
        self.bodies = bodies
        self.keychain = keychain or {}
        self._mask = mask
        self.distributed = distributed
        self.facts: list[Fact] = []
        self.happened: set[str] = set()
        """The types of the facts."""
        self.stored: list[StoredBody] = []
        """Values that were too large for their event."""
        self.reused_items: tuple[str, dict[int, Any]] = ("", {})
        """A loop step, and the results of its iterations that an earlier execution brought to their end."""
        self.reused_writes: Mapping[int, Data] = {}
        """What these iterations wrote to `ctx`, as parts of their events."""
        self.commands: dict[str, Wanted] = {}
        """What becomes of rows of the queue."""

    def emit(self, fact: Fact) -> None:
        if self._mask is not None:
            fact.payload = masked(fact.payload, self._mask)
        self.stored.extend(fit(fact, self.state.execution_id, self.bodies))
        if fact.event_type in RUN_ENDS:
            self._remove_commands(fact)
        fold(self.state, fact)
        self.facts.append(fact)
        self.happened.add(fact.event_type)

    def _remove_commands(self, fact: Fact) -> None:
        run = self.state.runs.get(str(fact.step_run_id))
        if run is not None and "block" not in fact.payload:
            for lease in run.leases:
                self.remove_command(run.run_id, lease)

    def add_command(self, run_id: str, lease: int = 0) -> None:
        """A worker must be given a step run, or its share of one."""
        self.commands[command_id(run_id, lease)] = "add"

    def free_command(self, run_id: str, lease: int = 0) -> None:
        """A worker must be given it again; nobody has it."""
        name = command_id(run_id, lease)
        if self.commands.get(name) != "add":
            self.commands[name] = "free"

    def hold_command(self, run_id: str, lease: int = 0) -> None:
        """Nobody may have it until it is freed."""
        self.commands[command_id(run_id, lease)] = "hold"

    def remove_command(self, run_id: str, lease: int = 0) -> None:
        name = command_id(run_id, lease)
        if self.commands.get(name) == "add":
            del self.commands[name]
        else:
            self.commands[name] = "remove"

    def playbook_event(self, event_type: str, status: Any = "success", **payload: Any) -> None:  # noqa: ANN401
        self.emit(of_playbook(event_type, self.state.execution_id, self.now, status, **payload))

    def step_event(
        self,
        event_type: str,
        step: str,
        run_id: str | None,
        status: Any = "success",  # noqa: ANN401 - one of the four words of events
        **payload: Any,  # noqa: ANN401 - plain data
    ) -> None:
        self.emit(of_step(event_type, self.state.execution_id, self.now, step, run_id, status, **payload))

    def around(self, run: StepRun) -> Surroundings:
        bound = self.plan.bound(self.state.steps)
        return surroundings(self.state, run, self.bodies, self.keychain, bound)

    def token_id(self) -> str:
        return str(self.state.next_token)

    def run_id(self) -> str:
        return f"{self.state.execution_id}.{self.state.next_run}"


def error_data(
    kind: str, message: str, *, step: str | None = None, task: str | None = None, retryable: bool = False
) -> Data:
    return {"kind": kind, "message": message, "step": step, "task": task, "retryable": retryable}
