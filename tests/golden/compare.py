"""Compares what was produced with a file beside this one.

`NOETL_REWRITE_GOLDEN=1 pytest …` rewrites the files; look at the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(__file__).parent
PLAYBOOKS = GOLDEN / "playbooks"
EXAMPLES = GOLDEN.parents[1] / "examples"


def assert_golden(name: str, produced: str) -> None:
    file = GOLDEN / name
    if os.environ.get("NOETL_REWRITE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(produced.encode())
    assert file.exists(), f"{name} is missing; NOETL_REWRITE_GOLDEN=1 writes it"
    assert produced == file.read_bytes().decode()
