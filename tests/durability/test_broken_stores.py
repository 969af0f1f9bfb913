"""The store fails under a running execution: the command says why, and what was committed still replays.

Where a test needs a file system of its own it makes one in a namespace, and is skipped where the system
does not allow that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from noetl.engine.fold import fold
from noetl.engine.state import State
from tests.durability.campaign import Campaign
from tests.durability.lives import NOETL, Execution, Life
from tests.durability.verdict import assert_sound, outcome_of

OWN_MOUNTS = ("unshare", "--map-root-user", "--mount", "sh", "-ec")


def may_mount() -> bool:
    probe = 'mount -t tmpfs -o size=64k none "$1"'
    with contextlib.suppress(OSError):
        return subprocess.run([*OWN_MOUNTS, probe, "sh", "/mnt"], capture_output=True).returncode == 0
    return False


def assert_told(life: Life, execution: Execution, *words: str) -> None:
    """A sentence on standard error and a code that says that it did not work; the log is whole."""
    assert life.exit_code == 2, life.stderr
    assert "Traceback" not in life.stderr
    assert life.stderr.startswith("noetl ")
    for word in words:
        assert word in life.stderr
    for execution_id, log in execution.logs().items():
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        state = State(execution_id=execution_id)
        for event in log:
            fold(state, event)
        assert state.status == "running"


def test_a_full_disk_ends_the_run_with_advice_and_the_execution_goes_on_later(killing: Campaign) -> None:
    execution = killing.execution("large")
    limit = 'ulimit -f 700; exec "$@"'  # in halves of a kilobyte
    life = execution.live_wrapped("sh", "-c", limit, "sh")
    assert_told(
        life, execution, "what was committed before is safe", f"noetl resume {execution.execution_id}"
    )
    killing.to_the_end(execution)


@pytest.mark.skipif(not may_mount(), reason="no file systems can be mounted here")
def test_a_full_file_system_ends_the_run_and_more_room_lets_it_go_on(killing: Campaign) -> None:
    execution = killing.execution("large")
    small = execution.folder / "small"
    small.mkdir()
    script = """
        mount -t tmpfs -o size=600k none "$1"
        set +e
        "$2" run "$3" --set "api=$4" --store "sqlite:///$1/store.db" --json -q; echo "$?" >"$5/first"
        set -e
        mount -o remount,size=20m "$1"
        found=$("$2" list --store "sqlite:///$1/store.db" | grep -oE '[0-9]{15,}')
        "$2" resume "$found" --store "sqlite:///$1/store.db" --json -q
        cp "$1/store.db" "$5/store.db"
    """
    given = [str(small), NOETL, str(execution.shape.file), execution.outside.url, str(execution.folder)]
    ended = subprocess.run([*OWN_MOUNTS, script, "sh", *given], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert (execution.folder / "first").read_text() == "2\n"
    assert "the disk is full" in ended.stderr
    assert "hint: what was finished is kept; go on with `noetl resume" in ended.stderr
    assert execution.is_over
    assert outcome_of(execution.document()) == killing.undisturbed("large").outcome


@pytest.mark.skipif(not may_mount(), reason="no file systems can be mounted here")
def test_a_read_only_folder_is_named_and_the_execution_goes_on_where_it_can_be_written(
    killing: Campaign,
) -> None:
    execution = killing.execution("chain")
    execution.live_until_call(3, lambda process: process.kill())
    read_only = 'mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"; shift; exec "$@"'
    arguments = [NOETL, "resume", str(execution.execution_id), "--store", execution.store, "--json"]
    refused = subprocess.run(
        [*OWN_MOUNTS, read_only, "sh", str(execution.folder), *arguments], capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert str(execution.folder) in refused.stderr
    assert "writable" in refused.stderr
    killing.to_the_end(execution)


def test_a_database_that_stays_locked_ends_the_run_with_advice(killing: Campaign) -> None:
    execution = killing.execution("pages")
    with contextlib.ExitStack() as locked:

        def lock(process: object) -> None:
            other = sqlite3.connect(execution.folder / "store.db", isolation_level=None)
            locked.enter_context(contextlib.closing(other))
            other.execute("BEGIN IMMEDIATE")

        life = execution.live_until_call(4, lock)
    assert_told(life, execution, "locked", f"noetl resume {execution.execution_id}")
    killing.to_the_end(execution)


def test_a_truncated_database_is_called_damaged_and_its_copy_goes_on(killing: Campaign) -> None:
    execution = killing.execution("chain")
    execution.live_until_call(4, lambda process: process.kill())
    database = execution.folder / "store.db"
    # Moves what is in the write-ahead log into the file, as the end of a process does.
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    arguments = execution.arguments()
    copy = database.with_suffix(".copy")
    shutil.copy(database, copy)
    os.truncate(database, database.stat().st_size // 2)
    refused = subprocess.run([NOETL, *arguments], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    assert "damaged" in refused.stderr
    shutil.copy(copy, database)
    Path(f"{database}-wal").unlink(missing_ok=True)
    killing.to_the_end(execution)


def test_a_torn_end_of_the_write_ahead_log_costs_its_last_commit_alone(killing: Campaign) -> None:
    """As a crash of the machine may leave it where the disk lies about what it has written."""
    execution, whole = killing.execution("chain"), killing.execution("chain")

    def kill_and_tear(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        for name in ("store.db", "store.db-wal"):
            shutil.copy(execution.folder / name, whole.folder / name)
        torn = execution.folder / "store.db-wal"
        os.truncate(torn, torn.stat().st_size - 100)

    execution.live_until_call(5, kill_and_tear)
    [left] = execution.logs().values()
    [log] = whole.logs().values()
    assert left == log[: len(left)]
    assert 0 < len(left) < len(log)
    life = execution.live()
    assert life.exit_code == 0, life.stderr
    [log] = execution.logs().values()
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert log[: len(left)] == left
    assert outcome_of(execution.document()) == killing.undisturbed("chain").outcome


def test_an_execution_that_runs_is_not_resumed_by_a_second_command(killing: Campaign) -> None:
    execution = killing.execution("chain")

    def resume_elsewhere(process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGSTOP)
        arguments = [NOETL, "resume", str(execution.execution_id), "--store", execution.store]
        refused = subprocess.run(arguments, capture_output=True, text=True)
        process.send_signal(signal.SIGCONT)
        assert refused.returncode == 2
        assert "another process owns the store" in refused.stderr

    life = execution.live_until_call(2, resume_elsewhere)
    assert life.exit_code == 0
    assert_sound(execution, killing.undisturbed("chain").outcome)
