"""Which step runs of a log led to which, and what an execution comes to without some of them.

A run that is left out takes with it whatever followed from it. The tokens that entered it are on their way
again, as are those that stood at a join. It decides nothing about where to begin.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from noetl.engine.fold import fold
from noetl.engine.state import State
from noetl.records.event import Event

_ENDS: Final = frozenset({"workflow.finished", "execution.cancelled", "playbook.processed"})


class Lineage:
    """The step runs of one log, by their ids."""

    def __init__(self, execution_id: str, events: list[Event]) -> None:
        self._execution_id = execution_id
        self._events = events
        self._parents: dict[str, set[str]] = {}
        self.scheduled: dict[str, Event] = {}
        self.scopes: dict[str, str] = {}
        self.unresolved: dict[str, None] = {}
        """The runs whose branch did not go on: they failed, or had not ended when the execution did."""
        makers: dict[str, tuple[str, str]] = {}
        for event in events:
            if event.event_type == "step.scheduled":
                self._schedule(event, makers)
            elif event.event_type == "next.evaluated":
                for entry in event.payload["selected"]:
                    if "token" in entry:
                        makers[entry["token"]] = (str(event.step_run_id), entry.get("scope", ""))
                # The failure of a step that no arc takes is routed nowhere, and says no boundary.
                if "event" in event.payload and "item" not in event.payload:
                    self.unresolved.pop(str(event.step_run_id), None)

    def _schedule(self, event: Event, makers: dict[str, tuple[str, str]]) -> None:
        run_id, payload = str(event.step_run_id), event.payload
        came = [makers[token] for token in payload["tokens"] if token in makers]
        self.scheduled[run_id] = event
        self.scopes[run_id] = payload.get("scope", came[-1][1] if came else "")
        self._parents[run_id] = {maker for maker, _ in came}
        if "item" in payload:
            self._parents[run_id].add(payload["item"]["run"])
        self.unresolved[run_id] = None

    def runs_of(self, step: str) -> list[str]:
        """The runs of a step in their order; the items of a loop that sends them on are no runs of it."""
        return [
            run_id
            for run_id, event in self.scheduled.items()
            if event.step == step and "item" not in event.payload
        ]

    def around(self, run_id: str) -> str | None:
        """The step of the outermost loop that sent an item into a run."""
        outermost = self.scopes[run_id].partition("/")[0].rpartition(":")[0]
        return self.scheduled[outermost].step if outermost in self.scheduled else None

    def without(self, left_out: Collection[str]) -> State:
        """The execution as it stood before it ended, had these runs not been entered yet."""
        gone = set(left_out)
        state = State(execution_id=self._execution_id)
        for event in self._events:
            run_id = str(event.step_run_id)
            if event.event_type == "step.scheduled" and (run_id in gone or self._parents[run_id] & gone):
                gone.add(run_id)
                _give_back(state, event)
            elif event.event_type not in _ENDS and run_id not in gone:
                _fold_kept(state, event)
        return state


def _give_back(state: State, scheduled: Event) -> None:
    """Leaves the tokens where they are that entered a run; those that a join discarded stay discarded."""
    for token_id in scheduled.payload.get("discarded", ()):
        state.tokens.pop(token_id, None)
    taken = scheduled.payload["tokens"]
    if all(token_id in state.tokens for token_id in taken):
        for token_id in taken:
            state.tokens[token_id].args = scheduled.payload["args"]


def _fold_kept(state: State, event: Event) -> None:
    if event.event_type == "step.skipped" and event.step_run_id is None:
        if not any(token_id in state.tokens for token_id in event.payload.get("tokens", ())):
            return  # what came to it has not come yet
    elif event.event_type == "next.evaluated":
        selected = [
            entry
            for entry in event.payload["selected"]
            # A join that is not entered yet discards nothing.
            if "discarded" not in entry or state.owed.get(entry["step"], {}).get(str(event.step), 0) > 0
        ]
        event = msgspec.structs.replace(event, payload={**event.payload, "selected": selected})
    fold(state, event)
