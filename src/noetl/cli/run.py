"""`noetl run`: takes the whole command line of a run and checks the playbook.

This version has no engine. What can be checked is checked, so that mistakes show now; a playbook that
could be run ends in a plain sentence and exit code 2, never in a result that nothing produced.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from noetl.cli.arguments import Parser
from noetl.cli.diagnostics import report_to_stderr
from noetl.cli.files import load_file, read_bytes, shown_name, write_json
from noetl.errors import UsageError
from noetl.settings import Settings


def run(arguments: list[str], settings: Settings) -> int:
    options = _parser().parse_args(arguments)
    payload(options.set, options.payload, settings)
    loaded = load_file(options.file, settings)
    if not loaded.valid:
        if options.json:
            write_json({"status": "invalid", "diagnostics": loaded.diagnostics})
        else:
            report_to_stderr(options.file, loaded, settings)
        return 2
    name = shown_name(options.file)
    print(
        f"noetl run: {name} is valid, but this version can check playbooks, not run them yet", file=sys.stderr
    )
    print(f"hint: `noetl explain {name}` says what it would do", file=sys.stderr)
    return 2


def _parser() -> Parser:
    parser = Parser(
        "run",
        "Runs a playbook. This version checks it and says so; it has no engine yet.",
        "noetl run report.yaml --set day=2024-05-01",
    )
    parser.add_argument("file", metavar="FILE", help="a playbook, or - for stdin")
    parser.add_argument(
        "--set",
        metavar="K=V",
        action="append",
        default=[],
        help="set one workload key; V is JSON, or else text",
    )
    parser.add_argument("--payload", metavar="JSON|@FILE", help="an object that is merged over the workload")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument("--events", metavar="FILE", help="append the event log to this file")
    parser.add_argument("--store", metavar="URL", help="the embedded store to run on")
    parser.add_argument("--server", metavar="URL", help="the server to run on")
    parser.add_argument("--dry-run", action="store_true", help="check everything, run nothing")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, only the outcome")
    return parser


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
        inner[parts[-1]] = _value(text)
    return found


def _value(text: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeError):
        return text


def _object(document: str, settings: Settings) -> dict[str, Any]:
    where = "--payload"
    if document.startswith("@"):
        where = shown_name(document[1:])
        data = read_bytes(document[1:], settings)
    else:
        data = document.encode("utf-8", "surrogateescape")
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{where} must be a JSON object")
    return found
