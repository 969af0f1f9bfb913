"""Values in SQL text that could never be quoted safely, as far as the text alone shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.playbook.diagnostics import Position
from noetl.playbook.findings import Findings
from noetl.playbook.model import NOWHERE, Task, Value
from noetl.records.tool import ToolDescription
from noetl.template import Template

if TYPE_CHECKING:
    from noetl.template.sql import Dialect, Spot

DIALECTS: Final[dict[str, Dialect]] = {
    "postgres": "postgres",
    "duckdb": "duckdb",
    "sqlite": "sqlite",
    "snowflake": "snowflake",
}
NO_VALUE_IN: Final = {
    "comment": ("sql.value_in_comment", "a comment"),
    "dollar_quote": ("sql.value_in_dollar_quote", "a dollar quote"),
    "identifier": ("sql.value_in_identifier", "a quoted name"),
}
TRUSTED: Final = "sql"
AS_NAME: Final = ("identifier", TRUSTED)


def check_sql(task: Task, description: ToolDescription, findings: Findings) -> None:
    for name in description.sql_fields:
        owner: Value = task.config | {"kind": task.kind}
        *outer, last = name.split(".")
        for key in outer:
            owner = owner.get(key)
            if not isinstance(owner, dict):
                owner = {}
        kind, text = owner.get("kind"), owner.get(last)
        if isinstance(kind, str) and kind in DIALECTS and isinstance(text, Template):
            _check_text(text, DIALECTS[kind], findings)


def _check_text(text: Template, dialect: Dialect, findings: Findings) -> None:
    # The patterns of the lexer take as long to compile as a bare interpreter takes to start.
    from noetl.template.sql import survey  # noqa: PLC0415

    surveyed = survey(text.source, dialect)
    if surveyed is None:
        return
    if surveyed.whole and surveyed.spots[0].last_filter != TRUSTED:
        findings.report(
            "sql.whole_text",
            text.at or NOWHERE,
            "a SQL text that is one whole expression would run whatever its value says",
            "write the statement here, or say that you trust it: {{ … | sql }}",
        )
        return
    for spot in surveyed.spots:
        _check_spot(text, spot, findings)


def _check_spot(text: Template, spot: Spot, findings: Findings) -> None:
    at: Position = NOWHERE if text.at is None else text.at.locate(spot.offset)
    if spot.last_filter == TRUSTED:
        findings.report(
            "sql.trusted_text",
            at,
            "`| sql` puts this value into the statement as it is",
            "be sure where it comes from",
        )
    elif spot.place in NO_VALUE_IN:
        code, where = NO_VALUE_IN[spot.place]
        findings.report(
            code, at, f"a value cannot stand in {where}", "move it out, or bind it with `params:`"
        )
    elif spot.wants_name and spot.last_filter not in AS_NAME:
        findings.report(
            "sql.value_as_name",
            at,
            "a name must stand here, and a value would be quoted as text",
            "{{ … | identifier }}",
        )
