"""How a value is written in SQL: as a literal, inside a quoted string, as a name, as a list.

What is written here means the value and nothing else, whatever the value holds, in the dialect's lexer as
`sql.py` knows it. Where a dialect has no literal that gives the value back, it is refused with the way out.
"""

from __future__ import annotations

import json
import math
from typing import Final

from noetl.errors import TemplateValueError
from noetl.template.lookup import kind_name
from noetl.template.sql import Dialect, StringKind

_WHOLE_NUMBERS: Final[dict[Dialect, tuple[int, str]]] = {
    "sqlite": (2**63, "SQLite"),
    "duckdb": (2**127, "DuckDB"),
    "snowflake": (10**38, "Snowflake"),
}
"""How far whole numbers go; beyond it a literal would silently become a rounded one."""
_FLOAT_TYPE: Final[dict[Dialect, str]] = {"postgres": "float8", "duckdb": "DOUBLE", "snowflake": "FLOAT"}


def literal(value: object, dialect: Dialect) -> str:
    """The value where SQL wants an expression."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return _signed(_whole(value, dialect))
    if isinstance(value, float):
        return _signed(_float(value, dialect))
    if isinstance(value, list):
        raise TemplateValueError("a list has no literal: write `| in_list`, or `| tojson` for JSON text")
    return f"'{escaped(text_of(value), 'escapes' if dialect == 'snowflake' else 'plain')}'"


def text_of(value: object) -> str:
    """The value where text stands; mappings and lists as JSON."""
    if value is None:
        raise TemplateValueError("null cannot stand inside quotes: leave the quotes out")
    if isinstance(value, dict | list):
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise TemplateValueError("JSON text has no NaN and no infinity") from None
    return str(value)


def escaped(text: str, kind: StringKind) -> str:
    """The text as the content of a quoted string."""
    if kind == "coded":
        raise TemplateValueError("a value cannot stand in a string of digits or code points")
    _check_text(text)
    if kind == "escapes":
        text = text.replace("\\", "\\\\")
    return text.replace("'", "''")


def list_of(value: object, dialect: Dialect) -> str:
    """A list in parentheses, for `IN`."""
    if not isinstance(value, list):
        raise TemplateValueError(f"`in_list` takes a list, not a {kind_name(value)}")
    # `x IN ()` is no SQL everywhere; nothing equals NULL, so this finds nothing.
    return f"({', '.join(literal(item, dialect) for item in value) or 'NULL'})"


def quoted_name(value: object) -> str:
    """A name, with the names of what it lies in before it: dotted text, or a list of the single names."""
    if isinstance(value, str):
        parts: list[object] = [*value.split(".")]
    elif isinstance(value, list) and value:
        parts = value
    else:
        raise TemplateValueError(f"`identifier` takes a name or a list of names, not a {kind_name(value)}")
    return ".".join(_quoted_part(part) for part in parts)


def _quoted_part(part: object) -> str:
    if not isinstance(part, str) or not part:
        raise TemplateValueError("a name in SQL is text that is not empty")
    _check_text(part)
    doubled = part.replace('"', '""')
    return f'"{doubled}"'


def _check_text(text: str) -> None:
    if "\0" in text:
        raise TemplateValueError("text with a NUL character cannot stand in SQL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TemplateValueError("text with half of a surrogate pair cannot stand in SQL") from None


def _signed(number: str) -> str:
    # `5 -{{ n }}` would begin a comment otherwise.
    return f"({number})" if number.startswith("-") else number


def _whole(value: int, dialect: Dialect) -> str:
    bound = _WHOLE_NUMBERS.get(dialect)
    if bound is not None and not -bound[0] <= value < bound[0]:
        raise TemplateValueError(
            f"{bound[1]} has no whole number as large as this one: write `| string`, or `| float`"
        )
    return str(value)


def _float(value: float, dialect: Dialect) -> str:
    if math.isfinite(value):
        number = repr(value)
        # Without an exponent DuckDB reads a decimal, which loses digits on its way to a float.
        return number if dialect != "duckdb" or "e" in number else f"{number}e0"
    if dialect == "sqlite":
        if math.isnan(value):
            raise TemplateValueError("SQLite has no NaN")
        return "9e999" if value > 0 else "-9e999"
    word = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return f"CAST('{word}' AS {_FLOAT_TYPE[dialect]})"
