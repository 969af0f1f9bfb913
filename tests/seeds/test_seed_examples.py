"""What the older generations' documents show runs in an example, and the reference says what migrates.

The tables of the reference's section on examples are made from the migrator's own answers;
`NOETL_REWRITE_GOLDEN=1 pytest tests/seeds/test_seed_examples.py` writes them anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from noetl.playbook.load import load
from noetl.playbook.migrate import CONSTRUCTS, migrate
from noetl.tools.registry import builtin_kinds
from tests.e2e.generations import GENERATIONS, PLAYBOOKS
from tests.seeds.inventory import PRINTED
from tests.seeds.running import RUNNING
from tests.seeds.test_seed_fragments import FOLDER, read_fragment

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "migrate.md"
OLDER = ("001", "002", "003", "004")
PRINTED_FILES = list(
    dict.fromkeys(file for printed in PRINTED if printed.document in OLDER for file in printed.files)
)
NAMES = {construct.message: name for name, construct in CONSTRUCTS.items()}


def test_every_valid_fragment_of_the_older_generations_runs_in_an_example() -> None:
    valid = {Path(file).stem for file in PRINTED_FILES if read_fragment(file).header["expect"] == "valid"}
    assert RUNNING.keys() == valid


def test_every_example_exists_and_is_of_its_fragments_generation() -> None:
    for fragment, example in RUNNING.items():
        assert f"{example}.yaml" in PLAYBOOKS
        assert example.split("/")[0] == read_fragment(f"{fragment}.yaml").header["dialect"]


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_an_example_is_valid_without_a_warning(playbook: str) -> None:
    loaded = load((GENERATIONS / playbook).read_bytes(), builtin_kinds())
    assert [(each.line, each.code) for each in loaded.diagnostics] == []
    assert loaded.dialect == playbook.split("/")[0]


def in_the_way(path: Path) -> list[str] | None:
    """The constructs that keep a playbook from being migrated; None if it is not valid to begin with."""
    loaded = load(path.read_bytes(), builtin_kinds())
    if loaded.playbook is None:
        return None
    return sorted({NAMES[one.message] for one in migrate(loaded, builtin_kinds()).inexpressible})


def row(path: Path, name: str) -> str:
    link = f"[{name}]({Path(os.path.relpath(path, PAGE.parent)).as_posix()})"
    constructs = in_the_way(path)
    if constructs is None:
        return f"| {link} | – | not valid, so there is nothing to migrate |"
    if not constructs:
        return f"| {link} | yes | |"
    return f"| {link} | no | {', '.join(f'[`{each}`](#{each})' for each in constructs)} |"


def tables() -> str:
    examples = [row(GENERATIONS / name, Path(name).with_suffix("").as_posix()) for name in PLAYBOOKS]
    fragments = [row(FOLDER / name, Path(name).stem) for name in PRINTED_FILES]
    head = "| {} | migrates | in the way |\n|---|---|---|\n{}\n"
    return head.format("example", "\n".join(examples)) + "\n" + head.format("fragment", "\n".join(fragments))


def test_the_reference_says_of_every_example_whether_it_migrates() -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(r"^\| example \|.*?\n\n\| fragment \|.*?(?=\n\n|\Z)", page, re.M | re.S)
    assert found, "the reference has no tables of examples and fragments"
    if os.environ.get("NOETL_REWRITE_GOLDEN"):
        PAGE.write_text(page[: found.start()] + tables().rstrip() + page[found.end() :], encoding="utf-8")
    else:
        assert found[0].splitlines() == tables().splitlines()
