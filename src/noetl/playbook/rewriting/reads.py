"""Which names the templates in a part of the model read."""

from __future__ import annotations

import msgspec

from noetl.playbook.model import Value
from noetl.template import Template


def names_read(value: Value) -> frozenset[str]:
    """The first names of everything that the templates in this data read."""
    return frozenset(path[0] for path in paths_read(value))


def paths_read(value: Value) -> frozenset[tuple[str, ...]]:
    if isinstance(value, Template):
        return frozenset(read.path for read in value.reads)
    if isinstance(value, dict):
        return frozenset[tuple[str, ...]]().union(*(paths_read(item) for item in value.values()))
    if isinstance(value, list | tuple):
        return frozenset[tuple[str, ...]]().union(*(paths_read(item) for item in value))
    if isinstance(value, msgspec.Struct):
        fields = (getattr(value, name) for name in value.__struct_fields__)
        return frozenset[tuple[str, ...]]().union(*(paths_read(item) for item in fields))
    return frozenset()
