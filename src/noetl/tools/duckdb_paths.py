"""Relative paths in the text of a DuckDB task lie in the execution's folder.

DuckDB itself resolves them against the folder of the process. So a string that stands where DuckDB reads a
file's path is written out in full before the text runs; what is not recognised here stays as it is, and
DuckDB refuses it, since only the execution's folder is open.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from noetl.template.sql import without_quotes

# In a text without quotes a string is a run of these.
_QUOTED: Final = "\x01+"
_LEADS: Final = (
    r"\b(?:"
    r"(?P<from>from|join)\s+"
    r"|(?P<copy>to|database)\s+"
    r"|attach\s+(?:database\s+)?(?:if\s+not\s+exists\s+)?"
    r"|(?:read_\w+|\w+_scan|glob|sniff_csv|parquet_\w+)\s*\(\s*\[?\s*"
    r")"
)
_PATHS: Final = re.compile(rf"{_LEADS}(?P<strings>{_QUOTED}(?:\s*,\s*{_QUOTED})*)", re.IGNORECASE)
_STRING: Final = re.compile(_QUOTED)
_COPIES: Final = re.compile(r"\s*(?:copy|export|import)\b", re.IGNORECASE)
_ELSEWHERE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/|~")
"""A path that does not begin in the folder: one with a scheme, or an absolute one."""


def with_folder(text: str, folder: Path) -> str:
    """The text with relative paths made absolute."""
    bare = without_quotes(text, "duckdb")
    pieces: list[str] = []
    position = 0
    for found in _PATHS.finditer(bare):
        if not _is_path(bare, found):
            continue
        for string in _STRING.finditer(bare, *found.span("strings")):
            written = text[string.start() : string.end()]
            path = written[1:-1]
            if not (written.startswith("'") and written.endswith("'")) or _ELSEWHERE.match(path) or not path:
                continue
            root = str(folder).replace("'", "''")
            pieces += (text[position : string.start()], f"'{root}/{path}'")
            position = string.end()
    return "".join((*pieces, text[position:]))


def _is_path(bare: str, found: re.Match[str]) -> bool:
    statement = bare.rfind(";", 0, found.start()) + 1
    if found["copy"]:
        return _COPIES.match(bare, statement) is not None
    if not found["from"]:
        return True
    before = bare[statement : found.start()]
    if re.search(r"\bdistinct\s*$", before, re.IGNORECASE):
        return False
    inner = _innermost(before)
    return inner is None or not inner.strip() or re.search(r"\bselect\b", inner, re.IGNORECASE) is not None


def _innermost(text: str) -> str | None:
    """What follows the last parenthesis that is still open; None where none is."""
    depth = 0
    for index in range(len(text) - 1, -1, -1):
        if text[index] == ")":
            depth += 1
        elif text[index] == "(":
            if depth == 0:
                return text[index + 1 :]
            depth -= 1
    return None
