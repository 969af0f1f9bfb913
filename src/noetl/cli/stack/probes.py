"""Asking a server whether it is there, from a command that has no event loop."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Final

SECONDS: Final = 2.0


def is_ready(url: str) -> bool:
    """Whether it takes work: its store is there, and it is not on its way out."""
    return _answers(f"{url}/api/ready")


def is_alive(url: str) -> bool:
    return _answers(f"{url}/api/health")


def _answers(address: str) -> bool:
    # A proxy of the environment is for the outside world, not for a server of ours.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address, timeout=SECONDS) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False
