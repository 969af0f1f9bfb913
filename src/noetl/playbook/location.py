"""Where each character of a scalar's value stands in the file.

The YAML parser says only where a scalar begins and ends, but a diagnostic about a template must point
into the middle of it. So the raw text is walked once more, when somebody asks, by the rules that made
the value: escapes, folded line breaks, indentation, chomping. Nothing here decides what a value is.
"""

from __future__ import annotations

import re
from functools import lru_cache

from noetl.playbook.diagnostics import Position

_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_WHITE_RUN = re.compile(r"[ \t\r\n]+")
_ESCAPE_LENGTHS = {"x": 4, "u": 6, "U": 10}


def position_in(text: str, offset: int) -> Position:
    """The place of the character at `offset`, with lines ending in LF, CRLF or CR."""
    return position_after(text, 0, Position(1, 1), offset)


def position_after(text: str, start: int, at_start: Position, offset: int) -> Position:
    """As `position_in`, when the position of `start` (not after `offset`) is already known."""
    between = text[start:offset]
    breaks = between.count("\n") + between.count("\r") - between.count("\r\n")
    if not breaks:
        return Position(at_start.line, at_start.column + len(between))
    line_start = max(between.rfind("\n"), between.rfind("\r")) + 1
    return Position(at_start.line + breaks, len(between) - line_start + 1)


@lru_cache(maxsize=4)
def value_offsets(text: str, start: int, end: int, style: str, value: str) -> list[int]:
    """The offset in `text` of every character of `value`, and one more for the place after the last.

    `start` and `end` bound the raw scalar, quotes or block header included. A few answers are kept, for a
    long template that is wrong in many places; nobody may change them.
    """
    if style in ("|", ">"):
        offsets = _block_offsets(text, start, end, style, value)
        after = offsets[-1] + 1 if offsets else end
    elif style:
        offsets = _flow_offsets(text, start + 1, end - 1, style)
        after = end - 1
    else:
        offsets = _flow_offsets(text, start, end, style)
        after = end
    offsets.append(after)
    return offsets


def _flow_offsets(text: str, position: int, stop: int, style: str) -> list[int]:
    """Plain and quoted scalars, which may run over several lines."""
    offsets: list[int] = []
    while position < stop:
        character = text[position]
        if character in " \t\r\n":
            position = _folded_run(text, position, stop, offsets)
        elif character == "\\" and style == '"':
            position = _escape(text, position, stop, offsets)
        else:
            offsets.append(position)
            position += 2 if character == "'" and style == "'" else 1
    return offsets


def _folded_run(text: str, position: int, stop: int, offsets: list[int]) -> int:
    """White space within a line stands for itself; around line breaks only the breaks count."""
    run_end = _end_of_white(text, position, stop)
    breaks = [found.start() for found in _LINE_BREAK.finditer(text, position, run_end)]
    if not breaks:
        offsets.extend(range(position, run_end))
    elif len(breaks) == 1:
        offsets.append(breaks[0])
    else:
        offsets.extend(breaks[1:])
    return run_end


def _escape(text: str, position: int, stop: int, offsets: list[int]) -> int:
    escaped = text[position + 1]
    if escaped not in "\r\n":
        offsets.append(position)
        return position + _ESCAPE_LENGTHS.get(escaped, 2)
    # An escaped line break joins two lines: it vanishes with the indentation behind it, and only
    # the empty lines that follow are kept.
    run_end = _end_of_white(text, position + 1, stop)
    breaks = [found.start() for found in _LINE_BREAK.finditer(text, position + 1, run_end)]
    offsets.extend(breaks[1:])
    return run_end


def _end_of_white(text: str, position: int, stop: int) -> int:
    run = _WHITE_RUN.match(text, position, stop)
    return run.end() if run else position


def _block_offsets(text: str, start: int, end: int, style: str, value: str) -> list[int]:
    """Literal and folded block scalars; whatever chomping removed is cut off at the end."""
    lines = _block_lines(text, start, end)
    indent = _block_indent(text, lines, value)
    offsets: list[int] = []
    open_break: int | None = None
    empty_lines: list[int] = []
    was_indented = False
    for line_start, line_end, has_break in lines:
        content = line_start
        while content < line_end and content - line_start < indent and text[content] == " ":
            content += 1
        if content == line_end:
            if has_break:
                empty_lines.append(line_end)
            continue
        indented = text[content] in " \t"
        folds = style == ">" and not (was_indented or indented)
        if open_break is not None and not (folds and empty_lines):
            offsets.append(open_break)
        offsets.extend(empty_lines)
        empty_lines = []
        was_indented = indented
        offsets.extend(range(content, line_end))
        open_break = line_end if has_break else None
    if open_break is not None:
        offsets.append(open_break)
    offsets.extend(empty_lines)
    return offsets[: len(value)]


def _block_lines(text: str, start: int, end: int) -> list[tuple[int, int, bool]]:
    """The lines below the header: where each begins, where it ends, whether a break ends it."""
    header = _LINE_BREAK.search(text, start, end)
    lines: list[tuple[int, int, bool]] = []
    position = header.end() if header else end
    while position < end:
        found = _LINE_BREAK.search(text, position, end)
        lines.append((position, found.start() if found else end, found is not None))
        position = found.end() if found else end
    return lines


def _block_indent(text: str, lines: list[tuple[int, int, bool]], value: str) -> int:
    """How many spaces belong to the layout.

    An indentation indicator counts from the parent, which is not known here; but the value is, so
    the spaces that its first written line has lost are the answer.
    """
    written = value.lstrip(" \n")
    for line_start, line_end, _ in lines:
        line = text[line_start:line_end]
        lead = len(line) - len(line.lstrip(" "))
        if lead < len(line) and written:
            before = value[: len(value) - len(written)]
            return lead - (len(before) - (before.rfind("\n") + 1))
    longest = max((line_end - line_start for line_start, line_end, _ in lines), default=0)
    return longest - max(len(part) for part in value.split("\n"))
