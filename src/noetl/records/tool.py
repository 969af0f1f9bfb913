"""How a tool kind describes itself: its fields, its outcome, what its texts are.

The checks, the JSON Schema and the reference are made from descriptions, so none of them needs the
code that runs a tool, nor the client library behind it. A description never changes what the
language itself handles on a task (`LANGUAGE_FIELDS`).
"""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

LANGUAGE_FIELDS: Final = frozenset({"kind", "args", "spec", "timeout", "with", "retry"})
"""The keys of a task that are not fields of its tool."""


# Compared by identity: a description is made once, and the mappings in it could not be hashed by value.
class ToolDescription(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What there is to know about a tool kind without running it."""

    kind: str
    """The word after `kind:`."""
    summary: str
    """One sentence."""
    config: type[msgspec.Struct]
    """Its fields: names, types, defaults, and a description of each."""
    one_of: tuple[tuple[str, ...], ...] = ()
    """Groups of fields of which at least one is required."""
    synonyms: dict[str, str] = {}
    """Fields that mean the same as another; two words for one thing on one task is a mistake."""
    outcome_group: str | None = None
    """Where the kind's own fields stand in an outcome: `outcome.<group>.<field>`."""
    outcome_fields: tuple[str, ...] = ()
    default_spec: dict[str, Any] = {}
    """The outermost layer of a task's `spec`."""
    sql_fields: tuple[str, ...] = ()
    """Fields whose text is SQL; a dot leads into a mapping (`source.query`)."""
    code_fields: tuple[str, ...] = ()
    """Fields whose text is code; templates in them are still templates."""
    waits: bool = False
    """A call of it only waits, so one that is made again goes on from when the first was made."""


class FieldInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a tool kind.

    `type` is what a constant value must convert to (`msgspec.convert`). A value that holds a template
    anywhere is only known when it is rendered, so it cannot be judged by its type before.
    """

    name: str
    type: Any
    description: str
    required: bool
    default: Any = None
    choices: tuple[str, ...] = ()
    """The only texts it may be, where there are such."""


@cache
def field_types(description: ToolDescription) -> dict[str, FieldInfo]:
    """The fields of a kind by the name a playbook gives them, in the order they are declared."""
    found: dict[str, FieldInfo] = {}
    for field in msgspec.structs.fields(description.config):
        found[field.encode_name] = FieldInfo(
            name=field.encode_name,
            type=field.type,
            description=_description(field.type),
            required=field.required,
            default=None if field.default is msgspec.NODEFAULT else field.default,
            choices=_choices(field.type),
        )
    return found


def _description(annotation: Any) -> str:  # noqa: ANN401 - annotations have no common type
    if get_origin(annotation) is not Annotated:
        return ""
    for extra in annotation.__metadata__:
        if isinstance(extra, msgspec.Meta) and extra.description:
            return extra.description
    return ""


def _choices(annotation: Any) -> tuple[str, ...]:  # noqa: ANN401 - annotations have no common type
    """The words of a literal type; none where any other text fits too."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _choices(get_args(annotation)[0])
    if origin is Literal:
        return tuple(str(word) for word in get_args(annotation))
    if origin in (Union, types.UnionType):
        parts = [each for each in get_args(annotation) if each is not type(None)]
        return _choices(parts[0]) if len(parts) == 1 else ()
    return ()
