"""What a trivial call of Python code costs: through the pool of code processes, and through the python tool.

Calls are made from one event loop, as in an embedded run: one at a time, as a chain of steps makes them, and
sixteen at a time, as a loop does; nothing is stored. Beside them stands the least that any such call can
cost here: one text to another process and back, awaited by the same loop. It also says how long a process
takes to start, and how soon endless code is gone after its timeout.

    python -m benchmarks.python_pool [--seconds 2]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools import python
from noetl.tools.processes.limits import DEFAULT_LIMITS
from noetl.tools.processes.pool import CodePool
from noetl.tools.processes.requests import Answer, Program

IN_FLIGHT = 16
CODE = "result = n + 1"
TRIVIAL = Program(CODE, "playbook.yaml", 12)
ENDLESS = Program("while True:\n    pass", "playbook.yaml", 12)
ECHO = """
import socket, sys
peer = socket.socket(fileno=int(sys.argv[1]))
while text := peer.recv(65536):
    peer.send(text)
"""

Call = Callable[[int], Awaitable[object]]


def no_log(_stream: str, _text: str) -> None:
    raise AssertionError("the benchmark prints nothing")


async def call(pool: CodePool, program: Program, folder: Path, **variables: int) -> Answer:
    return await pool.call("benchmark", DEFAULT_LIMITS, program, folder, variables, no_log)


class BareContext:
    """The least that a call of Python code needs around it."""

    process_key = "benchmark"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pool = CodePool()

    def source_line(self, _field: str) -> tuple[str, int]:
        return "playbook.yaml", 12

    def log(self, stream: str, text: str) -> None:
        no_log(stream, text)

    async def shared(self, _key: str, _make: object) -> CodePool:
        return self.pool


@contextlib.asynccontextmanager
async def by_the_pool(folder: Path) -> AsyncIterator[Call]:
    pool = CodePool()

    async def one(number: int) -> None:
        answer = await call(pool, TRIVIAL, folder, n=number)
        assert answer.result == number + 1, answer

    yield one
    await pool.aclose()


@contextlib.asynccontextmanager
async def by_the_tool(folder: Path) -> AsyncIterator[Call]:
    context = BareContext(folder)
    names: dict[str, Any] = {"kind": "python", "config": {"code": CODE}, "spec": {"isolation": "process"}}
    names |= {"execution_id": "1", "step": "a", "task_label": "b", "task_run_id": "2", "attempt": 1}

    async def one(number: int) -> None:
        made = ToolCall(**names, args={"n": number}, action_id="1/a/b/1")
        outcome = await python.run(made, cast("ToolContext", context))
        assert outcome.result == number + 1, outcome

    yield one
    await context.pool.aclose()


@contextlib.asynccontextmanager
async def by_an_echo(_folder: Path) -> AsyncIterator[Call]:
    ours, theirs = socket.socketpair()
    echo = subprocess.Popen([sys.executable, "-c", ECHO, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    theirs.close()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()

    async def one(number: int) -> None:
        await loop.sock_sendall(ours, b"[%d]" % number)
        await loop.sock_recv(ours, 1 << 16)

    yield one
    ours.close()
    echo.wait()


async def timed(one: Call, seconds: float, at_once: int) -> tuple[float, float, float]:
    """Calls a second; and for one call the seconds it takes, and those that this process computes."""
    await asyncio.gather(*(one(0) for _ in range(at_once)))
    done = 0
    begun, computed = time.perf_counter(), time.process_time()

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() - begun < seconds:
            await one(done)
            done += 1

    await asyncio.gather(*(caller() for _ in range(at_once)))
    taken = time.perf_counter() - begun
    return done / taken, taken * at_once / done, (time.process_time() - computed) / done


async def start_seconds(folder: Path) -> float:
    best = 1.0
    for _ in range(5):
        pool = CodePool()
        begin = time.perf_counter()
        await call(pool, TRIVIAL, folder, n=1)
        best = min(best, time.perf_counter() - begin)
        await pool.aclose()
    return best


async def kill_seconds(folder: Path) -> float:
    pool = CodePool()
    await call(pool, TRIVIAL, folder, n=1)
    running = asyncio.ensure_future(call(pool, ENDLESS, folder))
    await asyncio.sleep(0.1)
    process = pool.processes[0]
    begin = time.perf_counter()
    running.cancel()
    await process.gone
    taken = time.perf_counter() - begin
    await pool.aclose()
    return taken


async def measure(seconds: float) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        print(f"first answer of a cold pool   {await start_seconds(folder) * 1000:8.1f} ms")
        print(f"endless code gone after       {await kill_seconds(folder) * 1000:8.1f} ms")
        for title, make, at_once in (
            ("a bare echo", by_an_echo, 1),
            ("the pool", by_the_pool, 1),
            ("the python tool", by_the_tool, 1),
            ("the pool", by_the_pool, IN_FLIGHT),
            ("the python tool", by_the_tool, IN_FLIGHT),
        ):
            async with make(folder) as one:
                rate, taken, computed = await timed(one, seconds, at_once)
            print(
                f"{title:16} {at_once:2} at once {rate:8.0f} /s"
                f"{taken * 1e6:8.0f} µs a call, {computed * 1e6:6.0f} µs of this process"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    asyncio.run(measure(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
