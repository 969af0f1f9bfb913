"""Where a SQLite store can be opened, by whom, and what is said where it cannot."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from noetl.store import sqlite_connection
from noetl.store.protocol import InboxRow, StoreError
from noetl.store.queries import Migration, migrations
from noetl.store.sqlite import open_store
from tests.contract.store.changes import change, event

CANCEL = InboxRow(request_id="r", kind="cancel", execution_id="1")
OWN = """
import asyncio, sys
from noetl.store.sqlite import open_store
store = open_store(sys.argv[1])
print("owned", flush=True)
sys.stdin.read()
asyncio.run(store.close())
"""


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/noetl.db"


async def written(folder: Path, count: int = 1) -> None:
    """A database with `count` events of execution 1."""
    store = open_store(url(folder))
    await store.append(change("1", count=count))
    await store.close()


@contextmanager
def owned_by_a_child(folder: Path) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", OWN, url(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "owned\n"
        yield child


def test_relative_and_absolute_addresses_name_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def scenario() -> None:
        relative = open_store("sqlite:///deep/folder/a.db")
        absolute = open_store(f"sqlite:///{tmp_path}/b.db")
        assert relative.path == tmp_path / "deep/folder/a.db"
        assert absolute.path == tmp_path / "b.db"
        await relative.close()
        await absolute.close()

    asyncio.run(scenario())
    assert (tmp_path / "deep/folder/a.db").is_file()
    assert (tmp_path / "b.db").is_file()


@pytest.mark.parametrize(
    "address", ["sqlite:///", "sqlite://x", "postgresql://x/y", "noetl.db", "sqlite:///a\0b"]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(StoreError, match=r"sqlite:///folder/file\.db"):
        open_store(address)


def test_commits_are_synchronous_and_the_log_is_written_ahead(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(url(tmp_path))
        assert store.synchronous == "full"
        await store.append(change("1"))
        assert (tmp_path / "noetl.db-wal").stat().st_size > 0
        await store.close()
        assert not (tmp_path / "noetl.db-wal").exists()

    asyncio.run(scenario())


def test_what_was_written_is_there_when_the_store_is_opened_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        await written(tmp_path, 3)
        store = open_store(url(tmp_path), create=False)
        await store.append(change("1", 3))
        assert await store.events("1") == [event("1", seq) for seq in range(1, 5)]
        await store.close()

    asyncio.run(scenario())


def test_a_missing_database_is_made_only_by_an_owner_who_wants_it(tmp_path: Path) -> None:
    for create, owner in ((False, True), (True, False), (False, False)):
        with pytest.raises(StoreError, match="no database"):
            open_store(url(tmp_path), create=create, owner=owner)
    assert list(tmp_path.iterdir()) == []


def test_a_second_owner_is_refused_by_the_number_of_the_first(tmp_path: Path) -> None:
    with owned_by_a_child(tmp_path) as child:
        with pytest.raises(StoreError, match=rf"process {child.pid} owns it"):
            open_store(url(tmp_path))
        reader = open_store(url(tmp_path), owner=False)
        assert reader.owned_by_other()
        child.communicate("")
        assert not reader.owned_by_other()
        asyncio.run(reader.close())
    asyncio.run(open_store(url(tmp_path)).close())


def test_a_second_owner_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(url(tmp_path))
        with pytest.raises(StoreError, match="this process already owns it"):
            open_store(url(tmp_path))
        reader = open_store(url(tmp_path), owner=False)
        assert reader.owned_by_other()
        assert not store.owned_by_other()
        # Neither the refusal nor the question has cost the owner its lock.
        refused = subprocess.run([sys.executable, "-c", OWN, url(tmp_path)], capture_output=True, text=True)
        assert f"process {os.getpid()} owns it" in refused.stderr
        await store.close()
        assert not reader.owned_by_other()
        await reader.close()

    asyncio.run(scenario())


def test_two_names_of_one_file_have_one_owner(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path))
    (tmp_path / "link.db").symlink_to("noetl.db")

    async def scenario() -> None:
        store = open_store(url(tmp_path))
        with pytest.raises(StoreError, match="owns it"):
            open_store(f"sqlite:///{tmp_path}/link.db")
        await store.close()

    asyncio.run(scenario())


def test_another_process_reads_and_asks_but_does_not_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(url(tmp_path))
        await store.append(change("1"))
        reader = open_store(url(tmp_path), owner=False)
        assert await reader.events("1") == [event("1", 1)]
        for refused in (
            reader.append(change("1", 1)),
            reader.take_inbox(),
            reader.register("p", "p", "v2", b"", "now"),
        ):
            with pytest.raises(StoreError, match="opened for reading"):
                await refused
        await reader.put_inbox(CANCEL)
        assert await store.take_inbox() == [CANCEL]
        await reader.close()
        await store.close()

    asyncio.run(scenario())


def test_the_owner_notices_what_others_wrote_and_not_its_own_writing(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_store(url(tmp_path))
        reader = open_store(url(tmp_path), owner=False)
        assert await store.changed()
        assert not await store.changed()
        await store.append(change("1"))
        assert not await store.changed()
        await reader.put_inbox(CANCEL)
        assert await store.changed()
        assert not await store.changed()
        await reader.put_inbox(InboxRow(request_id="s", kind="pause", execution_id="1"))
        await store.append(change("1", 1))  # its own commit does not hide theirs
        assert await store.changed()
        await reader.close()
        await store.close()

    asyncio.run(scenario())


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "noetl.db").write_bytes(b"a letter to nobody\n" * 500)
    for owner in (True, False):
        with pytest.raises(StoreError, match="not a SQLite database"):
            open_store(url(tmp_path), owner=owner)
    assert (tmp_path / "noetl.db").read_bytes() == b"a letter to nobody\n" * 500


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "noetl.db")) as other:
        other.execute("CREATE TABLE letters (text)")
    before = (tmp_path / "noetl.db").read_bytes()
    with pytest.raises(StoreError, match="another program"):
        open_store(url(tmp_path))
    assert (tmp_path / "noetl.db").read_bytes() == before


def test_an_empty_file_becomes_a_database_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "noetl.db").touch()
    with pytest.raises(StoreError, match="is empty"):
        open_store(url(tmp_path), owner=False)
    asyncio.run(written(tmp_path))


def test_a_schema_from_the_future_is_refused(tmp_path: Path) -> None:
    asyncio.run(written(tmp_path))
    with closing(sqlite3.connect(tmp_path / "noetl.db")) as later:
        later.execute("INSERT INTO migration VALUES (999, 'later', 'then')")
        later.commit()
    for owner in (True, False):
        with pytest.raises(StoreError, match="schema 999"):
            open_store(url(tmp_path), owner=owner)


def test_a_refused_opening_gives_the_lock_back(tmp_path: Path) -> None:
    (tmp_path / "noetl.db").write_bytes(b"no database" * 500)
    with pytest.raises(StoreError, match="not a SQLite database"):
        open_store(url(tmp_path))
    (tmp_path / "noetl.db").unlink()
    asyncio.run(written(tmp_path))


async def read_all(folder: Path) -> None:
    store = open_store(url(folder))
    try:
        await store.events("1")
    finally:
        await store.close()


def test_a_truncated_database_is_called_damaged(tmp_path: Path) -> None:
    async def scenario() -> None:
        await written(tmp_path, 2000)
        size = (tmp_path / "noetl.db").stat().st_size
        os.truncate(tmp_path / "noetl.db", size // 2 // 4096 * 4096)
        with pytest.raises(StoreError, match="damaged"):
            await read_all(tmp_path)

    asyncio.run(scenario())


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="can be no database"):
        open_store(f"sqlite:///{tmp_path}/file/noetl.db")
    with pytest.raises(StoreError, match="can be no database"):
        open_store(f"sqlite:///{tmp_path}/{'long' * 100}/noetl.db")
    with pytest.raises(StoreError, match="is a folder"):
        open_store(f"sqlite:///{tmp_path}")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that not even root can write")
def test_a_read_only_folder_is_refused_with_what_to_do() -> None:
    with pytest.raises(StoreError, match="Make the folder writable"):
        open_store("sqlite:////proc/noetl.db")


def test_a_migration_is_applied_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(written(tmp_path))
    known = list(migrations("sqlite"))
    number = known[-1].version + 1
    broken = Migration(number, "broken", "CREATE TABLE half (x);\nINSERT INTO nowhere VALUES (1);\n")
    monkeypatch.setattr(sqlite_connection, "migrations", lambda _: iter([*known, broken]))
    with pytest.raises(StoreError, match="nowhere"):
        open_store(url(tmp_path))
    mended = Migration(number, "mended", "CREATE TABLE half (x);\n-- no more; than this\n")
    monkeypatch.setattr(sqlite_connection, "migrations", lambda _: iter([*known, mended]))
    for _ in range(2):
        asyncio.run(open_store(url(tmp_path)).close())
    with closing(sqlite3.connect(tmp_path / "noetl.db")) as raw:
        names = [name for (name,) in raw.execute("SELECT name FROM migration ORDER BY version")]
    assert names == [*(each.name for each in known), "mended"]
