"""What can be done to a deployment, and a record of what was: which workers lost leases by it, and when.

Everything random comes from one source of chance. Nothing here judges what became of executions.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from tests.distributed.losses import Hit
from tests.distributed.processes import Process, wait_until
from tests.distributed.stack import Stack
from tests.distributed.verdict import Resumed

ON_ITS_WAY_SECONDS = 1.0
"""After so long no lease is given any more to a worker that is gone."""
BACK_SECONDS = 15.0
"""Within so long a server that was started is ready, and hears its workers."""
PATIENCE_SECONDS = 60.0


class Disturbances:
    def __init__(self, stack: Stack, chance: random.Random) -> None:
        self.stack = stack
        self.chance = chance
        self.told: Counter[str] = Counter()
        """How often each was made."""
        self.hits: list[Hit] = []
        self.resumed: list[Resumed] = []
        self.spares_first = False
        """The first server and the first worker are left alone, if there are others."""

    # --- workers ----------------------------------------------------------------------------------------

    def kill_worker(self) -> None:
        victim = self._victim(self.stack.workers)
        if victim.is_running:
            self._kill_worker(victim)

    def kill_ready_worker(self) -> None:
        """One that works; another one is left to do so."""
        self._kill_worker(self._ready(self.stack.workers, at_least=min(2, len(self.stack.workers))))

    def storm(self) -> None:
        """Kills faster than leases run out."""
        for _ in range(self.chance.randint(3, 8)):
            self.kill_worker()
            time.sleep(self.chance.uniform(0.1, 0.5))

    def drain_worker(self) -> None:
        victim = self._victim(self.stack.workers)
        if victim.is_running and not victim.is_paused:
            self._restart(victim)

    def pause_worker(self) -> None:
        """Longer than its lease, or shorter."""
        victim = self._victim(self.stack.workers)
        if victim.is_running and not victim.is_paused:
            at = self.pause(victim)
            time.sleep(self.chance.choice((0.3, 1.0, 1.3)) * self.stack.lease_seconds)
            self.go_on(victim, at)

    def pause(self, victim: Process) -> float:
        """Stops a worker in its tracks; when."""
        at = time.time()
        victim.pause()
        self.told["pause"] += 1
        return at

    def go_on(self, victim: Process, paused_at: float) -> None:
        at = time.time()
        victim.go_on()
        self.resumed.append(Resumed(victim.name, at))
        self._hit("pause", paused_at, at + ON_ITS_WAY_SECONDS, victim.name)

    def busy_workers(self) -> list[Process]:
        """Those that have leases and run, the one with the most first."""
        names = self.holders()
        return [part for name in names for part in self.stack.workers if part.name == name and part.is_ready]

    def holders(self) -> list[str]:
        """The names of those that have leases, the one with the most first."""
        rows = self.stack.query(
            "SELECT worker_id FROM noetl.command WHERE worker_id IS NOT NULL GROUP BY 1 "
            "ORDER BY count(*) DESC, 1"
        )
        return [str(row[0]).rpartition(":")[2] for row in rows]

    def _kill_worker(self, victim: Process) -> None:
        self.told["worker killed"] += 1
        self.told["worker killed at work"] += victim in self.busy_workers()
        at = time.time()
        victim.kill()
        self._hit("kill", at, time.time() + ON_ITS_WAY_SECONDS, victim.name)
        victim.start()

    # --- servers ----------------------------------------------------------------------------------------

    def kill_server(self) -> None:
        victim = self._victim(self.stack.servers)
        if victim.is_running:
            self._kill_server(victim)

    def kill_ready_server(self) -> None:
        self._kill_server(self._ready(self.stack.servers))

    def stop_server(self) -> None:
        victim = self._victim(self.stack.servers)
        if victim.is_running:
            at = time.time()
            self._restart(victim)
            self._hit("server stopped", at, time.time() + BACK_SECONDS, *self.stack.asking(victim))

    def _kill_server(self, victim: Process) -> None:
        self.told["server killed"] += 1
        at = time.time()
        victim.kill()
        self._hit("server killed", at, at + BACK_SECONDS, *self.stack.asking(victim))
        victim.start()

    # --- services ---------------------------------------------------------------------------------------

    def kill_nats(self) -> None:
        self._kill_nats(wipe=self.chance.random() < 0.5)

    def wipe_nats(self) -> None:
        self._kill_nats(wipe=True)

    def _kill_nats(self, *, wipe: bool) -> None:
        self.told["NATS killed and wiped" if wipe else "NATS killed"] += 1
        self.stack.services.kill_nats(wipe=wipe)
        time.sleep(self.chance.uniform(0.0, 1.0))
        self.stack.services.start_nats()

    def crash_postgres(self) -> None:
        self.take_postgres_away(self.chance.uniform(0.0, 1.0))

    def take_postgres_away(self, seconds: float) -> None:
        self.told["PostgreSQL stopped"] += 1
        at = time.time()
        self.stack.services.crash_postgres()
        time.sleep(seconds)
        self.stack.services.start_postgres()
        self._hit_all("PostgreSQL stopped", at)

    def kill_connections(self) -> None:
        self.told["connections killed"] += 1
        at = time.time()
        self.stack.services.kill_connections(self.stack.database)
        self._hit_all("connections killed", at)

    def fill_disk(self, seconds: float) -> None:
        self.told["disk full"] += 1
        fill = partial(self.stack.services.fill_disk, self.stack.database)
        self._for_a_while("disk full", fill, seconds)

    def make_read_only(self, seconds: float) -> None:
        self.told["read-only"] += 1
        self._for_a_while("read-only", self.stack.services.make_read_only, seconds)

    def _for_a_while(self, what: str, switch: Callable[[bool], None], seconds: float) -> None:
        at = time.time()
        switch(True)
        try:
            time.sleep(seconds)
        finally:
            switch(False)
        self._hit_all(what, at)

    # ----------------------------------------------------------------------------------------------------

    def rest(self, shortest: float, longest: float) -> None:
        time.sleep(self.chance.uniform(shortest, longest))

    def _restart(self, victim: Process) -> None:
        self.told[f"{victim.name.partition('-')[0]} told to end"] += 1
        victim.tell_to_end()
        victim.wait_end()
        victim.start()

    def _victim(self, parts: list[Process]) -> Process:
        return self.chance.choice(parts[1:] if self.spares_first and len(parts) > 1 else parts)

    def _ready(self, parts: list[Process], at_least: int = 1) -> Process:
        ready: list[Process] = []

        def are_enough() -> bool:
            ready[:] = [part for part in parts if part.is_ready]
            return len(ready) >= at_least

        wait_until(are_enough, PATIENCE_SECONDS, "something is there to be disturbed")
        return self.chance.choice(ready)

    def _hit_all(self, what: str, at: float) -> None:
        # Connections are opened again one by one, and workers heard again after that.
        self._hit(what, at, time.time() + BACK_SECONDS, *(worker.name for worker in self.stack.workers))

    def _hit(self, what: str, at: float, until: float, *workers: str) -> None:
        self.hits.append(Hit(what, at, until, frozenset(workers)))
