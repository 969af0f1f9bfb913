"""`noetl worker`: starts a worker, in the foreground or detached; stops, counts and shows detached ones."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import time
from pathlib import Path

from noetl.cli.arguments import Parser, count
from noetl.cli.contexts import Server, chosen_server
from noetl.cli.environment import variables
from noetl.cli.stack.detached import Detached, recorded
from noetl.cli.stack.listing import process_rows, show_processes
from noetl.cli.stack.requirements import check_libraries
from noetl.cli.stack.worker_processes import WorkerOptions, running_workers, scale, start_worker
from noetl.errors import UsageError
from noetl.settings import Settings

ACTIONS = ("start", "stop", "status", "scale")
DEFAULT_SERVER = "http://127.0.0.1:8082"
SLOTS = 16
GRACE = 30.0
STOP_SECONDS = 15.0
"""How much longer than its time of grace a worker may take to end."""


def run(arguments: list[str], settings: Settings) -> int:
    options = _parser().parse_args(arguments)
    folder = Path(settings.state).resolve() / "cluster"
    if options.action != "scale" and options.count is not None:
        raise UsageError(f"`worker {options.action}` takes no number; `worker scale N` does")
    match options.action:
        case "start" if options.detach:
            return _say_started([start_worker(folder, _for_others(options, folder, settings))])
        case "start":
            return _start(options, settings)
        case "stop":
            return _stop(options, folder)
        case "scale":
            return _scale(options, folder, settings)
    rows = process_rows(recorded(folder, "worker"), lambda _: "running")
    show_processes("worker", rows, options.json, settings)
    return 0 if rows else 1


def _parser() -> Parser:
    parser = Parser(
        "worker",
        "Starts a worker, stops those that were started with --detach, shows them, or has N of them run.\n"
        "A worker that is told to stop finishes what it runs, for as long as --grace says; told twice, it "
        "ends at once.\n"
        "Exit codes: 0 done (start: ended by a signal), 1 status: none runs, 2 it did not start.",
        "noetl worker start --server http://127.0.0.1:8082 --pool default --slots 32",
    )
    parser.add_argument("action", choices=ACTIONS, metavar="start|stop|status|scale", help="what to do")
    parser.add_argument("count", metavar="N", nargs="?", help="with scale: how many are to run")
    parser.add_argument(
        "--server",
        metavar="URL",
        help="the server, or its replicas with commas between them: the next one is asked when one does not "
        f"answer (default: NOETL_SERVER, or {DEFAULT_SERVER})",
    )
    parser.add_argument("--nats", metavar="URL", help="the NATS servers (default: NOETL_NATS, or none)")
    parser.add_argument("--pool", metavar="POOL", help="whose work it takes (default: default)")
    parser.add_argument(
        "--slots", metavar="N", type=count, help=f"how many commands at once (default: {SLOTS})"
    )
    parser.add_argument(
        "--grace",
        metavar="SECONDS",
        type=float,
        help=f"how long what runs may take once it is told to stop (default: {GRACE:g})",
    )
    parser.add_argument("--name", help="under which it is known (default: by host and process)")
    parser.add_argument("--detach", action="store_true", help="go on in the background")
    parser.add_argument("--json", action="store_true", help="with status: print one JSON document")
    return parser


def _start(options: argparse.Namespace, settings: Settings) -> int:
    nats = options.nats or settings.nats
    if nats is not None:
        check_libraries("nats")
    # Importing them takes longer than everything else that this verb may do.
    from noetl.cli.outgoing import shared_policy  # noqa: PLC0415
    from noetl.cli.working import Wanted, run_worker  # noqa: PLC0415

    server = chosen_server(options.server, None, settings, variables()) or Server(url=DEFAULT_SERVER)
    wanted = Wanted(
        server=server.url,
        token=server.token or settings.token,
        nats=nats,
        name=options.name or f"{socket.gethostname()}-{os.getpid()}",
        pool=options.pool or "default",
        slots=options.slots or SLOTS,
        grace=GRACE if options.grace is None else max(0.0, options.grace),
        folder=Path(settings.state).resolve() / "files",
        shared=shared_policy(settings),
    )
    logging.basicConfig(
        format="%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
    )
    logging.Formatter.converter = time.gmtime
    run_worker(wanted)
    return 0


def _for_others(options: argparse.Namespace, folder: Path, settings: Settings) -> WorkerOptions:
    """How a detached worker is started: as was said, and for the rest like one that runs already."""
    like = next((record for worker in running_workers(folder) if (record := worker.running())), None)
    environment = {"NOETL_STATE": str(folder.parent)} | (dict(like.environment) if like else {})
    if options.nats is not None:
        environment["NOETL_NATS"] = options.nats
    if settings.token is not None:
        environment["NOETL_TOKEN"] = settings.token
    return WorkerOptions(
        pool=options.pool,
        slots=options.slots,
        grace=options.grace,
        server=options.server,
        environment=environment,
    )


def _say_started(workers: list[Detached]) -> int:
    for worker in workers:
        print(f"{worker.name} started; its log is {worker.log}")
    return 0


def _stop(options: argparse.Namespace, folder: Path) -> int:
    running = running_workers(folder)
    wanted = [worker for worker in running if options.name in (None, worker.name)]
    if options.name is not None and not wanted:
        known = ", ".join(each.name for each in running) or "none does"
        raise UsageError(f"no worker `{options.name}` runs here; {known}")
    seconds = (GRACE if options.grace is None else options.grace) + STOP_SECONDS
    for worker in wanted:
        worker.tell()
    for worker in wanted:
        worker.stop(seconds, told=True)
        print(f"{worker.name} stopped")
    if not wanted:
        print("no worker runs here")
    return 0


def _scale(options: argparse.Namespace, folder: Path, settings: Settings) -> int:
    written = options.count or ""
    if not (written.isascii() and written.isdigit() and int(written) <= 1_000):
        raise UsageError("`worker scale` needs the number of workers that are to run, from 0 to 1000")
    started, ended = scale(folder, int(written), _for_others(options, folder, settings))
    _say_started(started)
    for worker in ended:
        print(f"{worker.name} stopped")
    if not started and not ended:
        print(f"{written} workers run already")
    return 0
