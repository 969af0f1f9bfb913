"""What the iterations of a loop that are not run again wrote to `ctx`, so that it counts once more.

Only what comes out as in one whole run is taken over; where that is not sure, it is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from noetl.engine.fold import fold
from noetl.engine.state import Data, State
from noetl.errors import NoetlError
from noetl.playbook.model import Loop
from noetl.records.event import Event

MOST_NOTED_BYTES: Final = 32 * 1024
MOST_NOTED: Final = 100
"""What one iteration wrote to reduced keys must fit into its event: so many values do, however large."""


class CannotRepeatError(NoetlError):
    """The earlier execution does not say where to begin again, or not enough to do so."""

    code = "retry.impossible"


def done_items(events: list[Event], run_id: str) -> dict[int, Any]:
    """The results of the iterations of a run that ended well."""
    return {
        event.iteration: event.payload.get("result")
        for event in events
        if event.event_type == "loop.iteration.done"
        and event.step_run_id == run_id
        and "block" not in event.payload
        and event.iteration is not None
    }


def writes_of_items(
    loop: Loop, execution_id: str, events: list[Event], run_id: str, kept: Collection[int]
) -> dict[int, Data]:
    """What is added to the events of kept iterations: their writes, and how they are combined."""
    found = _Writes(kept)
    state = State(execution_id=execution_id)
    for event in events:
        if event.step_run_id == run_id:
            found.note(state, event)
        fold(state, event)
    found.check(loop)
    reduce = {"reduce": dict(loop.reduce)} if loop.reduce and loop.mode == "parallel" else {}
    return {
        index: {
            "patch": patch,
            **({"reduced": found.reduced[index]} if index in found.reduced else {}),
            **reduce,
        }
        for index, patch in found.patches.items()
        if patch
    }


class _Writes:
    def __init__(self, kept: Collection[int]) -> None:
        self._kept = kept
        self._step = ""
        self._total = 0
        self._parallel = False
        self._reduce: dict[str, str] = {}
        self._gathered: dict[str, None] = {}
        self.patches: dict[int, Data] = {}
        self.reduced: dict[int, dict[str, list[Any]]] = {}

    def note(self, state: State, event: Event) -> None:
        """Looks at an event of the loop's run before it is folded."""
        self._step = str(event.step)
        index = _index(event)
        if event.event_type == "loop.started" and "block" not in event.payload:
            self._total, self._parallel = event.payload["total"], event.payload["mode"] == "parallel"
            self._reduce = event.payload.get("reduce", {})
        if index is None or index not in self._kept:
            return
        if "case" in event.payload:
            self._gathered.update(dict.fromkeys(event.payload.get("then", {}).get("set_ctx", ())))
            for change in event.payload["case"].get("changes", ()):
                self._gathered.update(dict.fromkeys(change[1] if change[0] == "set" else [change[1]]))
        if event.event_type == "loop.iteration.done" and "block" not in event.payload:
            self._end(state, event, index)

    def _end(self, state: State, event: Event, index: int) -> None:
        loop = state.runs[str(event.step_run_id)].loop
        assert loop is not None
        frame = loop.open[index]
        if event.payload.get("reused"):
            self.patches[index] = event.payload.get("patch", {})
            self.reduced[index] = event.payload.get("reduced", {})
        else:
            self.patches[index] = frame.writes
            self.reduced[index] = frame.reduced
        if not self.reduced.get(index):
            self.reduced.pop(index, None)

    def check(self, loop: Loop) -> None:
        """Refuses writes that would not come out as in one whole run."""
        if self._gathered:
            self._refuse(f"gathers values in a case ({_listed(self._gathered)})")
        if any(map(_is_too_much, self.reduced.values())):
            self._refuse("has an item that wrote very many values to reducers")
        written = {key: None for patch in self.patches.values() for key in patch}
        if not written:
            return
        if self._parallel != (loop.mode == "parallel"):
            self._refuse(f"writes to `ctx` ({_listed(written)}), and it ran in another mode then")
        if self._parallel:
            changed = [key for key in written if self._reduce.get(key) != loop.reduce.get(key)]
            if changed:
                self._refuse(f"writes to `ctx` ({_listed(changed)}), and had another reducer for it then")
            return
        first = min((index for index in range(self._total) if index not in self._kept), default=self._total)
        late = {key: None for index, patch in self.patches.items() if index > first for key in patch}
        if late:
            # Those after it have written already, without what it would have written before them.
            self._refuse(f"writes to `ctx` ({_listed(late)}) in the order of its items")

    def _refuse(self, why: str) -> None:
        raise CannotRepeatError(
            f"the loop of step `{self._step}` {why}: with --failed-items that would come out wrong; "
            f"run the whole step again: --from {self._step}"
        )


def _index(event: Event) -> int | None:
    """Of an event inside an iteration of the step's loop, or inside a block there: the index in that loop."""
    path = (event.iteration_id or "").split("/")
    return int(path[1]) if len(path) > 1 and path[1].isdigit() else None


def _is_too_much(noted: dict[str, list[Any]]) -> bool:
    return sum(map(len, noted.values())) > MOST_NOTED and len(msgspec.json.encode(noted)) > MOST_NOTED_BYTES


def _listed(names: Collection[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
