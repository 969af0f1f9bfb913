"""What is asked of a code process, and what comes of it.

A `Program` is code with everything that does not change from call to call; a `Request` is one call of it,
encoded once. An `Answer` is data whatever happened: the code's result, its exception, or the death of
the process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from noetl.tools.processes.limits import Limits

Stream = Literal["stdout", "stderr"]
Log = Callable[[Stream, str], None]


class Program(msgspec.Struct, frozen=True):
    """Code, and the place in a playbook where it begins; `libs` are pairs of alias and module."""

    code: str
    file: str
    first_line: int = 1
    libs: tuple[tuple[str, str], ...] = ()

    def definition(self) -> bytes:
        return msgspec.json.encode([self.code, self.file, self.first_line, dict(self.libs)])


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no result: an exception of the code, or something that befell its process."""

    kind: str
    message: str
    retryable: bool = False
    exception_type: str | None = None
    traceback: str | None = None


class Answer(msgspec.Struct, frozen=True):
    result: Any = None
    failure: Failure | None = None


class Request:
    """One call, from its submission to its answer."""

    __slots__ = (
        "carries_definition", "future", "limits", "log", "log_left", "number", "program",
        "program_number", "submitted", "tail",
    )  # fmt: skip

    def __init__(
        self, number: int, program: Program, program_number: int, limits: Limits, tail: bytes, log: Log
    ) -> None:
        self.number = number
        self.program = program
        self.program_number = program_number
        self.limits = limits
        self.tail = tail
        """Folder, variables and CPU limit, encoded: the part of the packet that no process changes."""
        self.log = log
        self.log_left = limits.output_bytes
        self.carries_definition = False
        self.submitted = time.monotonic()
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def packet(self, with_definition: bool) -> bytes:
        definition = self.program.definition() if with_definition else b"null"
        return b"[%d,%d,%b,%b" % (self.number, self.program_number, definition, self.tail)

    def answer(self, answer: Answer) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, kind: str, message: str, *, retryable: bool = False) -> None:
        self.answer(Answer(failure=Failure(kind=kind, message=message, retryable=retryable)))

    def output(self, stream: Stream, text: str) -> None:
        """Adds to the task's log, as far as it may still grow; says so once where it is cut."""
        if self.log_left <= 0 or not text:
            return
        kept = text[: self.log_left]
        self.log_left -= len(text)
        self.log(stream, kept)
        if self.log_left <= 0:
            said = f"\n[the rest of the output is left out: only {self.limits.output_bytes} bytes are kept]\n"
            self.log("stderr", said)


def request_tail(folder: str, variables: dict[str, Any], limits: Limits) -> bytes:
    return b"%b,%b,%b]" % (
        msgspec.json.encode(folder),
        msgspec.json.encode(variables),
        msgspec.json.encode(limits.cpu_seconds),
    )
