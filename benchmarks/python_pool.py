"""How many trivial calls a second the pool of code processes answers, alone and through the python tool.

Sixteen calls are in flight at any time, from one event loop, as in an embedded run; nothing is stored.
It also says how long a process takes to start, and how soon endless code is gone after its timeout.

    python -m benchmarks.python_pool [--seconds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from noetl.tools.processes.limits import DEFAULT_LIMITS
from noetl.tools.processes.pool import CodePool
from noetl.tools.processes.requests import Answer, Program

IN_FLIGHT = 16
TRIVIAL = Program("result = n + 1", "playbook.yaml", 12)
ENDLESS = Program("while True:\n    pass", "playbook.yaml", 12)


def no_log(_stream: str, _text: str) -> None:
    raise AssertionError("the benchmark prints nothing")


async def call(pool: CodePool, program: Program, folder: Path, **variables: int) -> Answer:
    return await pool.call("benchmark", DEFAULT_LIMITS, program, folder, variables, no_log)


async def start_seconds(folder: Path) -> float:
    best = 1.0
    for _ in range(5):
        pool = CodePool()
        begin = time.perf_counter()
        await call(pool, TRIVIAL, folder, n=1)
        best = min(best, time.perf_counter() - begin)
        await pool.aclose()
    return best


async def calls_per_second(folder: Path, seconds: float) -> float:
    pool = CodePool()
    await call(pool, TRIVIAL, folder, n=1)
    done = 0
    end = time.perf_counter() + seconds

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < end:
            answer = await call(pool, TRIVIAL, folder, n=done)
            assert answer.failure is None, answer
            done += 1

    begin = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    rate = done / (time.perf_counter() - begin)
    await pool.aclose()
    return rate


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
        print(f"trivial calls, {IN_FLIGHT} in flight   {await calls_per_second(folder, seconds):8.0f} /s")
        print(f"endless code gone after       {await kill_seconds(folder) * 1000:8.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    asyncio.run(measure(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
