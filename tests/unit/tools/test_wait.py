"""The `wait` and `noop` kinds."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from noetl.records.durations import parse_duration
from noetl.records.outcome import Outcome
from noetl.tools import noop, wait
from tests.unit.tools.local_context import LocalContext, call


def run(folder: Path, config: dict[str, Any], **signals: Any) -> tuple[Outcome, LocalContext]:
    async def scenario() -> tuple[Outcome, LocalContext]:
        async with LocalContext(folder) as context:
            for name, data in signals.items():
                queue = context.signals[name.replace("__", ".")] = asyncio.Queue()
                queue.put_nowait(data)
            return await asyncio.wait_for(wait.run(call("wait", config), context), 10), context

    return asyncio.run(scenario())


def test_a_noop_has_the_result_null(tmp_path: Path) -> None:
    outcome = asyncio.run(noop.run(call("noop", {}), LocalContext(tmp_path)))
    assert (outcome.status, outcome.result, outcome.groups) == ("ok", None, {})


@pytest.mark.parametrize("duration", [0.02, "20ms", "0.02"])
def test_a_wait_lasts_as_long_as_it_says(tmp_path: Path, duration: Any) -> None:
    outcome, _ = run(tmp_path, {"duration": duration})
    assert (outcome.status, outcome.result) == ("ok", None)
    assert outcome.meta.duration_ms >= 15  # less what passed since the call began


def test_a_wait_for_a_moment_ends_after_it_and_not_at_all_if_it_is_past(tmp_path: Path) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=0.05)
    written = moment.astimezone(timezone(timedelta(hours=5))).isoformat()
    assert run(tmp_path, {"until": written})[0].status == "ok"
    assert datetime.now(UTC) >= moment
    assert run(tmp_path, {"until": "2020-01-01T00:00:00Z"})[0].meta.duration_ms < 1000


@pytest.mark.parametrize(
    "config",
    [{"duration": "soon"}, {"duration": -1}, {"duration": True}, {"until": "tomorrow"}, {},
     {"until": "2020-01-01T00:00:00"}],
)  # fmt: skip
def test_what_cannot_be_waited_for_is_an_error(tmp_path: Path, config: dict[str, Any]) -> None:
    outcome, _ = run(tmp_path, config)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("config.invalid", False)


def test_the_data_of_a_signal_is_the_result(tmp_path: Path) -> None:
    outcome, _ = run(tmp_path, {"signal": "paid"}, paid={"amount": 5})
    assert outcome.result == {"amount": 5}


@pytest.mark.parametrize("answer", [True, {"approved": True, "by": "ann"}])
def test_an_approval_is_answered_by_a_signal_and_stands_in_the_log_with_its_answer(
    tmp_path: Path, answer: Any
) -> None:
    outcome, context = run(tmp_path, {"approval": "Release?"}, approval__only=answer)
    assert (outcome.status, outcome.result) == ("ok", answer)
    assert context.logged == [("stdout", "Release? granted\n")]


@pytest.mark.parametrize("answer", [False, None, "yes", {"approved": False}, {}])
def test_any_other_answer_refuses_the_approval(tmp_path: Path, answer: Any) -> None:
    outcome, context = run(tmp_path, {"approval": "Release?"}, approval__only=answer)
    assert context.logged == [("stdout", "Release? refused\n")]
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("wait.refused", False)
    assert outcome.result == answer


def test_a_wait_can_be_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LocalContext(tmp_path) as context:
            for config in ({"duration": "1d"}, {"signal": "never"}):
                waiting = asyncio.create_task(wait.run(call("wait", config), context))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("written", "value"),
    [(5, 5.0), (0.5, 0.5), ("250ms", 0.25), ("5s", 5.0), (" 2 m ", 120.0), ("1h", 3600.0), ("1d", 86400.0),
     ("7", 7.0), ("1.5s", 1.5), ("", None), ("s", None), ("-1s", None), (-1, None), (float("inf"), None),
     (True, None), (None, None), ("٣s", None), ([], None)],
)  # fmt: skip
def test_durations_are_read_as_people_write_them(written: object, value: float | None) -> None:
    assert parse_duration(written) == value
