"""The JSON Schema of what stands under `tool`: tasks of every kind, blocks, pipelines and task policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from noetl.playbook.dialects.loops import MODES
from noetl.playbook.dialects.policies import DIRECTIVES, THEN_KEYS
from noetl.playbook.dialects.tasks import BLOCK_KEYS, HANDLED, MISPLACED, SINK_KEYS, TASK_OWN_KNOBS
from noetl.playbook.fields import REPLACED
from noetl.playbook.knobs import TASK_KNOBS
from noetl.playbook.schema_shapes import (
    Schema,
    choice,
    closed,
    described,
    explained_choice,
    listing,
    mapping_of,
    opened,
    ref,
    refusing,
    templated,
    text,
)
from noetl.records.tool import ToolDescription, field_types

RESULT_STORES: Final = ("auto", "database", "file", "nats_object")

RESULT_SHAPE: Final[Schema] = {
    "type": "object",
    "properties": {
        "inline_max_bytes": templated(
            {
                "description": "Results larger than this are stored and replaced by a reference.",
                "type": "integer",
                "minimum": 0,
            }
        ),
        "store": {
            "description": "Where: a store's name, an `s3://`, `gs://` or `file://` URL, or a mapping.",
            "anyOf": [
                {"enum": list(RESULT_STORES)},
                {"type": "string", "pattern": r"^(s3|gs|file)://"},
                {
                    "type": "object",
                    "properties": {
                        "kind": text("The kind of store."),
                        "bucket": text("The bucket."),
                        "prefix": text("What the names of stored results begin with."),
                    },
                },
                ref("template"),
            ],
        },
        "select": {
            "description": "Fields of the result that are kept beside the reference.",
            "type": ["array", "object", "string"],
        },
    },
}

TASK_KNOB_SHAPES: Final[dict[str, Schema]] = {
    "timeout": ref("duration"),
    "result": RESULT_SHAPE,
    "isolation": {"enum": ["process", "sandbox", "container"]},
    "on_lease_loss": {"enum": ["retry", "fail"]},
    "ok_status": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "array"}]},
    "pool": {"type": "string"},
    "resources": {"type": "object"},
    "sandbox": {"type": "object"},
    "tracing": {},
    "telemetry": {},
    "async": templated({"type": "boolean"}),
}

DIRECTIVE_MEANINGS: Final = {
    "continue": "Go on with the next task.",
    "skip": "Do not run this task; asked before it runs.",
    "retry": "Run this task again.",
    "jump": "Go on with the task labelled `to`.",
    "break": "End the pipeline, or this iteration of it, successfully.",
    "fail": "End the pipeline, or this iteration of it, with a failure.",
}

THEN_SHAPES: Final[dict[str, Schema]] = {
    "do": explained_choice(
        "Where control goes.", {directive: DIRECTIVE_MEANINGS[directive] for directive in DIRECTIVES}
    ),
    "attempts": ref("count", "With `retry`: how often the task runs at most, the first time included."),
    "backoff": choice(
        "With `retry`: how `delay` grows from attempt to attempt.", ("none", "linear", "exponential")
    ),
    "delay": ref("duration", "With `retry`: the wait before the next attempt."),
    "max_delay": ref("duration", "With `retry`: the longest wait."),
    "jitter": {"description": "With `retry`: whether the wait varies at random.", "type": "boolean"},
    "to": text("With `jump`: the label of a task of this pipeline."),
    "set_iter": ref("args", "Values to write to `iter`; they replace whole keys."),
    "set_ctx": ref("args", "Values to write to `ctx`; they replace whole keys."),
}


def task_definitions(kinds: Mapping[str, ToolDescription]) -> dict[str, Schema]:
    found: dict[str, Schema] = {
        "pipeline": {
            "description": "One task or block, or a list of them, best with a label for each.",
            "anyOf": [
                ref("task"),
                ref("block"),
                listing("Tasks and blocks that run in order.", ref("pipeline_entry")),
            ],
        },
        "pipeline_entry": {
            "description": "A task or block, with or without a label.",
            "anyOf": [ref("labelled"), ref("task"), ref("block")],
        },
        "labelled": {
            "description": "A label, and the task or block it names.",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "propertyNames": refusing(("loop", "tool")),
            "additionalProperties": {"type": "object", "anyOf": [ref("task"), ref("block")]},
        },
        "task": _task(kinds),
        "task_spec": opened(
            "The knobs of this task.",
            {**TASK_OWN_KNOBS, **TASK_KNOBS},
            {**TASK_KNOB_SHAPES, "policy": ref("task_policy")},
            kinds,
        ),
        "block": closed(
            "A nested loop: its tasks run for each element inside the current iteration.",
            BLOCK_KEYS,
            {
                "desc": text("What it is for."),
                "loop": ref("loop"),
                "tool": ref("pipeline", "The tasks that run for each element."),
                "spec": ref("layered_spec", "Knobs for all tasks of the block."),
            },
            required=("loop", "tool"),
        ),
        "layered_spec": opened("Knobs for all tasks inside.", TASK_KNOBS, TASK_KNOB_SHAPES, kinds),
        "sink": closed(
            "A task that stores what was produced.",
            SINK_KEYS,
            {"tool": ref("task", "The task that stores it."), "when": ref("guard", "Whether it is stored.")},
            required=("tool",),
        ),
        **_policy_definitions(),
    }
    for kind in kinds:
        found |= _tool_definitions(kinds[kind])
    return found


def _task(kinds: Mapping[str, ToolDescription]) -> Schema:
    shapes = {
        "kind": explained_choice("The kind of tool.", {kind: kinds[kind].summary for kind in kinds}),
        "args": {"description": "Values the tool gets by name; for a table, the row or rows."},
        "timeout": {
            "description": "The same as `spec.timeout`.",
            "anyOf": [ref("duration"), mapping_of("Limits by phase.", ref("duration"))],
        },
        "spec": ref("task_spec"),
    }
    if shapes.keys() != HANDLED:
        raise ValueError("the language handles other keys of a task than the schema has")
    return {
        "description": "One call of a tool.",
        "type": "object",
        "properties": shapes,
        "required": ["kind"],
        "propertyNames": refusing({*REPLACED, *MISPLACED, "when"}),
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": ref(f"tool_{kind}"),
            }
            for kind in kinds
        ],
    }


def _policy_definitions() -> dict[str, Schema]:
    then = closed("What follows.", THEN_KEYS, THEN_SHAPES, required=("do",))
    then["if"] = {"properties": {"do": {"const": "jump"}}, "required": ["do"]}
    then["then"] = {"required": ["to"]}
    return {
        "task_policy": closed(
            "What follows an outcome.",
            ("rules",),
            {
                "rules": listing(
                    "The first that matches decides; `skip` rules are asked before the task runs.",
                    ref("task_rule"),
                )
            },
            required=("rules",),
        ),
        "task_rule": rule("One rule: `when` and `then`, or `else`.", "then", _not_skipped("then")),
        "then": then,
    }


def _not_skipped(definition: str) -> Schema:
    """`skip` under `else` would skip the task always."""
    return {"allOf": [ref(definition), {"properties": {"do": {"not": {"const": "skip"}}}}]}


def rule(description: str, then: str, otherwise: Schema | None = None) -> Schema:
    """A rule in its two forms; `otherwise` is what may stand under `else`, by default the same."""
    fallback = ref(then) if otherwise is None else otherwise
    condition = closed(
        "Decides if its condition holds.",
        ("when", "then"),
        {"when": ref("guard", "The condition."), "then": ref(then, "What follows if it holds.")},
        required=("when", "then"),
    )
    remainder = closed(
        "Decides if no other rule did.",
        ("then",),
        {"then": described("What follows if no other rule matched.", fallback)},
        required=("then",),
    )
    last = closed("The rule for the rest.", ("else",), {"else": remainder}, required=("else",))
    return {"description": description, "anyOf": [condition, last]}


# --- the kinds ---------------------------------------------------------------------------------------


def _tool_definitions(description: ToolDescription) -> dict[str, Schema]:
    """The fields of one kind, and the definitions of the mappings inside them."""
    name = f"tool_{description.kind}"
    fields = field_types(description)
    shapes, components = msgspec.json.schema_components(
        [info.type for info in fields.values()], ref_template=f"#/$defs/{name}_{{name}}"
    )
    properties = {}
    for info, shape in zip(fields.values(), shapes, strict=True):
        own = {"description": info.description, **shape}
        if info.default is not None:
            own["default"] = info.default
        properties[info.name] = templated(own)
    definition: Schema = {"description": description.summary, "properties": properties}
    if required := [info.name for info in fields.values() if info.required]:
        definition["required"] = required
    if demands := _demands(description):
        definition["allOf"] = demands
    if description.kind == "iterator":
        _shape_iterator(definition)
    inner = {f"{name}_{key}": _component(shape) for key, shape in components.items()}
    return {name: definition, **inner}


def _component(shape: Schema) -> Schema:
    """A mapping inside a field: named for its fields, with templates in the place of any value."""
    found: Schema = {key: value for key, value in shape.items() if value and key != "title"}
    found["additionalProperties"] = shape.get("additionalProperties", True)
    found["properties"] = {}
    for name, field in shape["properties"].items():
        kept = {key: value for key, value in field.items() if key != "default" or value is not None}
        found["properties"][name] = templated(kept)
    return found


def _demands(description: ToolDescription) -> list[Schema]:
    """At least one of each group; of two words for one thing only one."""
    demands: list[Schema] = [
        {"anyOf": [{"required": [name]} for name in group]} for group in description.one_of
    ]
    words: dict[str, list[str]] = {}
    for name, same in description.synonyms.items():
        words.setdefault(same, [same]).append(name)
    for group in words.values():
        pairs = [[first, second] for at, first in enumerate(group) for second in group[at + 1 :]]
        demands += [{"not": {"required": pair}} for pair in pairs]
    return demands


def _shape_iterator(definition: Schema) -> None:
    """The language reads an iterator as a block, so its nested task and sink are those of the language."""
    properties = definition["properties"]
    listed: Schema = {"anyOf": [{"type": "array"}, ref("template")]}
    modes: Schema = {"enum": list(MODES)}
    shapes = {"in": listed, "collection": listed, "mode": modes}
    shapes |= {"tool": ref("pipeline"), "task": ref("pipeline"), "save": ref("sink")}
    for name, shape in shapes.items():
        properties[name] = described(properties[name]["description"], shape)
    definition["propertyNames"] = {"enum": ["kind", "spec", *properties]}
