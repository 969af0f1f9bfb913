"""Collects the diagnostics of one file.

Lowering and checking report here and go on, so that all problems of a file are found in one pass.
A code's severity comes from the catalogue in `codes.py`, never from the place that reports it.
"""

from __future__ import annotations

from typing import Protocol

from noetl.playbook.codes import CODES
from noetl.playbook.diagnostics import Diagnostic


class Place(Protocol):
    """Anything with a position: a node of the document or a `Position`."""

    @property
    def line(self) -> int: ...

    @property
    def column(self) -> int: ...


class Findings:
    def __init__(self) -> None:
        self._found: list[Diagnostic] = []

    def report(self, code: str, where: Place, message: str, hint: str | None = None) -> None:
        self._found.append(
            Diagnostic(
                severity=CODES[code].severity,
                code=code,
                message=message,
                line=where.line,
                column=where.column,
                hint=hint,
            )
        )

    def add(self, diagnostics: list[Diagnostic]) -> None:
        self._found.extend(diagnostics)

    @property
    def has_errors(self) -> bool:
        return any(found.severity == "error" for found in self._found)

    def sorted(self) -> tuple[Diagnostic, ...]:
        """In the order of the file, without repetitions."""
        return tuple(sorted(dict.fromkeys(self._found), key=lambda d: (d.line, d.column, d.severity, d.code)))
