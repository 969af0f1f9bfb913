"""Detached processes as rows: for people, and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from noetl.cli.diagnostics import output_width, paint_for
from noetl.cli.files import write_json
from noetl.cli.stack.detached import Detached
from noetl.cli.tables import table
from noetl.settings import Settings

HEADS = ("NAME", "STATE", "PID", "AT", "LOG")


def process_rows(processes: Iterable[Detached], state: Callable[[str], str]) -> list[dict[str, Any]]:
    """One row for each that runs; `state` is told where it can be reached."""
    return [
        {
            "name": process.name,
            "state": state(record.at),
            "pid": record.pid,
            "at": record.at,
            "log": str(process.log),
        }
        for process in processes
        if (record := process.running()) is not None
    ]


def show_processes(kind: str, rows: list[dict[str, Any]], as_json: bool, settings: Settings) -> None:
    if as_json:
        write_json({f"{kind}s": rows})
    elif rows:
        cells = [[str(value) for value in row.values()] for row in rows]
        sys.stdout.write(table(HEADS, cells, output_width(sys.stdout), paint_for(sys.stdout, settings)))
    else:
        print(f"no {kind} runs here")
