"""Outcomes: the envelope of every task."""

from __future__ import annotations

import msgspec
import pytest

from noetl.records.outcome import Outcome, OutcomeError, OutcomeMeta, outcome_from_data, outcome_to_data

META = OutcomeMeta(attempt=2, duration_ms=12.5, ts="2026-01-31T10:00:00Z")
FAILED = Outcome(
    status="error",
    result={"detail": "no such page"},
    error=OutcomeError(kind="http", message="404 Not Found", retryable=False, details={"url": "x"}),
    meta=META,
    groups={"http": {"status": 404, "headers": {}, "request_id": None}},
)


def test_kind_fields_stand_beside_the_common_ones() -> None:
    data = outcome_to_data(FAILED)
    assert list(data) == ["status", "result", "error", "meta", "http"]
    assert data["http"]["status"] == 404
    assert data["error"] == {
        "kind": "http",
        "message": "404 Not Found",
        "retryable": False,
        "details": {"url": "x"},
    }
    assert data["meta"] == {"attempt": 2, "duration_ms": 12.5, "ts": "2026-01-31T10:00:00Z"}


@pytest.mark.parametrize(
    "outcome",
    [
        FAILED,
        Outcome(status="ok", result=[1, None, "x"], meta=META),
        Outcome(status="skipped", meta=META),
        Outcome(status="ok", meta=META, groups={"shell": {"exit_code": 0}}),
    ],
)
def test_an_outcome_survives_the_way_through_json(outcome: Outcome) -> None:
    written = msgspec.json.encode(outcome_to_data(outcome))
    assert outcome_from_data(msgspec.json.decode(written)) == outcome


def test_an_outcome_without_error_shows_it_as_null() -> None:
    assert outcome_to_data(Outcome(status="ok", meta=META))["error"] is None


def test_only_a_failed_outcome_has_an_error() -> None:
    with pytest.raises(ValueError, match="exactly when"):
        Outcome(status="error", meta=META)
    with pytest.raises(ValueError, match="exactly when"):
        Outcome(status="ok", meta=META, error=OutcomeError(kind="x", message="y"))


def test_a_group_cannot_hide_a_common_field() -> None:
    with pytest.raises(ValueError, match="`result`"):
        Outcome(status="ok", meta=META, groups={"result": {}})


@pytest.mark.parametrize("data", [{}, {"status": "fine", "meta": {}}, {"status": "ok", "meta": None}])
def test_data_of_another_shape_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        outcome_from_data(data)
