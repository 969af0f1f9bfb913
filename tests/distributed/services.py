"""PostgreSQL and NATS of a test session: real, private, on ports of their own; a database for each stack.

PostgreSQL keeps the moment of each commit, so that a call made after its end was committed can be told from
one made before. It does not wait for its disk: what is tested here are processes that die, not machines.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from noetl.cli.stack.nats_server import NatsServer, free_port
from noetl.cli.stack.postgres_server import PostgresServer
from noetl.store.postgres_schema import migrate
from tests.distributed.processes import Ledger, wait_until

SETTINGS = "track_commit_timestamp = on\nfsync = off\nlog_min_messages = fatal\n"
TEMPLATE = "migrated"
WITNESS = Path(__file__).with_name("witness.sql")
"""Runs in every database beside the tables of the engine."""
FILL = "CREATE TRIGGER full_disk BEFORE INSERT ON noetl.event FOR EACH ROW EXECUTE FUNCTION witness.refuse()"
EMPTY = "DROP TRIGGER full_disk ON noetl.event"


class Services:
    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self._ledger = ledger
        self._folder = folder
        self.postgres = PostgresServer(folder / "pg", free_port(), "secret")
        self.nats = NatsServer(folder / "nats", free_port(), "secret")
        self._databases = 0

    def start(self) -> None:
        self.postgres.start()
        self._note(self.postgres.process)
        with (self.postgres.data / "postgresql.conf").open("a") as settings:
            settings.write(SETTINGS)
        self.postgres.stop()
        self.start_postgres()
        self.start_nats()
        self._execute(f"CREATE DATABASE {TEMPLATE}")
        migrate(self.url(TEMPLATE))
        with psycopg.connect(self.url(TEMPLATE), autocommit=True) as connection:
            connection.execute(WITNESS.read_bytes())

    def stop(self) -> None:
        self.nats.stop()
        self.postgres.stop()

    def url(self, database: str) -> str:
        return f"{self.postgres.url.rpartition('/')[0]}/{database}"

    def fresh_database(self) -> str:
        """The address of a database that has the schema and nothing in it."""
        self._databases += 1
        name = f"test_{self._databases}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        self._execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    # --- faults -----------------------------------------------------------------------------------------

    def kill_nats(self, *, wipe: bool = False) -> None:
        record = self.nats.process.running()
        if record is not None:
            assert self.nats.process.ask(record, signal.SIGKILL, 10.0)
        if wipe:
            shutil.rmtree(self.nats.data, ignore_errors=True)

    def start_nats(self) -> None:
        if self.nats.process.running() is None:
            self.nats.start()
            self._note(self.nats.process)

    def crash_postgres(self) -> None:
        """An immediate stop: no transaction ends, no checkpoint is made, and the log has to be replayed."""
        pid = self.postgres.postmaster()
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)
        wait_until(lambda: self.postgres.process.running() is None, 20.0, "PostgreSQL stops")

    def start_postgres(self) -> None:
        if self.postgres.process.running() is None:
            self.postgres.start()
            self._note(self.postgres.process)

    @contextmanager
    def hanging_postgres(self) -> Iterator[None]:
        """Every process of it stops without a word: connections stay open, and nobody answers."""
        pids = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_postgres(pid)]
        assert len(pids) > 1
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _is_postgres(self, pid: int) -> bool:
        """Whether it is this very server, or one of its children."""
        main = self.postgres.postmaster()
        with suppress(OSError):
            parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
            return main is not None and (pid == main or int(parent) == main)
        return False

    def kill_connections(self, url: str) -> int:
        """Ends the servers' connections to a database; how many they were."""
        sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        return len(self._execute(sql, (url.rpartition("/")[2],)))

    def make_read_only(self, is_so: bool) -> None:
        """Has PostgreSQL refuse every write, as it does after its disk was mounted anew, or on a standby."""
        self._execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if is_so else 'off'}")
        self._execute("SELECT pg_reload_conf()")

    def fill_disk(self, url: str, is_full: bool) -> None:
        """Has a database refuse events as it does on a full disk, or take them again."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(FILL if is_full else EMPTY)

    def _execute(self, sql: str, parameters: tuple[Any, ...] | None = None) -> list[Any]:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            cursor = connection.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    def _note(self, process: Any) -> None:
        record = process.running()
        assert record is not None
        self._ledger.add(record.pid)
