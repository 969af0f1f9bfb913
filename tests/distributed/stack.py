"""A deployment of its own: servers and workers as processes, on a database of the session's PostgreSQL.

Each part has a handle by which it is killed, stopped in its tracks or started again. What became of
executions is read from the database itself, for servers may be dead.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from noetl.cli.stack.nats_server import free_port
from noetl.cli.stack.probes import is_ready
from noetl.records.event import Event
from noetl.store.codec import decode_event
from tests.distributed.processes import Ledger, Process, wait_until
from tests.distributed.services import Services

LEASE_SECONDS = 2.0
"""Short, so that losses are soon made good; not so short that a busy machine loses leases by itself."""
ENDED = ("completed", "failed", "cancelled")
PATIENCE_SECONDS = 60.0
PLAYBOOKS = Path(__file__).parents[1] / "durability" / "playbooks"
OWN_PLAYBOOKS = Path(__file__).with_name("playbooks")


class Logged(NamedTuple):
    """An event as it lies in the database, and the moment of its commit in seconds since 1970."""

    event: Event
    committed: float


class Row(NamedTuple):
    execution_id: str
    status: str
    parent: str | None
    requested_at: str
    finished_at: str | None
    error: Any


class Stack:
    def __init__(
        self, services: Services, ledger: Ledger, folder: Path, lease_seconds: float, module: str = "noetl"
    ) -> None:
        """`module`: what is run instead of the program itself."""
        self._module = module
        self.services = services
        self.folder = folder
        self.lease_seconds = lease_seconds
        self.database = services.fresh_database()
        self.servers: list[Process] = []
        self.workers: list[Process] = []
        self._ledger = ledger
        self._ports: list[int] = []
        self._asked: dict[str, str] = {}
        self._connection: psycopg.Connection[Any] | None = None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    # --- parts ------------------------------------------------------------------------------------------

    def add_server(self) -> Process:
        port, number = free_port(), len(self.servers) + 1
        url = f"http://127.0.0.1:{port}"
        words = ["server", "start", "--port", str(port), "--name", f"server-{number}"]
        lease = ["--lease-seconds", str(self.lease_seconds)]
        made = self._process(f"server-{number}", [*words, *lease], lambda _: is_ready(url))
        self._ports.append(port)
        self.servers.append(made)
        return made

    def add_worker(self, url: str | None = None, *options: str) -> Process:
        """`url`: whom it asks; by default they take turns."""
        number = len(self.workers) + 1
        asked = (number - 1) % len(self.servers)
        if url is None:
            self._asked[f"worker-{number}"] = self.servers[asked].name
        url = url or self.url(asked)
        words = ["worker", "start", "--server", url, "--name", f"worker-{number}", "--grace", "20", *options]
        made = self._process(f"worker-{number}", words, lambda one: "worker ready" in one.said())
        self.workers.append(made)
        return made

    def _process(self, name: str, words: list[str], is_ready: Any) -> Process:
        environment = {
            "NOETL_STORE": self.database,
            "NOETL_NATS": self.services.nats.url,
            # Folders are not shared between machines either.
            "NOETL_STATE": str(self.folder / name),
        }
        command = [sys.executable, "-m", self._module, *words]
        return Process(self._ledger, self.folder, name, command, environment, is_ready)

    def asking(self, server: Process) -> list[str]:
        """The names of the workers that ask a server, and no other one."""
        return [worker.name for worker in self.workers if self._asked.get(worker.name) in (None, server.name)]

    def parts(self) -> list[Process]:
        return [*self.servers, *self.workers]

    def start(self) -> None:
        """Starts whatever does not run, and lets go on what stands still."""
        missing = [part for part in self.parts() if not part.is_running]
        for part in self.parts():
            if part.is_running and part.is_paused:
                part.go_on()
        for part in missing:
            part.start()
        for part in missing:
            part.wait_ready()

    def stop(self) -> None:
        for part in self.parts():
            if part.is_running:
                part.kill()
        if self._connection is not None:
            self._connection.close()
        self.services.start_postgres()
        self.services.start_nats()
        self.services.drop_database(self.database)

    # --- the API ----------------------------------------------------------------------------------------

    def url(self, server: int = 0) -> str:
        return f"http://127.0.0.1:{self._ports[server]}"

    def call(
        self, method: str, path: str, body: object = None, *, server: int = 0, headers: Any = None
    ) -> Any:
        """One request, not repeated; urllib's errors where it fails."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} | (headers or {})
        request = urllib.request.Request(self.url(server) + path, data, sent, method=method)
        with self._opener.open(request, timeout=30) as answer:
            return json.loads(answer.read())

    def ask(self, method: str, path: str, body: object = None, *, server: int = 0) -> Any:
        """A request that may be made again until a server answers it, whichever that is."""
        until = time.monotonic() + PATIENCE_SECONDS
        turn = server
        while True:
            try:
                return self.call(method, path, body, server=turn % len(self.servers))
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    raise AssertionError(f"{path}: {error.code} {error.read().decode()}") from error
                problem: OSError = error
            except OSError as error:
                problem = error
            assert time.monotonic() < until, f"no server answers {path}: {problem}"
            turn += 1
            time.sleep(0.05)

    def register(self, *names: str, folder: Path = PLAYBOOKS) -> None:
        for name in names:
            self.ask("POST", "/api/catalog", {"source": (folder / f"{name}.yaml").read_text()})

    def begin(self, path: str, payload: dict[str, Any], *, server: int = 0, key: str | None = None) -> str:
        body = {"path": path, "payload": payload}
        if key is not None:
            body["idempotency_key"] = key
        started: str = self.ask("POST", "/api/executions", body, server=server)["execution_id"]
        return started

    # --- what the database says -------------------------------------------------------------------------

    def query(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Any]:
        """Rows; again where PostgreSQL was restarted in between."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = psycopg.connect(self.database, autocommit=True)
                return self._connection.execute(sql, parameters).fetchall()
            except psycopg.OperationalError:
                self._connection = None
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def row(self, execution_id: str) -> Row | None:
        found = self.rows("WHERE execution_id = %s", int(execution_id))
        return found[0] if found else None

    def rows(self, condition: str = "", *parameters: Any) -> list[Row]:
        sql = (
            "SELECT execution_id, status, parent_execution_id, requested_at, finished_at, error "
            f"FROM noetl.execution {condition} ORDER BY execution_id"
        )
        return [
            Row(
                str(row[0]),
                row[1],
                None if row[2] is None else str(row[2]),
                row[3],
                row[4],
                None if row[5] is None else json.loads(bytes(row[5])),
            )
            for row in self.query(sql, parameters)
        ]

    def wait_ended(self, execution_ids: Iterable[str], seconds: float = PATIENCE_SECONDS) -> None:
        """Waits for the end of executions, and of those that they called."""
        wanted = [int(each) for each in execution_ids]

        def left() -> list[Any]:
            sql = (
                "SELECT execution_id FROM noetl.execution "
                "WHERE (execution_id = ANY(%s) OR parent_execution_id = ANY(%s)) AND NOT status = ANY(%s)"
            )
            return [row[0] for row in self.query(sql, (wanted, wanted, list(ENDED)))]

        wait_until(lambda: not left(), seconds, lambda: self.standing(left()), every=0.02)

    def open_count(self, execution_ids: Iterable[str]) -> int:
        """How many of some executions have not ended."""
        sql = "SELECT count(*) FROM noetl.execution WHERE execution_id = ANY(%s) AND NOT status = ANY(%s)"
        return int(self.query(sql, ([int(each) for each in execution_ids], list(ENDED)))[0][0])

    def standing(self, execution_ids: list[int]) -> str:
        """Where executions stand that do not end, for whoever reads of it."""
        lines = []
        for execution_id in execution_ids[:3]:
            log = self.log(str(execution_id))
            last = [
                f"{each.event.seq} {each.event.timestamp} {each.event.event_type} {each.event.entity_id}"
                for each in log[-6:]
            ]
            queue = self.query("SELECT * FROM noetl.command WHERE execution_id = %s", (execution_id,))
            timers = self.query("SELECT * FROM noetl.timer WHERE execution_id = %s", (execution_id,))
            lines += [f"execution {execution_id}:", *last, f"queue: {queue}", f"timers: {timers}"]
        return f"{len(execution_ids)} executions end\n" + "\n".join(lines)

    def log(self, execution_id: str) -> list[Logged]:
        sql = (
            "SELECT body, extract(EPOCH FROM pg_xact_commit_timestamp(xmin)) FROM noetl.event "
            "WHERE execution_id = %s ORDER BY seq"
        )
        return [
            Logged(decode_event(bytes(row[0])), float(row[1]))
            for row in self.query(sql, (int(execution_id),))
        ]

    def count(self, event_type: str, execution_id: str | None = None) -> int:
        """How many events of a type there are, in one execution or in all."""
        sql = "SELECT count(*) FROM noetl.event WHERE event_type = %s"
        if execution_id is None:
            return int(self.query(sql, (event_type,))[0][0])
        return int(self.query(f"{sql} AND execution_id = %s", (event_type, int(execution_id)))[0][0])


@contextmanager
def stack_on(
    services: Services,
    ledger: Ledger,
    folder: Path,
    *,
    servers: int = 1,
    workers: int = 2,
    lease_seconds: float = LEASE_SECONDS,
    slots: int = 8,
    module: str = "noetl",
) -> Iterator[Stack]:
    """A stack that runs, and is gone afterwards."""
    stack = Stack(services, ledger, folder, lease_seconds, module)
    try:
        for _ in range(servers):
            stack.add_server()
        for _ in range(workers):
            stack.add_worker(None, "--slots", str(slots))
        stack.start()
        yield stack
    finally:
        stack.stop()
