"""How a process that runs for long looks for garbage: seldom, and not among what it has for good."""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (10_000, 20, 50)
"""Nearly everything here is freed by counting references. With the defaults a server with two thousand
executions in memory spends a twelfth of its time looking through them."""


def collect_seldom() -> None:
    """Called when all that stays has been made."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
