"""What every part of a front end needs while it turns nodes into the model."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from noetl.playbook.diagnostics import Position
from noetl.playbook.fields import Fields, is_templated
from noetl.playbook.findings import Findings, Place
from noetl.playbook.reader import Mapping, Node

ALWAYS_IN_SCOPE: Final = frozenset(
    {"workload", "ctx", "vars", "args", "keychain", "execution_id"}
    | {"iter", "loop_index", "_prev", "_task", "_attempt", "_action_id"}
)
SOMETIMES_IN_SCOPE: Final = frozenset(
    {"outcome", "event", "response", "error", "result", "this", "join_results"}
    | {"attempt", "max_attempts", "status_code", "success", "data"}
)
WORDS_OF_TEMPLATES: Final = frozenset(
    {"none", "true", "false", "None", "True", "False", "and", "or", "not", "in", "is", "if", "else"}
)


class Lowering:
    """The findings of a file, the tool kinds it may use, and whether v2's words are known."""

    __slots__ = ("findings", "kinds", "v2")

    def __init__(self, findings: Findings, kinds: Collection[str], *, v2: bool = False) -> None:
        self.findings = findings
        self.kinds = kinds
        self.v2 = v2

    def fields(
        self, node: Node, what: str, known: Collection[str], reported: Collection[str] = ()
    ) -> Fields | None:
        """The fields of a mapping; anything else is reported."""
        if isinstance(node, Mapping):
            return Fields(self.findings, node, what, known, reported)
        self.findings.report("value.type", node, f"{what} must be a mapping")
        return None

    def declare(self, what: str, name: str, where: Place) -> None:
        """Reports a step, task label or iterator whose name hides another, or is none."""
        if "{" in name and is_templated(name):
            self.findings.report(
                "value.template",
                where,
                f"the name of {what} cannot be a template",
                "it is fixed before anything runs",
            )
        elif name in ALWAYS_IN_SCOPE:
            self.findings.report(
                "name.reserved", where, f"{what} cannot be named `{name}`, which is always in scope"
            )
        elif name in SOMETIMES_IN_SCOPE:
            self.findings.report(
                "name.hidden",
                where,
                f"{what} named `{name}` is hidden wherever the language's own `{name}` is in scope",
                "choose another name",
            )
        elif name in WORDS_OF_TEMPLATES:
            self.findings.report(
                "name.hidden",
                where,
                f"{what} named `{name}` cannot be read, for templates have that word themselves",
                "choose another name",
            )


def position(where: Place) -> Position:
    return Position(where.line, where.column)
