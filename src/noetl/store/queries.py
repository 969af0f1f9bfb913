"""Reads SQL files: named queries, single statements of a script, and the numbered migrations.

A query begins with a line `-- name: word`; comments may follow it. Nothing here knows a database.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "sql"
"""The files lie in the package, so reading them needs no more than its place."""

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_ONE_ROW = re.compile(r"VALUES (\([?, ]+\))")


class Migration(NamedTuple):
    version: int
    name: str
    script: str


@cache
def queries(dialect: str, topic: str = "queries") -> Mapping[str, str]:
    """The named queries of one database in the file of that topic, without comments."""
    parts = _NAME.split((FOLDER / dialect / f"{topic}.sql").read_text("utf-8"))
    return {
        name: _COMMENT.sub("", text).strip().removesuffix(";")
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


@cache
def for_rows(query: str, count: int) -> str:
    """A query that is written for one row of values, for `count` of them."""
    return _ONE_ROW.sub(lambda found: "VALUES " + ", ".join([found[1]] * count), query, count=1)


def migrations(dialect: str) -> Iterator[Migration]:
    """In the order they are to be applied."""
    for file in sorted((FOLDER / dialect).glob("[0-9]*_*.sql")):
        number, _, name = file.stem.partition("_")
        yield Migration(int(number), name, file.read_text("utf-8"))
