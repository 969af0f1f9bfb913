"""`noetl db`: makes the tables of a store, brings them up to date, and says how they fare.

What is examined, and how, the store knows; here it is judged and printed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

from noetl.cli.arguments import Parser
from noetl.cli.files import write_json
from noetl.settings import Settings
from noetl.store.open import is_postgres
from noetl.store.protocol import StoreError
from noetl.store.sqlite import open_store

ACTIONS: Final = ("init", "migrate", "check")
MUCH_DEAD: Final = 100_000
"""So many dead rows, and more than ten for each that lives, are more than a healthy queue has."""


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "db",
        "Looks after the database of a store: `init` makes its tables, `migrate` brings them up to this\n"
        "version, `check` says how it fares. `init` and `migrate` may be repeated.\n"
        "Exit codes: 0 done or well, 1 something is wrong with it, 2 it cannot be used.",
        "noetl db check --store postgresql://noetl@localhost/noetl",
    )
    parser.add_argument("action", choices=ACTIONS, metavar="init|migrate|check", help="what to do")
    parser.add_argument(
        "--store",
        metavar="URL",
        help="the store, as postgresql://… or sqlite:///PATH (default: NOETL_STORE, or .noetl/store.db)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    options = parser.parse_args(arguments)
    url = options.store or settings.store
    if options.action == "check":
        return _check(url, as_json=options.json)
    applied = _migrate(url, create=options.action == "init")
    if options.json:
        write_json({"applied": applied})
    else:
        print("applied " + ", ".join(applied) if applied else "the schema is up to date")
    return 0


def _check(url: str, *, as_json: bool) -> int:
    facts, wrong = _examine_postgres(url) if is_postgres(url) else asyncio.run(_examine_sqlite(url))
    if as_json:
        write_json({**facts, "wrong": wrong})
        return 1 if wrong else 0
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<22} {_shown(name, value)}")
    for problem in wrong:
        print(f"wrong: {problem}", file=sys.stderr)
    return 1 if wrong else 0


def _migrate(url: str, *, create: bool) -> list[str]:
    if is_postgres(url):
        applied: list[str] = _postgres_schema().migrate(url, create=create)
        return applied
    # Opening a SQLite database as its owner does all of it.
    asyncio.run(open_store(url, create=create).close())
    return []


def _examine_postgres(url: str) -> tuple[dict[str, Any], list[str]]:
    """What can be said of a database, and what is wrong with it."""
    health = _postgres_schema().examine(url)
    wrong = []
    if health.pending:
        wrong.append(f"not applied: {', '.join(health.pending)}. Run `noetl db migrate`.")
    if health.abandoned_leases:
        wrong.append(f"{health.abandoned_leases} leases ran out over a minute ago. Is a server running?")
    if health.overdue_timers:
        wrong.append(f"{health.overdue_timers} timers are due for over a minute. Is a server running?")
    if health.command_dead_rows > max(MUCH_DEAD, 10 * health.command_rows):
        wrong.append(
            f"the queue has {health.command_dead_rows} dead rows. Is autovacuum on, and does no transaction "
            "stay open for hours?"
        )
    if health.lacks_partition:
        wrong.append("the log has no partition for today. Start a server: it makes them ahead of time.")
    return health._asdict(), wrong


async def _examine_sqlite(url: str) -> tuple[dict[str, Any], list[str]]:
    store = open_store(url, create=False, owner=False)
    try:
        rows = await store.commands(limit=1_000_000)
        expired = await store.expired()
    finally:
        await store.close()
    facts = {
        "free_commands": sum(1 for row in rows if row.worker_id is None and not row.is_held),
        "leased_commands": sum(1 for row in rows if row.worker_id is not None),
        "held_commands": sum(1 for row in rows if row.is_held),
        "expired_leases": len(expired),
    }
    return facts, []


def _shown(name: str, value: object) -> str:
    if isinstance(value, int) and name.endswith("_bytes"):
        return f"{value / 1e6:.1f} MB"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _postgres_schema() -> Any:  # noqa: ANN401 - a module
    try:
        # An optional dependency, and one that takes time to import.
        from noetl.store import postgres_schema  # noqa: PLC0415
    except ImportError as missing:
        raise StoreError(
            "A store on PostgreSQL needs the driver: install it with `pip install 'noetl[postgres]'`."
        ) from missing
    return postgres_schema
