"""The executions that are disturbed: playbooks of every shape, how each is begun and helped along."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.distributed.outside import Outside
from tests.distributed.stack import OWN_PLAYBOOKS, PLAYBOOKS, Stack
from tests.distributed.verdict import Found, Resumed, assert_sound


class Shape(NamedTuple):
    """A playbook, those it calls, and the signals it waits for."""

    name: str
    calls: tuple[str, ...] = ()
    signals: int = 0


SHAPES = (
    Shape("chain"),
    Shape("parallel"),
    Shape("pages"),
    Shape("nested"),
    Shape("branches"),
    Shape("large"),
    Shape("parent", ("child",)),
    Shape("failing_parent", ("slow_child",)),
    Shape("waiting", signals=2),
    Shape("resting"),
)
BY_NAME = {shape.name: shape for shape in SHAPES}


def register(stack: Stack, *names: str) -> None:
    for name in names or tuple(BY_NAME):
        for each in (*BY_NAME[name].calls, name):
            is_own = (OWN_PLAYBOOKS / f"{each}.yaml").exists()
            stack.register(each, folder=OWN_PLAYBOOKS if is_own else PLAYBOOKS)


class Under:
    """Executions that are under way, by id: the name of their shape."""

    def __init__(self, stack: Stack, outside: Outside) -> None:
        self.stack = stack
        self.outside = outside
        self.names: dict[str, str] = {}
        self._begun = 0
        self._signalled: set[str] = set()

    def begin(self, name: str, server: int = 0) -> str:
        # With a key, because the answer may be lost, and the request made again.
        self._begun += 1
        key = f"{name}-{self._begun}-{time.time_ns()}"
        execution_id = self.stack.begin(
            f"durability/{name}", {"api": self.outside.url}, server=server, key=key
        )
        self.names[execution_id] = name
        return execution_id

    def send_signals(self, server: int = 0) -> None:
        """Sends every execution the signals it waits for. One that may not have come is looked for first."""
        for execution_id, name in self.names.items():
            if execution_id in self._signalled:
                continue
            for number in range(1, BY_NAME[name].signals + 1):
                body = {"name": "go", "payload": {"n": number}}
                while self.stack.count("signal.received", execution_id) < number:
                    try:
                        path = f"/api/executions/{execution_id}/signal"
                        self.stack.call("POST", path, body, server=server)
                    except OSError:
                        server = (server + 1) % len(self.stack.servers)
                        # The one that was asked may still be writing it.
                        time.sleep(0.3)
            self._signalled.add(execution_id)

    def keep(self, chance: random.Random, most: int) -> None:
        """Begins executions until so many are under way, and sends those begun before their signals."""
        self.send_signals(chance.randrange(len(self.stack.servers)))
        for _ in range(most - self.stack.open_count(self.names)):
            self.begin(chance.choice(list(BY_NAME)), server=chance.randrange(len(self.stack.servers)))

    def found(self, *others: str, resumed: Sequence[Resumed] = (), seconds: float = 60.0) -> Found:
        """What became of them and of some others when all have ended; all that must be true of them is."""
        self.stack.wait_ended([*self.names, *others], seconds)
        return assert_sound(self.stack, self.outside, [*self.names, *others], resumed=resumed)

    def outcomes(self) -> dict[str, list[dict[str, Any]]]:
        """What they came to, by shape."""
        found = self.found()
        outcomes: dict[str, list[dict[str, Any]]] = {}
        for execution_id, name in self.names.items():
            outcomes.setdefault(name, []).append(found.outcomes[execution_id])
        return outcomes


def undisturbed(stack: Stack, outside: Outside, *names: str) -> dict[str, dict[str, Any]]:
    """What each shape comes to when nothing happens to it; the world outside forgets it afterwards."""
    under = Under(stack, outside)
    for name in names or tuple(BY_NAME):
        under.begin(name)
    under.send_signals()
    found = {name: outcomes[0] for name, outcomes in under.outcomes().items()}
    outside.reset()
    return found
