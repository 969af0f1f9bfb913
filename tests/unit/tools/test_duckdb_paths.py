"""Where a text names files, told in a time that grows no faster than the text."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from noetl.tools.duckdb_paths import with_folder


@pytest.mark.parametrize(
    "text",
    [
        "from 'a' " * 5000,
        "read_x(" + " " * 50_000,
        "(" + " " * 50_000 + "x from 'a' " * 5000,
        " " * 50_000 + "to 'a' " * 5000,
        "(" * 50_000 + " from 'a' " * 5000,
    ],
    ids=["many", "spaces", "inside", "copies", "nested"],
)
def test_a_hostile_text_is_read_once(text: str) -> None:
    started = process_time()
    with_folder(text, Path("/f"))
    assert process_time() - started < 1.5


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("select (select 1 from 'a')", "select (select 1 from '/f/a')"),
        ("select (f(select 1) from 'a')", "select (f(select 1) from '/f/a')"),
        ("select (from 'a')", "select (from '/f/a')"),
        ("select extract(year from 'a')", "select extract(year from 'a')"),
        ("select extract(year from x) from 'a'", "select extract(year from x) from '/f/a'"),
        ("select 1 is distinct from 'a'", "select 1 is distinct from 'a'"),
        ("select xdistinct from 'a'", "select xdistinct from '/f/a'"),
        ("f(; from 'a'", "f(; from '/f/a'"),
        ("copy t to 'a'; select x to 'b'", "copy t to '/f/a'; select x to 'b'"),
        ("select 1; copy t to 'a'", "select 1; copy t to '/f/a'"),
        ("from read_csv( [ 'a', 'b' ])", "from read_csv( [ '/f/a', '/f/b' ])"),
    ],
)
def test_what_stands_before_a_string_decides_whether_it_is_a_path(text: str, written: str) -> None:
    assert with_folder(text, Path("/f")) == written
