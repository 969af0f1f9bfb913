"""A few hundred simulated executions; `make simulate` plays as many as one likes.

Those with a number are what `make simulate` plays too; the others are drawn by hypothesis, which looks for
the smallest scenario that breaks an invariant.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.simulation.invariants import INVARIANTS, Violation, Watcher
from tests.simulation.play import play, simulate
from tests.simulation.scenarios import TROUBLES, Trouble, draw_scenario
from tests.simulation.world import loaded

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("first", range(0, 500, 25))
def test_simulated_executions_keep_every_invariant(
    first: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tally: Counter[str] = Counter()
    found = {seed: simulate(seed, tmp_path, tally) for seed in range(first, first + 25)}
    assert {seed: problem for seed, problem in found.items() if problem is not None} == {}
    assert tally["executions"] == 25
    gc.collect()
    assert [text for text in caplog.messages if "never retrieved" in text] == []


@pytest.mark.parametrize("seed", [1696, 5723, 8916, 29348])
def test_what_the_long_run_found_once_is_not_found_again(seed: int, tmp_path: Path) -> None:
    """A lease over inside a tool was an outcome; a resume was lost; `vars.set` with a start counted twice."""
    assert simulate(seed, tmp_path, Counter()) is None


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[*HealthCheck],
)
@given(chance=st.randoms(use_true_random=False))
def test_no_drawn_scenario_breaks_an_invariant(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random
) -> None:
    scenario = draw_scenario(chance)
    note(yaml.safe_dump(scenario.playbook, sort_keys=False))
    note(str(scenario._replace(playbook={})))
    play(scenario, tmp_path_factory.getbasetemp(), Counter())


def test_a_seed_gives_the_same_execution_every_time(tmp_path: Path) -> None:
    first: Counter[str] = Counter()
    second: Counter[str] = Counter()
    for seed in range(300, 320):
        assert simulate(seed, tmp_path, first) == simulate(seed, tmp_path, second)
    assert first == second


def test_every_drawn_playbook_is_valid_and_every_trouble_is_drawn() -> None:
    drawn = [draw_scenario(random.Random(seed)) for seed in range(150)]
    assert all(loaded(scenario.playbook).playbook is not None for scenario in drawn)
    assert {trouble.kind for scenario in drawn for trouble in scenario.troubles} == set(TROUBLES)


def test_loops_are_really_shared_out_and_waits_really_parked(tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    for seed in range(400, 480):
        simulate(seed, tmp_path, tally)
    occurred = {name for name, count in tally.items() if count}
    assert "loops under several leases at once" in occurred
    assert {"park: back by time", "park: back by signal", "world: cluster", "world: one process"} <= occurred


FAULTS = (
    "blip before commit",
    "blip after commit",
    "slow commit",
    "slow answer to a commit",
    "duplicate commit",
    "stale reads",
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_that_fails_again_and_again_breaks_nothing(fault: str, tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    often = tuple(Trouble(fault, commit) for commit in range(1, 40, 3))
    pauses = tuple(Trouble("pause", commit) for commit in range(2, 20, 3))
    others = (*pauses, Trouble("worker dies", 8))
    for seed in range(8, 20):
        scenario = draw_scenario(random.Random(seed))
        play(scenario._replace(troubles=often + others, distributed=True), tmp_path, tally)
    told = {"stale reads": "stale read"}.get(fault, fault)
    assert tally[f"trouble: {told}"] > 20


def test_the_page_about_the_engine_names_every_invariant() -> None:
    text = (ROOT / "docs" / "engine.md").read_text("utf-8")
    assert [name for name in INVARIANTS if f"`{name}`" not in text] == []


def test_a_watcher_sees_a_call_that_is_made_again_after_it_was_done() -> None:
    watcher = Watcher(Counter(), random.Random(0))
    watcher.note_done("action", 1)
    with pytest.raises(Violation, match=r"done\.is\.done"):
        watcher.note_call("action", 1, "step/task")
    watcher.note_call("action", 2, "step/task")
    with pytest.raises(Violation, match=r"calls\.bounded"):
        watcher.note_call("action", 2, "step/task")
