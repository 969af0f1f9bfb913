"""Spans of time in a rendered field or knob: seconds as a number, or a text such as `250ms` or `5m`.

A field that was a template is only known when a tool runs, so tools read durations themselves.
"""

from __future__ import annotations

import math
import re
from typing import Final

SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
WRITTEN: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|m|h|d|)\s*", re.ASCII)


def seconds(written: object) -> float | None:
    """The seconds of a duration; None for anything that is not one."""
    if isinstance(written, bool):
        return None
    if isinstance(written, str):
        found = WRITTEN.fullmatch(written)
        if found is None:
            return None
        written = float(found[1]) * SECONDS[found[2]]
    if isinstance(written, int | float) and written >= 0 and math.isfinite(written):
        return float(written)
    return None
