"""The command line starts fast: what it imports, and how long that takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.startup import SMALL_PLAYBOOK, measure

# What no start may pay for that does not need it.
HEAVY = {"argparse", "msgspec", "yaml", "jinja2", "asyncio", "json"}


def imported_by(*arguments: str) -> set[str]:
    code = (
        "import io, sys; out, sys.stdout = sys.stdout, io.StringIO(); from noetl.cli import main; "
        f"assert main({list(arguments)!r}) == 0; loaded = set(sys.modules); sys.stdout = out; "
        "import json; print(json.dumps(sorted(name.partition('.')[0] for name in loaded)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(shown.stdout))


def test_help_imports_none_of_the_language() -> None:
    assert not imported_by("--help") & HEAVY


def test_validating_a_file_of_plain_guards_imports_no_template_engine(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL_PLAYBOOK, encoding="utf-8")
    assert not imported_by("validate", str(file)) & {"jinja2", "asyncio", "json"}


def test_starting_stays_within_its_budgets() -> None:
    # Two tries, so that one slow moment of the machine is no failure; `make bench` measures with care.
    for rounds in (5, 15):
        measured = measure(rounds)
        if all(found.ratio <= found.budget.most for found in measured):
            return
    raise AssertionError(
        [(found.budget.name, round(found.ratio, 2), found.budget.most) for found in measured]
    )
