"""`noetl server`: starts a server, in the foreground or detached; stops detached ones and shows them."""

from __future__ import annotations

import argparse
import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.cli.arguments import Parser, count
from noetl.cli.environment import variables
from noetl.cli.stack.cluster import noetl
from noetl.cli.stack.detached import Detached, recorded
from noetl.cli.stack.listing import process_rows, show_processes
from noetl.cli.stack.probes import is_alive, is_ready
from noetl.cli.stack.requirements import check_libraries
from noetl.errors import UsageError
from noetl.settings import Settings

if TYPE_CHECKING:
    from noetl.secrets.encryption import KeyRing

ACTIONS = ("start", "stop", "status", "token")
READY_SECONDS = 30.0
STOP_SECONDS = 30.0
LEASE_SECONDS = 30.0
"""How long a worker may be silent before others get its work. Tests of lost workers want it shorter."""
REQUEST_SECONDS = 20.0
"""How long a request may take to arrive. Tests of slow callers want it shorter."""
PASSED_ON = ("host", "port", "name", "auth", "insecure", "trace", "node", "log_level", "lease_seconds")
"""Options that a detached server is started with; secrets go through its environment instead."""


def run(arguments: list[str], settings: Settings) -> int:
    options = _parser().parse_args(arguments)
    folder = Path(settings.state).resolve() / "cluster"
    if options.action == "start":
        check_libraries("server")
        return _start_detached(options, folder) if options.detach else _start(options, settings)
    if options.action == "stop":
        return _stop(options.name, folder)
    if options.action == "token":
        return _token(options, settings)
    rows = process_rows(recorded(folder, "server"), _state)
    show_processes("server", rows, options.json, settings)
    return 0 if any(row["state"] == "ready" for row in rows) else 1


def _parser() -> Parser:
    parser = Parser(
        "server",
        "Starts a server, stops those that were started with --detach, or shows them. `token` makes a token "
        "in the\nserver's store, for whoever can reach that: the first one has to come from somewhere.\n"
        "Exit codes: 0 done (start: ended by a signal), 1 status: none is ready, 2 it did not start.",
        "noetl server start --store postgresql://noetl@db/noetl --nats nats://nats:4222 --detach",
    )
    parser.add_argument("action", choices=ACTIONS, metavar="start|stop|status|token", help="what to do")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=count, default=8082, help="the port (default: 8082)")
    parser.add_argument(
        "--store", metavar="URL", help="postgresql://… or sqlite:///PATH (default: NOETL_STORE)"
    )
    parser.add_argument("--nats", metavar="URL", help="the NATS servers (default: NOETL_NATS, or none)")
    parser.add_argument(
        "--key-file",
        metavar="FILE",
        help="the master keys of credentials (default: NOETL_KEYS or NOETL_KEY_FILE)",
    )
    parser.add_argument(
        "--auth",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="ask everybody for a token (default: unless it listens on this machine alone)",
    )
    parser.add_argument(
        "--insecure", action="store_true", help="with NOETL_INSECURE=yes: let strangers in without a token"
    )
    parser.add_argument("--trace", metavar="URL", help="where to send traces, by OTLP over HTTP")
    parser.add_argument("--node", metavar="N", type=int, help="a number from 0 to 1023 of this replica alone")
    parser.add_argument("--name", help="under which it is known (default: by host and port)")
    parser.add_argument("--log-level", metavar="LEVEL", default="info", help="debug, info, warning or error")
    parser.add_argument(
        "--role",
        default="admin",
        help="with token: what its holder may do (default: admin; worker for workers)",
    )
    parser.add_argument(
        "--pool",
        metavar="POOL",
        action="append",
        default=[],
        help="with token --role worker: whose work it may take; may be repeated (default: any)",
    )
    parser.add_argument(
        "--lease-seconds", metavar="SECONDS", type=float, default=LEASE_SECONDS, help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--request-seconds", metavar="SECONDS", type=float, default=REQUEST_SECONDS, help=argparse.SUPPRESS
    )
    parser.add_argument("--detach", action="store_true", help="go on in the background")
    parser.add_argument("--json", action="store_true", help="with status: print one JSON document")
    return parser


def _start(options: argparse.Namespace, settings: Settings) -> int:
    # Importing them takes longer than everything else that this verb may do.
    from noetl.cli.key_rings import key_path  # noqa: PLC0415
    from noetl.cli.outgoing import token_fetcher  # noqa: PLC0415
    from noetl.cli.serving import Wanted, run_server  # noqa: PLC0415
    from noetl.server.options import ServerOptions, check_exposure, is_loopback  # noqa: PLC0415

    auth = not is_loopback(options.host) if options.auth is None else options.auth
    server = ServerOptions(
        host=options.host,
        port=options.port,
        name=options.name or f"{socket.gethostname()}-{options.port}",
        auth=auth,
        insecure=options.insecure and settings.insecure is True,
        trace_endpoint=options.trace,
        log_level=options.log_level,
        # Without tokens all that is asked on this machine would be counted as one caller's.
        requests_per_second=ServerOptions().requests_per_second if auth else 0.0,
        retention_days=settings.retention_days,
        request_seconds=options.request_seconds,
    )
    check_exposure(server)
    _check_port(options.host, options.port)
    settings = settings._replace(key_file=options.key_file or settings.key_file)
    folder = Path(settings.state).resolve() / "files"
    keychain_folder = settings.keychain_folder
    wanted = Wanted(
        options=server,
        store=options.store or settings.store,
        nats=options.nats or settings.nats,
        keys=_keys(settings),
        key_file=key_path(settings, variables()),
        folder=folder,
        keychain_folder=folder if keychain_folder is None else Path(keychain_folder).resolve(),
        environment=dict(variables()),
        node=options.node,
        lease_seconds=options.lease_seconds,
        statement_seconds=settings.statement_seconds,
        fetch_token=token_fetcher(settings),
        result_stores=tuple(
            each.strip() for each in (settings.result_stores or "").split(",") if each.strip()
        ),
    )
    run_server(wanted)
    return 0


def _keys(settings: Settings) -> KeyRing | None:
    """The master keys, where somebody has named or made some."""
    # It needs the library that encrypts.
    from noetl.cli.key_rings import KEYS, found_keys, key_path  # noqa: PLC0415

    environment = variables()
    if settings.key_file or environment.get(KEYS) or key_path(settings, environment).exists():
        return found_keys(settings, environment)
    return None


def _check_port(host: str, port: int) -> None:
    """Says it in one sentence before anything is opened; the server library would end the process."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def _start_detached(options: argparse.Namespace, folder: Path) -> int:
    taken = {server.name for server in recorded(folder, "server") if server.running() is not None}
    number = next(number for number in range(1, len(taken) + 2) if f"server-{number}" not in taken)
    process = Detached(folder, f"server-{number}")
    given = {"NOETL_STORE": options.store, "NOETL_NATS": options.nats, "NOETL_KEY_FILE": options.key_file}
    url = f"http://{_shown(options.host)}:{options.port}"
    _check_port(options.host, options.port)
    environment = {name: value for name, value in given.items() if value}
    process.start(
        [*noetl(), "server", "start", *_passed_on(options)],
        environment={"NOETL_STATE": str(folder.parent)} | environment,
        at=url,
    )
    process.wait_until(lambda: is_ready(url), READY_SECONDS)
    print(f"{process.name} is ready at {url}; its log is {process.log}")
    return 0


def _passed_on(options: argparse.Namespace) -> list[str]:
    words = []
    for field in PASSED_ON:
        value, name = getattr(options, field), f"--{field.replace('_', '-')}"
        if value is True:
            words.append(name)
        elif value is False and field == "auth":
            words.append("--no-auth")
        elif value is not None and value is not False:
            words += [name, str(value)]
    return words


def _shown(host: str) -> str:
    """The address by which this machine reaches a server that listens there."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _stop(name: str | None, folder: Path) -> int:
    running = [server for server in recorded(folder, "server") if server.running() is not None]
    wanted = [server for server in running if name in (None, server.name)]
    if name is not None and not wanted:
        known = ", ".join(each.name for each in running) or "none does"
        raise UsageError(f"no server `{name}` runs here; {known}")
    for server in wanted:
        server.stop(STOP_SECONDS)
        print(f"{server.name} stopped")
    if not wanted:
        print("no server runs here")
    return 0


def _token(options: argparse.Namespace, settings: Settings) -> int:
    """Prints a token: this is the only time it is seen."""
    if options.name is None:
        raise UsageError("`server token` needs --name, by which it can be revoked")
    check_libraries("server")
    print(asyncio.run(_issued(options.store or settings.store, options)))
    return 0


async def _issued(url: str, options: argparse.Namespace) -> str:
    # Only who makes a token needs them.
    from noetl.ids import Snowflakes, SystemClock  # noqa: PLC0415
    from noetl.registry.opening import open_registry  # noqa: PLC0415
    from noetl.registry.tokens import Tokens  # noqa: PLC0415

    clock = SystemClock()
    registry = await open_registry(url)
    try:
        tokens = Tokens(registry, clock=clock, ids=Snowflakes(clock))
        issued = await tokens.create(options.name, options.role, pools=options.pool)
    finally:
        await registry.close()
    return issued.text


def _state(url: str) -> str:
    if is_ready(url):
        return "ready"
    return "not ready" if is_alive(url) else "does not answer"
