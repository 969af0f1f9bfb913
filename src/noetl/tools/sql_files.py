"""One call of a SQL kind whose database is a file in the execution's folder, in a thread of its own.

What such calls have in common stands here: that they can be interrupted from outside, that the connection
is closed whatever happens, and how rows are taken. How a library connects and what it runs is the kind's.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from noetl.tools.sql import FileSqlConfig
from noetl.tools.sql_rows import Rows
from noetl.tools.sql_statements import Positions
from noetl.tools.sql_tables import table_write

MEMORY: Final = ":memory:"


class Connection(Protocol):
    def interrupt(self) -> None: ...
    def close(self) -> None: ...


class Cursor(Protocol):
    @property
    def description(self) -> Any: ...  # noqa: ANN401 - each library describes columns by tuples of its own
    def fetchone(self) -> Any: ...  # noqa: ANN401 - a row, or None after the last one


Config = TypeVar("Config", bound=FileSqlConfig)
Connected = TypeVar("Connected", bound=Connection)


class FileJob(ABC, Generic[Config, Connected]):
    """One call's work; everything but `interrupt` happens in its thread."""

    def __init__(self, config: Config, args: object, folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.database = config.database or config.dsn or MEMORY
        self.write = None if config.table is None else table_write(config, args)
        self.stopped = False
        self._lock = threading.Lock()
        self._connection: Connected | None = None

    def interrupt(self) -> None:
        with self._lock:
            self.stopped = True
            if self._connection is not None:
                self._connection.interrupt()

    def work(self) -> list[dict[str, Any]]:
        connection = self.connect()
        try:
            with self._lock:
                self._connection = connection
            return self.run(connection)
        finally:
            with self._lock:
                self._connection = None
            connection.close()

    def places(self) -> list[Path]:
        """The folders that the call's thread is confined to; they exist."""
        if self.database != MEMORY and not self.config.read_only:
            self.folder.mkdir(parents=True, exist_ok=True)
        return [self.folder] if self.folder.is_dir() else []

    @abstractmethod
    def connect(self) -> Connected: ...

    @abstractmethod
    def run(self, connection: Connected) -> list[dict[str, Any]]:
        """Closes the connection to what the text may not reach and runs it; its last statement's rows."""

    @abstractmethod
    def interruption(self) -> Exception:
        """What the library raises where it is interrupted."""

    def check_stopped(self) -> None:
        if self.stopped:
            raise self.interruption()

    def positions(self) -> Positions | None:
        """The parameters, where they are given by their places."""
        params = self.config.params
        return Positions(params) if isinstance(params, list) else None

    def rows_of(self, cursor: Cursor) -> list[dict[str, Any]]:
        """All rows of a result, one by one: a single one can be as large as many."""
        rows = Rows(column[0] for column in cursor.description)
        for row in iter(cursor.fetchone, None):
            self.check_stopped()
            rows.add(row)
        return rows.data
