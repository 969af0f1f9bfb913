"""Plays one scenario with its troubles, and once more without, and compares where the language lets it."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from noetl.engine.bodies import is_ref
from noetl.engine.state import State
from noetl.playbook.load import Loaded
from noetl.testing import StalledError
from tests.simulation.cluster import Cluster
from tests.simulation.invariants import Violation, require
from tests.simulation.scenarios import Scenario, draw_scenario
from tests.simulation.world import OneProcess, RunawayError, World, loaded

DISTURBING = ("cancel", "lost leases")
"""Troubles that may change an outcome."""


def simulate(seed: int, folder: Path, tally: Counter[str], *, tell: bool = False) -> str | None:
    """Plays the scenario of a seed; what is wrong with it, or None."""
    return judged(seed, play, folder, tally, tell=tell)


def judged(
    seed: int, by: Callable[..., None], folder: Path, tally: Counter[str], *, tell: bool
) -> str | None:
    """Draws the scenario of a seed and has it played in some way; what is wrong with it, or None."""
    scenario = draw_scenario(random.Random(seed))
    if tell:
        print(yaml.safe_dump(scenario.playbook, sort_keys=False))
        print(scenario._replace(playbook={}))
    try:
        by(scenario, folder, tally, tell=tell)
    except Violation as violation:
        if tell:
            traceback.print_exc()
        return str(violation)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its seed
        if tell:
            traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return None


def world_of(scenario: Scenario, playbook: Loaded, folder: Path, *, undisturbed: bool = False) -> World:
    kind: type[World] = Cluster if scenario.distributed else OneProcess
    return kind(scenario, playbook, folder, undisturbed=undisturbed)


def played(world: World) -> State:
    """The state at the end; a world that comes to none is a violation."""
    try:
        return world.play()
    except StalledError:
        raise Violation("never.stuck", "everything waits") from None
    except RunawayError:
        raise Violation("never.stuck", "it never ends") from None


def tell_of(world: World) -> None:
    for execution_id, watcher in world.watchers.items():
        print("execution", execution_id)
        for event in watcher.events:
            about = (event.step, event.iteration_id, event.task_label, event.attempt)
            print(event.seq, event.timestamp[11:], event.event_type, *about, str(event.payload)[:300])


def play(scenario: Scenario, folder: Path, tally: Counter[str], *, tell: bool = False) -> None:
    playbook = loaded(scenario.playbook)
    if playbook.playbook is None:
        tally["not valid"] += 1
        return
    world = world_of(scenario, playbook, folder)
    try:
        state = played(world)
    finally:
        if tell:
            tell_of(world)
    tally.update(world.tally)
    tally["executions"] += 1
    tally[f"world: {'cluster' if scenario.distributed else 'one process'}"] += 1
    if scenario.racy or any(trouble.kind in DISTURBING for trouble in scenario.troubles):
        return
    if any((found.error or {}).get("kind") == "worker.lost" for found in state.steps.values()):
        return  # one that was given up after three losses may have a way out for that
    if world.tally["not repeated: store.error"]:
        return  # whoever asked for it was told to ask again later
    if scenario.again is not None and _has_branches(scenario):
        return  # what one branch had finished when another failed is taken over: a matter of chance
    tally["compared"] += 1
    calm = OneProcess(scenario, playbook, folder, undisturbed=True)
    calmly = calm.play()
    require_same(scenario, state, calmly)


def _has_branches(scenario: Scenario) -> bool:
    return any(
        step.get("next", {}).get("spec", {}).get("mode") == "inclusive"
        for step in scenario.playbook["workflow"]
    )


def require_same(scenario: Scenario, state: State, calmly: State) -> None:
    """Compares two ends of a scenario whose outcome the language fixes."""
    joins = any("join" in step.get("spec", {}) for step in scenario.playbook["workflow"])
    alone = not joins and not _has_branches(scenario)
    met, meant = _outcome(state, alone=alone), _outcome(calmly, alone=alone)
    require(met == meant, "same.outcome", f"{met} instead of {meant}"[:3000])


def _outcome(state: State, *, alone: bool) -> Any:
    steps = {
        name: (found.status, found.runs, found.result, (found.error or {}).get("kind"))
        for name, found in state.steps.items()
    }
    if state.status != "completed":
        # What else was under way when it failed is a matter of time.
        return state.status
    # Without a step `end`, the result is that of the step which ended last: with branches, whichever it was.
    result = state.result if alone else None
    return _without_places(msgspec.to_builtins((state.status, result, state.ctx, steps)))


def _without_places(value: Any) -> Any:
    """Where a body is stored has the execution's id in it; what it says is what counts."""
    if is_ref(value):
        return {"size": value["size"], "checksum": value["checksum"]}
    if isinstance(value, dict):
        return {name: _without_places(each) for name, each in value.items()}
    return [_without_places(each) for each in value] if isinstance(value, list | tuple) else value
