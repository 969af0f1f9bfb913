"""Diagnostics for people: the place, the sentence, the source line with a caret, and the hint.

Columns count characters, terminals count cells: wide characters, combining marks and tabs are measured
so that the caret stands under the character that is meant. Control characters are shown, never sent to
the terminal.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from typing import Final, NamedTuple, TextIO

from noetl.cli.files import load_file, shown_name
from noetl.playbook.diagnostics import Diagnostic
from noetl.playbook.load import Loaded
from noetl.playbook.wording import ELLIPSIS, plural
from noetl.settings import Settings

TAB_WIDTH: Final = 4
PIPE_WIDTH: Final = 100
NARROWEST: Final = 40
NEAR: Final = 4
"""How many widths of the output are looked at on each side of a place: some characters take no room."""
MOST_SHOWN: Final = 100
"""Of the diagnostics of one file; nobody reads more of them, and `--json` gives all."""
_LINE_BREAK: Final = re.compile(r"\r\n|\r|\n")


class Paint(NamedTuple):
    """ANSI colours, or nothing at all."""

    enabled: bool

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.enabled and text else text


_STYLES: Final = {
    "error": "1;31",
    "warning": "1;33",
    "good": "32",
    "place": "1",
    "gutter": "34",
    "hint": "36",
}


def paint_for(stream: TextIO, settings: Settings, *, no_color: bool = False) -> Paint:
    wanted = stream.isatty() if settings.colour is None else settings.colour
    return Paint(wanted and not no_color)


def output_width(stream: TextIO) -> int:
    try:
        return max(NARROWEST, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError):  # not a terminal, or not a file at all
        return PIPE_WIDTH


class Cell(NamedTuple):
    text: str
    width: int


def cells(line: str) -> list[Cell]:
    """Each character of a line as it is shown, with the number of terminal cells it takes."""
    shown: list[Cell] = []
    column = 0
    for character in line:
        cell = _cell(character, column)
        shown.append(cell)
        column += cell.width
    return shown


def _cell(character: str, column: int) -> Cell:
    if character == "\t":
        width = TAB_WIDTH - column % TAB_WIDTH
        return Cell(" " * width, width)
    if " " <= character <= "~":
        return Cell(character, 1)
    category = unicodedata.category(character)
    if category in ("Mn", "Me"):
        return Cell(character, 0)
    if category in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        escape = f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"
        return Cell(escape, len(escape))
    return Cell(character, 2 if unicodedata.east_asian_width(character) in "WF" else 1)


def visible(text: str) -> str:
    """One line of text with control characters shown as escapes."""
    if text.isprintable():
        return text
    return "".join(cell.text for cell in cells(text))


class Excerpt(NamedTuple):
    line: str
    caret_at: int
    """Cells before the caret."""


def excerpt(line: str, column: int, width: int) -> Excerpt:
    """The part of a source line around `column` (from 1) that fits into `width` cells."""
    # A playbook may be one line; measuring all of it for each diagnostic would take minutes.
    place = min(max(column - 1, 0), len(line))
    begin, end = max(place - NEAR * width, 0), place + NEAR * width
    shown = cells(line[begin:end])
    index = place - begin
    before = sum(cell.width for cell in shown[:index])
    total = before + sum(cell.width for cell in shown[index:])
    if total <= width and begin == 0 and end >= len(line):
        return Excerpt("".join(cell.text for cell in shown).rstrip(), before)
    # A third of the window stands before the caret; room is kept for an ellipsis at each end.
    first, room = index, width // 3
    while first > 0 and room >= shown[first - 1].width:
        first -= 1
        room -= shown[first].width
    last, room = first, width - 2
    while last < len(shown) and room >= shown[last].width:
        room -= shown[last].width
        last += 1
    head = ELLIPSIS if first or begin else ""
    tail = ELLIPSIS if last < len(shown) or end < len(line) else ""
    text = head + "".join(cell.text for cell in shown[first:last]) + tail
    return Excerpt(text, len(head) + sum(cell.width for cell in shown[first:index]))


class Report:
    """Writes the diagnostics of one file after another."""

    def __init__(self, stream: TextIO, paint: Paint) -> None:
        self.stream = stream
        self.paint = paint
        self.width = output_width(stream)

    def file(self, name: str, text: str, diagnostics: tuple[Diagnostic, ...]) -> None:
        lines = _LINE_BREAK.split(text) if diagnostics and text else []
        for found in _foremost(diagnostics):
            self._diagnostic(name, lines, found)
        if (more := len(diagnostics) - MOST_SHOWN) > 0:
            self.stream.write(f"{visible(name)}: {ELLIPSIS} and {more} more\n")

    def _diagnostic(self, name: str, lines: list[str], found: Diagnostic) -> None:
        paint = self.paint
        place = paint("place", f"{visible(name)}:{found.line}:{found.column}:")
        kind = paint(found.severity, f"{found.severity}[{found.code}]:")
        out = [f"{place} {kind} {visible(found.message)}"]
        if 1 <= found.line <= len(lines):
            number = str(found.line)
            margin = max(len(number), 3)
            shown = excerpt(lines[found.line - 1], found.column, self.width - margin - 4)
            out.append(f"{paint('gutter', f' {number:>{margin}} |')} {shown.line}".rstrip())
            caret = " " * shown.caret_at + paint(found.severity, "^")
            out.append(f"{paint('gutter', ' ' * (margin + 1) + ' |')} {caret}")
        if found.hint:
            out.append(f"  {paint('hint', 'hint:')} {visible(found.hint)}")
        self.stream.write("\n".join(out) + "\n")


def _foremost(diagnostics: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """As many as are shown, in their order; errors before warnings where not all of them are."""
    if len(diagnostics) <= MOST_SHOWN:
        return diagnostics
    by_weight = sorted(range(len(diagnostics)), key=lambda index: diagnostics[index].severity != "error")
    return tuple(diagnostics[index] for index in sorted(by_weight[:MOST_SHOWN]))


def counted(diagnostics: list[Diagnostic]) -> str:
    """`3 errors, 1 warning`; empty when there is nothing to count."""
    errors = sum(found.severity == "error" for found in diagnostics)
    warnings = len(diagnostics) - errors
    parts = [plural(errors, "error")] if errors else []
    return ", ".join(parts + ([plural(warnings, "warning")] if warnings else []))


def load_or_report(path: str, settings: Settings) -> Loaded | None:
    """The playbook of a file, or None after its errors were reported on standard error."""
    loaded = load_file(path, settings)
    if loaded.valid:
        return loaded
    report_to_stderr(path, loaded, settings)
    return None


def report_to_stderr(path: str, loaded: Loaded, settings: Settings) -> None:
    """For verbs whose standard output is something else."""
    sys.stdout.flush()
    paint = paint_for(sys.stderr, settings)
    Report(sys.stderr, paint).file(shown_name(path), loaded.text, loaded.diagnostics)
    print(paint("error", counted(list(loaded.diagnostics))), file=sys.stderr)
