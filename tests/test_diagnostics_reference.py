"""The reference of diagnostic codes and the catalogue agree, and every example does what its page says.

The pages stand in `docs/reference/diagnostics/`. An example marked `yaml bad` must give the code at the line
marked `# <- here`, and no other error; one marked `yaml good` must be valid without it. Input that Markdown
cannot hold is built here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from noetl.playbook.codes import CODES
from noetl.playbook.diagnostics import Diagnostic
from noetl.playbook.load import load
from noetl.playbook.migrate import migrate
from noetl.tools.registry import builtin_kinds

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
PAGES = sorted((REFERENCE / "diagnostics").glob("*.md"))
MARK = "# <- here"
MIGRATION = "migrate.inexpressible"
HEAD = b"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: demo}\n"
FLOW = b"workflow: [{step: start, tool: {kind: noop}}]\n"

BUILT = {
    "yaml.encoding": (HEAD + b"# caf\xe9\n" + FLOW, 4),
    "yaml.too_large": (HEAD + b"workload: {text: '" + b"x" * 1_100_000 + b"'}\n" + FLOW, 1),
    "yaml.too_deep": (HEAD + b"workload: " + b"{a: " * 70 + b"1" + b"}" * 70 + b"\n" + FLOW, 4),
    "yaml.too_many_nodes": (
        HEAD
        + b"workload:\n  a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
        + b"".join(
            f"  {name}: &{name} [{', '.join(['*' + before] * 10)}]\n".encode()
            for before, name in zip("abcde", "bcdef", strict=True)
        )
        + FLOW,
        9,
    ),
}
"""Input that cannot stand in a page, and the line at which its code is reported."""


class Entry(NamedTuple):
    page: str
    code: str
    severity: str
    text: str

    def examples(self, kind: str) -> list[str]:
        return re.findall(rf"^```yaml {kind}\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)


def read_entries() -> list[Entry]:
    entries = []
    for page in PAGES:
        for part in re.split(r"^## ", page.read_text("utf-8"), flags=re.MULTILINE)[1:]:
            heading = re.match(r"`([\w.]+)`\n\nSeverity: \*\*(error|warning)\*\*\n", part)
            assert heading is not None, (
                f"{page.name}: an entry begins with its code and severity: {part[:40]!r}"
            )
            entries.append(Entry(page.name, heading[1], heading[2], part))
    return entries


ENTRIES = read_entries()
BY_CODE = {entry.code: entry for entry in ENTRIES}
CHECKED = [entry for entry in ENTRIES if entry.code != MIGRATION]


def by_code(entry: Entry) -> str:
    return entry.code


def marked_line(example: str) -> int:
    lines = [number for number, line in enumerate(example.splitlines(), 1) if line.endswith(MARK)]
    assert len(lines) == 1, "a bad example marks exactly one line"
    return lines[0]


def diagnose(text: str) -> tuple[Diagnostic, ...]:
    return load(text.encode(), builtin_kinds()).diagnostics


def test_every_code_has_exactly_one_entry_and_every_entry_a_code() -> None:
    documented = [entry.code for entry in ENTRIES]
    assert len(documented) == len(set(documented))
    assert set(documented) == set(CODES)


def test_every_entry_has_the_severity_of_the_catalogue() -> None:
    assert {entry.code: entry.severity for entry in ENTRIES} == {
        code: known.severity for code, known in CODES.items()
    }


@pytest.mark.parametrize("entry", ENTRIES, ids=by_code)
def test_an_entry_explains_itself_and_has_both_examples(entry: Entry) -> None:
    prose = re.sub(r"^```.*?^```$", "", entry.text, flags=re.MULTILINE | re.DOTALL).split("\n\n")[2]
    assert prose.strip().endswith((".", "…`."))
    assert len(entry.examples("good")) == 1
    assert len(entry.examples("bad")) == (0 if entry.code in BUILT else 1)


@pytest.mark.parametrize("entry", [e for e in CHECKED if e.code not in BUILT], ids=by_code)
def test_the_bad_example_gives_the_code_at_the_marked_line(entry: Entry) -> None:
    (example,) = entry.examples("bad")
    found = diagnose(example)
    assert (entry.code, marked_line(example)) in [(one.code, one.line) for one in found]
    assert {one.code for one in found if one.severity == "error"} <= {entry.code}


@pytest.mark.parametrize("code", BUILT)
def test_the_built_bad_input_gives_the_code(code: str) -> None:
    data, line = BUILT[code]
    found = load(data, builtin_kinds()).diagnostics
    assert [(one.code, one.line) for one in found] == [(code, line)]


@pytest.mark.parametrize("entry", CHECKED, ids=by_code)
def test_the_good_example_is_valid_and_does_not_give_the_code(entry: Entry) -> None:
    (example,) = entry.examples("good")
    loaded = load(example.encode(), builtin_kinds())
    assert loaded.valid, loaded.diagnostics
    assert entry.code not in {one.code for one in loaded.diagnostics}


def test_the_examples_of_the_migration_are_judged_by_the_migration() -> None:
    (bad,), (good,) = (BY_CODE[MIGRATION].examples(kind) for kind in ("bad", "good"))
    found = migrate(load(bad.encode(), builtin_kinds()), builtin_kinds()).inexpressible
    assert (MIGRATION, marked_line(bad)) in [(one.code, one.line) for one in found]
    assert {one.code for one in found} == {MIGRATION}
    migrated = migrate(load(good.encode(), builtin_kinds()), builtin_kinds())
    assert migrated.inexpressible == ()
    assert migrated.text is not None


def test_the_index_lists_every_code_with_its_severity_and_meaning_and_links_to_its_entry() -> None:
    index = (REFERENCE / "diagnostics.md").read_text("utf-8")
    rows = re.findall(
        r"^\| \[`([\w.]+)`\]\(diagnostics/(\w+\.md)#(\w+)\) \| (\w+) \| (.*) \|$", index, re.MULTILINE
    )
    assert rows == [
        (code, BY_CODE[code].page, code.lower().replace(".", ""), CODES[code].severity, CODES[code].summary)
        for code, *_ in rows
    ]
    assert {code for code, *_ in rows} == set(CODES)
