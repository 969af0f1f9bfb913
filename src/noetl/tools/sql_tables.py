"""Rows for a table: what `table`, `args`, `mode` and `key` of a SQL kind come to.

Names are quoted and values bound, so nothing in a row can become part of a statement. Rows with the same
columns go together; a column that a row leaves out gets the table's default.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from noetl.errors import TemplateValueError
from noetl.template.sql_literals import quoted_name
from noetl.tools.sql import SqlConfig
from noetl.tools.sql_calls import invalid


class Batch(NamedTuple):
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]


class TableWrite(NamedTuple):
    """What is to be written where."""

    table: str
    """Quoted."""
    batches: list[Batch]
    config: SqlConfig

    def insert(self, columns: tuple[str, ...], source: str) -> str:
        """The statement; `source` gives the values, in the order of the columns."""
        names = ", ".join(self.quoted(name) for name in columns)
        return f"INSERT INTO {self.table} ({names}) {source}{self._on_conflict(columns)}"

    @staticmethod
    def quoted(column: str) -> str:
        return _quoted([column])

    def _on_conflict(self, columns: tuple[str, ...]) -> str:
        if self.config.mode != "upsert":
            return ""
        key = _key(self.config)
        missing = [name for name in key if name not in columns]
        if missing:
            raise invalid(f"a row lacks the column `{missing[0]}`, which is in `key`")
        quoted = ", ".join(self.quoted(name) for name in key)
        others = [self.quoted(name) for name in columns if name not in key]
        change = ", ".join(f"{name} = excluded.{name}" for name in others)
        return f" ON CONFLICT ({quoted}) DO " + (f"UPDATE SET {change}" if others else "NOTHING")


def table_write(config: SqlConfig, args: object) -> TableWrite:
    assert config.table is not None
    if config.query is not None or config.command is not None:
        raise invalid("a task has either SQL text or a `table` for its `args`, not both")
    if config.mode == "upsert":
        _key(config)
    rows: list[Any] = args if isinstance(args, list) else [args]
    for row in rows:
        if not isinstance(row, dict) or not row:
            raise invalid("`args` must be a row or a list of rows, each a mapping by column")
    return TableWrite(_quoted(config.table), list(_batches(rows)), config)


def _batches(rows: list[dict[str, Any]]) -> Iterator[Batch]:
    for columns, group in groupby(rows, key=lambda row: tuple(sorted(row))):
        yield Batch(columns, list(group))


def _key(config: SqlConfig) -> list[str]:
    key = [config.key] if isinstance(config.key, str) else config.key
    if not key:
        raise invalid("`mode: upsert` needs `key`: the columns that identify a row")
    return key


def _quoted(name: str | list[str]) -> str:
    try:
        return quoted_name(name)
    except TemplateValueError as error:
        raise invalid(error.message) from None


def bound(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A value as databases without JSON parameters take it: mappings and lists as JSON text."""
    return msgspec.json.encode(value).decode() if isinstance(value, dict | list) else value
