"""The SQL texts of a task are rendered with their values quoted; its other fields are not."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.playbook.model import Task
from noetl.secrets.redaction import Redactor
from noetl.template import Scope, Template
from noetl.worker.calls import Refused, render_call

NAMES = {"name": "O'Neil", "kind": "postgres", "keychain": {"key": "pass'word"}}


def config(
    kind: str, fields: dict[str, Any], sql_fields: tuple[str, ...], redactor: Redactor | None = None
) -> Any:
    call = render_call(
        Task(label="t", kind=kind, config=fields), Scope(NAMES), {}, {}, redactor or Redactor(),
        sql_fields=sql_fields, execution_id="1", step="s", label="t", task_run_id="2", attempt=1,
        action_id="a",
    )  # fmt: skip
    return call.config


def test_values_in_sql_are_quoted_and_other_fields_rendered_as_ever() -> None:
    fields = {"query": Template("SELECT {{ name }}"), "table": Template("{{ name }}"), "params": ["{{ x }}"]}
    assert config("sqlite", fields, ("query", "command")) == {
        "query": "SELECT 'O''Neil'",
        "table": "O'Neil",
        "params": ["{{ x }}"],
    }


def test_the_kind_inside_a_mapping_decides_its_dialect() -> None:
    for kind in ("postgres", Template("{{ kind }}")):
        fields = {"source": {"kind": kind, "query": Template("SELECT E'{{ name }}\\\\'")}}
        assert config("transfer", fields, ("source.query",))["source"]["query"] == "SELECT E'O''Neil\\\\'"


def test_a_value_that_cannot_stand_in_its_place_refuses_the_call() -> None:
    with pytest.raises(Refused) as caught:
        config("duckdb", {"query": Template("{{ name }}")}, ("query",))
    assert caught.value.kind == "template.value"
    with pytest.raises(Refused) as caught:
        config("greeting", {"query": Template("SELECT {{ name }}")}, ("query",))
    assert caught.value.kind == "sql.dialect"


def test_a_secret_is_redacted_in_both_spellings() -> None:
    redactor = Redactor()
    config("sqlite", {"query": Template("SELECT {{ keychain.key }}")}, ("query",), redactor)
    assert "word" not in redactor.text("pass'word and pass''word")
