"""The conformance cases, one test each, against the `noetl` command of this environment.

Only the groups that are built so far run. The cases of a `shared/conformance` folder beside the repository
run too where they differ from ours, so that a case added there is not missed.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.run import Options, find_cases, run_case

ROOT = Path(__file__).resolve().parents[1]
OURS = ROOT / "tests" / "conformance" / "cases"
SHARED = ROOT.parent / "shared" / "conformance" / "cases"

BUILT_GROUPS = ("validation",)

# These cases also run their playbook, which needs the engine. Until it exists only what they expect of
# `validate` is checked; a test below fails as soon as one of them passes whole, and its line must then go.
AWAITING_ENGINE = frozenset(
    {
        "validation/entry_without_start.yaml",
        "validation/no_api_version_canonical.yaml",
        "validation/undefined_end_is_valid.yaml",
    }
)

OPTIONS = Options(noetl=[str(Path(sys.executable).parent / "noetl")])


def built_cases(folder: Path) -> list[str]:
    names = (path.relative_to(folder).as_posix() for path in find_cases(folder, None))
    return [name for name in names if name.split("/")[0] in BUILT_GROUPS]


def cases_that_differ(theirs: Path, ours: Path) -> list[str]:
    """Cases of the built groups that `ours` lacks or holds with another text."""
    if not theirs.is_dir():
        return []
    return [
        name
        for name in built_cases(theirs)
        if not (ours / name).is_file() or (ours / name).read_bytes() != (theirs / name).read_bytes()
    ]


def problems_of(folder: Path, name: str) -> list[str]:
    problems, _ = run_case(folder / name, replace(OPTIONS, validate_only=name in AWAITING_ENGINE))
    return problems


@pytest.mark.parametrize("name", built_cases(OURS))
def test_the_case_passes(name: str) -> None:
    assert (problems := problems_of(OURS, name)) == [], "\n".join(problems)


@pytest.mark.parametrize("name", cases_that_differ(SHARED, OURS))
def test_the_shared_case_that_differs_from_ours_passes(name: str) -> None:
    assert (problems := problems_of(SHARED, name)) == [], "\n".join(problems)


@pytest.mark.parametrize("name", sorted(AWAITING_ENGINE))
def test_a_case_awaits_the_engine_only_while_its_run_fails(name: str) -> None:
    assert name in built_cases(OURS), "the table names a case that is not there"
    problems, _ = run_case(OURS / name, OPTIONS)
    assert problems != [], "the whole case passes: take it out of AWAITING_ENGINE"


def test_every_built_group_has_cases() -> None:
    found = {name.split("/")[0] for name in built_cases(OURS)}
    assert found == set(BUILT_GROUPS)


def test_only_shared_cases_with_another_text_or_name_are_found(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    texts = {"validation/same.yaml": ("a", "a"), "validation/other.yaml": ("a", "b")}
    for name, (our_text, their_text) in texts.items():
        for folder, text in ((ours, our_text), (theirs, their_text)):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    (theirs / "validation" / "added.yaml").write_text("c")
    (theirs / "not_built").mkdir()
    (theirs / "not_built" / "later.yaml").write_text("d")
    assert cases_that_differ(theirs, ours) == ["validation/added.yaml", "validation/other.yaml"]
    assert cases_that_differ(tmp_path / "nowhere", ours) == []


def test_the_runner_passes_its_self_test() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.run", "--self-test"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
