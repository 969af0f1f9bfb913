"""How somebody may have changed a playbook before an execution of it is repeated."""

from __future__ import annotations

import copy
import random
from typing import Any


def edited(playbook: dict[str, Any]) -> dict[str, Any]:
    """The same playbook with other elements, and perhaps other modes, reducers and joins.

    What is drawn follows from the playbook alone, so that nothing else of the scenario depends on it.
    """
    chance = random.Random(repr(playbook))
    changed = copy.deepcopy(playbook)
    changed["workload"]["numbers"] = [1, 2]
    for step in changed["workflow"]:
        spec = step.get("loop", {}).get("spec") if isinstance(step.get("loop"), dict) else None
        if isinstance(spec, dict) and chance.random() < 0.6:
            _change_loop(spec, chance)
        if isinstance(step.get("spec"), dict) and chance.random() < 0.3:
            step["spec"].pop("join", None)
    return changed


def _change_loop(spec: dict[str, Any], chance: random.Random) -> None:
    if "reduce" in spec and chance.random() < 0.6:
        spec["reduce"] = {**spec["reduce"], "total": "last"}
    else:
        spec["mode"] = "sequential" if spec.get("mode") == "parallel" else "parallel"
