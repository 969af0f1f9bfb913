"""How long the command line takes to start, as a multiple of a bare `python -c pass` of the same
interpreter.

The commands are run in turns, so that a slow moment of the machine falls on all of them, and medians
are compared. Run it as a script; the exit code is 1 if a budget is exceeded.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SMALL_PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: small}
workload: {limit: 3}
workflow:
  - step: start
    tool:
      kind: python
      args: {limit: "{{ workload.limit }}"}
      code: "result = limit"
    next:
      arcs:
        - {step: report, when: "{{ event.name == 'step.done' }}"}
  - step: report
    tool: {kind: noop}
"""


class Budget(NamedTuple):
    name: str
    arguments: tuple[str, ...]
    most: float
    """Times a bare interpreter."""


BUDGETS = (
    Budget("noetl --help", ("--help",), 3.0),
    Budget("noetl validate FILE", ("validate", "{file}"), 9.0),
)


class Measured(NamedTuple):
    budget: Budget
    bare: float
    median: float

    @property
    def ratio(self) -> float:
        return self.median / self.bare


def console_script() -> Path:
    """The `noetl` that was installed beside this interpreter."""
    return Path(sys.executable).with_name("noetl")


def seconds(command: list[str]) -> float:
    # Compiling our modules anew at each start is not what is measured, so bytecode may be written.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - begun


def measure(rounds: int = 15) -> list[Measured]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "small.yaml"
        file.write_text(SMALL_PLAYBOOK, encoding="utf-8")
        script = str(console_script())
        commands = [[sys.executable, "-c", "pass"]]
        commands += [[script, *(a.format(file=file) for a in budget.arguments)] for budget in BUDGETS]
        for command in commands:  # fills the bytecode and file caches
            seconds(command)
        times: list[list[float]] = [[] for _ in commands]
        for _ in range(rounds):
            for command, taken in zip(commands, times, strict=True):
                taken.append(seconds(command))
    bare, *medians = map(statistics.median, times)
    return [Measured(budget, bare, median) for budget, median in zip(BUDGETS, medians, strict=True)]


def main() -> int:
    measured = measure()
    print(f"{'python -c pass':<24}{measured[0].bare * 1000:8.1f} ms")
    for found in measured:
        shown = f"{found.budget.name:<24}{found.median * 1000:8.1f} ms"
        print(f"{shown}   {found.ratio:5.2f} ×   (at most {found.budget.most:g} ×)")
    return 0 if all(found.ratio <= found.budget.most for found in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
