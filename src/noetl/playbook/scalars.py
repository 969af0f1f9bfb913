"""What a scalar means: the YAML 1.2 core rules, and nothing of YAML 1.1.

`on`, `no`, `012`, `1:30`, `1_000` and dates are therefore strings. Ambiguous text is never guessed at:
what is not a constant or a number by the rules below is the string as written.
"""

from __future__ import annotations

import re
import sys

CORE_TAG_PREFIX = "tag:yaml.org,2002:"

# Python itself refuses to print or parse longer integers under its strictest setting.
LONGEST_NUMBER = 500

CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
NUMBER_STARTS = frozenset("-+.0123456789")

_LARGEST_FLOAT = sys.float_info.max
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_BASED = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOATS = {
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


def number(text: str) -> int | float | str | None:
    """The number that `text` writes, `text` itself if it writes none, or None if it cannot be held."""
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= LONGEST_NUMBER else None
    if _FLOAT.fullmatch(text):
        value = float(text) if len(text) <= LONGEST_NUMBER else float("inf")
        return None if value in (float("inf"), float("-inf")) else value
    if _BASED.fullmatch(text):
        return int(text, 0) if len(text) <= LONGEST_NUMBER else None
    return _SPECIAL_FLOATS.get(text, text)


def tagged(kind: str, text: str) -> bool | int | float | str | None:
    """The value of `text` under the core tag `kind`; ValueError if the text does not fit the tag."""
    if kind == "str":
        return text
    constant = CONSTANTS.get(text, text)
    if kind == "null" and constant is None:
        return None
    if kind == "bool" and isinstance(constant, bool):
        return constant
    if kind in ("int", "float"):
        value = number(text)
        if isinstance(value, float) and kind == "float":
            return value
        if isinstance(value, int) and kind == "int":
            return value
        if isinstance(value, int) and abs(value) <= _LARGEST_FLOAT:
            return float(value)
    raise ValueError(f"not a value of type {kind}")
