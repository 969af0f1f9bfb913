"""The reference of the tools says what the descriptions say, and its examples are valid playbooks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from noetl.playbook.load import load
from noetl.playbook.schema import json_schema
from noetl.records.tool import field_types
from noetl.tools.registry import builtin_kinds

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference" / "tools"
KINDS = builtin_kinds()
VALIDATOR = Draft202012Validator(json_schema(KINDS))
every = pytest.mark.parametrize("kind", list(KINDS))


def page(kind: str) -> str:
    return (FOLDER / f"{kind}.md").read_text("utf-8")


def section(text: str, title: str) -> str:
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    rows = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def examples(text: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


@every
def test_the_page_documents_every_field_and_no_other(kind: str) -> None:
    rows = table(section(page(kind), "Fields"))
    fields = field_types(KINDS[kind])
    assert [row[0] for row in rows] == [f"`{name}`" for name in fields]
    for (_, default, meaning), info in zip(rows, fields.values(), strict=True):
        assert (default == "required") == info.required, info.name
        assert meaning.startswith(info.description), info.name
        for word in info.choices:
            assert f"`{word}`" in meaning


@every
def test_the_page_documents_the_outcome(kind: str) -> None:
    text = section(page(kind), "Outcome")
    group = KINDS[kind].outcome_group
    shown = [row[1] for row in table(text)]
    assert shown == [f"`outcome.{group}.{name}`" for name in KINDS[kind].outcome_fields]


@every
def test_the_page_says_what_the_kind_is_for_and_when_to_retry(kind: str) -> None:
    text = page(kind)
    assert text.startswith(f"# `{kind}`\n\n{KINDS[kind].summary}\n")
    assert section(text, "When it fails").strip()


@every
def test_the_example_is_a_valid_playbook_that_uses_the_kind(kind: str) -> None:
    found = examples(page(kind))
    assert len(found) == 1
    assert f"kind: {kind}" in found[0]
    loaded = load(found[0].encode(), KINDS)
    assert loaded.dialect == "canonical"
    assert loaded.diagnostics == ()


@every
def test_the_example_fits_the_schema(kind: str) -> None:
    yaml = pytest.importorskip("yaml")
    problems = [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(examples(page(kind))[0]))]
    assert problems == []


def test_the_index_links_every_kind_and_every_page_is_linked() -> None:
    index = (FOLDER / "README.md").read_text("utf-8")
    for kind in KINDS:
        assert f"| [`{kind}`]({kind}.md) | {KINDS[kind].summary} |" in index
    pages = {path.stem for path in FOLDER.glob("*.md")} - {"README"}
    assert pages == set(KINDS)
