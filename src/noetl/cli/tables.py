"""Rows as a table for people: columns as wide as they must be, the last one cut at the edge."""

from __future__ import annotations

from collections.abc import Sequence

from noetl.cli.diagnostics import Paint, cells
from noetl.cli.tree import fitted


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int, paint: Paint) -> str:
    """The lines of a table, heads included; control characters in cells are shown."""
    widths = [max(_width(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = [paint("place", _line(heads, widths, width))]
    lines += [_line(row, widths, width) for row in rows]
    return "\n".join(lines) + "\n"


def _line(row: Sequence[str], widths: list[int], width: int) -> str:
    shown = [text + " " * (widths[column] - _width(text)) for column, text in enumerate(row)]
    return fitted("  ".join(shown).rstrip(), width)


def _width(text: str) -> int:
    return len(text) if text.isascii() and text.isprintable() else sum(cell.width for cell in cells(text))
