"""Kills executions in every way the tests and the long campaign need, and checks each one to its end.

Every function gives back how often it killed. What must hold afterwards stands in `verdict.py`.
"""

from __future__ import annotations

import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tests.durability.lives import SHAPES, SPECIAL, Execution
from tests.durability.outside import Outside, Server, outside_server
from tests.durability.verdict import assert_sound

MOST_LIVES = 400


class Undisturbed(NamedTuple):
    outcome: dict[str, Any]
    first: float
    """Seconds from the start of the process to its first commit."""
    whole: float
    """Seconds from the start of the process to its end."""

    def moment(self, part: float) -> float:
        """Where a part of the duration lies; little of it is spent on what comes before the first commit."""
        began = self.first * 0.9
        return began * part * 10 if part < 0.1 else began + (self.whole - began) * (part - 0.1) / 0.9


class Campaign:
    """Executions against one outside server; remembers how each shape ends when nothing disturbs it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._undisturbed: dict[str, Undisturbed] = {}

    def execution(self, name: str) -> Execution:
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._folder))
        shape = (SHAPES | SPECIAL)[name]
        return Execution(shape, folder, Outside(self._server, folder / "journal"))

    def undisturbed(self, name: str) -> Undisturbed:
        known = self._undisturbed.get(name)
        if known is None:
            execution = self.execution(name)
            life, first = execution.live_timed()
            assert life.exit_code == 0, life.stderr
            known = Undisturbed(assert_sound(execution, None), first, life.seconds)
            self._undisturbed[name] = known
        return known

    def at_each_commit(self, name: str, moment: str) -> int:
        """Kills one execution after another, at its first commit, at its second… until one gets through."""
        number = 0
        while True:
            number += 1
            if not self.at_commit(name, number, moment):
                return number - 1

    def at_commit(self, name: str, number: int, moment: str) -> bool:
        """Whether the execution had so many commits, and was killed."""
        execution = self.execution(name)
        life = execution.live_until_commit(number, moment)
        if life.exit_code == 0:
            assert_sound(execution, self.undisturbed(name).outcome)
            return False
        assert life.exit_code == -signal.SIGKILL, life.stderr
        self.to_the_end(execution)
        return True

    def relentlessly(self, name: str, moment: str) -> int:
        """Kills every life as soon as it has come one commit further, or just before the next one."""
        execution = self.execution(name)
        while execution.execution_id is None or not execution.is_over:
            assert len(execution.lives) < MOST_LIVES
            execution.live_until_commit(1 if moment == "after" else 2, moment, "progress")
        assert_sound(execution, self.undisturbed(name).outcome)
        return sum(life.exit_code < 0 for life in execution.lives)

    def at_moments(self, name: str, parts: list[float]) -> int:
        """Kills the lives of an execution after these parts of the undisturbed duration, then lets it end."""
        execution = self.execution(name)
        for part in parts:
            undisturbed = self.undisturbed(name)
            life = execution.live(kill_after=undisturbed.moment(part))
            if life.exit_code >= 0 and len(execution.lives) == 1:
                # The machine has got faster since it was timed.
                share = life.seconds / undisturbed.whole
                faster = undisturbed._replace(first=undisturbed.first * share, whole=life.seconds)
                self._undisturbed[name] = faster
            if execution.execution_id is not None and execution.is_over:
                break
        self.to_the_end(execution)
        return sum(life.exit_code < 0 for life in execution.lives)

    def to_the_end(self, execution: Execution) -> None:
        """Goes on without a disturbance, unless the end was in the log already, and checks everything."""
        if execution.execution_id is None or not execution.is_over:
            life = execution.live()
            assert life.exit_code == 0, life.stderr
        assert_sound(execution, self.undisturbed(execution.shape.name).outcome)


def random_moments(seed: int) -> Iterator[tuple[str, list[float]]]:
    """Which shape to kill when: all shapes in turn, one execution in four killed several times."""
    chance = random.Random(seed)
    names = sorted(SHAPES)
    for number in count():
        parts = [chance.uniform(0.0, 0.95)]
        if number % 4 == 3:
            parts = [chance.uniform(0.0, 0.5) for _ in range(chance.randint(2, 4))]
        yield names[(number * 3) % len(names)], parts


@contextmanager
def campaign(folder: Path) -> Iterator[Campaign]:
    with outside_server() as server:
        yield Campaign(server, folder)
