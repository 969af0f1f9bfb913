"""Durations: what can be written, and how they are written back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.playbook.durations import parse_duration, write_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (0, 0.0),
        (5, 5.0),
        (1.5, 1.5),
        ("5", 5.0),
        ("250ms", 0.25),
        ("5s", 5.0),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("1d", 86400.0),
        ("1.5h", 5400.0),
        (" 5 s ", 5.0),
        ("300s", 300.0),
    ],
)
def test_seconds_stand_alone_and_other_units_behind_the_number(written: object, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            "s",
            "ms",
            "five",
            "5 minutes",
            "5S",
            "-5s",
            "+5s",
            "5e3",
            "1_000",
            "1.2.3s",
            ".s",
            "٥s",
            "5s5s",
        ),
        *(-1, -0.5, math.nan, math.inf, True, False, None, [], {}, "9" * 400 + "d"),
    ],
)
def test_anything_else_is_no_duration(written: object) -> None:
    assert parse_duration(written) is None


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0.0, 0),
        (5.0, 5),
        (0.25, 0.25),
        (59.0, 59),
        (60.0, "1m"),
        (90.0, 90),
        (5400.0, "90m"),
        (86400.0, "1d"),
    ],
)
def test_a_duration_is_written_with_the_largest_unit_that_divides_it(seconds: float, written: object) -> None:
    assert write_duration(seconds) == written


@given(st.floats(min_value=0, max_value=1e9, allow_nan=False))
def test_what_is_written_reads_as_the_same_duration(seconds: float) -> None:
    assert parse_duration(write_duration(seconds)) == seconds
