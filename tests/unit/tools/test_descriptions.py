"""What every description of a tool kind must say, and what its fields take."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.records.outcome import COMMON_FIELDS
from noetl.records.tool import LANGUAGE_FIELDS, ToolDescription, field_types
from noetl.tools.registry import builtin_kinds

KINDS = builtin_kinds()
every = pytest.mark.parametrize("description", [KINDS[name] for name in KINDS], ids=list(KINDS))


@every
def test_every_field_has_one_sentence(description: ToolDescription) -> None:
    assert description.summary.endswith(".")
    for info in field_types(description).values():
        assert info.description.endswith("."), info.name
        assert "\n" not in info.description


@every
def test_no_field_takes_a_key_of_the_language(description: ToolDescription) -> None:
    assert not field_types(description).keys() & LANGUAGE_FIELDS


@every
def test_what_a_description_names_are_its_fields(description: ToolDescription) -> None:
    fields = field_types(description)
    named = {name for group in description.one_of for name in group}
    named |= {*description.synonyms, *description.synonyms.values(), *description.code_fields}
    named |= {name.partition(".")[0] for name in description.sql_fields}
    assert named <= fields.keys()
    assert (description.outcome_group is None) == (description.outcome_fields == ())
    assert description.outcome_group not in COMMON_FIELDS


@every
def test_every_kind_that_runs_takes_auth(description: ToolDescription) -> None:
    assert ("auth" in field_types(description)) == (description.kind != "iterator")


@every
def test_a_default_fits_its_own_type(description: ToolDescription) -> None:
    for info in field_types(description).values():
        if not info.required:
            assert msgspec.convert(info.default, info.type) == info.default


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("http", {"method": "GET", "url": "http://x", "params": {"page": 1}, "body": {"a": [1]}}),
        ("http", {"endpoint": "http://x", "auth": {}, "redirects": 3, "tls": {"verify": False}}),
        ("python", {"code": "result = 1", "libs": {}, "auth": {}}),
        ("shell", {"command": "exit 3", "env": {"A": 1}}),
        ("shell", {"cmds": ["a", "b"]}),
        ("postgres", {"query": "SELECT 1", "params": [1], "auth": "pg", "key": ["a", "b"]}),
        ("duckdb", {"table": "t", "mode": "upsert", "key": "id", "database": "x.duckdb"}),
        ("playbook", {"path": "a/b", "version": 2}),
        ("iterator", {"in": [1], "iterator": "x", "tool": {"kind": "noop"}}),
        ("nats", {"operation": "kv_create", "bucket": "b", "key": "k", "value": {"a": 1}, "ttl": "1h"}),
        ("transfer", {"source": {"kind": "postgres"}, "target": {"kind": "s3", "format": "csv"}}),
        ("wait", {"duration": 5}),
        ("wait", {"duration": "5m"}),
    ],
)
def test_fields_as_people_write_them_fit(kind: str, config: dict[str, Any]) -> None:
    fields = field_types(KINDS[kind])
    for name, value in config.items():
        msgspec.convert(value, fields[name].type)
    assert msgspec.convert(config, KINDS[kind].config)


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("http", "method", "FETCH"),
        ("http", "url", 5),
        ("http", "headers", ["a"]),
        ("http", "tls", {"verfy": False}),
        ("python", "code", ["a"]),
        ("python", "libs", {"pd": 5}),
        ("shell", "cmds", {"a": 1}),
        ("postgres", "mode", "append"),
        ("postgres", "params", "x"),
        ("s3", "operation", "fetch"),
        ("transfer", "source", {"query": "SELECT 1"}),
        ("transfer", "batch_size", 0),
        ("container", "network", "yes"),
    ],
)
def test_a_constant_that_does_not_fit_is_told(kind: str, field: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(value, field_types(KINDS[kind])[field].type)


def test_sql_kinds_mark_their_texts_as_sql() -> None:
    for kind in ("postgres", "duckdb", "sqlite", "snowflake"):
        assert KINDS[kind].sql_fields == ("query", "command")
    assert KINDS["transfer"].sql_fields == ("source.query",)


def test_code_kinds_mark_their_texts_as_code() -> None:
    assert KINDS["python"].code_fields == ("code",)
    assert KINDS["shell"].code_fields == ("cmds", "command")


def test_the_outcome_fields_are_those_of_the_specification() -> None:
    groups = {kind: (KINDS[kind].outcome_group, KINDS[kind].outcome_fields) for kind in KINDS}
    assert groups["http"] == ("http", ("status", "headers", "request_id"))
    assert groups["postgres"] == ("pg", ("code", "sqlstate"))
    assert groups["python"] == ("py", ("exception_type",))
    assert groups["shell"] == ("shell", ("exit_code",))
