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
    r"|(?:read_\w+|\w+_scan|glob|sniff_csv|parquet_\w+)\s*\(\s*(?:\[\s*)?"
    r")"
)
_PATHS: Final = re.compile(rf"{_LEADS}(?P<strings>{_QUOTED}(?:\s*,\s*{_QUOTED})*)", re.IGNORECASE)
_STRING: Final = re.compile(_QUOTED)
_COPIES: Final = re.compile(r"\s*(?:copy|export|import)\b", re.IGNORECASE)
_STRUCTURE: Final = re.compile(r"[();]|\bselect\b", re.IGNORECASE)
_SPACE: Final = re.compile(r"\s*")
_DISTINCT: Final = re.compile(r"\W?distinct", re.IGNORECASE)
_ELSEWHERE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/|~")
"""A path that does not begin in the folder: one with a scheme, or an absolute one."""


def with_folder(text: str, folder: Path) -> str:
    """The text with relative paths made absolute."""
    bare = without_quotes(text, "duckdb")
    pieces: list[str] = []
    position = 0
    surroundings = _Surroundings(bare)
    for found in _PATHS.finditer(bare):
        if not surroundings.names_file(found):
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


class _Surroundings:
    """What stands before a place in the text: its statement, and the parentheses that are open there.

    It is read once, from the beginning to the end.
    """

    def __init__(self, bare: str) -> None:
        self._bare = bare
        self._marks = _STRUCTURE.finditer(bare)
        self._following = next(self._marks, None)
        self._statement = 0
        self._open: list[tuple[int, bool]] = []
        """Of each: where the first thing inside begins, and whether it selects something."""
        self._copies = _COPIES.match(bare) is not None

    def _advance(self, position: int) -> None:
        while (mark := self._following) is not None and mark.start() < position:
            self._following = next(self._marks, None)
            if mark[0] == ";":
                self._statement = mark.end()
                self._copies = _COPIES.match(self._bare, mark.end()) is not None
                self._open = []
            elif mark[0] == "(":
                self._open.append((_behind_space(self._bare, mark.end()), False))
            elif self._open:
                inside, selects = self._open.pop()
                if mark[0] != ")":
                    self._open.append((inside, True))
                elif selects and self._open:
                    self._open[-1] = (self._open[-1][0], True)

    def names_file(self, found: re.Match[str]) -> bool:
        """Whether the strings of a match, none of which stands before an earlier one's, are paths."""
        self._advance(found.start())
        if found["copy"]:
            return self._copies
        if not found["from"]:
            return True
        if self._is_comparison(found.start()):
            return False
        if not self._open:
            return True
        inside, selects = self._open[-1]
        return selects or inside >= found.start()

    def _is_comparison(self, position: int) -> bool:
        """`is distinct from`"""
        while position > self._statement and self._bare[position - 1].isspace():
            position -= 1
        return (
            _DISTINCT.fullmatch(self._bare, max(position - len(" distinct"), self._statement), position)
            is not None
        )


def _behind_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found is not None else position
