"""`iterator`: a nested task for each element of a list.

The language lowers it to a block with a loop, so it never runs as a tool; its fields are described here
with those of all kinds, because a playbook writes them in the same place.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from noetl.records.tool import ToolDescription


class IteratorConfig(msgspec.Struct, frozen=True, kw_only=True):
    in_: Annotated[
        list[Any] | str | None, Meta(description="The list, or one `{{ expression }}` that gives it.")
    ] = field(name="in", default=None)
    collection: Annotated[list[Any] | str | None, Meta(description="The same as `in`.")] = None
    iterator: Annotated[str | None, Meta(description="The name of the current element in templates.")] = None
    element: Annotated[str | None, Meta(description="The same as `iterator`.")] = None
    mode: Annotated[
        Literal["sequential", "parallel", "async"],
        Meta(description="Whether elements are taken one by one or several at once; `async` is `parallel`."),
    ] = "sequential"
    tool: Annotated[
        dict[str, Any] | list[Any] | None,
        Meta(description="The task, or the list of tasks, that runs for each element."),
    ] = None
    task: Annotated[dict[str, Any] | list[Any] | None, Meta(description="The same as `tool`.")] = None
    save: Annotated[
        dict[str, Any] | None, Meta(description="A sink for the list of results: `tool` and `when`.")
    ] = None


DESCRIPTION = ToolDescription(
    kind="iterator",
    summary="Runs a nested task for each element of a list; the result is the list of their results.",
    config=IteratorConfig,
    one_of=(("in", "collection"), ("iterator", "element"), ("tool", "task")),
    synonyms={"collection": "in", "element": "iterator", "task": "tool"},
)
