"""What the writer writes, the reader and the canonical dialect give back unchanged."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from noetl.playbook.emitter import Section, Spaced, emit, scalar
from noetl.playbook.load import load
from noetl.playbook.model import Arc, Block, Parallel, Playbook, Retry, Router, Sink, Step, Target, Task
from noetl.playbook.nodes import plain
from noetl.playbook.reader import read
from noetl.playbook.write import write
from noetl.template import Template
from noetl.tools.registry import builtin_kinds

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "tests" / "conformance" / "cases"


def without_positions(part: Any) -> Any:
    if isinstance(part, msgspec.Struct):
        kept = (name for name in part.__struct_fields__ if name != "at" and not name.endswith("_at"))
        return type(part).__name__, {name: without_positions(getattr(part, name)) for name in kept}
    if isinstance(part, dict):
        return {name: without_positions(value) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [without_positions(value) for value in part]
    return part


def playbook_texts(folder: Path) -> list[str]:
    """The texts of the playbooks of all conformance cases in a folder, child playbooks included."""
    texts: list[str] = []
    for path in sorted(folder.rglob("*.yaml")):
        case = yaml.safe_load(path.read_text())
        texts.append(case.get("text") or yaml.safe_dump(case["playbook"], sort_keys=False))
        for extra in (case.get("files") or {}).values():
            texts.append(extra if isinstance(extra, str) else yaml.safe_dump(extra, sort_keys=False))
    return texts


def canonical_texts() -> list[str]:
    texts = playbook_texts(CASES) + [path.read_text() for path in sorted((ROOT / "examples").rglob("*.yaml"))]
    loaded = [(text, load(text.encode(), builtin_kinds())) for text in texts]
    return [text for text, found in loaded if found.valid and found.dialect == "canonical"]


EVERYTHING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: everything, path: a/everything, description: "on: all", version: "1.0", labels: {team: no}}
keychain: [{name: token, kind: env, var: API_TOKEN}, {name: db, kind: postgres_credential}]
executor:
  profile: distributed
  version: noetl-runtime/2
  spec: {entry_step: first, deadline: 2h, timeout: 30s, http: {timeout: {connect: 10, read: 60}}}
workload:
  text: "12"
  date: 2024-01-01
  octal: 012
  yes_no: [on, no, null, true, 1.5, "", "~"]
  lines: "one\\n  two\\n\\n"
  nested: {deep: {deeper: [{a: "{{ workload.text }}"}, []]}, empty: {}}
workbook:
  - name: store
    desc: Stores a row.
    spec: {timeout: 5}
    tool: {kind: postgres, auth: db, table: rows, args: {id: 1}}
    sink: {tool: {kind: noop}, when: "{{ result is defined }}"}
  - name: each
    loop: {in: [1, 2], iterator: n}
    tool: [{kind: noop}, {named: {kind: noop}}]
workflow:
  - step: first
    desc: "Enters # here"
    spec:
      policy:
        admit: {rules: [{when: "{{ workload.text }}", then: {allow: true}}, {else: {then: {allow: false}}}]}
      join: {of: [second, third], mode: any}
      deadline: 90
      limits: {task_runs: 5}
      on_error: ignore
      timeout: 1.5
    loop:
      in: "{{ workload.yes_no }}"
      iterator: item
      spec:
        mode: parallel
        max_in_flight: "{{ workload.text | int }}"
        batch_size: 2
        on_error: continue
        policy: {exec: local}
        reduce: {total: sum}
        checkpoint: {items: 10, ms: 200}
        timeout: 3
    tool:
      - kind: http
        url: "https://example.com/{{ item }}"
        spec:
          policy:
            rules:
              - when: "{{ workload.dry }}"
                then: {do: skip}
              - when: "{{ outcome.status == 'error' }}"
                then: {do: retry, attempts: 5, backoff: linear, delay: 250ms, max_delay: 1m, jitter: true}
              - when: "{{ outcome.http.status == 404 }}"
                then: {do: jump, to: rooms, set_iter: {page: 2}, set_ctx: {total: 1}}
              - else: {then: {do: continue}}
      - rooms:
          loop: {in: "{{ item }}", iterator: room}
          tool: {kind: python, args: {room: "{{ room }}"}, code: "result = room"}
          spec: {timeout: 2}
      - saved:
          kind: iterator
          collection: "{{ item }}"
          element: part
          mode: parallel
          task: {kind: noop}
          save: {tool: {kind: noop}, when: "{{ result }}"}
    next:
      spec: {mode: inclusive}
      arcs:
        - {step: second, when: "{{ event.name == 'loop.done' }}", args: {a: 1}, spec: {carry: false}}
        - step: third
  - {step: second, next: {arcs: [{step: first}]}}
  - {step: third, tool: {kind: workbook, name: store}, next: {arcs: [{step: first, when: true}]}}
"""


@pytest.mark.parametrize("text", [EVERYTHING, *canonical_texts()])
def test_a_canonical_playbook_written_and_lowered_again_is_the_same(text: str) -> None:
    first = load(text.encode(), builtin_kinds())
    assert first.playbook is not None, first.diagnostics
    written = write(first.playbook)
    second = load(written.encode(), builtin_kinds())
    assert second.playbook is not None, (second.diagnostics, written)
    assert without_positions(second.playbook) == without_positions(first.playbook), written
    assert write(second.playbook) == written


def test_the_text_reads_as_people_write_it() -> None:
    text = dedent(
        """\
        # Fetches a page.
        # Twice a day.
        apiVersion: noetl.io/v2
        kind: Playbook

        metadata:
          name: demo

        workload:
          size: 10

        workflow:
          - step: start
            tool:
              - fetch:
                  kind: http
                  url: https://example.com/a
                  params: { page: "{{ iter.page | default(1) }}", size: 10 }
                  spec:
                    policy:
                      rules:
                        - when: "{{ outcome.status == 'error' }}"
                          then: { do: retry, attempts: 3, delay: 2m }
                        - else:
                            then: { do: continue }
              - count:
                  kind: python
                  args: { rows: "{{ fetch }}" }
                  code: |
                    total = len(rows)
                    result = total
            next:
              arcs:
                - step: end

          - step: end
            tool: { kind: noop }
        """
    )
    found = load(text.encode(), builtin_kinds())
    assert found.playbook is not None
    assert write(found.playbook, found.comments) == text


texts = st.text(
    st.one_of(
        st.sampled_from(" \n\t:#-{}[]'\"&*!|>%@`,?=0189abnoy~.eExs\\\u2028\x85\ufeff\x7f"),
        st.characters(codec="utf-8"),
    ),
    max_size=20,
)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts
)
data = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)


@given(st.dictionaries(texts, data, min_size=1, max_size=4))
def test_the_reader_gives_back_whatever_data_was_emitted(written: dict[str, Any]) -> None:
    document = read(emit(written).encode())
    assert document.diagnostics == []
    assert document.root is not None
    assert plain(document.root) == written


@given(st.dictionaries(texts, data, min_size=1, max_size=4))
def test_sections_and_spaced_lists_hold_the_same_data(written: dict[str, Any]) -> None:
    root = {"a": Section(written), "b": Spaced([Section(written), written, 1])}
    document = read(emit(root).encode())
    assert document.root is not None
    assert plain(document.root) == {"a": written, "b": [written, written, 1]}


@pytest.mark.parametrize("text", ["on", "no", "012", "1:30", "2024-01-01", "a b", "https://x.y/z", "1_000"])
def test_text_that_can_only_be_text_needs_no_quotes(text: str) -> None:
    assert scalar(text) == text


@pytest.mark.parametrize(
    "text", ["12", "-1.5", "true", "null", "~", "", "0x1f", ".inf", "- a", "a: b", "a #b", "{{ x }}"]
)
def test_text_that_could_be_something_else_is_quoted(text: str) -> None:
    assert scalar(text) == f'"{text}"'


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb\n", "k: |\n  a\n  b\n"),
        ("a\nb", "k: |-\n  a\n  b\n"),
        ("a\nb\n\n", "k: |+\n  a\n  b\n\n"),
        ("  a\nb\n", "k: |2\n    a\n  b\n"),
        ("\n\n", 'k: "\\n\\n"\n'),
        ("a\r\nb", 'k: "a\\r\\nb"\n'),
    ],
)
def test_several_lines_become_a_literal_block_where_one_can_hold_them(text: str, lines: str) -> None:
    assert emit({"k": text}) == lines


def _playbook(step: Step) -> Playbook:
    return Playbook(name="a", path="a", dialect="canonical", entry="start", steps=(step,))


NOOP = Task(label="task_1", kind="noop")


@pytest.mark.parametrize(
    "step",
    [
        Step(name="start", args={"a": 1}),
        Step(name="start", vars={"a": 1}),
        Step(name="start", binds="other"),
        Step(name="start", sink=Sink(task=NOOP)),
        Step(name="start", body=(msgspec.structs.replace(NOOP, retry=Retry()),)),
        Step(name="start", body=(msgspec.structs.replace(NOOP, when=Template("{{ a }}")),)),
        Step(name="start", body=(msgspec.structs.replace(NOOP, on_error="continue"),)),
        Step(name="start", body=(Block(label="group", body=(NOOP,)),)),
        Step(name="start", body=(Parallel(label="both", branches=()),)),
        Step(name="start", router=Router(arcs=(Arc(targets=(Target(step="a"), Target(step="b"))),))),
        Step(name="start", router=Router(arcs=(Arc(targets=(Target(step="a"),), when=Template("{{ a }}")),))),
    ],
)
def test_a_model_that_canonical_yaml_cannot_say_is_refused(step: Step) -> None:
    with pytest.raises(TypeError):
        write(_playbook(step))
