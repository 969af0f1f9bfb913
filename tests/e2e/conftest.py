"""A console for each test, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.console import Console


@pytest.fixture
def console(tmp_path: Path) -> Console:
    return Console(tmp_path)
