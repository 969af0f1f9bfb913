"""Every YAML fragment the five seed documents print, completed to a whole playbook, is accepted or refused.

Each file under `fragments/` opens with comment lines that say where it comes from and what must become of
it: `seed`, `expect` (valid or invalid), `dialect`, and where they apply `completed` (what was added to the
printed lines), `note`, `warns` (the codes of all its warnings) and `labels` (those of its first step). In an
invalid one each offending line ends with `# error: CODE`. `seed` ends with "in words: …" where a document
demands something without printing it. `inventory` lists what is printed.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from noetl.playbook.codes import CODES
from noetl.playbook.load import Loaded, load
from noetl.playbook.model import Case, Task
from noetl.tools.registry import builtin_kinds
from tests.seeds.inventory import COUNTED, PRINTED

FOLDER = Path(__file__).parent / "fragments"
NAMES = sorted(path.name for path in FOLDER.iterdir())

HEADER_LINE = re.compile(r"# (\w+): (.+)")
CONTINUATION = re.compile(r"#   (.+)")
EXPECTED_ERROR = re.compile(r"  # error: ([\w.]+)$")
HEADER_KEYS = {"seed", "expect", "dialect", "completed", "note", "warns", "labels"}


class Fragment(NamedTuple):
    """A file with what its comments say of it."""

    text: str
    header: dict[str, str]
    errors: list[tuple[int, str]]
    """Line and code of every error it must give."""

    def listed(self, key: str) -> list[str]:
        return [word.strip() for word in self.header.get(key, "").split(",") if word.strip()]


def read_fragment(name: str) -> Fragment:
    text = (FOLDER / name).read_text(encoding="utf-8")
    header: dict[str, str] = {}
    last = ""
    for line in text.splitlines():
        if found := CONTINUATION.fullmatch(line):
            header[last] += " " + found[1]
        elif found := HEADER_LINE.fullmatch(line):
            last = found[1]
            header[last] = found[2]
        else:
            break
    marked = ((number, EXPECTED_ERROR.search(line)) for number, line in enumerate(text.splitlines(), start=1))
    return Fragment(text, header, [(number, found[1]) for number, found in marked if found])


def load_fragment(fragment: Fragment) -> Loaded:
    return load(fragment.text.encode(), builtin_kinds())


def spoken(loaded: Loaded) -> str:
    """The diagnostics as an assertion's message."""
    return "\n".join(f"{each.line}:{each.column} {each.code}: {each.message}" for each in loaded.diagnostics)


# --- what becomes of each -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_fragment_gives_exactly_the_errors_its_seed_calls_for(name: str) -> None:
    fragment = read_fragment(name)
    loaded = load_fragment(fragment)
    errors = [(each.line, each.code) for each in loaded.diagnostics if each.severity == "error"]
    assert errors == fragment.errors, spoken(loaded)
    assert loaded.valid == (fragment.header["expect"] == "valid")


@pytest.mark.parametrize("name", NAMES)
def test_a_fragment_is_read_in_its_seeds_dialect(name: str) -> None:
    fragment = read_fragment(name)
    assert load_fragment(fragment).dialect == fragment.header["dialect"]


@pytest.mark.parametrize("name", NAMES)
def test_a_fragment_gives_no_warning_but_those_it_names(name: str) -> None:
    fragment = read_fragment(name)
    loaded = load_fragment(fragment)
    warnings = [each.code for each in loaded.diagnostics if each.severity == "warning"]
    assert sorted(warnings) == sorted(fragment.listed("warns")), spoken(loaded)


@pytest.mark.parametrize("name", [name for name in NAMES if read_fragment(name).listed("labels")])
def test_tasks_are_labelled_as_the_seed_says(name: str) -> None:
    fragment = read_fragment(name)
    playbook = load_fragment(fragment).playbook
    assert playbook is not None
    tasks = [node for node in playbook.steps[0].body if isinstance(node, Task)]
    assert [task.label for task in tasks] == fragment.listed("labels")


def test_only_one_example_that_a_seed_prints_as_valid_is_refused() -> None:
    """003 §2.3 reads the iterator in `next.args`, which §1.2 of the same document forbids."""
    contradicted = {
        "002-9.2-conditional-next.yaml": "the seed calls it invalid",
        "003-attributes-3-flat-tool.yaml": "the seed advises against it, then rules it out",
        "004-1.3-run-on-step.yaml": "a production, contradicted by §7",
        "004-1.4.2.1-reference.yaml": "the references of the example, contradicted by §7",
    }
    refused = {
        file
        for printed in PRINTED
        for file in printed.files
        if read_fragment(file).header["expect"] == "invalid"
    }
    assert refused - contradicted.keys() == {"003-2.3-loop-with-args.yaml"}
    assert refused >= contradicted.keys()


def test_both_forms_of_the_migration_guide_mean_the_same_but_for_the_sink() -> None:
    """001 §9: before and after differ in the action that stores, not in where the step goes."""
    targets = []
    for name in ("001-9-before.yaml", "001-9-after.yaml"):
        playbook = load_fragment(read_fragment(name)).playbook
        assert playbook is not None
        (case,) = playbook.steps[0].body
        assert isinstance(case, Case)
        *_, way = case.branches[0].actions
        targets.append([target.step for target in getattr(way, "targets", ())])
    assert targets == [["end"], ["end"]]


# --- nothing is left out ------------------------------------------------------------------------------------


def test_every_printed_fragment_has_a_file_or_a_reason() -> None:
    for printed in PRINTED:
        assert bool(printed.files) != bool(printed.not_a_playbook), printed
        assert [file for file in printed.files if file not in NAMES] == []


def test_as_many_fragments_are_covered_as_the_documents_print() -> None:
    assert Counter(printed.document for printed in PRINTED if printed.files) == COUNTED


def test_no_fragment_is_listed_twice_under_one_heading() -> None:
    headings = Counter((printed.document, printed.section) for printed in PRINTED)
    assert [heading for heading, times in headings.items() if times > 1] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_listed_as_printed_or_says_which_words_it_follows(name: str) -> None:
    seed = read_fragment(name).header["seed"]
    listed = any(name in printed.files for printed in PRINTED)
    assert listed or "in words: " in seed
    assert name[:3] == seed[:3]


@pytest.mark.parametrize("name", NAMES)
def test_a_header_says_what_is_needed_and_nothing_else(name: str) -> None:
    fragment = read_fragment(name)
    header = fragment.header
    assert header.keys() >= {"seed", "expect", "dialect"}
    assert header.keys() <= HEADER_KEYS
    assert header["expect"] in ("valid", "invalid")
    assert bool(fragment.errors) == (header["expect"] == "invalid")
    named = {code for _, code in fragment.errors} | set(fragment.listed("warns"))
    assert named <= CODES.keys()
