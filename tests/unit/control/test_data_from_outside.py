"""What comes from outside to an execution: whose secrets it may use, and that none is written."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from noetl.control.executions import Origin
from noetl.control.variables import set_variable
from noetl.engine.state import Data
from noetl.playbook.model import Playbook
from noetl.records.report import ChildCall, Claim
from noetl.store.protocol import CommandRow
from tests.unit.control.planes import HEAD, LEASE_SECONDS, ONE_STEP, Planes, claimed

CALLER = HEAD.replace("name: p, path: p", "name: caller, path: caller") + (
    "workflow: [{step: start, tool: {kind: playbook, path: p}}]\n"
)
SECRET = "the secret word"


async def prepared(playbook: Playbook, payload: Data, origin: Origin) -> tuple[dict[str, Any], Data | None]:
    return {"door": SECRET}, None


def test_only_what_a_task_calls_shares_the_secrets_of_its_caller() -> None:
    planes = Planes()
    origins: dict[str, str | None] = {}

    async def noted(playbook: Playbook, payload: Data, origin: Origin) -> tuple[dict[str, Any], Data | None]:
        origins.setdefault(origin.execution_id, origin.called_by)
        return {}, None

    async def scenario() -> None:
        control = planes.plane(prepare=noted)
        entry = await planes.register()
        await control.begin(await planes.register(CALLER), {}, execution_id="1")
        lease = (await claimed(control)).lease
        child = await control.child(lease, ChildCall(call_id="c", path="p"), 0.0)
        await control.begin(entry, {}, execution_id="2", parent_execution_id="1")
        assert origins == {"1": None, child.execution_id: "1", "2": None}

    planes.play(scenario)


def test_secrets_in_signals_variables_and_reasons_are_masked_by_a_server_that_comes_to_it_anew() -> None:
    planes = Planes()

    async def scenario() -> None:
        entry = await planes.register(ONE_STEP + "keychain: [{name: door, kind: env}]\n")
        await planes.plane(prepare=prepared, shared=True).begin(entry, {}, execution_id="1")
        for node, act in enumerate(
            (
                lambda control: control.signal("1", "s", {"said": f"it is {SECRET}"}),
                lambda control: set_variable(control, "1", "v", SECRET),
                lambda control: control.cancel("1", f"because of {SECRET}"),
            ),
            start=2,
        ):
            await act(planes.plane(prepare=prepared, shared=True, node=node))
        log = await planes.store.events("1")
        written = [event for event in log if event.event_type in ("signal.received", "vars.set")]
        assert [event.payload for event in written] == [
            {"name": "s", "data": {"said": "it is ***"}},
            {"vars": {"v": "***"}},
        ]
        assert not [event for event in log if SECRET in str(event.payload)]

    planes.play(scenario)


def test_a_bug_that_one_execution_brings_to_light_keeps_no_other_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    planes = Planes()

    async def scenario() -> None:
        control = planes.plane(shared=True)
        entry = await planes.register()
        for name in ("1", "2"):
            await control.begin(entry, {}, execution_id=name)
        await control.claim(Claim(worker_id="w", limit=2))
        lost = control.lose

        async def lose(row: CommandRow) -> None:
            if row.execution_id == "1":
                raise KeyError("store")
            await lost(row)

        control.lose = lose  # type: ignore[method-assign]
        reaping = asyncio.create_task(control.run_reaper())
        await asyncio.sleep(LEASE_SECONDS + 2)
        reaping.cancel()
        assert (await planes.events("2")).count("command.expired") == 1

    planes.play(scenario)
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert failures
    assert "KeyError" in str(failures[0].exc_info)
