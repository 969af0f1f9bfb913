"""The peers' workloads on NoETL's embedded engine; prints one line of JSON. `run.py` calls it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from _runs import PAGINATION, chain, engine, loop


async def measure(folder: Path, address: str) -> None:
    async with engine(folder) as run:
        seconds = {
            "chain": (await run.run(chain(200))).seconds,
            "loop": (await run.run(loop(1000))).seconds,
            "pages": (await run.run(PAGINATION, {"api": address})).seconds,
        }
        settings = f"store sqlite, synchronous {run.store.synchronous}, code in killable processes"
    print(json.dumps({"seconds": seconds, "settings": settings}))


if __name__ == "__main__":
    asyncio.run(measure(Path(sys.argv[1]), sys.argv[2]))
