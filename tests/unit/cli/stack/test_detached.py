"""Detached processes: found again by their record, never mistaken for another one, ended gently or not."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from noetl.cli.stack.detached import Detached, Record, StartError, recorded, started_at

# Says that it is there, then waits until its standard input would end, which is never.
SITTING = "import signal, sys; print('sitting', flush=True); signal.pause()"
STUBBORN = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('sitting', flush=True)\n"
    "while True: signal.pause()"
)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Detached]:
    detached = Detached(tmp_path / "run", "server-1")
    yield detached
    detached.stop(0)


def start(process: Detached, code: str = SITTING, **environment: str) -> Record:
    record = process.start([sys.executable, "-c", code], environment=environment, at="here")
    process.wait_until(lambda: process.says("sitting"), 20)
    return record


def test_a_started_process_is_found_by_its_record(process: Detached) -> None:
    assert process.running() is None
    record = start(process)
    assert process.running() == record
    assert record.at == "here"
    assert os.getsid(record.pid) == record.pid
    assert list(recorded(process.folder, "server")) == [process]
    assert list(recorded(process.folder, "worker")) == []


def test_a_process_does_not_inherit_what_is_not_for_it(
    process: Detached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_STORE", "of the shell")
    monkeypatch.setenv("NOETL_POOL", "of the shell")
    told = "import os; print({n for n in os.environ if n.startswith('NOETL')}, 'sitting', flush=True)"
    command = [sys.executable, "-c", f"{told}\n{SITTING}"]
    process.start(command, environment={"NOETL_NATS": "a"}, without=("NOETL_STORE",))
    process.wait_until(lambda: process.says("sitting"), 20)
    shown = process.log.read_text("utf-8")
    assert "NOETL_STORE" not in shown
    assert "NOETL_POOL" in shown
    assert "NOETL_NATS" in shown


def test_a_process_ends_when_it_is_asked_to(process: Detached) -> None:
    record = start(process)
    assert process.stop(20)
    assert started_at(record.pid) is None
    assert process.running() is None
    assert not process.stop(20)


def test_a_process_that_does_not_listen_is_ended(process: Detached) -> None:
    record = start(process, STUBBORN)
    assert process.stop(0.1)
    assert started_at(record.pid) is None


def test_a_record_whose_process_id_belongs_to_another_by_now_is_stale(process: Detached) -> None:
    other = subprocess.Popen([sys.executable, "-c", SITTING], stdout=subprocess.PIPE)
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == b"sitting\n"
        process.write(Record(pid=other.pid, started="long ago", command=[]))
        assert process.running() is None
        process.write(Record(pid=other.pid, started="long ago", command=[]))
        assert not process.stop(20)
        assert other.poll() is None
        assert not process.file.exists()
    finally:
        other.kill()
        other.communicate()


def test_a_record_that_was_cut_short_counts_as_none(process: Detached) -> None:
    start(process)
    whole = process.file.read_bytes()
    process.file.write_bytes(whole[:20])
    assert process.running() is None
    process.file.write_bytes(whole)


def test_the_environment_is_given_but_not_shown_in_the_command(process: Detached) -> None:
    record = start(process, "import os; print('sitting', os.environ['SECRET'])\n" + SITTING, SECRET="s3cret")
    assert process.says("sitting s3cret")
    assert "s3cret" not in " ".join(record.command)
    assert stat.S_IMODE(process.file.stat().st_mode) == 0o600
    assert msgspec.json.decode(process.file.read_bytes(), type=Record).environment == {"SECRET": "s3cret"}


def test_another_ones_program_gets_no_more_of_our_environment_than_it_needs(
    process: Detached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_SECRET", "s3cret")
    code = "import os; print('sitting', sorted(os.environ), flush=True)"
    process.start([sys.executable, "-c", code], environment={"GIVEN": "1"}, is_ours=False)
    process.wait_until(lambda: process.says("]"), 20)
    assert process.says("'GIVEN'")
    assert process.says("'PATH'")
    assert not process.says("CLOUD_SECRET")


def test_a_process_that_ends_at_once_is_told_with_the_end_of_its_log(process: Detached) -> None:
    process.start([sys.executable, "-c", "raise SystemExit('the disk is full')"])
    with pytest.raises(StartError, match=r"server-1 ended when it started.*\n  the disk is full"):
        process.wait_until(lambda: False, 20)


def test_a_process_that_is_not_ready_in_time_is_told_and_left_running(process: Detached) -> None:
    record = start(process)
    with pytest.raises(StartError, match=r"was not ready after 0\.05 seconds"):
        process.wait_until(lambda: False, 0.05)
    assert process.running() == record


def test_the_log_of_the_one_before_is_kept_beside(process: Detached) -> None:
    start(process, "print('the first', flush=True)\n" + SITTING)
    process.stop(20)
    start(process)
    assert not process.says("the first")
    assert "the first" in process.log.with_suffix(".log.1").read_text()
