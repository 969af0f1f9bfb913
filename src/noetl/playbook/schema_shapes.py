"""The building blocks of the JSON Schema: small functions that make one schema each.

A mapping of the language is made from the key table its front end checks by, so the schema cannot
know other keys than the checks do. Nothing here knows what any key means.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

from noetl.playbook.fields import REPLACED

Schema: TypeAlias = dict[str, Any]

TEMPLATE_PATTERN: Final = r"\{[{%#]"
DURATION_PATTERN: Final = r"^\s*(\d+\.?\d*|\.\d+)\s*(ms|s|m|h|d)?\s*$"


def ref(name: str, description: str | None = None) -> Schema:
    """A definition by name; a description of its own says what it means at this place."""
    found: Schema = {"$ref": f"#/$defs/{name}"}
    return found if description is None else {"description": description, **found}


def described(description: str, shape: Schema) -> Schema:
    return {"description": description, **{key: each for key, each in shape.items() if key != "description"}}


def text(description: str) -> Schema:
    """A text that is fixed before anything runs."""
    return {"description": description, "type": "string", "minLength": 1}


def choice(description: str, words: Iterable[str]) -> Schema:
    return {"description": description, "enum": list(words)}


def explained_choice(description: str, words: Mapping[str, str]) -> Schema:
    """A choice whose words an editor explains one by one."""
    return {
        "description": description,
        "oneOf": [{"const": word, "description": meaning} for word, meaning in words.items()],
    }


def listing(description: str, items: Schema, **limits: int) -> Schema:
    return {"description": description, "type": "array", "items": items, **limits}


def mapping_of(description: str, values: Schema) -> Schema:
    return {"description": description, "type": "object", "additionalProperties": values}


def closed(
    description: str, keys: Collection[str], shapes: Mapping[str, Schema], required: Iterable[str] = ()
) -> Schema:
    """A mapping that may have only `keys`, which must be those that have a shape here."""
    if set(keys) != shapes.keys():
        raise ValueError(
            f"keys without a shape, or shapes without a key: {sorted(set(keys) ^ shapes.keys())}"
        )
    found: Schema = {"description": description, "type": "object", "properties": dict(shapes)}
    if needed := list(required):
        found["required"] = needed
    found["additionalProperties"] = False
    return found


def opened(
    description: str, knobs: Mapping[str, str], shapes: Mapping[str, Schema], extra: Iterable[str] = ()
) -> Schema:
    """A `spec`: its knobs with their sentences, and others too, but no word of another language.

    `extra` are the tool kinds, each of which may have a group of knobs of its own.
    """
    properties = spec_properties(knobs, shapes, extra)
    return {
        "description": description,
        "type": "object",
        "properties": properties,
        "propertyNames": refusing(REPLACED),
    }


def spec_properties(
    knobs: Mapping[str, str], shapes: Mapping[str, Schema], extra: Iterable[str] = ()
) -> dict[str, Schema]:
    properties = {name: described(sentence, shapes[name]) for name, sentence in knobs.items()}
    for kind in extra:
        properties.setdefault(kind, mapping_of(f"Knobs for tools of kind `{kind}` only.", {}))
    return properties


def refusing(words: Iterable[str]) -> Schema:
    return {"not": {"enum": sorted(words)}}


def templated(shape: Schema) -> Schema:
    """The shape, or a template in its place; inside lists and mappings too."""
    inner = {key: _templated_inside(key, each) for key, each in shape.items()}
    if _takes_any_text(inner):
        return inner
    notes: Schema = {key: inner.pop(key) for key in ("description", "default") if key in inner}
    options = inner["anyOf"] if inner.keys() == {"anyOf"} else [inner]
    return {**notes, "anyOf": [*options, ref("template")]}


def _templated_inside(key: str, shape: Any) -> Any:  # noqa: ANN401 - any part of a schema
    if key == "properties":
        return {name: templated(each) for name, each in shape.items()}
    if key == "items" or (key == "additionalProperties" and isinstance(shape, dict)):
        return templated(shape)
    if key == "anyOf":
        return [
            {name: _templated_inside(name, each) for name, each in option.items()} if option else option
            for option in shape
        ]
    return shape


def _takes_any_text(shape: Schema) -> bool:
    if any(_takes_any_text(option) for option in shape.get("anyOf", ())):
        return True
    if "anyOf" in shape or "enum" in shape or "const" in shape or "$ref" in shape:
        return False
    return bool(shape.get("type", "string") == "string")


TEMPLATE: Final[Schema] = {
    "description": "A text with a template: `{{ expression }}` alone gives the value itself.",
    "type": "string",
    "pattern": TEMPLATE_PATTERN,
}

VALUES: Final[dict[str, Schema]] = {
    "template": TEMPLATE,
    "guard": {
        "description": "A condition: one `{{ expression }}`, or true or false.",
        "anyOf": [ref("template"), {"type": "boolean"}],
    },
    "duration": {
        "description": "Seconds as a number, or with a unit: `250ms`, `5s`, `2m`, `1h`, `1d`.",
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": DURATION_PATTERN},
            ref("template"),
        ],
    },
    "count": {
        "description": "A whole number of at least 1.",
        "anyOf": [{"type": "integer", "minimum": 1}, ref("template")],
    },
    "args": {
        "description": "Values by name; texts in them may be templates.",
        "type": ["object", "null"],
    },
}
"""The definitions that stand for values anywhere in the language."""
