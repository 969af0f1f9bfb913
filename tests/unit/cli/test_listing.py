"""`noetl list` on a store: which executions, in which order, and the command for the next page."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from noetl.cli import main
from noetl.ids import seconds_of, timestamp
from noetl.store.sqlite import open_store
from tests.contract.store.changes import change, execution


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Four executions on four days, the last two called by the first."""
    url = f"sqlite:///{tmp_path}/noetl.db"

    async def fill() -> None:
        opened = open_store(url)
        for number in range(1, 5):
            day = timestamp(seconds_of(f"2025-01-0{number}T12:00:00Z"))
            parent = "1" if number > 2 else None
            row = execution(str(number), "completed", requested_at=day, parent_execution_id=parent)
            await opened.append(change(str(number), execution=row))
        await opened.close()

    asyncio.run(fill())
    return url


def listed(store: str, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["list", "--store", store, "--json", *words]) == 0
    return [row["execution_id"] for row in json.loads(capsys.readouterr().out)["executions"]]


def test_executions_are_picked_by_parent_and_by_time(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(store, capsys) == ["4", "3", "2", "1"]
    assert listed(store, capsys, "--oldest") == ["1", "2", "3", "4"]
    assert listed(store, capsys, "--parent", "1") == ["4", "3"]
    assert listed(store, capsys, "--since", "2025-01-03") == ["4", "3"]
    assert listed(store, capsys, "--since", "2025-01-02T13:00:00+02:00", "--oldest") == ["2", "3", "4"]
    assert listed(store, capsys, "--since", "2025-01-02", "--before", "4", "--limit", "1") == ["3"]


def test_the_next_page_is_asked_for_in_the_same_way(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--oldest", "--status", "completed", "--since", "2025-01-02", "--limit", "1"]
    assert main(["list", "--store", store, *words]) == 0
    more = capsys.readouterr().out.splitlines()[-1]
    assert more.startswith("more: noetl list --oldest --status completed --since 2025-01-02 --before 2")


def test_a_moment_that_is_none_is_a_usage_error(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--store", store, "--since", "yesterday"]) == 2
    assert "--since takes a moment" in capsys.readouterr().err


def test_what_is_open_in_a_store_that_nobody_owns_is_interrupted(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def begin() -> None:
        opened = open_store(store)
        for number, status in enumerate(("running", "requested", "paused", "running"), 5):
            day = timestamp(seconds_of(f"2025-01-0{number}T12:00:00Z"))
            await opened.append(
                change(str(number), execution=execution(str(number), status, requested_at=day))
            )
        await opened.close()

    asyncio.run(begin())
    assert listed(store, capsys, "--status", "interrupted") == ["8", "6", "5"]
    assert listed(store, capsys, "--status", "interrupted", "--oldest", "--limit", "2") == ["5", "6"]
    assert listed(store, capsys, "--status", "interrupted", "--before", "6") == ["5"]
    assert listed(store, capsys, "--status", "running") == []
    assert main(["list", "--store", store, "--json", "--since", "2025-01-05"]) == 0
    rows = json.loads(capsys.readouterr().out)["executions"]
    assert [row["status"] for row in rows] == ["interrupted", "paused", "interrupted", "interrupted"]
