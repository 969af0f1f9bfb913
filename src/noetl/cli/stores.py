"""Where a command finds its executions and playbooks: the options that say so, a store or a server.

The files of an embedded store's executions lie in a folder beside the database.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from noetl.cli.contexts import Server, chosen_server
from noetl.cli.environment import variables
from noetl.errors import UsageError
from noetl.settings import Settings
from noetl.store.open import is_postgres
from noetl.store.sqlite import SqliteStore, open_store
from noetl.store.sqlite_connection import database_path

if TYPE_CHECKING:
    from noetl.cli.served import ServedStore


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
        from noetl.tools.processes.folders import OwnFolder  # noqa: PLC0415

        with OwnFolder() as folder:
            yield folder

    def command(self, *words: str) -> str:
        """A command line that finds the same store."""
        shown = ["noetl", *words]
        return " ".join(shown if self.is_default else [*shown, "--store", self.url])

    def hint_after_interruption(self, execution_id: str) -> str:
        if not self.is_kept:
            return "its store was in memory and is gone"
        return f"go on with: {self.command('resume', execution_id)}"

    @property
    def is_kept(self) -> bool:
        """Whether another command can find it; a store in memory goes with its process."""
        return database_path(self.url) is not None

    def exists(self) -> bool:
        database = database_path(self.url)
        return database is not None and database.is_file()

    def own(self) -> SqliteStore:
        """The store for the one process that may write; makes it where it is missing."""
        return open_store(self.url)

    def read(self) -> SqliteStore:
        """The store for looking, and for putting requests to its owner."""
        return open_store(self.url, create=False, owner=False)


class ServedPlace(NamedTuple):
    """A server, and whether the user has to name it again in the next command."""

    server: Server
    is_default: bool

    def command(self, *words: str) -> str:
        """A command line that finds the same server."""
        shown = ["noetl", *words]
        return " ".join(shown if self.is_default else [*shown, "--server", self.server.url])

    def hint_after_interruption(self, execution_id: str) -> str:
        watch, cancel = self.command("status", execution_id, "-f"), self.command("cancel", execution_id)
        return f"it goes on on the server; watch it with: {watch}; end it with: {cancel}"

    @property
    def is_kept(self) -> bool:
        return True

    def exists(self) -> bool:
        return True

    def read(self) -> ServedStore:
        # What talks HTTP is slow to import, and only commands to a server need it.
        from noetl.cli.served import ServedStore, api_of  # noqa: PLC0415

        return ServedStore(api_of(self.server))


AnyPlace: TypeAlias = Place | ServedPlace


def add_store_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="URL",
        help="the store, as sqlite:///PATH (default: NOETL_STORE, or .noetl/store.db)",
    )
    parser.add_argument(
        "--server", metavar="URL", help="a server or a context instead of a store (default: NOETL_SERVER)"
    )


def place_of(options: argparse.Namespace, settings: Settings) -> AnyPlace:
    server = chosen_server(options.server, options.store, settings, variables())
    if server is not None:
        return ServedPlace(server, is_default=options.server is None)
    url = options.store or settings.store
    if is_postgres(url):
        raise UsageError(
            "a store on PostgreSQL is read and steered through its server: name that with --server URL, in "
            "NOETL_SERVER or by `noetl context use` (`noetl server start` makes one over this store)"
        )
    return Place(url, is_default=url == settings.store)
