"""Every exception NoETL raises on purpose, each with a stable code.

    NoetlError
    ├── UsageError               a command line that cannot be carried out
    └── TemplateError            a template that cannot be parsed or evaluated
        ├── TemplateSyntaxError  it does not parse; knows the offset
        ├── UndefinedNameError   it reads a name that is not there
        ├── TemplateBudgetError  it would do more work than its budget allows
        └── TemplateValueError   an operator or filter failed on the values it got

A failed task is not an exception but an outcome (see `records/outcome.py`), and a mistake in a
playbook is a diagnostic (see `playbook/diagnostics.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Collection


class NoetlError(Exception):
    code: ClassVar[str] = "noetl.error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageError(NoetlError):
    code = "usage"


class TemplateError(NoetlError):
    code = "template.error"


class TemplateSyntaxError(TemplateError):
    """`offset` counts characters from the start of the template's source.

    Where a word is not one of those `known`, `word` is that word.
    """

    code = "template.syntax"

    def __init__(self, message: str, offset: int, word: str = "", known: Collection[str] = ()) -> None:
        super().__init__(message)
        self.offset = offset
        self.word = word
        self.known = known


class UndefinedNameError(TemplateError):
    """`name` is the dotted path that was looked up, as far as it got."""

    code = "template.undefined"

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


class TemplateBudgetError(TemplateError):
    code = "template.budget"


class TemplateValueError(TemplateError):
    code = "template.value"
