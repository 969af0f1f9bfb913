"""Collects the diagnostics of one file.

Lowering and checking report here and go on, so that all problems of a file are found in one pass.
A code's severity comes from the catalogue in `codes.py`, never from the place that reports it.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from itertools import chain
from typing import Final, Protocol

from noetl.playbook.codes import CODES
from noetl.playbook.diagnostics import Diagnostic, nearest

LONGEST_TEXT: Final = 400
"""Characters of a message or hint; names in them come from the file and can be as long as it is."""

MOST_COMPARISONS: Final = 20_000
"""Words compared for the hints of one file: enough for every slip of a person, not for a flood of them."""


class Place(Protocol):
    """Anything with a position: a node of the document or a `Position`."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


class Findings:
    def __init__(self) -> None:
        self._found: list[Diagnostic] = []
        self._comparisons_left = MOST_COMPARISONS

    def report(self, code: str, where: Place, message: str, hint: str | None = None) -> None:
        self._found.append(
            Diagnostic(
                severity=CODES[code].severity,
                code=code,
                message=one_line(message),
                line=where.line,
                column=where.column,
                hint=None if hint is None else one_line(hint),
            )
        )

    def guess(self, word: str, *known: Collection[str]) -> str | None:
        """The known word that was meant, as long as the file has not asked too often."""
        self._comparisons_left -= sum(map(len, known))
        if self._comparisons_left < 0:
            return None
        # Among equally near words the first one wins, and the order of a set differs from run to run.
        return nearest(word, chain(*(sorted(words) if isinstance(words, Set) else words for words in known)))

    def add(self, diagnostics: list[Diagnostic]) -> None:
        self._found.extend(diagnostics)

    @property
    def has_errors(self) -> bool:
        return any(found.severity == "error" for found in self._found)

    def sorted(self) -> tuple[Diagnostic, ...]:
        """In the order of the file, without repetitions."""
        return tuple(sorted(dict.fromkeys(self._found), key=lambda d: (d.line, d.column, d.severity, d.code)))


def one_line(text: str) -> str:
    """The text without line breaks and control characters, and not longer than can be read."""
    if len(text) > LONGEST_TEXT:
        text = f"{text[: LONGEST_TEXT // 2]} … {text[-LONGEST_TEXT // 2 + 3 :]}"
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split()))
