"""Executions that are killed at each commit of their log, just before it or just after.

Events of one commit are in the log together or not at all, so these are all the boundaries there are. The
long campaign (`make durability`) does this for every shape, and also with one kill for each execution.
"""

from __future__ import annotations

import pytest

from tests.durability.campaign import Campaign
from tests.durability.lives import Execution
from tests.durability.verdict import assert_sound


@pytest.mark.parametrize(
    ("name", "moment"), [("chain", "before"), ("chain", "after"), ("branches", "after"), ("pages", "before")]
)
def test_an_execution_that_gets_one_commit_further_in_each_life_ends_as_if_undisturbed(
    killing: Campaign, name: str, moment: str
) -> None:
    assert killing.relentlessly(name, moment) >= 5


@pytest.mark.parametrize(
    ("name", "number", "moment"),
    [
        ("code", 6, "before"),
        ("large", 9, "after"),
        ("nested", 12, "after"),
        ("parallel", 8, "before"),
        ("parent", 9, "before"),
    ],
)
def test_an_execution_killed_in_the_middle_of_its_commits_ends_as_if_undisturbed(
    killing: Campaign, name: str, number: int, moment: str
) -> None:
    assert killing.at_commit(name, number, moment)


def test_a_state_that_was_kept_on_the_way_is_gone_on_from(killing: Campaign) -> None:
    """The log is longer than what a replay reads at most; the verdict folds all of it."""
    execution = killing.execution("long")
    execution.live_until_call(1, lambda process: process.kill())
    logs = execution.logs()
    assert max(len(log) for log in logs.values()) > 5_000
    killing.to_the_end(execution)


def test_an_event_that_was_cut_off_in_the_file_of_events_is_written_again(killing: Campaign) -> None:
    execution = killing.execution("chain")
    execution.live_until_commit(4, "after")
    lines = execution.events_file.read_bytes()
    execution.events_file.write_bytes(lines[:-20])
    killing.to_the_end(execution)  # which finds the whole log in the file


def signal(execution: Execution, number: int) -> None:
    sent = execution.command("signal", "go", "--data", f'{{"n": {number}}}')
    assert sent.returncode == 0, sent.stderr


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_signal_is_taken_once_however_often_its_taker_is_killed(killing: Campaign, moment: str) -> None:
    """Signals come while nothing runs; a task that died with one in its hands gets it again."""
    execution = killing.execution("waiting")
    execution.live_until_call(1, lambda process: process.kill())
    signal(execution, 1)
    signal(execution, 2)
    while not execution.is_over:
        assert len(execution.lives) < 20
        execution.live_until_commit(1 if moment == "after" else 2, moment, "progress")
    outcome = assert_sound(execution, None)
    assert outcome["status"] == "completed"
    assert outcome["result"]["given"] == [1, 2]


def test_a_paused_execution_stays_paused_when_its_process_is_killed(killing: Campaign) -> None:
    execution = killing.execution("chain")
    execution.live_until_call(3, lambda process: process.kill())
    assert execution.command("pause").returncode == 0
    assert execution.document()["status"] == "paused"
    killing.to_the_end(execution)
