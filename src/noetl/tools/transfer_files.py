"""Files of the execution's folder as sides of a transfer: CSV, lines of JSON, and Parquet through DuckDB.

A file is written aside and takes its name when it is whole, so others see it as it was before or as it is
at the end. Where an address leads elsewhere than into the folder, it is refused.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, Literal, TypeAlias
from urllib.parse import unquote

from noetl.records.protocols import ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.paths import under
from noetl.tools.sql_calls import invalid
from noetl.tools.threads import in_folder, in_thread, let_it_end
from noetl.tools.transfer import TransferSource, TransferTarget
from noetl.tools.transfer_lines import CsvReader, CsvWriter, JsonReader, JsonWriter, LineReader
from noetl.tools.transfer_sides import COLUMNS, CONFLICT, FILE, Row, RowSource, RowTarget

Format: TypeAlias = Literal["csv", "jsonl", "parquet"]

ERRORS: Final = (OSError,)

_ENDINGS: Final[dict[str, Format]] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
_SCHEME: Final = "file://"


def translated(error: Exception) -> CallFailedError:
    reason = error.strerror if isinstance(error, OSError) else None
    return CallFailedError(FILE, f"the file cannot be used: {reason or error}")


def _place(side: TransferSource | TransferTarget, folder: Path) -> tuple[Path, Format]:
    if not side.url:
        raise invalid("a file needs its `url`: a path in the execution's folder, or a `file://` address")
    if side.dsn is not None or side.database is not None or side.table is not None:
        raise invalid("a file takes no `table`, no `database` and no `dsn`")
    written = side.url
    if written.startswith(_SCHEME):
        written = unquote(written.removeprefix(_SCHEME))
    elif "://" in written:
        scheme = written.partition("://")[0]
        message = (
            f"a transfer cannot use `{scheme}://` yet: only `file://`, and paths in the execution's folder"
        )
        raise CallFailedError("tool.not_runnable", message)
    path = under(folder, written)
    form = side.format or _ENDINGS.get(path.suffix.lower())
    if form is None:
        raise invalid("the file's name ends in neither `.csv`, `.jsonl` nor `.parquet`: say its `format`")
    return path, form


class _Source:
    only_text = True

    def __init__(self, reader: LineReader) -> None:
        self.names = reader.names
        self._rows = reader.rows()

    async def fetch(self, size: int) -> list[Row]:
        return await in_thread(lambda: list(islice(self._rows, size)), let_it_end)


@asynccontextmanager
async def source(
    side: TransferSource, wanted: list[str] | None, context: ToolContext
) -> AsyncIterator[RowSource]:
    path, form = _place(side, context.folder)
    if side.query is not None or side.params is not None:
        raise invalid("a file takes no `query`: `kind: duckdb` reads files with SQL")
    if not path.is_file():
        raise CallFailedError(FILE, f"there is no file `{path.name}` at that place in the execution's folder")
    if form == "parquet":
        # The library of DuckDB is needed for this alone.
        from noetl.tools.transfer_parquet import parquet_source  # noqa: PLC0415

        async with parquet_source(path, context.folder) as rows:
            yield rows
        return
    with await in_folder(context.folder, lambda: path.open(encoding="utf-8-sig", newline="")) as file:

        def begun() -> LineReader:
            return CsvReader(file) if form == "csv" else JsonReader(file, wanted)

        yield _Source(await in_thread(begun, let_it_end))


class AsideFile:
    """A file on its way to its place, under another name in the same folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
        self._before = _identity(path)

    @property
    def continues(self) -> bool:
        """Whether there are rows already."""
        return self._before is not None and self._before[2] > 0

    def into_place(self, *, unless_changed: bool) -> None:
        if unless_changed and _identity(self.path) != self._before:
            message = f"another task wrote `{self.path.name}` meanwhile"
            raise CallFailedError(CONFLICT, message, retryable=True)
        self.aside.replace(self.path)

    def remove(self) -> None:
        # What is left over goes with the execution's folder.
        with suppress(OSError):
            self.aside.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


class _Target:
    def __init__(self, path: Path, folder: Path, form: Format, *, adds: bool) -> None:
        self._place = AsideFile(path)
        self._folder = folder
        self._form = form
        self._adds = adds
        self._writer = CsvWriter() if form == "csv" else JsonWriter()
        self._file: BinaryIO | None = None

    async def begin(self, columns: tuple[str, ...]) -> frozenset[str]:
        await in_folder(self._folder, lambda: self._begin(columns))
        return frozenset()

    def _begin(self, columns: tuple[str, ...]) -> None:
        path = self._place.path
        path.parent.mkdir(parents=True, exist_ok=True)
        header = self._writer.header(columns)
        self._file = file = self._place.aside.open("xb")
        if not (self._adds and self._place.continues):
            file.write(header)
            return
        if self._form == "csv" and columns:
            with path.open(encoding="utf-8-sig", newline="") as before:
                there = CsvReader(before).names
            if there != list(columns):
                named = ", ".join(f"`{name}`" for name in there)
                raise CallFailedError(COLUMNS, f"the file has the columns {named}, in this order")
        with path.open("rb") as before_bytes:
            shutil.copyfileobj(before_bytes, file)
            before_bytes.seek(-1, os.SEEK_END)
            if before_bytes.read() != b"\n":
                file.write(b"\n")

    async def write(self, rows: list[Row]) -> None:
        file = self._file
        assert file is not None
        await in_thread(lambda: file.write(self._writer.lines(rows)), let_it_end)

    async def commit(self) -> None:
        file = self._file
        assert file is not None

        def work() -> None:
            file.flush()
            os.fsync(file.fileno())
            self._place.into_place(unless_changed=self._adds)

        await in_folder(self._folder, work)

    def close(self) -> None:
        # After a commit there is nothing left to write, and before it nothing counts.
        with suppress(OSError):
            if self._file is not None:
                self._file.close()
        self._place.remove()


@asynccontextmanager
async def target(side: TransferTarget, context: ToolContext) -> AsyncIterator[RowTarget]:
    path, form = _place(side, context.folder)
    if side.mode == "upsert":
        raise invalid("rows of a file cannot be written by a key: `mode` is `insert` or `replace`")
    if form == "parquet":
        # The library of DuckDB is needed for this alone.
        from noetl.tools.transfer_parquet import parquet_target  # noqa: PLC0415

        place = AsideFile(path)
        if side.mode == "insert" and place.continues:
            raise invalid("rows cannot be added to a Parquet file that is there already: `mode: replace`")
        async with parquet_target(place, context.folder) as rows:
            yield rows
        return
    written = _Target(path, context.folder, form, adds=side.mode == "insert")
    try:
        yield written
    finally:
        written.close()
