"""Where a command finds its executions and playbooks: the options that say so, and opening the store.

The files of executions lie in a folder beside the database. This version has the embedded store alone, so
`--server` is refused with a sentence.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from noetl.errors import UsageError
from noetl.settings import Settings
from noetl.store.sqlite import SqliteStore, open_store
from noetl.store.sqlite_connection import database_path


class Place(NamedTuple):
    """A store, and whether the user has to name it again in the next command."""

    url: str
    is_default: bool

    @contextlib.contextmanager
    def files(self) -> Iterator[Path]:
        """The folder that holds a folder for each execution's files; of a store in memory it goes with it."""
        database = database_path(self.url)
        if database is not None:
            yield database.with_suffix(".files")
            return
        # Only a store in memory needs it, and it is slow to import.
        import tempfile  # noqa: PLC0415

        with tempfile.TemporaryDirectory(prefix="noetl-") as folder:
            yield Path(folder)

    def command(self, *words: str) -> str:
        """A command line that finds the same store."""
        shown = ["noetl", *words]
        return " ".join(shown if self.is_default else [*shown, "--store", self.url])

    def exists(self) -> bool:
        database = database_path(self.url)
        return database is not None and database.is_file()

    def own(self) -> SqliteStore:
        """The store for the one process that may write; makes it where it is missing."""
        return open_store(self.url)

    def read(self) -> SqliteStore:
        """The store for looking, and for putting requests to its owner."""
        return open_store(self.url, create=False, owner=False)


def add_store_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="URL",
        help="the store, as sqlite:///PATH (default: NOETL_STORE, or .noetl/store.db)",
    )
    parser.add_argument("--server", metavar="URL", help="a server instead of a store; not in this version")


def place_of(options: argparse.Namespace, settings: Settings) -> Place:
    if options.server is not None:
        raise UsageError("this version has no server yet: leave out --server, and name a store with --store")
    url = options.store or settings.store
    return Place(url, is_default=url == settings.store)
