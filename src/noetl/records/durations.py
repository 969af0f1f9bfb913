"""Durations as people write them: seconds as a number, or `250ms`, `5s`, `2m`, `1h`, `1d`.

A playbook is checked for them, and so is a field that was a template, which is only known when a tool runs;
both read them by this. Nothing here waits.
"""

from __future__ import annotations

from typing import Final

AS_WRITTEN: Final = "seconds as a number, or `250ms`, `5s`, `2m`, `1h`, `1d`; at most 100 years"
"""What a duration looks like, for those who wrote none."""
LONGEST: Final = 100 * 365.25 * 86400
"""In seconds. Clocks and timers cannot add more to the time of day, whatever a number may say."""
UNITS = (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0))


def parse_duration(written: object) -> float | None:
    """The seconds of a duration, or None where it is none."""
    if isinstance(written, bool):
        return None
    if isinstance(written, int | float):
        return float(written) if 0 <= written <= LONGEST else None
    if not isinstance(written, str):
        return None
    text = written.strip()
    for unit, seconds in UNITS:
        if text.endswith(unit):
            return _scaled(text[: -len(unit)].rstrip(), seconds)
    return _scaled(text, 1.0)


def _scaled(number: str, seconds: float) -> float | None:
    if not number or not number.replace(".", "", 1).isdecimal() or not number.isascii():
        return None
    value = float(number) * seconds
    return value if value <= LONGEST else None


def write_duration(seconds: float) -> int | float | str:
    """The shortest way to write it: a number, with a unit where that reads better."""
    if seconds >= 60:
        for unit, size in reversed(UNITS):
            if size >= 60 and seconds % size == 0:
                return f"{int(seconds // size)}{unit}"
    return int(seconds) if seconds == int(seconds) else seconds
