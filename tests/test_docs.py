"""The documentation is complete and true.

Everything a user can name has its entry, every link leads somewhere, whole playbooks in the pages load, and
what a `console` block shows is what the commands print. In such a block a line `…` stands for any number of
lines, and `…` within a line for any text; `ID` in a command is the newest execution of the page. A yaml block
whose fence names a file is that file for the commands on its page.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from noetl import errors
from noetl.cli import VERBS, main
from noetl.cli.environment import INSECURE, LIMITS, NETWORKS, STORE, TEXTS
from noetl.errors import NoetlError
from noetl.playbook import knobs
from noetl.playbook.check.names import LANGUAGE_NAMES
from noetl.playbook.check.scopes import ARCS, EVERYWHERE, MOMENTS, PIPELINE, REPEATS, RULES
from noetl.playbook.dialects import (
    canonical,
    cases,
    loops,
    policies,
    repeats,
    routing,
    sections,
    steps,
    tasks,
    v1,
    v1_tasks,
    v2,
)
from noetl.playbook.load import load
from noetl.records.event import EVENT_TYPES, Event
from noetl.records.outcome import COMMON_FIELDS
from noetl.records.result_ref import ResultRef
from noetl.settings import Settings
from noetl.template.budget import DEFAULT_BYTES, DEFAULT_WORK
from noetl.template.evaluation import MAX_CALL_DEPTH, MAX_RESULT_DEPTH
from noetl.template.list_filters import ALL_FILTERS
from noetl.template.methods import METHODS
from noetl.template.template import MAX_SOURCE_BYTES
from noetl.template.text_filters import TESTS  # importing it completes ALL_FILTERS
from noetl.tools.registry import BUILTIN, builtin_kinds

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```[ ]*$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.M)
OPTION = re.compile(r"(?<![\w-])-{1,2}[A-Za-z][\w-]*")

COMMANDS_RUN = frozenset({"noetl", "sed", "mv", "cat"})
ID = re.compile(r"\bID\b")
SLEEP = re.compile(r"\bsleep \d+")
UNDER_WAY = "until noetl list --status running | grep -q running; do :; done"


class Block(NamedTuple):
    page: Path
    line: int
    info: list[str]
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path) -> Iterator[Block]:
    for found in FENCE.finditer(text_of(page)):
        indent = found["indent"]
        body = "".join(line.removeprefix(indent) for line in found["text"].splitlines(keepends=True))
        yield Block(page, text_of(page).count("\n", 0, found.start()) + 1, found["info"].split(), body)


def prose(page: Path) -> str:
    """The page without its fenced blocks and inline code."""
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text_of(page)))


def every_block(*languages: str) -> list[Block]:
    return [
        block for page in PAGES for block in blocks(page) if block.info[:1] and block.info[0] in languages
    ]


def named(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


# --- everything has its entry -----------------------------------------------------------------------


@cache
def options_of(verb: str) -> frozenset[str]:
    """Every option a verb takes, as its help lists them."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        assert main([verb, "--help"]) == 0
    return frozenset(OPTION.findall(shown.getvalue().partition("example:")[0]))


def section(page: Path, heading: str) -> str:
    """The text from a heading to the next of its level or above."""
    found = re.search(rf"^(#+) {re.escape(heading)}\n", text_of(page), re.M)
    assert found, f"{page.name} has no section `{heading}`"
    rest = text_of(page)[found.end() :]
    return re.split(rf"^#{{1,{len(found[1])}}} ", rest, maxsplit=1, flags=re.M)[0]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_section_that_names_each_of_its_options(verb: str) -> None:
    shown = section(REFERENCE / "cli.md", f"noetl {verb}")
    missing = sorted(o for o in options_of(verb) - {"-h", "--help"} if not re.search(rf"`{o}[ `]", shown))
    assert missing == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_verbs_section_names_no_option_it_does_not_have(verb: str) -> None:
    table = re.findall(r"^\| (`-.*?) \|", section(REFERENCE / "cli.md", f"noetl {verb}"), re.M)
    assert {option for row in table for option in OPTION.findall(row)} <= options_of(verb)


def test_every_setting_has_its_row_with_its_variable() -> None:
    variables = {field: variable for variable, field in (LIMITS | TEXTS | NETWORKS).items()} | {
        "colour": "NO_COLOR",
        "store": STORE,
        "insecure": INSECURE,
    }
    assert set(variables) == set(Settings._fields)
    text = text_of(REFERENCE / "settings.md")
    missing = [field for field in Settings._fields if f"| `{field}` | `{variables[field]}` |" not in text]
    assert missing == []


def test_every_event_type_has_its_row() -> None:
    text = text_of(REFERENCE / "events.md")
    rows = {name for name in EVENT_TYPES if f"\n| `{name}` | " in text}
    assert sorted(EVENT_TYPES.keys() - rows) == []
    for each in EVENT_TYPES.values():
        assert f"| `{each.name}` | {each.entity} | {each.source} | {each.summary} |" in text


def test_every_field_of_the_event_envelope_is_described() -> None:
    text = section(REFERENCE / "events.md", "Envelope")
    assert [field for field in Event.__struct_fields__ if f"`{field}`" not in text] == []


def test_every_builtin_tool_kind_has_a_page_in_the_index() -> None:
    index = text_of(REFERENCE / "tools" / "README.md")
    missing = [kind for kind in BUILTIN if not (REFERENCE / "tools" / f"{kind}.md").is_file()]
    assert missing == []
    assert [kind for kind in BUILTIN if f"({kind}.md)" not in index] == []


def _error_classes(of: type[NoetlError]) -> Iterator[type[NoetlError]]:
    yield of
    for inner in of.__subclasses__():
        yield from _error_classes(inner)


def test_every_error_code_has_its_row() -> None:
    text = text_of(REFERENCE / "errors.md")
    classes = [each for each in _error_classes(NoetlError) if each.__module__ == errors.__name__]
    assert len(classes) > 1
    assert [each.code for each in classes if f"| `{each.code}` | `{each.__name__}` |" not in text] == []


KNOB_TABLES = {
    "executor.spec": knobs.EXECUTOR_KNOBS,
    "step.spec": knobs.STEP_KNOBS,
    "loop.spec": knobs.LOOP_KNOBS,
    "next.spec": knobs.NEXT_KNOBS,
    "arc.spec": knobs.ARC_KNOBS,
}


def test_every_knob_of_a_place_is_in_the_language_reference() -> None:
    text = section(REFERENCE / "language.md", "Knobs and their layers")
    missing = [knob for knob in knobs.TASK_KNOBS if f"\n| `{knob}` | " not in text]
    for place, table in KNOB_TABLES.items():
        rows = "".join(re.findall(rf"^\| `{re.escape(place)}` \| (.*?) \|", text, re.M))
        missing += [f"{place}.{knob}" for knob in table if f"`{knob}`" not in rows]
    assert missing == []


KEY_TABLES = [
    ("language.md", "A playbook", sections.ROOT_KEYS),
    ("language.md", "metadata", sections.METADATA_KEYS),
    ("language.md", "keychain", {"name", "kind", "desc", *sections.KEYCHAIN_FIELDS}),
    ("language.md", "keychain", {key for keys in sections.KEYCHAIN_FIELDS.values() for key in keys}),
    ("language.md", "executor", sections.EXECUTOR_KEYS),
    ("language.md", "workbook", steps.WORKBOOK_KEYS),
    ("language.md", "Steps", canonical.STEP_KEYS),
    ("language.md", "tool: the pipeline", tasks.HANDLED),
    ("language.md", "Task rules", policies.THEN_KEYS),
    ("language.md", "Directives", policies.DIRECTIVES),
    ("language.md", "Loops", {*loops.LOOP_KEYS, *loops.REDUCERS, *loops.CHECKPOINT_KEYS, *loops.MODES}),
    ("language.md", "Loops", knobs.LOOP_KNOBS),
    ("language.md", "Blocks: nested loops", tasks.BLOCK_KEYS),
    ("language.md", "Joins", routing.JOIN_KEYS),
    ("language.md", "Outcomes", COMMON_FIELDS),
    ("language.md", "Large results", ResultRef.__struct_fields__),
    ("dialects.md", "Keys of a v2 step", v2.STEP_KEYS | loops.V2_LOOP_KEYS),
    ("dialects.md", "Case", cases.ENTRY_KEYS),
    ("dialects.md", "Actions", cases.ACTIONS | cases.NAMED_TASK_KEYS),
    ("dialects.md", "Retry and poll", repeats.RETRY_KEYS | repeats.POLL_KEYS),
    ("dialects.md", "v1", v1.ROOT_KEYS | v1.STEP_KEYS | v1.ITERATOR_KEYS | v1.CALL_KEYS),
    ("dialects.md", "v1", v1_tasks.TASK_KEYS | v1_tasks.CALL_KEYS),
]


@pytest.mark.parametrize(("page", "heading", "keys"), KEY_TABLES)
def test_every_key_the_front_ends_read_is_in_the_reference(
    page: str, heading: str, keys: Collection[str]
) -> None:
    words = {
        word
        for code in re.findall(r"`([^`\n]+)`", section(REFERENCE / page, heading))
        for word in re.findall(r"\w+", code)
    }
    assert sorted(set(keys) - words) == []


def test_every_arc_key_is_in_the_reference() -> None:
    text = section(REFERENCE / "language.md", "next: arcs")
    assert [key for key in routing.ARC_KEYS if f"`arc.{key}" not in text] == []


def test_every_reserved_name_is_in_the_table_of_scopes() -> None:
    text = section(REFERENCE / "language.md", "Names in scope")
    reserved = EVERYWHERE | PIPELINE | RULES | ARCS | MOMENTS | REPEATS | LANGUAGE_NAMES
    assert [name for name in sorted(reserved) if f"`{name}`" not in text] == []


def test_every_knob_of_cases_is_in_the_dialect_reference() -> None:
    text = text_of(REFERENCE / "dialects.md")
    assert [knob for knob in knobs.CASE_KNOBS if f"\n| `{knob}` | " not in text] == []


def test_every_filter_and_test_of_templates_is_in_their_reference() -> None:
    page = REFERENCE / "templates.md"
    for names, heading in ((ALL_FILTERS, "Filters"), (TESTS, "Tests")):
        listed = re.findall(r"^\| (`.*?) \|", section(page, heading).replace(r"\|", "/"), re.M)
        shown = {re.sub(r"\(.*", "", name) for row in listed for name in re.findall(r"`([^`]+)`", row)}
        assert shown == set(names)


def test_every_method_of_templates_is_in_their_reference() -> None:
    rows = section(REFERENCE / "templates.md", "Methods")
    for kind, title in ((str, "text"), (list, "lists"), (dict, "mappings")):
        row = re.search(rf"^\| {title} \| (.*) \|$", rows, re.M)
        assert row is not None
        assert set(re.findall(r"`(\w+)`", row[1])) == set(METHODS[kind])


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def test_the_limits_in_the_reference_are_those_of_the_code() -> None:
    limits = section(REFERENCE / "templates.md", "Budgets")
    assert f"{spaced(DEFAULT_WORK)} units" in limits
    assert f"{DEFAULT_BYTES // 2**20} MiB" in limits
    assert f"| {MAX_SOURCE_BYTES // 1024} KiB |" in limits
    assert f"| {MAX_CALL_DEPTH} |" in limits
    assert f"| {MAX_RESULT_DEPTH} levels |" in limits
    shown = text_of(REFERENCE / "settings.md")
    for field, default in Settings._field_defaults.items():
        if isinstance(default, int):
            assert re.search(rf"^\| `{field}` \| `\w+` \| {spaced(default)} \|", shown, re.M), field


def test_every_package_has_a_row_in_the_architecture_page() -> None:
    text = section(DOCS / "architecture.md", "The packages")
    package = ROOT / "src" / "noetl"
    shown = [path.name for path in package.glob("*.py") if not path.name.startswith("_")]
    shown += [f"{path.parent.name}/" for path in package.glob("*/__init__.py")]
    assert [name for name in shown if f"`{name}`" not in text] == []


def test_the_glossary_is_in_order_and_has_each_word_once() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", text_of(DOCS / "glossary.md"), re.M)
    assert words == sorted(set(words))


# --- links ------------------------------------------------------------------------------------------


def slug(heading: str) -> str:
    """The anchor of a heading, as repository hosts make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text_of(page))):
        base = slug(heading)
        name, number = base, 0
        while name in found:
            number += 1
            name = f"{base}-{number}"
        found.add(name)
    return frozenset(found)


@pytest.mark.parametrize("page", PAGES, ids=named(PAGES))
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for found in LINK.finditer(prose(page)):
        target = found["target"]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and (file.suffix != ".md" or anchor not in anchors(file))):
            broken.append(target)
    assert broken == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen = {ROOT / "README.md"}
    waiting = list(seen)
    while waiting:
        page = waiting.pop()
        for found in LINK.finditer(prose(page)):
            file = (page.parent / found["target"].partition("#")[0]).resolve()
            if file.suffix == ".md" and file.is_file() and file not in seen:
                seen.add(file)
                waiting.append(file)
    assert named(sorted(set(PAGES) - seen)) == []


# --- playbooks and commands -------------------------------------------------------------------------


def wrong_on_purpose(page: Path) -> bool:
    """The pages of diagnostics show mistakes; they have a test of their own."""
    return page.relative_to(ROOT).as_posix().startswith("docs/reference/diagnostics")


PLAYBOOKS = [
    block
    for block in every_block("yaml", "yml")
    if re.search(r"^workflow:", block.text, re.M) and not wrong_on_purpose(block.page)
]


@pytest.mark.parametrize("block", PLAYBOOKS, ids=[block.where for block in PLAYBOOKS])
def test_every_whole_playbook_in_the_docs_is_valid(block: Block) -> None:
    loaded = load(block.text.encode(), builtin_kinds())
    errors_found = [found for found in loaded.diagnostics if found.severity == "error"]
    assert errors_found == []


STEP_WORDS = canonical.STEP_KEYS - {"step"}
# What a fragment alone cannot decide: the names, steps and entries of the playbook around it.
UNDECIDED = ("name.", "step.unknown", "workbook.unknown", "join.", "step.idle")


def completed(fragment: dict[str, Any]) -> dict[str, Any] | None:
    """A playbook around a fragment of the language; None where it is of something else."""
    step: dict[str, Any] = {"step": "start", "tool": {"kind": "noop"}}
    root: dict[str, Any] = {}
    if fragment.keys() <= {"spec"} and "rules" in fragment["spec"].get("policy", {}):
        step["tool"] = {"kind": "http", "url": "https://example.com", **fragment}
    elif fragment.keys() <= {"args"}:
        step["tool"] |= fragment
    elif fragment.keys() <= STEP_WORDS:
        step |= fragment
    elif fragment.keys() <= sections.ROOT_KEYS:
        root = fragment
    else:
        return None
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "fragment"}}
    return {**head, **root, "workflow": [step]}


FRAGMENTS = [
    (block, whole)
    for block in every_block("yaml", "yml")
    if not wrong_on_purpose(block.page) and not re.search(r"^workflow:", block.text, re.M)
    if isinstance(parsed := yaml.safe_load(block.text), dict) and (whole := completed(parsed)) is not None
]


def test_the_language_reference_has_fragments_to_check() -> None:
    assert sum(block.page.name == "language.md" for block, _ in FRAGMENTS) >= 8


@pytest.mark.parametrize(("block", "whole"), FRAGMENTS, ids=[block.where for block, _ in FRAGMENTS])
def test_every_fragment_of_the_language_is_valid_in_a_playbook(block: Block, whole: dict[str, Any]) -> None:
    # JSON is YAML, and keeps the texts exactly.
    loaded = load(json.dumps(whole).encode(), builtin_kinds())
    assert [found for found in loaded.diagnostics if not found.code.startswith(UNDECIDED)] == []


def test_the_playbook_in_the_readme_is_the_first_example() -> None:
    shown = [block.text for block in blocks(ROOT / "README.md") if block.info[:1] == ["yaml"]]
    assert shown == [text_of(ROOT / "examples" / "hello.yaml")]


def command_lines(block: Block) -> list[str]:
    """The commands of a block; in a console they follow the prompt."""
    if block.info[0] == "console":
        return [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]
    return [line for line in block.text.splitlines() if line.lstrip() and not line.startswith("#")]


def noetl_words(line: str) -> Iterator[list[str]]:
    """The words of each `noetl` command on a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] | None = None
    for word in lexer:
        if word == "noetl" and words is None:
            words = []
        elif words is not None and re.fullmatch(r"[|&;<>()]+|do|done|then", word):
            yield words
            words = None
        elif words is not None:
            words.append(word)
    if words is not None:
        yield words


SHELL = every_block("console", "sh", "bash", "shell")


@pytest.mark.parametrize("block", SHELL, ids=[block.where for block in SHELL])
def test_every_command_in_the_docs_has_a_verb_and_options_that_exist(block: Block) -> None:
    for line in command_lines(block):
        if "noetl" not in line:
            continue
        for verb, *rest in noetl_words(line):
            if verb in ("--help", "-h", "--version", "-V"):
                continue
            assert verb in VERBS, line
            given = {word.partition("=")[0] for word in rest if OPTION.match(word)}
            assert given <= options_of(verb), line


CONSOLES = sorted({block.page for block in every_block("console")})


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether the lines agree; `…` alone on a line stands for any lines, within one for any text."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else ".*?".join(map(re.escape, line.split("…"))) + r"\n"
        for line in shown
    )
    return re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in printed)) is not None


@pytest.mark.parametrize("page", CONSOLES, ids=named(CONSOLES))
def test_console_blocks_show_what_the_commands_print(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NOETL_")}
    environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80"}
    environment |= {"PYTHONUTF8": "1"}
    for block in blocks(page):
        if block.info[:1] == ["yaml"] and len(block.info) > 1:
            (tmp_path / block.info[1]).write_text(block.text, encoding="utf-8")
        if block.info[:1] != ["console"]:
            continue
        for command, shown in _exchanges(block.text):
            if re.sub(r"^(\w+=\S+ +)+", "", command).split()[0] not in COMMANDS_RUN:
                continue
            if ID.search(command):
                newest = json.loads(_shell("noetl list --json --limit 1", tmp_path, environment))
                command = ID.sub(newest["executions"][0]["execution_id"], command)
            # A reader waits a while for something to be under way; a test waits for that itself.
            printed = _shell(SLEEP.sub(UNDER_WAY, command), tmp_path, environment).splitlines()
            if not matches(shown, printed):
                assert shown == printed, f"{block.where}: {command}"


def _shell(command: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return done.stdout


def _exchanges(text: str) -> Iterator[tuple[str, list[str]]]:
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, *shown = part.splitlines()
        yield command, [line.rstrip() for line in shown]


def test_the_docs_speak_the_names_the_command_line_has() -> None:
    """`noetl --help` and the page of the command line list the same verbs."""
    assert main(["--help"]) == 0
    listed = re.findall(r"^\| \[`(\w+)`\]", text_of(REFERENCE / "cli.md"), re.M)
    assert set(listed) == set(VERBS)
