"""Paths that change between their check and their use, and files that are none."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from noetl.records.outcome import Outcome
from noetl.tools import (
    confinement,
    duckdb,
    http,
    http_request,
    object_folders,
    paths,
    sqlite,
    sqlite_calls,
    transfer,
    transfer_files,
)
from noetl.tools import object as object_kind
from noetl.tools.paths import PathRefusedError, open_under, read_under, under
from tests.unit.tools.local_context import LocalContext, call

confined = pytest.mark.skipif(confinement.version() == 0, reason="the kernel has no Landlock")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("hunter22")
    return folder


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    folder = tmp_path / "execution"
    (folder / "d").mkdir(parents=True)
    (folder / "d" / "secret.txt").write_text("harmless")
    return folder


def swapping(inside: Path, outside: Path) -> Callable[[Path, str], Path]:
    """The check of a path, after which somebody puts a link in the place of its folder."""
    somebody = ThreadPoolExecutor(1)

    def swap() -> None:
        if not (inside / "d").is_symlink():
            (inside / "d").rename(inside / "was")
            (inside / "d").symlink_to(outside)

    def judged(folder: Path, written: str) -> Path:
        path = under(folder, written)
        somebody.submit(swap).result()
        return path

    somebody.submit(bool).result()  # its thread is started here, by one that is not confined
    return judged


def ran(kind: str, run: Any, folder: Path, **config: Any) -> Outcome:
    async def scenario() -> Outcome:
        async with LocalContext(folder) as context:
            outcome: Outcome = await run(call(kind, config), context)
            return outcome

    return asyncio.run(scenario())


def test_a_file_is_not_read_through_a_link_that_came_after_the_check(
    inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_under(inside, "d/../d/secret.txt", 100) == b"harmless"
    monkeypatch.setattr(paths, "under", swapping(inside, outside))
    with pytest.raises(PathRefusedError):
        open_under(inside, "d/secret.txt")


def test_a_file_is_not_sent_through_a_link_that_came_after_the_check(
    tmp_path: Path, inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_request, "under", swapping(inside, outside))
    files = {"secret": "d/secret.txt"}
    outcome = ran("http", http.run, tmp_path, url="http://127.0.0.1:9/", method="POST", files=files)
    assert outcome.error is not None
    assert outcome.error.kind == "config.invalid"


@confined
@pytest.mark.parametrize("suffix", ["db", "db-journal", "db-wal"])
def test_sqlite_makes_nothing_through_a_link_that_came_after_the_check(
    tmp_path: Path, inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    (outside / f"x.{suffix}").write_text("theirs")
    monkeypatch.setattr(sqlite_calls, "under", swapping(inside, outside))
    outcome = ran("sqlite", sqlite.run, tmp_path, database="d/x.db", query="CREATE TABLE t (a)")
    assert outcome.error is not None
    assert outcome.groups["sqlite"]["code"] == "SQLITE_CANTOPEN"
    assert {each.name for each in outside.iterdir()} == {"secret.txt", f"x.{suffix}"}
    assert (outside / f"x.{suffix}").read_text() == "theirs"


@confined
def test_duckdb_makes_and_reads_nothing_through_a_link_that_came_after_the_check(
    tmp_path: Path, inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb_calls = pytest.importorskip("noetl.tools.duckdb_calls", exc_type=ImportError)
    monkeypatch.setattr(duckdb_calls, "under", swapping(inside, outside))
    outcome = ran("duckdb", duckdb.run, tmp_path, database="d/x.duckdb", query="CREATE TABLE t (a INT)")
    assert outcome.error is not None
    assert [each.name for each in outside.iterdir()] == ["secret.txt"]


@confined
@pytest.mark.parametrize(
    "config",
    [
        {"operation": "get", "url": "file://d/secret.txt"},
        {"operation": "put", "url": "file://d/made.txt", "body": "x"},
        {"operation": "put", "url": "file://made.txt", "file": "d/secret.txt"},
        {"operation": "get", "url": "file://there.txt", "file": "d/made.txt"},
        {"operation": "delete", "url": "file://d/secret.txt"},
    ],
    ids=lambda config: "-".join(map(str, config.values())),
)
def test_objects_are_not_reached_through_a_link_that_came_after_the_check(
    tmp_path: Path, inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    (inside / "there.txt").write_text("x")
    monkeypatch.setattr(object_folders, "under", swapping(inside, outside))
    outcome = ran("object", object_kind.run, tmp_path, **config)
    assert outcome.error is not None
    assert "hunter22" not in str(outcome)
    assert [each.name for each in outside.iterdir()] == ["secret.txt"]


@confined
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_rows_are_not_moved_through_a_link_that_came_after_the_check(
    tmp_path: Path, inside: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    (inside / "from.csv").write_text("a\n1\n")
    source = {"kind": "file", "url": "from.csv"}
    target = {"kind": "file", "url": f"d/made.{ending}"}
    monkeypatch.setattr(transfer_files, "under", swapping(inside, outside))
    outcome = ran("transfer", transfer.run, tmp_path, source=source, target=target)
    assert outcome.error is not None
    assert [each.name for each in outside.iterdir()] == ["secret.txt"]


@confined
def test_duckdb_follows_no_link_out_of_the_folder(tmp_path: Path, inside: Path, outside: Path) -> None:
    (inside / "out").symlink_to(outside)
    (inside / ".duckdb").symlink_to(outside)  # where it puts what does not fit into memory
    for query in (
        "SELECT content FROM read_text('out/secret.txt')",
        "COPY (SELECT 1 AS a) TO 'out/made.csv'",
        "ATTACH 'out/made.duckdb' AS made; CREATE TABLE made.t (a INT)",
    ):
        outcome = ran("duckdb", duckdb.run, tmp_path, query=query)
        assert outcome.error is not None, query
    assert [each.name for each in outside.iterdir()] == ["secret.txt"]


@confined
def test_a_confined_thread_opens_its_folder_and_the_systems_alone(inside: Path, outside: Path) -> None:
    found: dict[str, bool] = {}

    def work() -> None:
        confinement.confine_this_thread(inside)
        (inside / "d" / "made").write_text("x")
        (inside / "d" / "made").unlink()
        for path in (str(outside / "secret.txt"), "/etc/passwd", "/proc/self/environ", os.__file__):
            try:
                found[Path(path).name] = bool(Path(path).read_bytes())
            except PermissionError:
                found[Path(path).name] = False

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == {"secret.txt": False, "passwd": False, "environ": False, "os.py": True}
    assert (outside / "secret.txt").read_text() == "hunter22"  # other threads are as they were


def test_sqlite_sorts_on_disk_although_its_thread_is_confined(tmp_path: Path) -> None:
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000)"
    text = f"PRAGMA cache_size = 10; {numbers} SELECT i FROM n ORDER BY hex(randomblob(100)) || i LIMIT 1"
    outcome = ran("sqlite", sqlite.run, tmp_path, query=text)
    assert outcome.error is None
    assert len(outcome.result) == 1


def test_a_pipe_is_no_file(inside: Path) -> None:
    os.mkfifo(inside / "pipe")
    for opening in (under, open_under):
        with pytest.raises(PathRefusedError):
            opening(inside, "pipe")
    with pytest.raises(FileNotFoundError):
        open_under(inside, "d")
    with pytest.raises(FileNotFoundError):
        open_under(inside, "d/missing")


def test_a_file_that_is_too_large_is_not_read(inside: Path) -> None:
    with pytest.raises(PathRefusedError):
        read_under(inside, "d/secret.txt", 3)
