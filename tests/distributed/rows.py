"""The faults that are tried a given number of times: one row each, played by `faults.py` and by the tests.

A row says what it needs and how trials are made; each round keeps executions of every shape under way, makes
its trials among them, and is judged as a whole. What a row adds to that judgement stands with it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.distributed.disturbances import Disturbances
from tests.distributed.network import FAULTS
from tests.distributed.processes import Process, wait_until
from tests.distributed.rounds import END_SECONDS, Parts, Round
from tests.distributed.stack import OWN_PLAYBOOKS
from tests.distributed.verdict import assert_sound

Play = Callable[[Round, int], int]
"""Makes so many trials in a round and judges it; how many executions there were."""
AT_LEAST = 0.8
"""For how much of the time a loop makes use of what it may."""
MOST_IN_FLIGHT = 5
HEARD_SECONDS = 60.0
"""Within so long everybody hears that NATS is back, on a busy machine too."""
TAKEN_BACK_SECONDS = 60.0
"""Within so long a lease is taken back that is over, on a busy machine too."""
HOW_IT_ENDS = {
    "memory": "python.exception",
    "segfault": "process.died",
    "abort": "process.died",
    "killed": "process.died",
}


class Row(NamedTuple):
    about: str
    trials: int
    """Of the long run."""
    together: int
    """How many of them a round has."""
    parts: Parts
    play: Play


def repeated(
    *faults: Callable[[Disturbances], None], every: tuple[float, float] = (0.1, 0.5), load: int = 8
) -> Play:
    """Each trial one of some faults, in turn, while so many executions are under way."""

    def play(each: Round, trials: int) -> int:
        for number in range(trials):
            each.under.keep(each.chance, load)
            each.disturbances.rest(*every)
            faults[number % len(faults)](each.disturbances)
        each.judge()
        return len(each.under.names)

    return play


def workers(each: Round, trials: int) -> int:
    """Kills of workers that work; a loop they share meanwhile keeps to its limit all the same."""
    each.stack.register("items", folder=OWN_PLAYBOOKS)
    payload = {"api": each.outside.url, "count": 150, "ms": 25}
    shared = each.stack.begin("distributed/items", payload)
    for _ in range(trials):
        each.under.keep(each.chance, 10)
        each.disturbances.rest(0.1, 0.5)
        each.disturbances.kill_ready_worker()
    found = each.judge(shared)
    assert each.outside.peaks[shared] <= MOST_IN_FLIGHT, f"{each.outside.peaks[shared]} calls at once"
    status = found.outcomes[shared]["status"]
    assert status == "completed" or each.told["(given up)"], f"the loop was {status}"
    return len(each.under.names) + 1


def servers(each: Round, trials: int) -> int:
    """Kills of servers, each just after something that waits was begun there: its moments are not missed."""
    for _ in range(trials):
        each.under.keep(each.chance, 6)
        each.under.begin("resting", server=each.chance.randrange(len(each.stack.servers)))
        each.disturbances.rest(0.1, 0.5)
        each.disturbances.kill_ready_server()
    each.judge()
    return len(each.under.names)


def nats(each: Round, trials: int) -> int:
    """A NATS that loses everything; all that miss it hear when it is back."""
    count = repeated(Disturbances.wipe_nats)(each, trials)

    def deaf() -> list[str]:
        said = {part.name: part.said() for part in each.stack.parts()}
        return [name for name, words in said.items() if words.count("NATS is down") > words.count("is back")]

    wait_until(lambda: not deaf(), HEARD_SECONDS, lambda: f"NATS is heard again by {deaf()}")
    return count


def zombies(each: Round, trials: int) -> int:
    """Workers with leases stand still for two leases; all but one may do so at once."""
    stands: list[tuple[float, int, float]] = []
    begun = 0
    seconds = 2 * each.stack.lease_seconds
    last_at = time.monotonic()
    while begun < trials or stands:
        assert time.monotonic() < last_at + END_SECONDS, "no worker has anything to do"
        each.under.keep(each.chance, 8 if begun < trials else 0)
        while stands and (stands[0][0] <= time.time() or begun == trials):
            until, place, at = heapq.heappop(stands)
            time.sleep(max(0.0, until - time.time()))
            _go_on_as_zombie(each, each.stack.workers[place], at)
        busy = each.disturbances.busy_workers()
        if begun < trials and busy and len(stands) < len(each.stack.workers) - 1:
            victim = each.chance.choice(busy)
            at = each.disturbances.pause(victim)
            heapq.heappush(stands, (at + seconds, each.stack.workers.index(victim), at))
            begun, last_at = begun + 1, time.monotonic()
        each.disturbances.rest(0.02, 0.2)
    each.judge()
    return len(each.under.names)


def _go_on_as_zombie(each: Round, worker: Process, paused_at: float) -> None:
    """When it goes on nothing is left of what it had."""
    wait_until(
        lambda: worker.name not in each.disturbances.holders(),
        TAKEN_BACK_SECONDS,
        f"the leases of {worker.name} are taken back",
    )
    each.disturbances.go_on(worker, paused_at)


def network(each: Round, trials: int) -> int:
    """Executions, while answers are lost and late, and requests come twice."""
    assert each.network is not None
    before = each.network.told.copy()
    each.network.is_faulty = True
    try:
        begun_at = time.monotonic()
        while (begun := len(each.under.names)) < trials:
            each.under.keep(each.chance, min(12, trials - begun))
            each.disturbances.rest(0.05, 0.2)
            if len(each.under.names) > begun:
                begun_at = time.monotonic()
            elif time.monotonic() > begun_at + END_SECONDS:
                break  # which of them do not end is told when they are judged
        each.judge()
    finally:
        each.network.is_faulty = False
    made = each.network.told - before
    each.told.update(made)
    assert trials < 20 or all(made[fault] > 0 for fault in FAULTS), made
    return len(each.under.names)


def cap(each: Round, trials: int, *, items: int = 1_500, milliseconds: int = 200) -> int:
    """Loops over many items, shared out among workers; whoever is called counts how many come at once."""
    each.stack.register("items", folder=OWN_PLAYBOOKS)
    payload = {"api": each.outside.url, "count": items, "ms": milliseconds}
    begun = [each.stack.begin("distributed/items", payload) for _ in range(trials)]
    each.stack.wait_ended(begun, seconds=END_SECONDS + items * milliseconds / 1_000)
    found = assert_sound(each.stack, each.outside, begun)
    for execution_id in begun:
        assert found.outcomes[execution_id]["status"] == "completed"
        peak = each.outside.peaks[execution_id]
        share = each.outside.share_of_time(execution_id, MOST_IN_FLIGHT - 1)
        each.told[f"peak {peak}"] += 1
        assert peak == MOST_IN_FLIGHT, f"{execution_id} had {peak} calls under way at once"
        assert share >= AT_LEAST, f"{execution_id} made use of its limit for {share:.0%} of the time only"
    assert len(each.outside.counts()) == trials * (items + 1)
    assert set(each.outside.counts().values()) == {1}
    return trials


def poison(each: Round, trials: int) -> int:
    """Code that ends its process; the worker, other executions and other code do not notice."""
    each.stack.register("poison", "neighbour", folder=OWN_PLAYBOOKS)
    processes = [part.pid for part in each.stack.parts()]
    ways, neighbours = {}, []
    for number in range(trials):
        each.under.keep(each.chance, 4)
        neighbours.append(each.stack.begin("distributed/neighbour", {"api": each.outside.url}))
        how = list(HOW_IT_ENDS)[number % len(HOW_IT_ENDS)]
        ways[each.stack.begin("distributed/poison", {"api": each.outside.url, "how": how})] = how
        wait_until(
            lambda: each.stack.open_count([*ways, *neighbours]) < 6, END_SECONDS, "poisoned executions end"
        )
    found = each.judge(*ways, *neighbours)
    for execution_id in neighbours:
        result = found.outcomes[execution_id]["steps"]["after"]["result"]
        assert result["given"] == sum(number * number for number in range(12)), result
    for execution_id, how in ways.items():
        each.told[how] += 1
        after = found.outcomes[execution_id]["steps"]["after"]
        assert after["result"]["given"] == HOW_IT_ENDS[how], (how, after)
    assert [part.pid for part in each.stack.parts() if part.is_running] == processes, "a part has ended"
    return len(each.under.names) + len(ways) + len(neighbours)


def disk(each: Round, trials: int, *, seconds: float = 5.0, gone_seconds: float = 60.0) -> int:
    """A disk that is full, one that cannot be written, a database that is gone, one after the other."""
    made = each.disturbances
    for _ in range(trials):
        for away, lasts in (
            (made.fill_disk, seconds),
            (made.make_read_only, seconds),
            (made.take_postgres_away, gone_seconds),
        ):
            each.under.keep(each.chance, 8)
            made.rest(0.1, 0.5)
            away(lasts)
    each.judge()
    return len(each.under.names)


ROWS = {
    "workers": Row("kill -9 of a worker", 1_000, 50, Parts(), workers),
    "servers": Row(
        "kill -9 of one of three servers",
        300,
        15,
        Parts(servers=3, lease_seconds=3.0),
        servers,
    ),
    "postgres": Row(
        "connections of PostgreSQL killed, or an immediate stop and a start",
        100,
        6,
        Parts(lease_seconds=2.0),
        repeated(Disturbances.kill_connections, Disturbances.crash_postgres),
    ),
    "nats": Row("NATS killed and its store wiped", 100, 10, Parts(workers=2), nats),
    "zombies": Row(
        "a worker with leases stands still for two leases, then goes on",
        500,
        20,
        Parts(lease_seconds=1.0),
        zombies,
    ),
    "network": Row(
        "an execution over a network that loses, repeats and reorders",
        2_000,
        100,
        Parts(servers=1, workers=2, lease_seconds=2.0, through_network=True),
        network,
    ),
    "cap": Row(
        "1 500 items, at most 5 at once, shared by four workers", 50, 2, Parts(lease_seconds=5.0), cap
    ),
    "poison": Row(
        "code that runs out of memory or crashes its process",
        50,
        10,
        Parts(servers=1, workers=2, lease_seconds=10.0),
        poison,
    ),
    "disk": Row(
        "the database's disk full, then read-only, then the database gone for a minute", 10, 1, Parts(), disk
    ),
}
