"""The JSON Schema: itself valid, takes what the language takes, refuses what has another shape."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator

from noetl.playbook import knobs
from noetl.playbook.dialects.policies import DIRECTIVES
from noetl.playbook.dialects.sections import KEYCHAIN_FIELDS
from noetl.playbook.dialects.specs import GROUPS
from noetl.playbook.load import Loaded, load
from noetl.playbook.schema import KEYCHAIN_FIELD_MEANINGS, json_schema
from noetl.playbook.schema_shapes import closed, templated
from noetl.playbook.schema_steps import LOOP_KNOB_SHAPES, STEP_KNOB_SHAPES
from noetl.playbook.schema_tasks import DIRECTIVE_MEANINGS, RESULT_SHAPE, TASK_KNOB_SHAPES
from noetl.records.tool import ToolDescription, field_types
from noetl.tools.registry import builtin_kinds

CASES = Path(__file__).resolve().parents[2] / "conformance" / "cases"
KINDS = builtin_kinds()
SCHEMA = json_schema(KINDS)
VALIDATOR = Draft202012Validator(SCHEMA)


def canonical_cases() -> list[Path]:
    groups = ("canonical", "loops", "errors", "results")
    return [path for group in groups for path in sorted((CASES / group).glob("*.yaml"))]


def problems(document: object) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(document)]


def playbook(step: str, **root: Any) -> dict[str, Any]:
    """A playbook whose only step is `start` with what `step` says in YAML."""
    return {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "p"},
        **root,
        "workflow": [{"step": "start", **yaml.safe_load(step)}],
    }


def loaded(document: dict[str, Any]) -> Loaded:
    """What the checks say of the same document: where only shape matters they agree with the schema."""
    return load(yaml.safe_dump(document).encode(), KINDS)


def test_the_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"].startswith("https://noetl.io/")
    assert SCHEMA["title"] == "NoETL playbook"


@pytest.mark.parametrize("path", canonical_cases(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_playbooks_of_the_conformance_cases_fit(path: Path) -> None:
    case = yaml.safe_load(path.read_text("utf-8"))
    documents = [case["playbook"]]
    documents += [text for name, text in case.get("files", {}).items() if name.endswith(".yaml")]
    for document in documents:
        assert problems(document) == []


@pytest.mark.parametrize(
    "step",
    [
        "{tool: {kind: http, url: 'https://x', timeout: {connect: 1, read: 2}}}",
        "{tool: {kind: http, url: x, redirects: '{{ workload.redirects }}', method: '{{ m }}'}}",
        "{tool: {kind: http, url: x, tls: {verify: '{{ workload.verify }}'}, unknown_field: 1}}",
        "{tool: [{kind: noop}, {two: {kind: noop}}, {loop: {in: [1], iterator: i}, tool: {kind: noop}}]}",
        "{tool: [{b: {loop: {in: '{{ x }}', iterator: i}, tool: [{c: {kind: noop}}]}}]}",
        "{tool: {kind: shell, cmds: [a, '{{ b }}'], spec: {isolation: sandbox, anything: 1}}}",
        "{tool: {kind: transfer, source: {kind: postgres}, target: {kind: s3}, batch_size: '{{ n }}'}}",
        "{tool: {kind: iterator, in: [1], iterator: i, tool: [{a: {kind: noop}}]}}",
        "{spec: {deadline: 5m, limits: {task_runs: 5}, join: {of: [start], mode: any}, http: {timeout: 3}}}",
        "{loop: {in: [], iterator: x, spec: {mode: async, reduce: {n: sum}, timeout: 5, http: {}}}}",
        "{next: {spec: {mode: inclusive}, arcs: [{step: end, when: true, spec: {carry: false}}]}}",
        "{spec: {result: {inline_max_bytes: 10, store: 's3://b/p', select: [a]}}}",
        "{spec: {result: {store: {kind: nats_object, bucket: b}}}}",
    ],
)
def test_what_the_language_allows_fits(step: str) -> None:
    assert problems(playbook(step)) == []
    assert loaded(playbook(step)).valid


@pytest.mark.parametrize(
    "step",
    [
        "{tools: {kind: noop}}",
        "{when: '{{ x }}'}",
        "{tool: {kind: nope}}",
        "{tool: {url: x}}",
        "{tool: {kind: python}}",
        "{tool: {kind: http}}",
        "{tool: {kind: http, url: x, endpoint: x}}",
        "{tool: {kind: http, url: x, payload: 1, data: 2}}",
        "{tool: {kind: http, url: x, method: FETCH}}",
        "{tool: {kind: http, url: x, tls: {verfy: true}}}",
        "{tool: {kind: http, url: x, when: '{{ y }}'}}",
        "{tool: {kind: http, url: x, policy: {rules: []}}}",
        "{tool: {kind: noop, spec: {policy: [{do: retry}]}}}",
        "{tool: {kind: noop, spec: {policy: {rules: [{when: '{{ x }}', then: {attempts: 3}}]}}}}",
        "{tool: {kind: noop, spec: {policy: {rules: [{when: '{{ x }}', then: {do: jump}}]}}}}",
        "{tool: {kind: noop, spec: {policy: {rules: [{when: '{{ x }}', then: {do: again}}]}}}}",
        "{tool: {kind: noop, spec: {policy: {rules: [{when: x, then: {do: fail}}]}}}}",
        "{tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: skip}}}]}}}}",
        "{tool: {kind: noop, spec: {policy: {rules: [{else: {then: {do: fail}}, when: true}]}}}}",
        "{tool: {kind: noop, spec: {isolation: none}}}",
        "{tool: {kind: noop, spec: {timeout: soon}}}",
        "{tool: {kind: noop, spec: {expr: x}}}",
        "{tool: [{a: {kind: noop}, b: {kind: noop}}]}",
        "{tool: [{a: noop}]}",
        "{tool: [{b: {tool: {kind: noop}}}]}",
        "{tool: {kind: iterator, in: [1], iterator: i, tool: {kind: noop}, args: {}}}",
        "{tool: {kind: iterator, in: [1], iterator: i, tool: {kind: nope}}}",
        "{loop: {in: [1]}}",
        "{loop: {in: plain, iterator: i}}",
        "{loop: {in: [1], iterator: 'a b'}}",
        "{loop: {in: [1], iterator: i, mode: parallel}}",
        "{loop: {in: [1], iterator: i, spec: {max_inflight: 3}}}",
        "{loop: {in: [1], iterator: i, spec: {max_in_flight: 0}}}",
        "{loop: {in: [1], iterator: i, spec: {reduce: {n: product}}}}",
        "{next: end}",
        "{next: [{step: end}]}",
        "{next: {arcs: [{to: end}]}}",
        "{next: {arcs: [{step: end, when: plain}]}}",
        "{next: {spec: {mode: all}, arcs: []}}",
        "{next: {spec: {order: 1}, arcs: []}}",
        "{spec: {join: {of: a}}}",
        "{spec: {policy: {admit: {rules: [{when: true, then: {do: fail}}]}}}}",
        "{spec: {policy: {do: fail}}}",
        "{spec: {next_mode: inclusive}}",
        "{case: [{when: '{{ x }}', then: {}}]}",
        "{retry: {max_attempts: 3}}",
        "{vars: {a: 1}}",
        "{sink: {tool: {kind: noop}}}",
    ],
)
def test_what_the_language_refuses_by_its_shape_does_not_fit(step: str) -> None:
    assert problems(playbook(step)) != []
    checked = loaded(playbook(step))
    assert checked.dialect == "v2" or not checked.valid


@pytest.mark.parametrize(
    "root",
    [
        {"vars": {}},
        {"apiVersion": "noetl.io/v1"},
        {"kind": "Workflow"},
        {"metadata": {"path": "p"}},
        {"metadata": {"name": "p", "author": "x"}},
        {"executor": {"credentials": []}},
        {"executor": {"profile": "cloud"}},
        {"keychain": [{"name": "a"}]},
        {"keychain": [{"name": "a", "kind": "env", "path": "x"}]},
        {"keychain": [{"name": "a", "kind": "ldap"}]},
        {"keychain": {"a": {"kind": "env"}}},
        {"workbook": [{"name": "a"}]},
        {"workload": [1]},
    ],
    ids=str,
)
def test_a_root_section_of_another_shape_does_not_fit(root: dict[str, Any]) -> None:
    assert problems(playbook("{}")) == []
    assert problems(playbook("{}", **root)) != []
    assert not loaded(playbook("{}", **root)).valid


@pytest.mark.parametrize("kind", KEYCHAIN_FIELDS)
def test_a_keychain_entry_takes_the_fields_of_its_kind(kind: str) -> None:
    entry = {"name": "a", "kind": kind, "desc": "x", **dict.fromkeys(KEYCHAIN_FIELDS[kind], "v")}
    assert problems(playbook("{}", keychain=[entry])) == []


def properties(schema: object, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property the schema describes, with the way to it; conditions and demands are left out."""
    if isinstance(schema, list):
        for number, each in enumerate(schema):
            yield from properties(each, f"{path}/{number}")
    elif isinstance(schema, dict):
        for key, each in schema.items():
            if key in ("if", "not"):
                continue
            if key == "properties":
                yield from ((f"{path}/{name}", shape) for name, shape in each.items())
                for name, shape in each.items():
                    yield from properties(shape, f"{path}/{name}")
            else:
                yield from properties(each, f"{path}/{key}")


def is_described(shape: dict[str, Any]) -> bool:
    """By its own words, or by those of the definition it refers to."""
    name = shape.get("$ref", "").rpartition("/")[2]
    return bool(shape.get("description") or (name and SCHEMA["$defs"][name]["description"]))


def test_every_key_has_a_description() -> None:
    found = [(path, shape) for path, shape in properties(SCHEMA) if "/allOf/" not in path]
    assert len(found) > 400
    assert [path for path, shape in found if not is_described(shape)] == []


def test_every_definition_has_a_description_and_is_used() -> None:
    text = json.dumps(SCHEMA)
    for name, definition in SCHEMA["$defs"].items():
        assert definition["description"], name
        assert f'"#/$defs/{name}"' in text, name


def test_knobs_are_described_as_in_their_table() -> None:
    definitions = SCHEMA["$defs"]
    scopes = {
        "step": (definitions["step"]["properties"]["spec"], knobs.STEP_KNOBS | knobs.TASK_KNOBS),
        "loop": (definitions["loop"]["properties"]["spec"], knobs.LOOP_KNOBS | knobs.TASK_KNOBS),
        "executor": (definitions["executor"]["properties"]["spec"], knobs.EXECUTOR_KNOBS | knobs.TASK_KNOBS),
        "next": (definitions["next"]["properties"]["spec"], knobs.NEXT_KNOBS),
        "arc": (definitions["arc"]["properties"]["spec"], knobs.ARC_KNOBS),
        "task": (definitions["task_spec"], knobs.TASK_KNOBS),
    }
    for scope, (spec, table) in scopes.items():
        shown = {name: shape["description"] for name, shape in spec["properties"].items() if name in table}
        assert shown == table, scope


def test_tables_beside_the_schema_have_the_words_of_the_language_and_no_others() -> None:
    assert TASK_KNOB_SHAPES.keys() == knobs.TASK_KNOBS.keys()
    assert STEP_KNOB_SHAPES.keys() == knobs.STEP_KNOBS.keys()
    assert LOOP_KNOB_SHAPES.keys() == knobs.LOOP_KNOBS.keys()
    assert DIRECTIVE_MEANINGS.keys() == set(DIRECTIVES)
    assert KEYCHAIN_FIELD_MEANINGS.keys() == frozenset[str]().union(*KEYCHAIN_FIELDS.values())
    assert RESULT_SHAPE["properties"].keys() == GROUPS["result"]


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_fields_of_a_kind_are_in_the_schema(kind: str) -> None:
    shown = SCHEMA["$defs"][f"tool_{kind}"]["properties"]
    for info in field_types(KINDS[kind]).values():
        assert shown[info.name]["description"] == info.description


def test_a_kind_that_is_given_is_part_of_the_schema() -> None:
    class Config(msgspec.Struct, frozen=True, kw_only=True):
        to: Annotated[str, msgspec.Meta(description="Who.")]

    greeting = ToolDescription(kind="greeting", summary="Greets.", config=Config)
    validator = Draft202012Validator(json_schema({"greeting": greeting}))
    assert validator.is_valid(playbook("{tool: {kind: greeting, to: you}}"))
    assert not validator.is_valid(playbook("{tool: {kind: greeting}}"))
    assert not validator.is_valid(playbook("{tool: {kind: http, url: x}}"))


def test_the_schema_is_the_same_text_in_every_process() -> None:
    code = (
        "import json\n"
        "from noetl.playbook.schema import json_schema\n"
        "from noetl.tools.registry import builtin_kinds\n"
        "print(json.dumps(json_schema(builtin_kinds())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert done.stdout.strip() == json.dumps(SCHEMA)


def test_a_key_without_a_shape_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match="b"):
        closed("x", ("a", "b"), {"a": {}})


@pytest.mark.parametrize(
    ("shape", "value", "fits"),
    [
        ({"type": "integer"}, "{{ n }}", True),
        ({"type": "integer"}, "n", False),
        ({"enum": ["a"]}, "{{ n }}", True),
        ({"enum": ["a"]}, "b", False),
        ({"type": "array", "items": {"type": "integer"}}, [1, "{{ n }}"], True),
        ({"type": "array", "items": {"type": "integer"}}, ["n"], False),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "{{ n }}", True),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "n", False),
        (
            {"anyOf": [{"type": "object", "additionalProperties": {"type": "integer"}}]},
            {"a": "{{ n }}"},
            True,
        ),
        ({}, 5, True),
    ],
)
def test_a_template_may_stand_in_the_place_of_a_value(
    shape: dict[str, Any], value: object, fits: bool
) -> None:
    schema = {**templated(shape), "$defs": {"template": SCHEMA["$defs"]["template"]}}
    assert Draft202012Validator(schema).is_valid(value) is fits
