"""What must hold of `load` for any document whatever: the fuzzer's oracle."""

from __future__ import annotations

import codecs
import re
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import yaml

from noetl.playbook.codes import CODES
from noetl.playbook.diagnostics import Diagnostic
from noetl.playbook.load import Loaded, load
from noetl.tools.registry import builtin_kinds

MOST_SECONDS = 2.0
GIVE_UP_SECONDS = 20.0
LINE_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Verdict:
    problems: tuple[str, ...]
    seconds: float
    parses: bool
    valid: bool
    dialect: str | None
    codes: frozenset[str]

    @property
    def slow(self) -> bool:
        return self.seconds > MOST_SECONDS


class _GaveUp(BaseException):
    """Not an `Exception`, so that nothing under test can take it for one of its own."""


def judge(data: bytes) -> Verdict:
    """Validates the document twice. Being slow is not among the problems: see `Verdict.slow`."""
    try:
        with _time_limit():
            started = time.process_time()
            first = load(data, builtin_kinds())
            seconds = time.process_time() - started
            problems = _problems(first, data)
            if load(data, builtin_kinds()).diagnostics != first.diagnostics:
                problems.append("validating it again gives other diagnostics")
    # Whatever escapes is what the fuzzer looks for; it becomes a finding with its traceback.
    except (Exception, _GaveUp) as error:  # noqa: BLE001
        shown = "".join(traceback.format_exception(error, limit=-6))
        return Verdict((shown,), time.process_time() - started, parses(data), False, None, frozenset())
    codes = frozenset(found.code for found in first.diagnostics)
    return Verdict(tuple(problems), seconds, parses(data), first.valid, first.dialect, codes)


@contextmanager
def _time_limit() -> Iterator[None]:
    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise _GaveUp(f"no answer after {GIVE_UP_SECONDS:g} seconds")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, GIVE_UP_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def parses(data: bytes) -> bool:
    """Whether it is YAML, by the parser's word and not by ours."""
    try:
        for _ in yaml.parse(data, Loader=yaml.CSafeLoader):
            pass
    except (yaml.YAMLError, UnicodeDecodeError):
        return False
    return True


def _problems(loaded: Loaded, data: bytes) -> list[str]:
    has_error = any(found.severity == "error" for found in loaded.diagnostics)
    problems = []
    if loaded.valid and has_error:
        problems.append("it is valid, but has errors")
    if not loaded.valid and not has_error:
        problems.append("it is not valid, but nothing says why")
    lines = _lines(data)
    for found in loaded.diagnostics:
        problems.extend(f"{problem}: {found}" for problem in _problems_of(found, lines))
    return problems


def _problems_of(found: Diagnostic, lines: list[str]) -> Iterator[str]:
    if found.code not in CODES:
        yield "unknown code"
    elif found.severity != CODES[found.code].severity:
        yield "not the severity of its code"
    if not found.message.strip():
        yield "no message"
    if "\n" in found.message:
        yield "a message of more than one line"
    if not 1 <= found.line <= len(lines) + 1:
        yield f"a line outside the file, which has {len(lines)}"
    elif found.column < 1 or (found.line <= len(lines) and found.column > len(lines[found.line - 1]) + 1):
        yield "a column outside its line"


def _lines(data: bytes) -> list[str]:
    """As an editor counts them, without byte order marks."""
    while data.startswith(codecs.BOM_UTF8):
        data = data[len(codecs.BOM_UTF8) :]
    return LINE_BREAK.split(data.decode("utf-8", "replace"))
