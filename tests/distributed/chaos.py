"""Rounds of mixed executions under random faults, for as long as asked: `make chaos SECONDS=… SEED=…`.

Everything random follows from the seed, which is printed: which executions, which faults, after how many
calls. The first round that leaves something untrue ends it, with the round's own seed and the logs of every
process kept.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.distributed.outside import Outside, outside_server
from tests.distributed.processes import Ledger
from tests.distributed.services import Services
from tests.distributed.shapes import BY_NAME, Under, register, undisturbed
from tests.distributed.stack import Stack, stack_on

LEASE_SECONDS = 1.5


class Ended(KeyboardInterrupt):
    """Somebody wants it to end."""


class Round(NamedTuple):
    stack: Stack
    outside: Outside
    chance: random.Random
    told: Counter[str]


def kill_worker(each: Round) -> None:
    victim = each.chance.choice(each.stack.workers)
    if victim.is_running:
        victim.kill()
        victim.start()


def storm(each: Round) -> None:
    """Kills faster than leases run out."""
    for _ in range(each.chance.randint(3, 8)):
        kill_worker(each)
        time.sleep(each.chance.uniform(0.1, 0.5))


def kill_server(each: Round) -> None:
    victim = each.chance.choice(each.stack.servers)
    if victim.is_running:
        victim.kill()
        victim.start()


def drain_worker(each: Round) -> None:
    victim = each.chance.choice(each.stack.workers)
    if victim.is_running and not victim.is_paused:
        victim.tell_to_end()
        victim.wait_end()
        victim.start()


def stop_server(each: Round) -> None:
    victim = each.chance.choice(each.stack.servers)
    if victim.is_running:
        victim.tell_to_end()
        victim.wait_end()
        victim.start()


def pause_worker(each: Round) -> None:
    """Longer than its lease, or shorter."""
    victim = each.chance.choice(each.stack.workers)
    if victim.is_running and not victim.is_paused:
        victim.pause()
        time.sleep(each.chance.choice((0.3, 1.0, 1.3)) * LEASE_SECONDS)
        victim.go_on()


def kill_nats(each: Round) -> None:
    each.stack.services.kill_nats(wipe=each.chance.random() < 0.5)
    time.sleep(each.chance.uniform(0.0, 1.0))
    each.stack.services.start_nats()


def crash_postgres(each: Round) -> None:
    each.stack.services.crash_postgres()
    time.sleep(each.chance.uniform(0.0, 1.0))
    each.stack.services.start_postgres()


def kill_connections(each: Round) -> None:
    each.stack.services.kill_connections(each.stack.database)


Fault = Callable[[Round], None]
FAULTS: dict[Fault, int] = {
    kill_worker: 6,
    storm: 2,
    kill_server: 4,
    drain_worker: 1,
    stop_server: 1,
    pause_worker: 3,
    kill_nats: 2,
    crash_postgres: 1,
    kill_connections: 2,
}
"""Each with how often it is chosen among the others."""


def play(each: Round, expected: dict[str, dict[str, Any]]) -> int:
    """One round: begins executions, disturbs them, waits for their ends; how many they were."""
    chance, outside, stack = each.chance, each.outside, each.stack
    outside.reset()
    outside.answer_seconds = chance.choice((0.002, 0.01, 0.03))
    under = Under(stack, outside)
    for _ in range(chance.randint(3, 10)):
        under.begin(chance.choice(list(BY_NAME)), server=chance.randrange(len(stack.servers)))
    faults = chance.choices(list(FAULTS), list(FAULTS.values()), k=chance.randint(2, 6))
    place = 0
    for fault in faults:
        place += chance.randint(3, 25)
        with suppress(AssertionError):  # they may be nearly through, or wait for signals
            outside.wait_for_calls(place, seconds=2.0)
        each.told[fault.__name__] += 1
        fault(each)
    under.send_signals()
    pauses = sum(fault is pause_worker for fault in faults)
    found = under.outcomes(pauses=pauses, seconds=90.0)
    for name, outcomes in found.items():
        for outcome in outcomes:
            if "worker.lost" in json.dumps(outcome):
                each.told["(given up)"] += 1  # its worker was lost three times in a row
                continue
            assert outcome == expected[name], f"{name} came to {outcome} instead of {expected[name]}"
    assert each.told["(given up)"] == 0 or stack.count("command.expired") >= 3
    stack.start()
    return len(under.names)


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="no round begins after so long")
    parser.add_argument("--rounds", type=int, default=1_000_000, help="at most so many")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    signal.signal(signal.SIGTERM, _end)
    with ExitStack() as closing:
        folder = Path(tempfile.mkdtemp(prefix="noetl-chaos-"))
        ledger = Ledger(folder)
        closing.callback(ledger.close)
        services = Services(folder, ledger)
        closing.callback(services.stop)
        services.start()
        outside = closing.enter_context(outside_server())
        (logs := folder / "logs").mkdir()
        parts = {"servers": options.servers, "workers": options.workers, "lease_seconds": LEASE_SECONDS}
        stack = closing.enter_context(stack_on(services, ledger, logs, **parts))
        register(stack)
        expected = undisturbed(stack, outside)
        code = _rounds(stack, outside, expected, seed, options)
    if code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"the logs of every process are in {logs}", flush=True)
    return code


def _rounds(
    stack: Stack, outside: Outside, expected: dict[str, Any], seed: int, options: argparse.Namespace
) -> int:
    until = time.monotonic() + options.seconds
    told: Counter[str] = Counter()
    number = executions = 0
    while number < options.rounds and time.monotonic() < until:
        began = time.monotonic()
        each = Round(stack, outside, random.Random(seed + number), Counter())
        try:
            count = play(each, expected)
        except Exception:  # noqa: BLE001 - whatever it was, it is told, and ends the run
            traceback.print_exc()
            _keep_events(stack)
            print(f"faults: {dict(each.told)}")
            print(f"round {number + 1} failed; again: make chaos SEED={seed + number} ROUNDS=1", flush=True)
            return 1
        number, executions = number + 1, executions + count
        told += each.told
        faults = ", ".join(f"{name} {times}" for name, times in sorted(each.told.items()))
        print(
            f"round {number} seed {seed + number - 1}: {count} executions, {len(outside.calls)} calls, "
            f"{time.monotonic() - began:.1f} s; {faults}",
            flush=True,
        )
    print(
        f"{number} rounds passed, {executions} executions; " + ", ".join(f"{k} {v}" for k, v in told.items())
    )
    return 0


def _keep_events(stack: Stack) -> None:
    """Writes what the database has of the last executions beside the logs of the processes."""
    for row in stack.rows()[-40:]:
        lines = [
            f"{committed:.3f} {msgspec.json.encode(event).decode()}\n"
            for event, committed in stack.log(row.execution_id)
        ]
        (stack.folder / f"{row.execution_id}.events").write_text("".join(lines), encoding="utf-8")


def _end(*_: object) -> None:
    raise Ended


if __name__ == "__main__":
    sys.exit(main())
