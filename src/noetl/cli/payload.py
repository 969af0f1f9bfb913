"""What a request brings along: `--payload` and `--set` as one object."""

from __future__ import annotations

import argparse
from typing import Any, Final

import msgspec

from noetl.cli.files import MOST_BYTES_READ, read_bytes, shown_name
from noetl.errors import UsageError
from noetl.settings import Settings

MOST_LEVELS: Final = 100
"""As deep as a template may make a value."""


def add_payload_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        metavar="K=V",
        action="append",
        default=[],
        help="set one workload key; V is JSON, or else text",
    )
    parser.add_argument("--payload", metavar="JSON|@FILE", help="an object that is merged over the workload")


def payload(assignments: list[str], document: str | None, settings: Settings) -> dict[str, Any]:
    """What `--payload` and `--set` give together; `--set` wins, and a dotted key reaches into an object."""
    found = {} if document is None else _object(document, settings)
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        parts = key.split(".")
        if not equals or not all(parts):
            raise UsageError(f"--set takes KEY=VALUE, but got {assignment!r}")
        inner = found
        for part in parts[:-1]:
            following = inner.setdefault(part, {})
            if not isinstance(following, dict):
                raise UsageError(f"--set {key}: `{part}` is a value, not an object")
            inner = following
        inner[parts[-1]] = value_of(text)
    refuse_depth(found, "the payload")
    return found


def value_of(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """JSON where it is JSON, else the text itself."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def _object(document: str, settings: Settings) -> dict[str, Any]:
    where = "--payload"
    if document.startswith("@"):
        where = shown_name(document[1:])
        data = read_bytes(document[1:], settings)
        if len(data) >= MOST_BYTES_READ:
            raise UsageError(
                f"{where} is too large for a payload, which has less than {MOST_BYTES_READ >> 20} MiB; "
                "leave the data where it is, pass its address, and let a task of the playbook read it"
            )
    else:
        data = document.encode("utf-8", "surrogateescape")
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    except RecursionError:
        raise UsageError(too_deep(where)) from None
    if not isinstance(found, dict):
        raise UsageError(f"{where} must be a JSON object")
    return found


def refuse_depth(found: object, what: str) -> None:
    """Raises where a value is deeper than templates can go into it."""
    level: list[Any] = [found]
    for _ in range(MOST_LEVELS + 1):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise UsageError(too_deep(what))


def too_deep(what: str) -> str:
    return f"{what} is nested more than {MOST_LEVELS} levels deep"
