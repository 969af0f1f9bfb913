"""Runs a program as a child process that leaves nothing behind: `shell` and `script` are made of this.

A child has a session of its own, a clean environment and a private folder for temporary files. It is ended
with all of its group when it is done, when the task is cancelled, and when the process that started it
dies; what has left the group is found by its mark, as with code processes.
Texts that may hold secrets reach it through unnamed files, never through its command line. The same is true
of its environment: what a task puts there counts for the program, and not for the shell that sets limits
before or for bubblewrap, which runs outside the sandbox. What an exit code means is for the caller.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from noetl.tools.processes.folders import OwnFolder, remove_abandoned_once
from noetl.tools.processes.guardian import SHELL, TAG_VARIABLE
from noetl.tools.processes.limits import Limits, ulimits
from noetl.tools.processes.orphans import adopt_orphans, end_orphans, family, mark_process, own_family
from noetl.tools.processes.sandbox import PATH, Sandbox, as_options

GRACE_SECONDS: Final = 3.0
"""Between being asked to end and being ended."""
LEFT_OPEN_SECONDS: Final = 0.5
"""How long output is awaited from a process that left the group with the pipe in its hands."""
KILLED: Final = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""The codes of a program that was killed, or whose shell or sandbox says so of it."""
PIECE: Final = 1 << 16
LONGEST_LINE: Final = 1 << 13
LONGEST_VALUE: Final = 120_000
"""Bytes of one variable; Linux starts no program with one of 128 KiB."""

# Waits until it is told to go on, by a line from a pipe whose other end only the starting process holds. Then
# leaves one behind that reads on: the read ends when that process does, and then the group is killed. It is
# an orphan of the group, so that the program never sees this child.
LIFELINE: Final = (
    'read -r _ <"/dev/fd/$1" || exit 1; '
    '( ( read -r _ <"/dev/fd/$1"; kill -s KILL -- "-$$" ) <"/dev/null" >/dev/null 2>&1 & ); '
    '. "$2"; shift 2; exec "$@"'
)
VARIABLE: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_SHELLS_OWN: Final = frozenset(
    {"BASHOPTS", "BASH_VERSINFO", "EUID", "GROUPS", "OPTIND", "PPID", "SHELLOPTS", "UID"}
)
"""Variables that a shell cannot be made to set, or not to any value."""


class ProgramError(Exception):
    """A program that cannot be started."""


class OutputLimitError(Exception):
    """It wrote more than it may; it has been ended."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What is started: a command line, in which `{text}` stands for the name of the file with `text`."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    text: bytes | None = None
    stdin: bytes | None = None
    credential: bytes | None = None
    """Readable by the program under the name that the variable NOETL_AUTH holds."""
    limits: Limits
    sandbox: Sandbox | None = None
    reads: Sequence[Path] = ()
    """Folders that it must be able to read, if it runs in a sandbox."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended: with a code, or by a signal."""

    code: int
    """Below 0: the number of the signal that killed it."""
    stdout: bytes
    stderr_tail: str
    cpu_seconds: float = 0.0
    """Of the program and all others that it waited for; only known where it was killed."""


def environment(values: object) -> dict[str, str]:
    """The variables of a field `env`: null is left out, anything but text is written as JSON."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise ProgramError("`env` is not a mapping")
    found: dict[str, str] = {}
    for name, value in values.items():
        if value is None:
            continue
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if not VARIABLE.fullmatch(str(name)) or not _can_be_value(text):
            raise ProgramError("`env` holds a name or a value that no variable can have")
        found[str(name)] = text
    return found


def _can_be_value(text: str) -> bool:
    try:
        return "\0" not in text and len(os.fsencode(text)) <= LONGEST_VALUE
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def folder_of(written: object, folder: Path) -> Path:
    """The folder to run in."""
    cwd = folder if written is None else folder / str(written)
    if not cwd.is_dir():
        raise ProgramError("the folder that `cwd` names does not exist")
    return cwd


async def run_program(program: Program, log: Callable[[str], None]) -> Ended:
    """Starts it, waits for it and ends its group; `log` gets its standard error line by line."""
    remove_abandoned_once()
    adopt_orphans()
    folder = OwnFolder()
    mark = own_family().begin_mark()
    try:
        with contextlib.ExitStack() as files:
            child = _start(program, folder.path, mark, files)
        try:
            return await _attend(child, program, log)
        finally:
            await _end(child)
    finally:
        own_family().living.discard(mark)
        await asyncio.to_thread(_clean_up, folder)


def _clean_up(folder: OwnFolder) -> None:
    end_orphans()
    folder.remove()


class Child:
    """A process that was started: alive until it is known to have exited, and reaped only after that.

    Its exit is awaited by a thread that leaves it unreaped, so its process group keeps its number until
    the group has been killed. The event loop's own way to wait ends only when all pipes are closed, and
    a process in the background may hold them.
    """

    def __init__(self, process: subprocess.Popen[bytes], lifeline: int) -> None:
        self.process = process
        self.exited = asyncio.Event()
        self.reaped = asyncio.Event()
        """Set when the last of its group is gone."""
        self.cpu_seconds = 0.0
        self._killed = threading.Event()
        self._lifeline = lifeline
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._wait, name="noetl-child", daemon=True).start()

    def _wait(self) -> None:
        with contextlib.suppress(ChildProcessError):  # it was killed and reaped meanwhile
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the event loop is gone, and with it whoever waits
            self._loop.call_soon_threadsafe(self.exited.set)
        self._killed.wait()
        # A worker that adopts orphans has to wait for those of this group as well.
        with contextlib.suppress(ChildProcessError):
            while True:
                _pid, _status, used = os.wait4(-self.process.pid, 0)
                self.cpu_seconds += used.ru_utime + used.ru_stime
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.reaped.set)

    def signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def reap(self) -> int:
        """Ends what is left of the group of a process that has exited; its code."""
        if self.process.returncode is None:
            self.signal_group(signal.SIGKILL)
            os.close(self._lifeline)
            with contextlib.suppress(ChildProcessError):  # then `wait` makes do
                _pid, status, used = os.wait4(self.process.pid, 0)
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.cpu_seconds = used.ru_utime + used.ru_stime
            self._killed.set()
        return self.process.wait()


def _start(program: Program, temporary: Path, mark: int, files: contextlib.ExitStack) -> Child:
    """Files that it needs are open in it by then, and here for as long as `files` is."""
    bare = {"PATH": PATH, "LANG": "C.UTF-8", TAG_VARIABLE: f"{family()}-{temporary.name}"}
    env = {"HOME": str(program.cwd), "TMPDIR": str(temporary)}
    passed = []
    argv = list(program.argv)
    if program.text is not None:
        passed.append(files.enter_context(unnamed_file(program.text)))
        argv = [each.replace("{text}", f"/dev/fd/{passed[0]}") for each in argv]
    if program.credential is not None:
        passed.append(files.enter_context(unnamed_file(program.credential)))
        env["NOETL_AUTH"] = f"/dev/fd/{passed[-1]}"
    env = bare | env | dict(program.env) | {TAG_VARIABLE: bare[TAG_VARIABLE]}
    stdin = files.enter_context(unnamed_file(program.stdin or b""))
    if program.sandbox is not None:
        passed.append(files.enter_context(unnamed_file(as_options(env))))
        argv = _in_sandbox(program, program.sandbox, argv, temporary, passed[-1])
        return _start_shell(program, mark, os.devnull, argv, bare, passed, stdin)
    passed.append(files.enter_context(unnamed_file(_as_commands(env))))
    bare |= {name: value for name, value in env.items() if name in _SHELLS_OWN}
    return _start_shell(program, mark, f"/dev/fd/{passed[-1]}", argv, bare, passed, stdin)


def _in_sandbox(
    program: Program, sandbox: Sandbox, argv: list[str], temporary: Path, variables: int
) -> list[str]:
    if not program.cwd.resolve().is_relative_to(sandbox.folder.resolve()):
        raise ProgramError("`cwd` lies outside the execution's folder, where a sandbox has no access")
    return sandbox.wrapped(argv, temporary, program.reads, variables)


def _as_commands(variables: Mapping[str, str]) -> bytes:
    """An environment as a shell reads it from a file."""
    settable = {name: value for name, value in variables.items() if name not in _SHELLS_OWN}
    return os.fsencode("".join(f"export {name}={shlex.quote(value)}\n" for name, value in settable.items()))


def _start_shell(
    program: Program,
    mark: int,
    variables: str,
    argv: list[str],
    env: dict[str, str],
    passed: list[int],
    stdin: int,
) -> Child:
    theirs, ours = os.pipe()
    limited = ulimits(program.limits, with_cpu=True) + LIFELINE
    try:
        process = subprocess.Popen(
            [SHELL, "-c", limited, SHELL, str(theirs), variables, *argv],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=program.cwd,
            env=env,
            pass_fds=(*passed, theirs),
            start_new_session=True,
        )
        mark_process(process.pid, mark)
        os.write(ours, b"\n")
    except (OSError, ValueError) as error:
        os.close(ours)
        raise ProgramError(f"the program cannot be started ({type(error).__name__})") from None
    finally:
        os.close(theirs)
    return Child(process, ours)


async def _attend(child: Child, program: Program, log: Callable[[str], None]) -> Ended:
    errors = ErrorLines(log, program.limits.output_bytes)
    collected = bytearray()
    reading = asyncio.create_task(_collect(child.process.stdout, collected, program.limits.result_bytes))
    logging = asyncio.create_task(_follow(child.process.stderr, errors))
    waiting = asyncio.create_task(child.exited.wait())
    tasks = (reading, logging, waiting)
    try:
        await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()  # raises where the output was too much
        await waiting
        code = child.reap()
        await asyncio.wait({reading, logging}, timeout=LEFT_OPEN_SECONDS)
        if reading.done():
            reading.result()
        errors.close()
        if code in KILLED:  # by whom, its CPU time may tell
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.reaped.wait(), LEFT_OPEN_SECONDS)
        return Ended(
            code=code, stdout=bytes(collected), stderr_tail=errors.tail, cpu_seconds=child.cpu_seconds
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _collect(pipe: IO[bytes] | None, collected: bytearray, limit: int) -> None:
    async for piece in _pieces(pipe):
        collected += piece
        if len(collected) > limit:
            raise OutputLimitError


async def _follow(pipe: IO[bytes] | None, errors: ErrorLines) -> None:
    async for piece in _pieces(pipe):
        errors.add(piece)


async def _pieces(pipe: IO[bytes] | None) -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader(PIECE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while piece := await reader.read(PIECE):
            yield piece
    finally:
        transport.close()


async def _end(child: Child) -> None:
    """Ends a program that still runs: by request, then by force."""
    try:
        if not child.exited.is_set():
            child.signal_group(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.exited.wait(), GRACE_SECONDS)
    finally:
        child.reap()
        for pipe in (child.process.stdout, child.process.stderr):
            if pipe is not None:
                pipe.close()


class ErrorLines:
    """Standard error as lines for the log, up to a limit, and its end for the message of an error."""

    def __init__(self, log: Callable[[str], None], limit: int) -> None:
        self._log = log
        self._left = limit
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open = ""
        self.tail = ""

    def add(self, piece: bytes) -> None:
        text = self._decoder.decode(piece)
        self.tail = (self.tail + text)[-2000:]
        if self._left <= 0:
            return
        self._left -= len(piece)
        *lines, self._open = (self._open + text).split("\n")
        whole = "".join(f"{line}\n" for line in lines)
        if len(self._open) > LONGEST_LINE:  # no line break: what follows may belong to the same word
            whole += self._open
            self._open = ""
        if whole:
            self._log(whole)
        if self._left <= 0:
            self._log("(the rest of the standard error is left out)\n")
            self._open = ""

    def close(self) -> None:
        if self._open:
            self._log(self._open + "\n")
            self._open = ""


@contextlib.contextmanager
def unnamed_file(content: bytes) -> Iterator[int]:
    """The descriptor of a file that has no name, and lies in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("noetl")
    else:
        descriptor, name = tempfile.mkstemp()
        os.unlink(name)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def find_program(name: str) -> str:
    """The file of a program on the path that children have."""
    found = shutil.which(name, path=PATH)
    if found is None:
        raise ProgramError(f"there is no program `{name}`")
    return found


def text_of(output: bytes) -> str:
    """Output as a result: text, without the line breaks at its end, as the shell's own `$(…)` gives it."""
    return output.decode("utf-8", "replace").rstrip("\n")


def credential_text(fields: Mapping[str, Any]) -> bytes | None:
    return msgspec.json.encode(dict(fields)) if fields else None
