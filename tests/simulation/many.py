"""Plays many seeds in many processes: a tally of what occurred, and the seeds that failed.

This is what the long runs have in common. It imports nothing of the engine before it is told what to play, so
that a process that measures coverage has it measured from its first line.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import coverage

CHUNK = 50
MOST_SHOWN = 20
PROGRESS_SECONDS = 30.0
ENGINE = Path(__file__).resolve().parents[2] / "src" / "noetl" / "engine"

_measuring: coverage.Coverage | None = None


class Played(NamedTuple):
    seeds: int
    seconds: float
    """Of a processor."""
    tally: Counter[str]
    failed: list[tuple[int, str]]


def play_some(player: str, seeds: list[int], tell: bool = False) -> Played:
    """Plays seeds by a function that is given by its name: `module:function`."""
    module, _, name = player.partition(":")
    play: Any = getattr(importlib.import_module(module), name)
    if not gc.get_freeze_count():
        gc.freeze()  # what was imported stays; looking through it again and again takes a tenth of the time
    tally: Counter[str] = Counter()
    failed = []
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            problem = play(seed, Path(folder), tally, tell=tell)
            if problem is not None:
                failed.append((seed, problem))
    if _measuring is not None:
        _measuring.save()
    return Played(len(seeds), time.process_time() - began, tally, failed)


def play_all(player: str, seeds: list[int], jobs: int, measured_in: str | None = None) -> Iterator[Played]:
    """The seeds in chunks, each as soon as it and those before it are played."""
    size = max(1, min(CHUNK, len(seeds) // jobs))
    chunks = [seeds[start : start + size] for start in range(0, len(seeds), size)]
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, fresh, initializer=measure, initargs=(measured_in,)) as pool:
        yield from pool.map(play_some, [player] * len(chunks), chunks)


def measure(folder: str | None) -> None:
    """Begins to measure coverage in this process; None: it is not wanted."""
    global _measuring
    if folder is not None:
        _measuring = _coverage(folder, suffix=True)
        _measuring.start()


def _coverage(folder: str, *, suffix: bool) -> coverage.Coverage:
    return coverage.Coverage(
        data_file=f"{folder}/coverage",
        data_suffix=suffix or None,
        branch=True,
        source=[str(ENGINE)],
        config_file=False,
        messages=False,
    )


def branches_taken(folder: str) -> tuple[int, int]:
    """Of the engine's branches, those that were taken, and all; what was missed is printed by file."""
    found = _coverage(folder, suffix=False)
    found.combine([folder])
    taken = total = 0
    for file in sorted(ENGINE.glob("*.py")):
        analysis = found._analyze(str(file))
        taken += analysis.numbers.n_executed_branches
        total += analysis.numbers.n_branches
        missed = sorted(
            (line, max(to, 0)) for line, ways in analysis.missing_branch_arcs().items() for to in ways
        )
        if missed:
            print(f"  {file.name:16} missed:", *(f"{line}->{to or 'exit'}" for line, to in missed))
    return taken, total


def run_many(player: str, chosen: argparse.Namespace, *, measured_in: str | None = None) -> int:
    """Plays what was chosen and prints what occurred; the exit code."""
    began = told = time.monotonic()
    tally: Counter[str] = Counter()
    failed: list[tuple[int, str]] = []
    seeds = list(range(chosen.first, chosen.first + chosen.count))
    done, busy = 0, 0.0
    for count, used, counted, wrong in play_all(player, seeds, chosen.jobs, measured_in):
        tally.update(counted)
        failed.extend(wrong)
        done += count
        busy += used
        for seed, problem in wrong:
            print(f"seed {seed}: {problem}", file=sys.stderr, flush=True)
        if time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            print(f"… {done} of {len(seeds)} seeds in {told - began:.0f} s, {len(failed)} failed", flush=True)
    for name, count in sorted(tally.items()):
        print(f"{name:40} {count:>10}")
    if failed:
        print("seeds that failed:", *(seed for seed, _ in failed[:MOST_SHOWN]), file=sys.stderr)
    each = 1000 * busy / max(1, tally["executions"])
    print(
        f"{len(seeds)} seeds, {tally['executions']} executions in {time.monotonic() - began:.1f} s "
        f"({each:.1f} ms of one core for each execution), {len(failed)} failed"
    )
    return 1 if failed else 0


def arguments(prog: str, description: str | None, count: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--count", type=int, default=count, help="seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one, told in full")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    return parser


def play_chosen(player: str, chosen: argparse.Namespace) -> int:
    """One seed told in full, or many; the exit code."""
    if chosen.seed is None:
        return run_many(player, chosen)
    _, _, tally, failed = play_some(player, [chosen.seed], tell=True)
    for name, count in sorted(tally.items()):
        print(f"{name:40} {count:>10}")
    for _, problem in failed:
        print(problem, file=sys.stderr)
    return 1 if failed else 0
