"""What a run leaves in the state folder, and that no other user of the machine can read it."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.cli import main
from noetl.cli.stack.cluster import Cluster
from noetl.cli.stack.nats_server import free_port
from noetl.results.bodies import FileBodies
from noetl.store.registry_sqlite import open_sqlite_registry
from noetl.store.sqlite import open_store

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: demo, path: demo}
workflow:
  - {step: start, tool: {kind: noop}}
"""


@pytest.fixture(autouse=True)
def readable_by_default() -> Iterator[None]:
    """What most machines have: files that say nothing else can be read by everybody."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}


def ran(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    monkeypatch.chdir(folder)
    (folder / "demo.yaml").write_text(PLAYBOOK, "utf-8")
    assert main(["run", "demo.yaml"]) == 0
    return modes(folder / ".noetl")


def test_a_run_makes_its_state_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran(tmp_path, monkeypatch)
    assert found[".noetl"] == 0o700
    assert found["store.db"] == 0o600
    assert found["store.db.lock"] == 0o600
    assert [name for name, mode in found.items() if mode & 0o077] == []


def test_a_state_folder_that_is_there_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".noetl").mkdir(mode=0o755)
    found = ran(tmp_path, monkeypatch)
    assert found.pop(".noetl") == 0o755
    assert [name for name, mode in found.items() if mode & 0o077] == []


def test_the_journal_of_a_database_is_for_its_user_alone_too(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "deeper"

    async def scenario() -> dict[str, int]:
        store = open_store(f"sqlite:///{folder}/store.db")
        try:
            return modes(folder)
        finally:
            await store.close()

    found = asyncio.run(scenario())
    assert {"store.db", "store.db-wal", "store.db-shm", "store.db.lock"} <= set(found)
    assert [name for name, mode in found.items() if mode & 0o077] == []
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_a_registry_that_comes_first_makes_it_so_as_well(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    registry = open_sqlite_registry(f"sqlite:///{folder}/store.db")
    try:
        assert [name for name, mode in modes(folder).items() if mode & 0o077] == []
    finally:
        asyncio.run(registry.close())


def test_a_database_that_others_may_read_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch(mode=0o644)
    asyncio.run(open_store(f"sqlite:///{path}").close())
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_bodies_of_results_are_for_their_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "files"
    asyncio.run(FileBodies(folder).put("7", b"body", media_type="text/plain", store=None))
    found = modes(tmp_path / "state")
    assert [name for name, mode in found.items() if mode & 0o077 and len(name) != 64] == []


def test_a_cluster_makes_the_state_folder_for_its_user_alone(tmp_path: Path) -> None:
    Cluster(tmp_path / ".noetl" / "cluster").choose(free_port())
    assert [name for name, mode in modes(tmp_path / ".noetl").items() if mode & 0o077] == []
