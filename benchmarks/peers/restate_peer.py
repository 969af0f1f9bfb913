"""The workloads on Restate: its server, and a service that it calls, each a process that is started for it.

A step is a durable block of a handler (`ctx.run_typed`). Items and endpoints are calls of a service of their
own, as many at once as the workload says. The server keeps its log in RocksDB below the peer's folder.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import restate
from workload import (
    ALL_ITEMS,
    ENDPOINTS,
    ENDPOINTS_AT_ONCE,
    IN_FLIGHT,
    ITEMS,
    READY_SECONDS,
    STEPS,
    SUM_OF_ITEMS,
    read_page,
    tell,
    timed,
    wanted,
)

SERVER = "restate-server"
CALLS = {"chain": (STEPS, STEPS), "loop": (ITEMS, SUM_OF_ITEMS), "pages": (ENDPOINTS, ALL_ITEMS)}
"""What each handler is called with, and what it must give."""

work = restate.Service("work")


def next_number(number: int) -> int:
    return number + 1


def page(endpoint: int, number: int) -> list[Any]:
    return list(read_page(endpoint, number))


@work.handler()
async def chain(ctx: restate.Context, steps: int) -> int:
    number = 0
    for _ in range(steps):
        number = await ctx.run_typed("step", next_number, number=number)
    return number


@work.handler()
async def item(ctx: restate.Context, number: int) -> int:
    return await ctx.run_typed("item", next_number, number=number)


@work.handler()
async def endpoint(ctx: restate.Context, number: int) -> int:
    found, following = 0, 1
    while following is not None:
        count, following = await ctx.run_typed("page", page, endpoint=number, number=following)
        found += count
    return found


@work.handler()
async def loop(ctx: restate.Context, items: int) -> int:
    return await _summed(lambda number: ctx.service_call(item, number), items, IN_FLIGHT)


@work.handler()
async def pages(ctx: restate.Context, endpoints: int) -> int:
    return await _summed(lambda number: ctx.service_call(endpoint, number), endpoints, ENDPOINTS_AT_ONCE)


async def _summed(call: Callable[[int], Awaitable[int]], count: int, at_once: int) -> int:
    """The sum of as many calls; as the oldest of those under way ends, another one begins."""
    total, under_way = 0, [call(number) for number in range(min(count, at_once))]
    for number in range(at_once, count):
        total += await under_way.pop(0)
        under_way.append(call(number))
    for each in under_way:
        total += await each
    return total


app = restate.app([work])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], environment: dict[str, str] | None = None) -> Iterator[None]:
    process = subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def ask(address: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=150) as response:
        text = response.read()
    return json.loads(text) if text else None


def ask_until_it_is_there(address: str, body: object = None) -> None:
    until = time.monotonic() + READY_SECONDS
    while True:
        try:
            ask(address, body)
        except (urllib.error.URLError, ConnectionError) as error:
            if time.monotonic() > until:
                sys.exit(f"{address} does not answer: {error}")
            time.sleep(0.1)
        else:
            return


def main() -> None:
    if shutil.which(SERVER) is None:
        sys.exit(f"there is no {SERVER}")
    workload = wanted()
    given, expected = CALLS[workload]
    ingress, admin, node, service = (free_port() for _ in range(4))
    settings = {
        "RESTATE_BASE_DIR": f"{os.environ['PEER_FOLDER']}/restate",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
    }
    serve = [sys.executable, "-m", "hypercorn", "restate_peer:app", "--bind", f"127.0.0.1:{service}"]
    here = {"PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}
    with running([SERVER], settings), running(serve, here):
        ask_until_it_is_there(f"http://127.0.0.1:{admin}/health")
        ask_until_it_is_there(f"http://127.0.0.1:{admin}/deployments", {"uri": f"http://127.0.0.1:{service}"})
        address = f"http://127.0.0.1:{ingress}/work"
        ask_until_it_is_there(f"{address}/chain", 3)
        tell(
            timed(lambda: ask(f"{address}/{workload}", given), expected),
            store="its own log, RocksDB",
            fsync="on",
        )


if __name__ == "__main__":
    main()
