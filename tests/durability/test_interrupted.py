"""Ctrl-C and SIGTERM in the middle: the process ends cleanly, says how to go on, and that works."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.durability.campaign import Campaign
from tests.durability.lives import executors_of


@pytest.mark.parametrize(
    ("name", "number"), [("nested", signal.SIGINT), ("parallel", signal.SIGTERM), ("parent", signal.SIGINT)]
)
def test_an_interrupted_execution_says_how_to_go_on_and_goes_on(
    killing: Campaign, name: str, number: signal.Signals
) -> None:
    execution = killing.execution(name)
    life = execution.live_until_call(4, lambda process: process.send_signal(number))
    assert life.exit_code == 130
    shown = json.loads(life.stdout)
    assert shown["status"] == "interrupted"
    assert shown["execution_id"] == execution.execution_id
    assert f"noetl resume {execution.execution_id} --store {execution.store}" in life.stderr
    killing.to_the_end(execution)


def test_an_interrupted_execution_leaves_no_process_behind(killing: Campaign) -> None:
    execution = killing.execution("code")

    def interrupt_when_code_runs(process: subprocess.Popen[bytes]) -> None:
        while not executors_of(execution.folder):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)

    life = execution.live_until_call(0, interrupt_when_code_runs)
    assert life.exit_code == 130
    killing.to_the_end(execution)


def test_an_execution_can_be_interrupted_again_and_again(killing: Campaign) -> None:
    execution = killing.execution("pages")
    for _ in range(3):
        life = execution.live_until_call(2, lambda process: process.send_signal(signal.SIGINT))
        assert life.exit_code == 130
    killing.to_the_end(execution)


def test_a_child_is_cancelled_when_its_parent_fails(killing: Campaign) -> None:
    execution = killing.execution("failing_parent")
    life = execution.live()
    assert life.exit_code == 1, life.stderr
    ends = sorted(row.status for row in execution.rows() if row.parent_execution_id is not None)
    assert ends == ["cancelled", "failed"]
