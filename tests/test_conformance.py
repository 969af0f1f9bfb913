"""The conformance cases, one test each, against the `noetl` command of this environment.

Only the groups that are built so far run. The cases of a `shared/conformance` folder beside the repository
run too where they differ from ours, so that a case added there is not missed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.run import Options, find_cases, run_case

ROOT = Path(__file__).resolve().parents[1]
OURS = ROOT / "tests" / "conformance" / "cases"
SHARED = ROOT.parent / "shared" / "conformance" / "cases"

BUILT_GROUPS = ("validation", "canonical", "loops", "errors", "results", "v2", "v1")

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
    problems, _ = run_case(folder / name, OPTIONS)
    return problems


@pytest.mark.parametrize("name", built_cases(OURS))
def test_the_case_passes(name: str) -> None:
    assert (problems := problems_of(OURS, name)) == [], "\n".join(problems)


@pytest.mark.parametrize("name", cases_that_differ(SHARED, OURS))
def test_the_shared_case_that_differs_from_ours_passes(name: str) -> None:
    assert (problems := problems_of(SHARED, name)) == [], "\n".join(problems)


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
