"""Writes plain data as YAML that people would write: block style, short flow mappings, literal blocks.

A mapping or list is a line of its own (`{ do: continue }`, `[a, b]`) where it is short and flat,
unless it is a `Section`, which always takes a line for each key. Whatever is written here, the
reader gives back unchanged; a string is quoted only where it would otherwise be read as something
else. Nothing here knows what a playbook is.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from noetl.playbook.scalars import CONSTANTS, number

Data: TypeAlias = Any
"""None, bool, int, float, str, and lists and mappings (with string keys) of them."""

WIDTH: Final = 100
INDENT: Final = "  "

_PLAIN = re.compile(r"[A-Za-z0-9_/.+$()][A-Za-z0-9_/.+$()@=~^;%-]*(?: [A-Za-z0-9_/.+$()@=~^;%'-]+)*")
_COLON_INSIDE = re.compile(r":(?=[A-Za-z0-9_/])")
# YAML's printable characters, without those it takes for line breaks.
_PRINTABLE: Final = "\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff"
_LITERAL = re.compile(f"[\t\n{_PRINTABLE}]*")
_MUST_ESCAPE = re.compile(f'[^{_PRINTABLE}]|["\\\\]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Section(dict[str, Data]):
    """A mapping that is never put on one line."""


class Spaced(list[Data]):
    """A list whose entries are set apart by blank lines."""


def emit(root: dict[str, Data]) -> str:
    """The text of a document, root keys set apart by blank lines where one of them spans lines."""
    parts = ["\n".join(_entry(name, value, "")) for name, value in root.items()]
    text = ""
    for before, part in zip(["", *parts], parts, strict=False):
        apart = before and ("\n" in part or "\n" in before)
        text += ("\n" if apart else "") + part + "\n"
    return text


def _entry(name: str, value: Data, indent: str) -> list[str]:
    """`name: value` at an indentation."""
    return _with_value(f"{indent}{scalar(name)}:", value, indent)


def _with_value(opening: str, value: Data, indent: str) -> list[str]:
    """The lines of a value behind a key."""
    flow = _flow(value, WIDTH - len(opening) - 1)
    if flow is not None:
        return [f"{opening} {flow}"]
    if isinstance(value, str):
        return _literal(opening, value, indent + INDENT)
    lines = [opening]
    if isinstance(value, dict):
        for name, item in value.items():
            lines += _entry(name, item, indent + INDENT)
        return lines
    for position, item in enumerate(value):
        if position and isinstance(value, Spaced):
            lines.append("")
        lines += _item(item, indent + INDENT)
    return lines


def _item(value: Data, indent: str) -> list[str]:
    """`- value` at an indentation."""
    flow = _flow(value, WIDTH - len(indent) - 2)
    if flow is not None:
        return [f"{indent}- {flow}"]
    if isinstance(value, str):
        return _literal(f"{indent}-", value, indent + INDENT)
    inner = indent + INDENT
    lines: list[str] = []
    if isinstance(value, dict):
        for name, item in value.items():
            lines += _entry(name, item, inner)
    else:
        for item in value:
            lines += _item(item, inner)
    lines[0] = f"{indent}- {lines[0][len(inner) :]}"
    return lines


def _literal(opening: str, text: str, indent: str) -> list[str]:
    """A text of several lines as a literal block."""
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    chomping = "-" if ends == 0 else "" if ends == 1 else "+"
    indicator = str(len(INDENT)) if body[0] in " \n" else ""
    lines = [f"{opening} |{indicator}{chomping}"]
    lines += [indent + line if line else "" for line in body.split("\n")]
    return lines + [""] * max(0, ends - 1)


def _flow(value: Data, room: int) -> str | None:
    """The value on one line, or None where it needs several."""
    if isinstance(value, str):
        return None if _is_literal(value) else scalar(value)
    if isinstance(value, dict):
        if not value:
            return "{}"
        if isinstance(value, Section) or not all(map(_is_flat, value.values())):
            return None
        inner = ", ".join(f"{scalar(name, flow=True)}: {_inline(item)}" for name, item in value.items())
        return _if_fits(f"{{ {inner} }}", room)
    if isinstance(value, list):
        if not value:
            return "[]"
        if isinstance(value, Spaced) or not all(map(_is_flat, value)):
            return None
        return _if_fits(f"[{', '.join(map(_inline, value))}]", room)
    return scalar(value)


def _if_fits(text: str, room: int) -> str | None:
    return text if len(text) <= room else None


def _is_flat(value: Data) -> bool:
    if isinstance(value, dict | list):
        return not value or (isinstance(value, list) and all(map(_is_flat, value)))
    return not (isinstance(value, str) and _is_literal(value))


def _inline(value: Data) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return "{}" if isinstance(value, dict) else scalar(value, flow=True)


def _is_literal(text: str) -> bool:
    """Is it a text of several lines that a literal block can hold?"""
    return "\n" in text and text.strip("\n") != "" and _LITERAL.fullmatch(text) is not None


def scalar(value: str | float | bool | None, *, flow: bool = False) -> str:
    """One scalar on one line; inside a flow collection more strings need quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return value if _is_plain(value, flow) else _quoted(value)


def _is_plain(text: str, flow: bool) -> bool:
    if text in CONSTANTS or number(text) != text or text.startswith(("---", "...")):
        return False
    bare = text if flow else _COLON_INSIDE.sub("", text)
    return _PLAIN.fullmatch(bare) is not None


def _quoted(text: str) -> str:
    return f'"{_MUST_ESCAPE.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    letter = found[0]
    if letter in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[letter]
    code = ord(letter)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
