"""One PostgreSQL, one NATS and one world outside for all tests of a process; a stack for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.outside import Outside, outside_server
from tests.distributed.processes import Ledger
from tests.distributed.services import Services
from tests.distributed.stack import Stack, stack_on

MakeStack = Callable[..., Stack]


@pytest.fixture(scope="session")
def session_folder() -> Iterator[Path]:
    # Short, for sockets have short names; not pytest's own, which PostgreSQL's account cannot enter.
    with tempfile.TemporaryDirectory(prefix="noetl-dist-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def ledger(session_folder: Path) -> Iterator[Ledger]:
    made = Ledger(session_folder)
    yield made
    made.close()


@pytest.fixture(scope="session")
def services(session_folder: Path, ledger: Ledger) -> Iterator[Services]:
    made = Services(session_folder, ledger)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def world() -> Iterator[Outside]:
    with outside_server() as server:
        yield server


@pytest.fixture
def outside(world: Outside) -> Outside:
    world.reset()
    return world


@pytest.fixture
def make_stack(services: Services, ledger: Ledger, tmp_path: Path) -> Iterator[MakeStack]:
    """Makes stacks that end with the test."""
    with ExitStack() as made:

        def make(**options: Any) -> Stack:
            running: AbstractContextManager[Stack] = stack_on(services, ledger, tmp_path, **options)
            return made.enter_context(running)

        yield make
