"""`noetl list`: the executions of a store or a server, the newest or the oldest first."""

from __future__ import annotations

import argparse
import asyncio
import heapq
import itertools
import shlex
import sys
from datetime import UTC, datetime

from noetl.cli.arguments import Parser, count
from noetl.cli.diagnostics import output_width, paint_for
from noetl.cli.files import write_json
from noetl.cli.stores import AnyPlace, add_store_options, place_of
from noetl.cli.tables import table
from noetl.cli.tree import duration
from noetl.engine.state import Data
from noetl.errors import UsageError
from noetl.ids import seconds_of, timestamp
from noetl.settings import Settings
from noetl.store.protocol import ExecutionRow

OPEN = ("requested", "running")
INTERRUPTED = "interrupted"
STATUSES = (*OPEN, "paused", INTERRUPTED, "completed", "failed", "cancelled")
HEADS = ("ID", "STATUS", "PLAYBOOK", "STARTED", "TOOK", "ERROR")


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "list",
        "Lists executions, the newest first, or the oldest.\nExit codes: 0 listed, 2 there is no such store.",
        "noetl list --status failed --limit 10",
    )
    parser.add_argument("--status", choices=STATUSES, help="only executions of this status")
    parser.add_argument("--path", metavar="PATH", help="only executions of this playbook")
    parser.add_argument("--parent", metavar="ID", help="only executions that this one called")
    parser.add_argument(
        "--since", metavar="MOMENT", help="only executions asked for then or later, as 2024-05-01 or RFC 3339"
    )
    parser.add_argument("--oldest", action="store_true", help="the oldest first")
    parser.add_argument("--limit", metavar="N", type=count, default=50, help="at most N (default: 50)")
    parser.add_argument("--before", metavar="ID", help="only executions that follow this one, to page on")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    add_store_options(parser)
    options = parser.parse_args(arguments)
    place = place_of(options, settings)
    rows, owned = asyncio.run(_rows(place, options))
    more = len(rows) > options.limit
    rows = rows[: options.limit]
    if options.json:
        write_json(
            {
                "executions": [row_data(row, owned=owned) for row in rows],
                "before": rows[-1].execution_id if more else None,
            }
        )
        return 0
    if not rows:
        print("no executions")
        return 0
    paint = paint_for(sys.stdout, settings)
    shown = [_cells(row, owned=owned) for row in rows]
    sys.stdout.write(table(HEADS, shown, output_width(sys.stdout), paint))
    if more:
        print(f"more: {place.command('list', *_again(options), '--before', rows[-1].execution_id)}")
    return 0


def _again(options: argparse.Namespace) -> list[str]:
    """The options that the next page needs too."""
    words = ["--oldest"] if options.oldest else []
    for name in ("status", "path", "parent", "since"):
        value = getattr(options, name)
        words += [] if value is None else [f"--{name}", shlex.quote(value)]
    return words


async def _rows(place: AnyPlace, options: argparse.Namespace) -> tuple[list[ExecutionRow], bool]:
    """One more than is shown, which tells whether there are more; and whether anybody carries them out."""
    since = None if options.since is None else _moment(options.since)
    store = place.read()
    try:
        owned = store.owned_by_other()
        found = [
            await store.executions(
                status=status,
                path=options.path,
                parent=options.parent,
                since=since,
                order="oldest" if options.oldest else "newest",
                before=options.before,
                limit=options.limit + 1,
            )
            for status in _kept_as(options.status, owned=owned)
        ]
    finally:
        await store.close()
    merged = heapq.merge(*found, key=lambda row: row.requested_at, reverse=not options.oldest)
    return list(itertools.islice(merged, options.limit + 1)), owned


def _kept_as(status: str | None, *, owned: bool) -> tuple[str | None, ...]:
    """The statuses under which a store has executions that are shown under this one."""
    if status == INTERRUPTED:
        return () if owned else OPEN
    return () if status in OPEN and not owned else (status,)


def _moment(written: str) -> str:
    """As stores have moments; a day alone begins at midnight UTC."""
    try:
        found = datetime.fromisoformat(written)
        return timestamp((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since takes a moment such as 2024-05-01T12:00:00Z, but got {written!r}"
        ) from None


def row_data(row: ExecutionRow, *, owned: bool) -> Data:
    return {
        "execution_id": row.execution_id,
        "status": shown_status(row, owned=owned),
        "playbook": {"name": row.name, "path": row.path, "version": row.version, "dialect": row.dialect},
        "started_at": row.requested_at,
        "finished_at": row.finished_at,
        "parent_execution_id": row.parent_execution_id,
        "error": row.error,
    }


def shown_status(row: ExecutionRow, *, owned: bool) -> str:
    """What is open in a store that nobody owns was interrupted."""
    return INTERRUPTED if row.status in OPEN and not owned else row.status


def _cells(row: ExecutionRow, *, owned: bool) -> tuple[str, ...]:
    took = ""
    if row.finished_at is not None:
        took = duration(seconds_of(row.finished_at) - seconds_of(row.requested_at))
    error = "" if row.error is None else str(row.error.get("message", ""))
    started = row.requested_at[:19].replace("T", " ")
    status = shown_status(row, owned=owned)
    return row.execution_id, status, f"{row.path}@{row.version}", started, took, " ".join(error.split())
