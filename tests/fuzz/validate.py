"""Validates mutated playbooks by the thousand and fails on the first broken promise of `load`.

    python -m tests.fuzz.validate --count 100000
    python -m tests.fuzz.validate --seed 7 --only 4711     shows one document and its diagnostics

Document `I` of seed `S` is always the same, whatever the count and the number of processes.
"""

from __future__ import annotations

import argparse
import copy
import os
import resource
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from random import Random

from noetl.playbook.codes import CODES
from noetl.playbook.load import load
from noetl.tools.registry import builtin_kinds
from tests.fuzz.corpus import corpus, dump, readable, valid
from tests.fuzz.generation import generate, hostile
from tests.fuzz.text_mutations import BYTES, LINES
from tests.fuzz.tree_mutations import BREAKING, PRESERVING, Tree
from tests.fuzz.verdict import MOST_SECONDS, judge

LEAST_YAML = 0.5
LEAST_VALID = 0.1
CHUNK = 250
MOST_MEMORY = 1 << 30
SHOWN_FAILURES = 10

SOURCES = {"bytes": 14, "lines": 12, "tree": 38, "generated": 10, "preserved": 25, "hostile": 1}
"""How documents are made, out of a hundred."""


def document(seed: int, index: int) -> tuple[str, bytes]:
    """How a document is made, and its bytes."""
    rng = Random(f"{seed}:{index}")
    source = rng.choices(list(SOURCES), list(SOURCES.values()))[0]
    if source == "hostile":
        return source, hostile(rng)
    if source == "generated":
        tree: Tree = generate(rng)
        _apply(rng, tree, 0 if rng.random() < 0.4 else 1)
        return source, _written(rng, tree)
    if source in ("bytes", "lines"):
        data = rng.choice(corpus()).data
        for _ in range(rng.randint(1, 3)):
            mutation = rng.choice(BYTES if source == "bytes" else LINES)
            data = mutation(rng, data, rng.choice(corpus()).data)
        return source, data
    if source == "preserved":
        tree = copy.deepcopy(rng.choice(valid()).tree or {})
        for _ in range(rng.randint(1, 4)):
            rng.choice(PRESERVING)(rng, tree, {})
        return source, _written(rng, tree)
    tree = copy.deepcopy(rng.choice(readable()).tree or {})
    _apply(rng, tree, rng.choices((1, 2, 3, 8), (50, 25, 15, 10))[0])
    return source, _written(rng, tree)


def _apply(rng: Random, tree: Tree, times: int) -> None:
    for _ in range(times):
        rng.choice(BREAKING)(rng, tree, rng.choice(readable()).tree or {})


def _written(rng: Random, tree: Tree) -> bytes:
    return dump(
        tree,
        indent=rng.choice((2, 2, 4)),
        width=rng.choice((20, 80, 1000)),
        flow=rng.choice((False, False, None, True)),
    )


# --- running ---------------------------------------------------------------------------------------------


@dataclass
class Tally:
    documents: int = 0
    parse: int = 0
    valid: int = 0
    made: Counter[str] = field(default_factory=Counter)
    dialects: Counter[str] = field(default_factory=Counter)
    codes: set[str] = field(default_factory=set)
    slowest: tuple[float, int] = (0.0, 0)
    slow: list[int] = field(default_factory=list)
    failures: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        self.documents += other.documents
        self.parse += other.parse
        self.valid += other.valid
        self.made += other.made
        self.dialects += other.dialects
        self.codes |= other.codes
        self.slowest = max(self.slowest, other.slowest)
        self.slow += other.slow
        self.failures |= other.failures

    def missed_shares(self) -> Iterator[str]:
        """The shares that say whether the fuzzer still reaches past the YAML parser."""
        if self.parse < LEAST_YAML * self.documents:
            yield f"only {self.parse} of {self.documents} documents parse as YAML"
        if self.valid < LEAST_VALID * self.documents:
            yield f"only {self.valid} of {self.documents} documents are valid playbooks"


def run_chunk(seed: int, indexes: range) -> Tally:
    tally = Tally()
    for index in indexes:
        made, data = document(seed, index)
        verdict = judge(data)
        tally.documents += 1
        tally.parse += verdict.parses
        tally.valid += verdict.valid
        tally.made[made] += 1
        tally.dialects[verdict.dialect or "none"] += 1
        tally.codes |= verdict.codes
        tally.slowest = max(tally.slowest, (verdict.seconds, index))
        if verdict.problems:
            tally.failures[index] = verdict.problems
        elif verdict.slow:
            tally.slow.append(index)
    return tally


def run(seed: int, count: int, jobs: int) -> Tally:
    """Judges documents 0 to `count`; those that were slow get a second chance in a fresh process."""
    chunks = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    tally = Tally()
    with _processes(jobs) as pool:
        parts = [pool.submit(run_chunk, seed, chunk) for chunk in chunks]
        wait(parts)
    for chunk, part in zip(chunks, parts, strict=True):
        # A process that dies takes all unfinished chunks with it; one of them is to blame.
        tally.add(run_apart(seed, chunk) if part.exception() is not None else part.result())
    for index in tally.slow:
        again = run_apart(seed, range(index, index + 1))
        if again.slow:
            seconds = again.slowest[0]
            tally.failures[index] = (f"it takes {seconds:.1f} seconds, more than {MOST_SECONDS:g}",)
    return tally


def run_apart(seed: int, indexes: range) -> Tally:
    """Judges documents in a process of their own; if it dies, finds the one that kills it."""
    with _processes(1) as pool:
        part = pool.submit(run_chunk, seed, indexes)
        wait([part])
    if part.exception() is None:
        return part.result()
    if len(indexes) == 1:
        problem = f"it ends the process: {part.exception()}"
        return Tally(documents=1, failures={indexes.start: (problem,)})
    half = len(indexes) // 2
    tally = run_apart(seed, indexes[:half])
    tally.add(run_apart(seed, indexes[half:]))
    return tally


def _processes(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_limit_memory)


def _limit_memory() -> None:
    """What needs more than this is told so as an exception, before the machine has to step in."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def report(tally: Tally, seed: int, seconds: float) -> None:
    made = ", ".join(f"{name} {number}" for name, number in sorted(tally.made.items()))
    dialects = ", ".join(f"{name} {number}" for name, number in sorted(tally.dialects.items()))
    slowest, index = tally.slowest
    rate = f"{tally.documents / seconds:.0f} a second"
    shares = f"{tally.parse / tally.documents:.0%} YAML, {tally.valid / tally.documents:.0%} valid"
    failed = f"{len(tally.failures)} failures"
    print(f"{tally.documents} documents (seed {seed}) in {seconds:.0f} s, {rate}: {shares}, {failed}")
    print(f"  made from: {made}")
    print(f"  dialects: {dialects}; codes seen: {len(tally.codes & CODES.keys())} of {len(CODES)}")
    print(f"  slowest: {slowest * 1000:.0f} ms (document {index})")
    for index, problems in sorted(tally.failures.items())[:SHOWN_FAILURES]:
        print(f"\nfailed: python -m tests.fuzz.validate --seed {seed} --only {index}")
        for problem in problems[:3]:
            print(f"  {problem.rstrip()}")
    for missed in tally.missed_shares():
        print(f"failed: {missed}")


def show(seed: int, index: int) -> bool:
    """Prints one document, its diagnostics and what is wrong with them; says whether nothing is."""
    made, data = document(seed, index)
    sys.stdout.buffer.write(data if data.endswith(b"\n") else data + b"\n")
    sys.stdout.buffer.flush()
    verdict = judge(data)
    print(f"--- {made}, {len(data)} bytes, {verdict.seconds * 1000:.0f} ms")
    if not verdict.problems:
        for found in load(data, builtin_kinds()).diagnostics:
            print(
                f"{found.line}:{found.column} {found.severity} {found.code}: {found.message} ({found.hint})"
            )
    for problem in verdict.problems:
        print(f"failed: {problem.rstrip()}")
    if verdict.slow:
        print(f"failed: it takes {verdict.seconds:.1f} seconds, more than {MOST_SECONDS:g}")
    return not verdict.problems and not verdict.slow


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.validate", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--count", type=int, default=10_000, help="how many documents (default: 10000)")
    parser.add_argument("--seed", type=int, help="where they come from (default: a new one, printed)")
    parser.add_argument("--only", type=int, metavar="I", help="show document I of the seed")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)"
    )
    options = parser.parse_args()
    if options.only is not None:
        if options.seed is None:
            parser.error("--only needs --seed")
        return 0 if show(options.seed, options.only) else 1
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    started = time.monotonic()
    tally = run(seed, options.count, options.jobs)
    report(tally, seed, time.monotonic() - started)
    return 1 if tally.failures or any(tally.missed_shares()) else 0


if __name__ == "__main__":
    sys.exit(main())
