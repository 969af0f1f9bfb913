"""Runs `noetl` with a clock that steps an hour ahead, or back again, whenever it is sent SIGUSR1."""

from __future__ import annotations

import signal
import time

STEP = 3_600.0

_real = time.time
_offset = [0.0]
time.time = lambda: _real() + _offset[0]


def _step(*_: object) -> None:
    _offset[0] = 0.0 if _offset[0] else STEP


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, _step)
    # Only now: whoever imports the clock is to get this one.
    from noetl.cli import main

    raise SystemExit(main())
