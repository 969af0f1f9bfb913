"""Restarts at every commit: `python -m tests.simulation.restarts`.

A drawn playbook is played once, undisturbed. Then, for each commit of it, everything that runs is gone and
only what was written up to there is left: a fresh world folds the logs again and goes on to the end. It must
end as it did the first time where the language fixes that, and keep every invariant. The events of one commit
are in the log together or not at all, in every store, so between them there is nothing to cut.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from tests.simulation.invariants import Violation
from tests.simulation.many import arguments, play_chosen
from tests.simulation.play import judged, played, require_same, tell_of, world_of
from tests.simulation.scenarios import Scenario
from tests.simulation.stores import Cut, cut_now
from tests.simulation.world import loaded

PLAYER = "tests.simulation.restarts:restart_at_every_commit"


def restart_at_every_commit(
    seed: int, folder: Path, tally: Counter[str], *, tell: bool = False
) -> str | None:
    """Plays the playbook of a seed, and again from each of its commits; what is wrong, or None."""
    return judged(seed, restarted, folder, tally, tell=tell)


def restarted(drawn: Scenario, folder: Path, tally: Counter[str], *, tell: bool = False) -> None:
    scenario = drawn._replace(troubles=(), again=None)
    playbook = loaded(scenario.playbook)
    whole = world_of(scenario, playbook, folder, undisturbed=True)
    cuts: list[Cut] = []
    whole.on_commit = lambda: cuts.append(cut_now(whole.store, whole.clock.elapsed))
    calmly = played(whole)
    tally.update(whole.tally)
    tally["playbooks"] += 1
    tally["executions"] += 1
    for number, cut in enumerate(cuts, start=1):
        rest = world_of(scenario._replace(seed=scenario.seed + number), playbook, folder, undisturbed=True)
        try:
            rest.take_over(cut)
            state = played(rest)
            if not scenario.racy:
                tally["compared"] += 1
                require_same(scenario, state, calmly)
        except Violation as violation:
            raise Violation(violation.invariant, f"after commit {number}: {violation}") from violation
        finally:
            tally["executions"] += 1
            tally["restarts"] += 1
            if tell and sys.exc_info()[0] is not None:
                tell_of(rest)


if __name__ == "__main__":
    sys.exit(
        play_chosen(PLAYER, arguments("python -m tests.simulation.restarts", __doc__, 2_000).parse_args())
    )
