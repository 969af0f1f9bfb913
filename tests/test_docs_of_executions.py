"""What the documentation says about executions is what the engine does.

Which tool kinds run, what the payloads of events hold, and every kind of failure an execution can show.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

from noetl.cli import main
from noetl.errors import NoetlError
from noetl.records.event import EVENT_TYPES
from noetl.tools.registry import BUILTIN, runnable
from tests.gates.source import parsed
from tests.test_docs import REFERENCE, ROOT, every_block, section, text_of

LOWERED = frozenset({"workbook", "iterator"})
"""Kinds that run without a `run` of their own: the engine knows what they stand for."""


def runs(kind: str) -> bool:
    try:
        runnable(kind)
    except NoetlError:
        return kind in LOWERED
    return True


@pytest.mark.parametrize("kind", BUILTIN)
def test_a_kind_that_only_validates_says_so_on_its_page_and_in_the_lists(kind: str) -> None:
    assert ("**Validates, does not run yet.**" in text_of(REFERENCE / "tools" / f"{kind}.md")) != runs(kind)
    for page, listed in (
        (REFERENCE / "tools" / "README.md", r"these run: ([^.]*)\."),
        (ROOT / "CHANGELOG.md", r"Kinds that run: ([^.]*)\."),
    ):
        found = re.search(listed, text_of(page))
        assert found
        assert (f"`{kind}`" in found[1]) == runs(kind)


def payload_rows() -> dict[str, str]:
    """What the page of events says about the payload of each type."""
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", section(REFERENCE / "events.md", "Payloads"), re.M)
    return dict(rows)


def test_every_event_type_has_its_payload_described() -> None:
    text = section(REFERENCE / "events.md", "Payloads")
    assert sorted(name for name in EVENT_TYPES if f"`{name}`" not in text) == []


OLDER = [block for block in every_block("yaml") if block.page.name == "older-playbooks.md"]


@pytest.mark.parametrize(
    "playbook",
    [text_of(ROOT / "examples" / "nested_loops.yaml"), *(block.text for block in OLDER)],
    ids=["nested_loops", *(block.info[1] for block in OLDER)],
)
def test_the_payloads_of_a_real_run_are_as_described(playbook: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    (tmp_path / "playbook.yaml").write_text(playbook, encoding="utf-8")
    options = ["--store", "sqlite:///:memory:", "--events", str(log), "--json"]
    assert main(["run", str(tmp_path / "playbook.yaml"), *options]) == 0
    rows = payload_rows()
    events = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert len(events) > 20
    for event in events:
        described = re.findall(r"\w+", rows.get(event["event_type"], ""))
        assert sorted(event["payload"].keys() - set(described)) == [], event["event_type"]


DOTTED = re.compile(r"[a-z_]+\.[a-z_]+")
NOT_KINDS = {
    # the moments of a case, keys of shared things, fields of a config, modules, files, audit events
    *("call.done", "call.error", "step.enter", "step.exit"),
    *("http.policy", "http.session", "python.pool", "auth.headers", "source.query", "queries.sql"),
    *("collections.abc", "noetl.tools", "noetl.worker", "psycopg.pool"),
    *("host.conf", "mime.types", "nsswitch.conf", "resolv.conf"),
    *("os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn"),
}
UNDOTTED_KINDS = {"timeout", "deadline", "playbook.failed", "playbook.cancelled"}
"""Kinds that are no dotted text in the source: two without a dot, two that are put together."""
SPEAKING = ("engine", "worker", "control", "tools", "secrets", "results", "store", "embedded.py", "errors.py")
"""The parts whose failures an execution can show."""


@cache
def dotted_texts() -> frozenset[str]:
    """Every text of the source that looks like a kind of failure."""
    found: set[str] = set()
    for part in SPEAKING:
        place = ROOT / "src" / "noetl" / part
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            for node in ast.walk(parsed(file.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found |= {node.value} if DOTTED.fullmatch(node.value) else set()
    return frozenset(found - EVENT_TYPES.keys() - NOT_KINDS)


def test_every_kind_of_failure_the_source_can_give_is_explained() -> None:
    text = text_of(REFERENCE / "errors.md")
    assert sorted(kind for kind in dotted_texts() | UNDOTTED_KINDS if f"`{kind}`" not in text) == []


def test_no_kind_of_failure_is_explained_that_nothing_gives() -> None:
    rows = re.findall(r"^\| (`.*?) \|", section(REFERENCE / "errors.md", "Kinds of failure"), re.M)
    explained = {kind for row in rows for kind in re.findall(r"`([^`]+)`", row)}
    assert len(explained) > 50
    assert sorted(explained - dotted_texts() - UNDOTTED_KINDS - {"execution.cancelled"}) == []
