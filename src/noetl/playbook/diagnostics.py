"""What is wrong with a playbook, and where: the one shape in which every check reports.

A diagnostic is data, never an exception; it names a stable code and a place in the file as an editor
counts it. The guess at what a mistyped word was meant to be lives here too, for the hints. This module
knows nothing of YAML or of the language, and holds no list of codes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

# A longer word is no typing slip; the bound also keeps hostile input from buying quadratic work.
LONGEST_GUESSED_WORD = 64


class Position(NamedTuple):
    """Line and column count from 1; the column counts characters, a tab being one."""

    line: int
    column: int


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    severity: Literal["error", "warning"]
    code: str
    message: str
    line: int
    column: int
    hint: str | None = None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was most likely meant to be, or None when nothing is near.

    Capitals do not count as different. Among equally near words the one that shares its first letter
    wins, then the one listed first.
    """
    typed = word.casefold()
    if not typed or len(typed) > LONGEST_GUESSED_WORD:
        return None
    allowed = max(1, min(3, len(typed) // 3))
    best: str | None = None
    best_rank = (allowed + 1, True)
    for candidate in known:
        meant = candidate.casefold()
        if abs(len(meant) - len(typed)) > allowed:
            continue
        # Two letters are one slip away from half the alphabet: all of them must come back.
        if len(typed) < 3 and not set(typed) <= set(meant):
            continue
        distance = _edit_distance(typed, meant, best_rank[0])
        rank = (distance, meant[:1] != typed[0])
        if distance < max(len(typed), 2) and rank < best_rank:
            best, best_rank = candidate, rank
    return best


def _edit_distance(left: str, right: str, most: int) -> int:
    """Insertions, deletions, replacements and swaps of neighbours that turn `left` into `right`.

    More than `most` of them are not counted to the end.
    """
    before_last: list[int] = []
    last = list(range(len(right) + 1))
    for row, letter in enumerate(left, 1):
        current = [row]
        for column, other in enumerate(right, 1):
            cost = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == right[column - 2] and left[row - 2] == other:
                cost = min(cost, before_last[column - 2] + 1)
            current.append(cost)
        # A swap reaches back two rows, so two in succession beyond the bound settle it.
        if min(current) > most and min(last) > most:
            return most + 1
        before_last, last = last, current
    return last[-1]
