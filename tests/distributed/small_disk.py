"""PostgreSQL on a file system of its own that is small, and can be filled to the last byte.

It runs in namespaces of its own (`unshare`), which needs no rights beyond those of any user where the system
lets users have them. A shell inside holds the file system and does what it is told on its standard input.
When that ends, all of it is gone.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import psycopg

from noetl.cli.stack.nats_server import free_port
from noetl.cli.stack.postgres_server import postgres_programs
from noetl.store.postgres_schema import migrate
from tests.distributed.processes import Ledger
from tests.distributed.services import SETTINGS, WITNESS, Services

INSIDE = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--keep-caps", "--mount", "sh", "-c")
MEGABYTES = 160
PROBE = 'mount -t tmpfs -o size=64k none "$1"'
SCRIPT = """
set -e
disk=$1 programs=$2 port=$3
mount -t tmpfs -o size="$4" none "$disk"
"$programs/initdb" -D "$disk/data" -A trust -U postgres --no-sync --wal-segsize=1 >/dev/null
cat >>"$disk/data/postgresql.conf" <<EOF
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_wal_size = 4MB
min_wal_size = 2MB
$5
EOF
run() { "$programs/pg_ctl" -D "$disk/data" -o "-p $port" -l "$disk/log" -w "$@" >/dev/null; }
trap 'run -m immediate stop' EXIT
run start
echo done
while read -r word; do
    case $word in
        fill) cat /dev/zero >"$disk/ballast" 2>/dev/null || true ;;
        clear) rm -f "$disk/ballast"; run status || run start ;;
    esac
    echo done
done
"""


def may_mount(folder: Path) -> bool:
    """Whether there can be such a file system here."""
    with contextlib.suppress(OSError):
        return subprocess.run([*INSIDE, PROBE, "sh", str(folder)], capture_output=True).returncode == 0
    return False


class SmallDisk(Services):
    """The services of a stack whose PostgreSQL has little room; NATS is that of other services."""

    def __init__(self, others: Services, folder: Path, ledger: Ledger) -> None:
        self._others = others
        self.nats = others.nats
        self._port = free_port()
        folder.mkdir()
        given = [str(folder), str(postgres_programs()), str(self._port), f"{MEGABYTES}m", SETTINGS]
        self._shell = subprocess.Popen(
            [*INSIDE, SCRIPT, "sh", *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        ledger.add(self._shell.pid)
        self._hear()

    def fill(self) -> None:
        self._tell("fill")

    def clear(self) -> None:
        """There is room again; a PostgreSQL that gave up is started, as a supervisor would."""
        self._tell("clear")

    def stop(self) -> None:
        with self._shell:  # closes what it hears by, and waits for its end
            pass

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def fresh_database(self) -> str:
        self._execute("CREATE DATABASE small")
        migrate(self.url("small"))
        with psycopg.connect(self.url("small"), autocommit=True) as connection:
            connection.execute(WITNESS.read_bytes())
        return self.url("small")

    def drop_database(self, url: str) -> None:
        """It goes with its disk."""

    def start_postgres(self) -> None:
        self.clear()

    def start_nats(self) -> None:
        self._others.start_nats()

    def _tell(self, word: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{word}\n")
        self._shell.stdin.flush()
        self._hear()

    def _hear(self) -> None:
        assert self._shell.stdout is not None
        assert self._shell.stdout.readline() == "done\n", "the file system or PostgreSQL could not be made"
