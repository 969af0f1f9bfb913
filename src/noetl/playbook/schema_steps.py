"""The JSON Schema of steps: admission, joins, loops, and the arcs that lead on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from noetl.playbook.dialects.canonical import STEP_KEYS
from noetl.playbook.dialects.loops import CHECKPOINT_KEYS, LOOP_KEYS, MODES, REDUCERS
from noetl.playbook.dialects.routing import ARC_KEYS, JOIN_KEYS
from noetl.playbook.dialects.steps import WORKBOOK_KEYS
from noetl.playbook.knobs import ARC_KNOBS, LOOP_KNOBS, NEXT_KNOBS, STEP_KNOBS, TASK_KNOBS
from noetl.playbook.schema_shapes import (
    Schema,
    choice,
    closed,
    listing,
    mapping_of,
    opened,
    ref,
    refusing,
    spec_properties,
    text,
)
from noetl.playbook.schema_tasks import TASK_KNOB_SHAPES, rule

STEP_KNOB_SHAPES: Final[dict[str, Schema]] = {
    "deadline": ref("duration"),
    "policy": {
        "type": "object",
        "properties": {"admit": ref("admission")},
        "propertyNames": refusing(("do",)),
    },
    "join": ref("join"),
    "limits": {
        "type": "object",
        "properties": {"task_runs": ref("count", "How many tasks one pipeline may run.")},
    },
    "on_error": {"enum": ["fail", "ignore"]},
}

LOOP_KNOB_SHAPES: Final[dict[str, Schema]] = {
    "mode": {"enum": list(MODES)},
    "max_in_flight": ref("count"),
    "batch_size": ref("count"),
    "on_error": {"enum": ["fail", "continue"]},
    "policy": {
        "type": "object",
        "properties": {"exec": choice("Where the iterations run.", ("local", "distributed"))},
        "propertyNames": refusing(("do",)),
    },
    "reduce": {"type": "object", "additionalProperties": {"enum": list(REDUCERS)}},
    "checkpoint": closed(
        "How much finished work may go unrecorded.",
        CHECKPOINT_KEYS,
        {"items": ref("count", "How many iterations."), "ms": ref("count", "For how many milliseconds.")},
    ),
}


def step_definitions(kinds: Iterable[str]) -> dict[str, Schema]:
    names = list(kinds)
    return {
        "step": closed(
            "A step: what runs when a token arrives, and where tokens go from it.",
            STEP_KEYS,
            {
                "step": text("Its name; templates read its result by it."),
                "desc": text("What it is for."),
                "spec": opened(
                    "The step's knobs, and knobs for all its tasks.",
                    {**STEP_KNOBS, **TASK_KNOBS},
                    {**TASK_KNOB_SHAPES, **STEP_KNOB_SHAPES},
                    names,
                ),
                "loop": ref("loop"),
                "tool": ref("pipeline", "What the step runs."),
                "next": ref("next"),
            },
            required=("step",),
        ),
        "workbook_entry": closed(
            "A task, pipeline or block with a name, run by tasks of kind `workbook`.",
            WORKBOOK_KEYS,
            {
                "name": text("The name that tasks of kind `workbook` give."),
                "desc": text("What it is for."),
                "tool": ref("pipeline", "What it runs; the caller's `args` are in scope."),
                "loop": ref("loop"),
                "spec": ref("layered_spec"),
                "sink": ref("sink", "Stores the result after each call."),
            },
            required=("name", "tool"),
        ),
        "loop": _loop(names),
        **_admission_definitions(),
        **_routing_definitions(),
    }


def _loop(kinds: list[str]) -> Schema:
    spec: Schema = {
        "description": "How the iterations run, and knobs for all tasks in them.",
        "type": "object",
        "properties": spec_properties(
            {**LOOP_KNOBS, **TASK_KNOBS}, {**TASK_KNOB_SHAPES, **LOOP_KNOB_SHAPES}, kinds
        ),
        "additionalProperties": False,
    }
    return closed(
        "Runs the tasks once for each element of a list.",
        LOOP_KEYS,
        {
            "in": {
                "description": "The list, or one `{{ expression }}` that gives it.",
                "anyOf": [{"type": "array"}, ref("template")],
            },
            "iterator": {
                "description": "The name of the current element in templates.",
                "type": "string",
                "pattern": r"^[^\W\d]\w*$",
            },
            "spec": spec,
        },
        required=("in", "iterator"),
    )


def _admission_definitions() -> dict[str, Schema]:
    return {
        "admission": closed(
            "Whether a token may enter the step.",
            ("rules",),
            {"rules": listing("Asked from the top; the first that matches decides.", ref("admission_rule"))},
            required=("rules",),
        ),
        "admission_rule": rule("One rule: `when` and `then`, or `else`.", "admission_then"),
        "admission_then": closed(
            "What follows.",
            ("allow",),
            {"allow": {"description": "Whether the token enters.", "type": "boolean"}},
            required=("allow",),
        ),
        "join": closed(
            "Where tokens from several steps wait for each other.",
            JOIN_KEYS,
            {
                "of": listing("The steps the tokens come from.", {"type": "string"}, minItems=1),
                "mode": choice(
                    "`all` waits for each, `any` for the first, `active` for those that can still arrive.",
                    ("all", "any", "active"),
                ),
            },
            required=("of",),
        ),
    }


def _routing_definitions() -> dict[str, Schema]:
    return {
        "next": closed(
            "Where tokens go when the step is done or has failed.",
            ("spec", "arcs"),
            {
                "spec": closed(
                    "How the arcs are chosen.",
                    NEXT_KNOBS,
                    spec_properties(NEXT_KNOBS, {"mode": {"enum": ["exclusive", "inclusive"]}, "policy": {}}),
                ),
                "arcs": listing("The ways on, in the order they are asked.", ref("arc")),
            },
            required=("arcs",),
        ),
        "arc": closed(
            "A way to another step.",
            ARC_KEYS,
            {
                "step": text("The step it leads to; an undefined `end` ends the token."),
                "when": ref("guard", "Whether it is taken; without it, unless the step failed."),
                "args": mapping_of("Values the token takes along.", {}),
                "spec": opened("The arc's knobs.", ARC_KNOBS, {"carry": {"type": "boolean"}}),
            },
            required=("step",),
        ),
    }
