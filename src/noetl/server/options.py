"""What an operator can set of a server, as one frozen value; nothing here reads the environment."""

from __future__ import annotations

import ipaddress

import msgspec

from noetl.errors import UsageError

LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost"})


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    host: str = "127.0.0.1"
    port: int = 8082
    name: str = "server"
    """Under which the replica stands in `runtime`, and in its logs."""
    node: int = 0
    """The part of its ids that no other replica's ids have."""
    auth: bool = True
    insecure: bool = False
    """The setting and the option on the command line both say that strangers may do everything."""
    max_body_bytes: int = 10 * 1024 * 1024
    max_report_bytes: int = 64 * 1024 * 1024
    """Of a worker's reports and of a result body."""
    request_seconds: float = 20.0
    """How long a request may take to arrive; a large body gets more, by the rate at which it comes."""
    requests_per_second: float = 100.0
    """Of one token that is not a worker's, or one address without a token; 0: any number."""
    request_burst: int = 400
    worker_requests_per_second: float = 5_000.0
    worker_request_burst: int = 10_000
    max_wait_seconds: float = 30.0
    """How long an answer is held back while there is nothing to say."""
    shutdown_seconds: int = 20
    """How long requests under way may take once the server is told to stop."""
    credential_cache_seconds: int = 3_600
    """How long `auth_cache` keeps what was handed out."""
    retention_days: float | None = None
    """How long executions are kept once they are over; None: for ever."""
    trace_endpoint: str | None = None
    """Where spans are sent by OTLP over HTTP; None: nowhere."""
    log_level: str = "info"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address to listen on."""
    if host in LOOPBACK_NAMES or host.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(options: ServerOptions) -> None:
    """Refuses a server that strangers could reach and that would not ask who they are."""
    if options.auth or options.insecure or is_loopback(options.host):
        return
    raise UsageError(
        f"a server on {options.host} without authentication would let anybody run code: turn authentication "
        "on, listen on 127.0.0.1, or give --insecure and set `insecure` in the settings"
    )
