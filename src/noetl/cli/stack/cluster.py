"""A whole deployment on this machine: PostgreSQL, NATS, a server and workers, for `noetl up` and `down`.

Ports and passwords are chosen once and kept in the cluster's folder, so that it can be stopped and started
again over its data. Parts that run already are left alone: starting is also how one that died is replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from noetl.cli.stack.detached import Detached, recorded
from noetl.cli.stack.nats_server import NatsServer, free_port
from noetl.cli.stack.postgres_server import PostgresServer
from noetl.cli.stack.probes import is_ready
from noetl.errors import UsageError
from noetl.private_folders import make_private

HOST: Final = "127.0.0.1"
SERVER: Final = "server-1"
READY_SECONDS: Final = 60.0
WORKER_SECONDS: Final = 60.0
"""How long a worker may take to end; it ends by itself when its own time of grace is over."""
SERVER_SECONDS: Final = 30.0

Say = Callable[[str], None]


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided when a cluster is made, and kept."""

    postgres_port: int
    postgres_password: str
    nats_port: int
    nats_token: str
    nats_worker_token: str = ""
    """Empty where the cluster was made when workers had the token of servers, and NATS has run since."""
    server_port: int


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # --- what it is made of -------------------------------------------------------------------------------

    @property
    def file(self) -> Path:
        return self.folder / "cluster.json"

    @property
    def key_file(self) -> Path:
        return self.folder / "master.key"

    def exists(self) -> bool:
        return self.file.is_file()

    def chosen(self) -> Chosen:
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=Chosen)
        except FileNotFoundError:
            raise UsageError(f"there is no cluster in {self.folder}: noetl up makes one") from None
        except msgspec.DecodeError as error:
            raise UsageError(f"{self.file} cannot be read: {error}") from None

    def postgres(self) -> PostgresServer:
        chosen = self.chosen()
        return PostgresServer(self.folder, chosen.postgres_port, chosen.postgres_password)

    def nats(self) -> NatsServer:
        chosen = self.chosen()
        return NatsServer(self.folder, chosen.nats_port, chosen.nats_token, chosen.nats_worker_token)

    @property
    def server(self) -> Detached:
        return Detached(self.folder, SERVER)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.chosen().server_port}"

    def workers(self) -> list[Detached]:
        return [worker for worker in recorded(self.folder, "worker") if worker.running() is not None]

    def parts(self) -> list[Detached]:
        """Every part that runs, in the order in which they were started."""
        servers = [server for server in recorded(self.folder, "server") if server.running() is not None]
        found = [Detached(self.folder, "postgres"), Detached(self.folder, "nats"), *servers, *self.workers()]
        return [part for part in found if part.running() is not None]

    def server_environment(self) -> dict[str, str]:
        """What servers of the cluster are told, without showing it to everybody."""
        return {
            "NOETL_STORE": self.postgres().url,
            "NOETL_NATS": self.nats().url,
            "NOETL_KEY_FILE": str(self.key_file),
            "NOETL_SERVER": self.url,
        }

    def worker_environment(self) -> dict[str, str]:
        """What its workers are told: neither the database nor the master keys are theirs."""
        return {"NOETL_NATS": self.nats().worker_url, "NOETL_SERVER": self.url}

    # --- starting -----------------------------------------------------------------------------------------

    def choose(self, server_port: int) -> None:
        """Decides on ports and passwords; those of an earlier start stay, but for ports that others took."""
        make_private(self.folder)
        earlier = self.chosen() if self.exists() else None
        runs = {part.name for part in self.parts()}
        wanted = Chosen(
            postgres_port=_port(earlier.postgres_port if earlier else None, "postgres" in runs),
            postgres_password=earlier.postgres_password if earlier else secrets.token_urlsafe(24),
            nats_port=_port(earlier.nats_port if earlier else None, "nats" in runs),
            nats_token=earlier.nats_token if earlier else secrets.token_urlsafe(24),
            nats_worker_token=_worker_token(earlier, "nats" in runs),
            server_port=_port(earlier.server_port if earlier else server_port, SERVER in runs),
        )
        part = self.file.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_bytes(msgspec.json.format(msgspec.json.encode(wanted), indent=2) + b"\n")
        part.replace(self.file)

    def start(self, say: Say) -> None:
        """Starts what does not run: databases first, then the server."""
        postgres, nats = self.postgres(), self.nats()
        if postgres.process.running() is None:
            say("starting PostgreSQL")
            postgres.start()
        if nats.process.running() is None:
            say("starting NATS")
            nats.start()
        if self.server.running() is None:
            say("starting the server")
            self._prepare(postgres.url)
            port = str(self.chosen().server_port)
            self.server.start(
                [*noetl(), "server", "start", "--host", HOST, "--port", port, "--name", SERVER],
                environment=self.server_environment(),
                at=self.url,
            )
        self.server.wait_until(lambda: is_ready(self.url), READY_SECONDS)

    def _prepare(self, store: str) -> None:
        """Brings the schema up to date, and makes the first master key."""
        # Optional dependencies, which take time to import.
        from noetl.secrets.encryption import MasterKey  # noqa: PLC0415
        from noetl.secrets.key_file import add_key  # noqa: PLC0415
        from noetl.store.postgres_schema import migrate  # noqa: PLC0415

        migrate(store)
        if not self.key_file.exists():
            add_key(self.key_file, MasterKey.random())

    def stop(self, say: Say) -> bool:
        """Ends every part, those that use others first; false where none ran."""
        running = self.parts()
        workers = [part for part in running if part.name.startswith("worker-")]
        if workers:
            say(f"draining {len(workers)} worker{'s' if len(workers) > 1 else ''}")
        stop_all(workers, WORKER_SECONDS)
        for server in [part for part in running if part.name.startswith("server-")]:
            say("stopping the server")
            server.stop(SERVER_SECONDS)
        if self.exists():
            if self.nats().process.running() is not None:
                say("stopping NATS")
                self.nats().stop()
            if self.postgres().process.running() is not None:
                say("stopping PostgreSQL")
                self.postgres().stop()
        return bool(running)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps two commands from starting or stopping the same cluster at once."""
        make_private(self.folder)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"another command is starting or stopping the cluster in {self.folder}"
                ) from None
            yield


def noetl() -> list[str]:
    """How this very installation is called."""
    return [sys.executable, "-m", "noetl"]


def stop_all(processes: list[Detached], seconds: float) -> None:
    """Asks all at once to end, then waits for each."""
    for process in processes:
        process.tell()
    for process in processes:
        process.stop(seconds, told=True)


def _worker_token(earlier: Chosen | None, nats_runs: bool) -> str:
    """One of its own for every cluster, but for one whose NATS runs without it until it is stopped."""
    if earlier is not None and (earlier.nats_worker_token or nats_runs):
        return earlier.nats_worker_token
    return secrets.token_urlsafe(24)


def _port(earlier: int | None, is_ours: bool) -> int:
    return earlier if is_ours and earlier is not None else free_port(earlier or 0)
