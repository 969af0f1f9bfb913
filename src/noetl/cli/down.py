"""`noetl down`: ends what `noetl up` started; the data stays."""

from __future__ import annotations

import sys
from pathlib import Path

from noetl.cli.arguments import Parser
from noetl.cli.stack.cluster import Cluster
from noetl.settings import Settings


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "down",
        "Ends the deployment that `noetl up` started in this folder: workers finish or hand back what they "
        "run, then\nserver, NATS and PostgreSQL stop. The data stays, and `noetl up` goes on with it.\n"
        "Exit codes: 0 nothing runs any more, 2 something could not be stopped.",
        "noetl down",
    )
    parser.parse_args(arguments)
    cluster = Cluster(Path(settings.state).resolve() / "cluster")
    if not cluster.exists():
        print(f"nothing runs: there is no cluster in {cluster.folder}")
        return 0
    with cluster.locked():
        stopped = cluster.stop(lambda text: print(f"{text} …", file=sys.stderr, flush=True))
    print(f"down; the data is in {cluster.folder}" if stopped else "nothing was running")
    return 0
