"""Runs the calls of the kind `transfer`: opens both sides, moves batch after batch, commits once at the end.

One batch is in memory at a time. Whatever fails on the way, the target is left as it was before; which side
failed stands in the error's message and details.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

import msgspec

from noetl.errors import NoetlError
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.outcomes import failed_with, ok
from noetl.tools.paths import PathRefusedError, under
from noetl.tools.sql_calls import invalid
from noetl.tools.sql_files import MEMORY
from noetl.tools.transfer import TransferConfig, TransferSource, TransferTarget
from noetl.tools.transfer_sides import COLUMNS, Row, RowSource, RowTarget, SideModule
from noetl.tools.transfer_values import binary_decoder

Given = TypeVar("Given")

# A kind gets its sides here: the module of its name has a source and a target.
MODULES: Final = {
    "postgres": "noetl.tools.transfer_postgres",
    "sqlite": "noetl.tools.transfer_sqlite",
    "duckdb": "noetl.tools.transfer_duckdb",
    "file": "noetl.tools.transfer_files",
    "object": "noetl.tools.transfer_files",
}
INSTALLED_BY: Final = {"psycopg": "postgres", "duckdb": "duckdb"}
"""The extra of NoETL that brings a library."""

_NOT_YET: Final = frozenset(("s3", "gcs", "snowflake"))
_FILE_DATABASES: Final = ("sqlite", "duckdb")


class _Side(NamedTuple):
    name: Literal["source", "target"]
    module: SideModule

    async def doing(self, what: Awaitable[Given]) -> Given:
        """What this side gives; its failure is told as its own."""
        try:
            return await what
        except CallFailedError as error:
            failed = error
        except NoetlError as error:
            failed = CallFailedError(error.code, error.message)
        except PathRefusedError as error:
            failed = invalid(str(error))
        except ModuleNotFoundError as error:
            failed = _not_installed(error)
        except self.module.ERRORS as error:
            failed = self.module.translated(error)
        raise _told(failed, self.name) from None


def _told(failed: CallFailedError, side: str) -> CallFailedError:
    """The failure with the side it happened on."""
    failed.message = f"{side}: {failed.message}"
    failed.details["side"] = side
    return failed


class _Progress:
    """How far a transfer has come."""

    def __init__(self) -> None:
        self.rows = 0
        self.batches = 0

    def fields(self) -> dict[str, Any]:
        return {"rows": self.rows, "batches": self.batches}


async def run_transfer(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    progress = _Progress()
    try:
        config = msgspec.convert(call.config, TransferConfig)
        await _transfer(_with_auth(config), context, progress)
    except CallFailedError as error:
        return failed_with(call, started, error, transfer=progress.fields())
    except msgspec.ValidationError as error:
        return failed_with(call, started, invalid(str(error)), transfer=progress.fields())
    return ok(call, started, progress.fields(), transfer=progress.fields())


def _with_auth(config: TransferConfig) -> TransferConfig:
    """The task's own `auth` is for each side that says nothing of its connection."""
    source, target = config.source, config.target
    if source.auth is None and source.dsn is None:
        source = msgspec.structs.replace(source, auth=config.auth)
    if target.auth is None and target.dsn is None:
        target = msgspec.structs.replace(target, auth=config.auth)
    return msgspec.structs.replace(config, source=source, target=target)


async def _transfer(config: TransferConfig, context: ToolContext, progress: _Progress) -> None:
    wanted = _wanted(config.columns)
    reading = _Side("source", _module("source", config.source.kind))
    writing = _Side("target", _module("target", config.target.kind))
    _refuse_one_file(config, context)
    async with AsyncExitStack() as opened:
        async with await _both_at_once(config, context):
            target = await writing.doing(
                opened.enter_async_context(writing.module.target(config.target, context))
            )
            reader = await opened.enter_async_context(AsyncExitStack())
            source = await reading.doing(
                reader.enter_async_context(reading.module.source(config.source, wanted, context))
            )
        columns, taken = _columns(config.columns, source)
        binary = await writing.doing(target.begin(columns))
        shape = _shape(source, columns, taken, binary)
        while rows := await reading.doing(source.fetch(config.batch_size)):
            await _write(writing, target, rows, shape)
            progress.rows += len(rows)
            progress.batches += 1
        # Before the commit, after which nothing may fail any more.
        await reading.doing(reader.aclose())
        await writing.doing(target.commit())


async def _write(
    writing: _Side, target: RowTarget, rows: list[Row], shape: Callable[[Row], Row] | None
) -> None:
    async def write() -> None:
        await target.write(rows if shape is None else [shape(row) for row in rows])

    await writing.doing(write())


def _module(side: Literal["source", "target"], kind: str) -> SideModule:
    ways = f"a {side} can be `postgres`, `sqlite`, `duckdb` or `file`"
    failed: CallFailedError | None = None
    if kind in _NOT_YET:
        failed = CallFailedError("tool.not_runnable", f"`{kind}` cannot be a side of a transfer yet: {ways}")
    elif kind not in MODULES:
        failed = invalid(f"`{kind}` cannot be a side of a transfer: {ways}")
    else:
        try:
            return cast("SideModule", import_module(MODULES[kind]))
        except ModuleNotFoundError as missing:
            failed = _not_installed(missing)
    raise _told(failed, side)


def _not_installed(missing: ModuleNotFoundError) -> CallFailedError:
    extra = INSTALLED_BY.get((missing.name or "").partition(".")[0])
    if extra is None:
        raise missing
    message = f"a library is not installed (`{missing.name}`): install `noetl[{extra}]`"
    return CallFailedError("tool.not_installed", message)


def _refuse_one_file(config: TransferConfig, context: ToolContext) -> None:
    """Reading a file that the same call writes would block itself, or never end."""
    source = _database("source", config.source, context)
    if source is not None and source == _database("target", config.target, context):
        raise invalid(
            f"source and target are the same file: a `{config.target.kind}` task with "
            "`INSERT INTO … SELECT` does that in one statement"
        )


def _database(name_of_side: str, side: TransferSource | TransferTarget, context: ToolContext) -> Path | None:
    name = side.database or side.dsn
    if side.kind not in _FILE_DATABASES or name is None or name == MEMORY:
        return None
    try:
        return under(context.folder, name)
    except PathRefusedError as error:
        raise _told(invalid(str(error)), name_of_side) from None


async def _both_at_once(config: TransferConfig, context: ToolContext) -> asyncio.Lock | nullcontext[None]:
    """Held while the sides are opened: transfers that each have one connection would wait for each other."""
    if config.source.kind != "postgres" or config.target.kind != "postgres":
        return nullcontext()

    async def make() -> asyncio.Lock:
        return asyncio.Lock()

    return await context.shared("transfer:two-connections", make)


def _wanted(columns: dict[str, str] | list[str] | None) -> list[str] | None:
    """The source's names of the columns that are taken."""
    if columns is None:
        return None
    names = list(columns)
    targets = list(columns.values()) if isinstance(columns, dict) else names
    if not names:
        raise invalid("`columns` names no column")
    if len(set(targets)) < len(targets) or len(set(names)) < len(names):
        raise invalid("`columns` names one column twice")
    return names


def _columns(
    columns: dict[str, str] | list[str] | None, source: RowSource
) -> tuple[tuple[str, ...], list[int]]:
    """The columns in the target, and the places of their values in a row of the source."""
    names = source.names
    if columns is None:
        return tuple(names), list(range(len(names)))
    missing = [name for name in columns if name not in names]
    if missing:
        there = ", ".join(f"`{name}`" for name in names)
        raise _told(CallFailedError(COLUMNS, f"there is no column `{missing[0]}`, but {there}"), "source")
    named = tuple(columns.values()) if isinstance(columns, dict) else tuple(columns)
    return named, [names.index(name) for name in columns]


def _shape(
    source: RowSource, columns: tuple[str, ...], taken: list[int], binary: frozenset[str]
) -> Callable[[Row], Row] | None:
    """Makes the target's row of the source's; None where they are the same."""
    places = [place for place, name in enumerate(columns) if name in binary] if source.only_text else []
    pick: Callable[[Row], Row] | None = None
    if taken != list(range(len(source.names))):
        # With one place alone it would give the value, not a row.
        pick = itemgetter(*taken) if len(taken) > 1 else lambda row: (row[taken[0]],)
    if not places:
        return pick
    decoded = binary_decoder(places, columns)
    return lambda row: decoded(list(row if pick is None else pick(row)))
