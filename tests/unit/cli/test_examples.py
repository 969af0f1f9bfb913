"""The examples are what they say they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.cli import main
from noetl.playbook.load import load
from noetl.tools.registry import builtin_kinds
from tests.golden.compare import EXAMPLES

FILES = sorted(EXAMPLES.glob("*.yaml"))


def test_there_are_examples_and_all_of_them_pass_strictly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--strict", str(EXAMPLES)]) == 0
    assert f"{len(list(EXAMPLES.rglob('*.yaml')))} files, all valid" in capsys.readouterr().out
    assert len(FILES) >= 5


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_is_canonical_and_says_at_its_head_what_it_shows(file: Path) -> None:
    loaded = load(file.read_bytes(), builtin_kinds())
    assert loaded.dialect == "canonical"
    assert loaded.comments.startswith("# ")
    assert loaded.playbook is not None
    assert loaded.playbook.name == file.stem
