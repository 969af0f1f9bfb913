"""What the calls of all SQL kinds begin and end with: the config read, the failure worded."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from noetl.errors import NoetlError
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall
from noetl.tools.call_failures import CallFailedError
from noetl.tools.outcomes import failed, failed_with
from noetl.tools.paths import PathRefusedError
from noetl.tools.sql import SqlConfig

Config = TypeVar("Config", bound=SqlConfig)

STATEMENT: Final = "sql.statement"
"""The database refused the statement."""
CONSTRAINT: Final = "sql.constraint"
CONFLICT: Final = "sql.conflict"
"""Others were using what the statement needed; it may work the next time."""
CONNECTION: Final = "sql.connection"
ACCESS: Final = "sql.access"
OPEN_TRANSACTION: Final = "sql.open_transaction"

CALL_FAILURES: Final = (CallFailedError, NoetlError, PathRefusedError, msgspec.ValidationError)
"""What ends a call of a SQL kind besides the errors of its library."""


def read_config(call: ToolCall, config: type[Config]) -> Config:
    return msgspec.convert(call.config, config)


def sql_text(config: SqlConfig) -> str:
    text = config.query if config.query is not None else config.command
    if text is None or not text.strip():
        raise invalid("there is no SQL in `query` or `command`, and no `table`")
    return text


def invalid(message: str) -> CallFailedError:
    """The call was written in a way that cannot work."""
    return CallFailedError("config.invalid", message)


def open_transaction() -> CallFailedError:
    return CallFailedError(
        OPEN_TRANSACTION, "the SQL begins a transaction that it does not end; it was rolled back"
    )


def failure(
    call: ToolCall, started: float, error: BaseException, group: str, fields: tuple[str, ...]
) -> Outcome:
    """The outcome for one of `CALL_FAILURES`."""
    groups: dict[str, dict[str, Any]] = {group: dict.fromkeys(fields)}
    if isinstance(error, CallFailedError):
        groups[group].update(error.group or {})
        return failed_with(call, started, error, **groups)
    if isinstance(error, NoetlError):
        return failed(call, started, error.code, error.message, False, None, None, **groups)
    return failed(call, started, "config.invalid", str(error), False, None, None, **groups)
