"""Playbooks that are restarted, or cancelled, after each of their commits.

`make restarts` and `make cancels` do the same for as many as one likes.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.cancels import cancel_at_every_commit
from tests.simulation.restarts import restart_at_every_commit
from tests.simulation.scenarios import draw_scenario

EACH = 10


@pytest.mark.parametrize("first", range(0, 50, EACH))
def test_a_restart_after_any_commit_comes_to_the_same_end(first: int, tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    found = {seed: restart_at_every_commit(seed, tmp_path, tally) for seed in range(first, first + EACH)}
    assert {seed: problem for seed, problem in found.items() if problem is not None} == {}
    assert tally["playbooks"] == EACH
    assert tally["restarts"] > 3 * EACH
    assert tally["compared"] > 0


def with_children() -> list[int]:
    """Seeds of playbooks that call another one."""
    return [seed for seed in range(30, 500) if draw_scenario(random.Random(seed)).children][:EACH]


@pytest.mark.parametrize("first", [0, EACH, None], ids=["first", "second", "children"])
def test_a_cancellation_after_any_commit_leaves_nothing_behind(first: int | None, tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    seeds = with_children() if first is None else range(first, first + EACH)
    found = {seed: cancel_at_every_commit(seed, tmp_path, tally) for seed in seeds}
    assert {seed: problem for seed, problem in found.items() if problem is not None} == {}
    assert tally["playbooks"] == EACH
    assert tally["then it was cancelled"] > 3 * EACH
