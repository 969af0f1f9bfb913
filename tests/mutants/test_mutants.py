"""The planted bugs fit the tree, the quick ones are noticed, and a bug that nobody notices is told.

`make mutants` tries all of them.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.mutants.planted import (
    ROOT,
    PatchError,
    Planted,
    all_planted,
    copy_tree,
    fits,
    judge,
    planted,
    uses_the_copy,
)

BUGS = all_planted()
FAST = [bug for bug in BUGS if bug.is_fast]
HARMED = "src/noetl/engine/decide.py"
NOTICES = "tests/unit/engine/test_losses.py::test_three_losses_in_a_row_fail_the_step"


def harmless(test: str = NOTICES) -> str:
    """A patch that changes nothing that matters."""
    before = (ROOT / HARMED).read_text("utf-8").splitlines(keepends=True)
    diff = unified_diff(before, [*before, "# a remark\n"], f"a/{HARMED}", f"b/{HARMED}")
    return f"Bug: there is a remark\nCaught-by: {test}\n---\n{''.join(diff)}"


def named(bug: Planted) -> str:
    return bug.name


@pytest.mark.parametrize("bug", BUGS, ids=named)
def test_every_patch_fits_the_tree_and_names_tests_that_exist(bug: Planted) -> None:
    assert fits(bug, ROOT) is None
    for test in bug.caught_by:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}" in (ROOT / file).read_text("utf-8")


def test_the_page_about_reliability_lists_every_bug() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    assert [bug.name for bug in BUGS if f"| `{bug.name}` | {bug.bug} |" not in text] == []


@pytest.mark.parametrize("bug", FAST, ids=named)
def test_a_planted_bug_is_noticed(bug: Planted, tmp_path: Path) -> None:
    assert judge(bug, copy_tree(tmp_path)).problem is None


def test_there_are_bugs_of_every_sort_and_a_few_are_quick() -> None:
    assert len(BUGS) >= 12
    assert 3 <= len(FAST) <= 6


def test_a_change_that_no_test_notices_is_told_and_one_that_does_not_fit_too(tmp_path: Path) -> None:
    remark, tree = planted("remark", harmless()), copy_tree(tmp_path)
    assert uses_the_copy(tree)
    assert "did not notice: there is a remark" in (judge(remark, tree).problem or "")
    (tree / HARMED).write_text("", "utf-8")
    with pytest.raises(PatchError, match="does not fit the tree any more"):
        judge(remark, tree)


def test_tests_that_cannot_be_run_notice_nothing(tmp_path: Path) -> None:
    bug = planted("nowhere", harmless("tests/unit/engine/test_losses.py::test_of_nothing"))
    assert "could not be run" in (judge(bug, copy_tree(tmp_path)).problem or "")


@pytest.mark.parametrize(
    "text",
    ["", "Bug: none\n---\n", harmless().replace("Caught-by", "Seen-by")],
    ids=["empty", "no diff", "key"],
)
def test_a_file_that_is_no_patch_with_a_header_is_refused(text: str) -> None:
    with pytest.raises(PatchError):
        planted("wrong", text)
