"""Finds the description of a tool kind by name: the kinds that come with NoETL, then installed ones.

Start-up is what this module is shaped by: the names are a table, a kind's module is imported when its
description is asked for, and installed distributions are searched only for a name the table lacks.
A distribution adds a kind by an entry point of the group `noetl.tools` that is named for the kind and
names a module with a `DESCRIPTION`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError
from noetl.records.tool import ToolDescription

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from noetl.records.protocols import ToolKind

GROUP: Final = "noetl.tools"

BUILTIN: Final = (
    "noop",
    "http",
    "python",
    "shell",
    "script",
    "postgres",
    "duckdb",
    "sqlite",
    "snowflake",
    "workbook",
    "playbook",
    "iterator",
    "secrets",
    "gcs",
    "s3",
    "object",
    "nats",
    "container",
    "transfer",
    "wait",
)
"""The kinds that come with NoETL; each has the module of its name beside this one."""


class ToolKinds(Mapping[str, ToolDescription]):
    """Descriptions by kind.

    Counting, iterating and `in` know the kinds that come with NoETL and import nothing; looking a kind
    up also finds those that are installed.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[str, ToolDescription] = {}

    def __getitem__(self, kind: str) -> ToolDescription:
        found = self._found.get(kind)
        if found is None:
            found = self._found[kind] = _builtin(kind) if kind in BUILTIN else _installed(kind)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(BUILTIN)

    def __len__(self) -> int:
        return len(BUILTIN)

    def __contains__(self, kind: object) -> bool:
        return kind in BUILTIN


@cache
def builtin_kinds() -> ToolKinds:
    return ToolKinds()


def every_kind() -> dict[str, ToolDescription]:
    """The kinds that come with NoETL and those that are installed: imports them all."""
    kinds = builtin_kinds()
    names = dict.fromkeys((*BUILTIN, *sorted(point.name for point in _entry_points())))
    return {name: kinds[name] for name in names}


def runnable(kind: str) -> ToolKind:
    """The module (or object) that runs a kind; NoetlError where this version cannot."""
    description = builtin_kinds().get(kind)
    found = None
    if kind in BUILTIN:
        found = import_module(f"noetl.tools.{kind}")
    elif description is not None:
        found = _entry_points(kind)[0].load()
    if found is None or not hasattr(found, "run"):
        raise NoetlError(f"tool kind `{kind}` cannot be run by this version")
    tool: ToolKind = found
    return tool


def _builtin(kind: str) -> ToolDescription:
    description: ToolDescription = import_module(f"noetl.tools.{kind}").DESCRIPTION
    return description


def _installed(kind: str) -> ToolDescription:
    points = _entry_points(kind)
    if not points:
        raise KeyError(kind)
    point = points[0]
    origin = f"the tool kind `{kind}` of `{point.value}`"
    if len({each.value for each in points}) > 1:
        raise NoetlError(f"the tool kind `{kind}` is installed by more than one distribution")
    try:
        module = point.load()
    except (ImportError, AttributeError) as error:
        raise NoetlError(f"{origin} cannot be imported: {error}") from error
    description = getattr(module, "DESCRIPTION", None)
    if not isinstance(description, ToolDescription):
        raise NoetlError(f"{origin} has no `DESCRIPTION` that is a ToolDescription")
    if description.kind != kind:
        raise NoetlError(f"{origin} describes itself as `{description.kind}`")
    return description


def _entry_points(kind: str | None = None) -> tuple[EntryPoint, ...]:
    # Imported here because it costs several milliseconds, and most playbooks use built-in kinds only.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return tuple(entry_points(group=GROUP) if kind is None else entry_points(group=GROUP, name=kind))
