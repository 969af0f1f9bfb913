"""Durations have an end: what no clock can add is none."""

from __future__ import annotations

import pytest

from noetl.engine.repeats import backoff_delay, number
from noetl.errors import TemplateValueError
from noetl.playbook.model import Backoff
from noetl.records.durations import AS_WRITTEN, LONGEST, parse_duration
from noetl.template import Scope, Template


@pytest.mark.parametrize(
    "written", [10**400, 10**300, 1e300, "9" * 401, "1" + "0" * 300, "36526d", LONGEST + 1]
)
def test_more_than_a_hundred_years_is_no_duration(written: object) -> None:
    assert parse_duration(written) is None
    assert "100 years" in AS_WRITTEN


@pytest.mark.parametrize("written", [LONGEST, "36525d", 0, "0s"])
def test_a_hundred_years_are_one(written: object) -> None:
    assert parse_duration(written) is not None


@pytest.mark.parametrize("multiplier", [1e300, 2.0, 10.0**9])
def test_a_delay_that_grows_stays_a_duration(multiplier: float) -> None:
    backoff = Backoff(kind="exponential", delay=1.0, multiplier=multiplier)
    assert backoff_delay(backoff, 60, Scope({})) == LONGEST
    assert backoff_delay(Backoff(kind="linear", delay=LONGEST), 60, Scope({})) == LONGEST


@pytest.mark.parametrize("source", ["{{ 1e999 }}", "{{ 1e999 - 1e999 }}", "{{ -1 }}"])
def test_a_number_of_attempts_is_finite(source: str) -> None:
    with pytest.raises(TemplateValueError, match="`attempts` must be a number of at least 0"):
        number(Template(source), Scope({}), "attempts")
