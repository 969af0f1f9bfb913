"""Executions that are killed at each commit of their log, just before it or just after.

Events of one commit are in the log together or not at all, so these are all the boundaries there are. The
long campaign (`make durability`) does this for every shape, and also with one kill for each execution.
"""

from __future__ import annotations

import pytest

from tests.durability.campaign import Campaign


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", ["chain", "branches", "pages"])
def test_an_execution_that_gets_one_commit_further_in_each_life_ends_as_if_undisturbed(
    killing: Campaign, name: str, moment: str
) -> None:
    assert killing.relentlessly(name, moment) >= 5


@pytest.mark.parametrize("name", ["code", "large", "nested", "parallel", "parent"])
def test_an_execution_killed_in_the_middle_of_its_commits_ends_as_if_undisturbed(
    killing: Campaign, name: str
) -> None:
    assert killing.at_commit(name, 6, "before")
    assert killing.at_commit(name, 9, "after")


def test_a_state_that_was_kept_on_the_way_is_gone_on_from(killing: Campaign) -> None:
    """The log is longer than what a replay reads at most; the verdict folds all of it."""
    execution = killing.execution("long")
    execution.live_until_call(1, lambda process: process.kill())
    logs = execution.logs()
    assert max(len(log) for log in logs.values()) > 5_000
    killing.to_the_end(execution)
