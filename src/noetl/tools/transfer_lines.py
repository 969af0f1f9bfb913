"""Rows as lines of a text file: CSV with a header, or one JSON mapping a line.

In CSV an empty field is null and `""` the empty text, both ways. A line is refused where its form is broken,
with its number, rather than guessed at. Nothing here opens a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, Final, Protocol, TextIO

import msgspec

from noetl.tools.call_failures import CallFailedError
from noetl.tools.sql_rows import column_names
from noetl.tools.transfer_sides import COLUMNS, ROW, Row
from noetl.tools.transfer_values import ENCODER, for_json, text_of

LONGEST_RECORD: Final = 16 * 1024 * 1024
"""How many characters a row may have: a quote that is never closed must not fill the memory."""
LOOK_AHEAD: Final = 1000
"""How many lines of JSON are searched for the names of the columns."""

_FIELD: Final = re.compile(r'(?:"([^"]*(?:""[^"]*)*)"|([^",]*))(,|\Z)')
_QUOTE_THESE: Final = re.compile(r'[",\r\n]')


class LineReader(Protocol):
    names: list[str]

    def rows(self) -> Iterator[Row]: ...


class CsvReader:
    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._line = 0
        header = self._record()
        names = [] if header is None else _fields(header, 1)
        if not names or any(not name for name in names):
            raise _broken(1, "the first line of the file does not name its columns")
        self.names = column_names(name or "" for name in names)

    def rows(self) -> Iterator[Row]:
        count = len(self.names)
        while (record := self._record()) is not None:
            if not record and count > 1:
                continue
            fields = _fields(record, self._line)
            if len(fields) != count:
                raise _broken(self._line, f"the row has {len(fields)} fields and the header {count}")
            yield fields

    def _record(self) -> str | None:
        """A line, with those that follow it as long as a quote is open; None at the end."""
        record = self._next()
        if record is None:
            return None
        first, open_quote, parts, size = self._line, record.count('"') % 2 == 1, [record], len(record)
        while open_quote:
            more = self._next()
            if more is None or size > LONGEST_RECORD:
                raise _broken(first, "a quote is not closed, or the row is longer than 16 million characters")
            parts.append(more)
            size += len(more)
            open_quote ^= more.count('"') % 2 == 1
        return "".join(parts).removesuffix("\n").removesuffix("\r")

    def _next(self) -> str | None:
        self._line += 1
        return _line(self._file, self._line)


def _fields(record: str, line: int) -> list[str | None]:
    if '"' not in record:
        return [field or None for field in record.split(",")]
    fields: list[str | None] = []
    position = 0
    while True:
        found = _FIELD.match(record, position)
        if found is None:
            raise _broken(line, "a quote stands inside a field that is not quoted")
        quoted, bare, separator = found.groups()
        fields.append((bare or None) if quoted is None else quoted.replace('""', '"'))
        if not separator:
            return fields
        position = found.end()


class JsonReader:
    """Mappings with the same columns; one that a line leaves out is null there."""

    def __init__(self, file: TextIO, wanted: list[str] | None) -> None:
        self._file = file
        self._line = 0
        # Digits stay as they are written.
        self._decoder = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal)
        self._only = wanted is not None
        self._ahead: list[dict[str, Any]] = []
        self._unseen = set(wanted or ())
        self.names = wanted or self._look_ahead()

    def _look_ahead(self) -> list[str]:
        found: dict[str, None] = {}
        while len(self._ahead) < LOOK_AHEAD and (row := self._next()) is not None:
            self._ahead.append(row)
            found.update(dict.fromkeys(row))
        return list(found)

    def rows(self) -> Iterator[Row]:
        known = set(self.names)
        for row in self._mappings():
            if self._unseen:
                self._unseen.difference_update(row)
            if not self._only and not row.keys() <= known:
                extra = min(row.keys() - known)
                message = f"line {self._line}: `{extra}` is no column of the lines before: name the `columns`"
                raise CallFailedError(COLUMNS, message, line=self._line)
            yield [row.get(name) for name in self.names]
        if self._unseen and self._line > 1:
            raise CallFailedError(COLUMNS, f"no line has `{min(self._unseen)}`")

    def _mappings(self) -> Iterator[dict[str, Any]]:
        yield from self._ahead
        self._ahead = []
        while (row := self._next()) is not None:
            yield row

    def _next(self) -> dict[str, Any] | None:
        while True:
            text = _line(self._file, self._line + 1)
            if text is None:
                return None
            self._line += 1
            if not text.isspace():
                break
        try:
            return self._decoder.decode(text)
        except msgspec.DecodeError as error:
            raise _broken(self._line, f"not a JSON mapping: {error}") from None


def _line(file: TextIO, number: int) -> str | None:
    try:
        text = file.readline(LONGEST_RECORD + 1)
    except UnicodeDecodeError:
        raise _broken(number, "the file is not in UTF-8, here or shortly behind") from None
    if len(text) > LONGEST_RECORD:
        raise _broken(number, "the line is longer than 16 million characters")
    return text or None


def _broken(line: int, what: str) -> CallFailedError:
    return CallFailedError(ROW, f"line {line}: {what}", line=line)


class LineWriter(Protocol):
    def header(self, columns: tuple[str, ...]) -> bytes: ...

    def lines(self, rows: Iterable[Row]) -> bytes: ...


class CsvWriter:
    def header(self, columns: tuple[str, ...]) -> bytes:
        return f"{','.join(_cell(name) for name in columns)}\n".encode() if columns else b""

    def lines(self, rows: Iterable[Row]) -> bytes:
        text = "".join(f"{','.join([_cell(value) for value in row])}\n" for row in rows)
        return text.encode()


class JsonWriter:
    def __init__(self) -> None:
        self._columns: tuple[str, ...] = ()

    def header(self, columns: tuple[str, ...]) -> bytes:
        self._columns = columns
        return b""

    def lines(self, rows: Iterable[Row]) -> bytes:
        return ENCODER.encode_lines([
            {name: for_json(value) for name, value in zip(self._columns, row, strict=True)} for row in rows
        ])  # fmt: skip


def _cell(value: Any) -> str:  # noqa: ANN401 - any value of a database or a file
    if type(value) is int:
        return str(value)
    text = text_of(value)
    if text is None:
        return ""
    if not text or _QUOTE_THESE.search(text):
        doubled = text.replace('"', '""')
        return f'"{doubled}"'
    return text
