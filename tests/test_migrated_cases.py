"""Every v1 and v2 conformance case that can be migrated behaves the same in canonical form.

The case is run again with its playbook migrated: result, ctx, exit code and HTTP traffic must still be what
the case expects. Events and steps may differ, since canonical says some things with more tasks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from noetl.playbook.load import load
from noetl.playbook.migrate import migrate
from noetl.tools.registry import builtin_kinds
from tests.conformance.run import Options, run_case, to_yaml

CASES = Path(__file__).parent / "conformance" / "cases"
OPTIONS = Options(noetl=[str(Path(sys.executable).parent / "noetl")])
KEPT = ("exit", "status", "result", "ctx", "http", "requests", "max_concurrent_http", "min_concurrent_http")

LEAST = 27
"""How many of the cases can be migrated: the number may only grow."""


def migrated() -> dict[str, dict[str, Any]]:
    """The cases that can be, with their playbook in canonical form."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted([*(CASES / "v1").glob("*.yaml"), *(CASES / "v2").glob("*.yaml")]):
        case = yaml.safe_load(path.read_text("utf-8"))
        text = case.pop("text") if "text" in case else to_yaml(case.pop("playbook"))
        loaded = load(text.encode(), builtin_kinds())
        assert loaded.playbook is not None, path
        canonical = migrate(loaded, builtin_kinds()).text
        if canonical is not None:
            expected = {key: value for key, value in case["expect"].items() if key in KEPT}
            found[path.relative_to(CASES).as_posix()] = {**case, "text": canonical, "expect": expected}
    return found


MIGRATED = migrated()


def test_no_fewer_cases_than_before_can_be_migrated() -> None:
    assert len(MIGRATED) >= LEAST


@pytest.mark.parametrize("name", sorted(MIGRATED))
def test_a_migrated_case_behaves_the_same(name: str, tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(yaml.safe_dump(MIGRATED[name], sort_keys=False, allow_unicode=True), "utf-8")
    problems, stderr = run_case(path, OPTIONS)
    assert problems == [], "\n".join([*problems, stderr, MIGRATED[name]["text"]])
