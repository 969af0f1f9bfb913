"""What `--payload` and `--set` give together, and what is too large to be given."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.cli.files import MOST_BYTES_READ
from noetl.cli.payload import payload
from noetl.errors import UsageError
from noetl.settings import Settings


def test_a_file_that_is_too_large_is_refused_with_the_limit_and_another_way(tmp_path: Path) -> None:
    file = tmp_path / "huge.json"
    with file.open("wb") as written:
        written.truncate(MOST_BYTES_READ + 1)  # nothing is written: the file is a hole
    with pytest.raises(UsageError, match=r"huge\.json is too large .* 64 MiB; .* let a task .* read it"):
        payload([], f"@{file}", Settings())


def test_a_file_below_the_limit_is_read(tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    file.write_text('{"a": {"b": 1}}')
    assert payload(["a.c=2"], f"@{file}", Settings()) == {"a": {"b": 1, "c": 2}}
