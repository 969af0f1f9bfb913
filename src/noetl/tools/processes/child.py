"""The program of a code process: takes requests from a socket, runs their code, writes what came of it.

It imports as little as possible, trusts its parent and nothing that user code leaves behind. A request is
one packet, so that taking it out of the socket is atomic: what is still in there has not been started,
and the parent may take it back. Whatever the code does, one answer is written for each request taken, or
the process is gone. Output to the descriptors 1 and 2 is read by the parent while a task runs; what is
still in the pipes when it ends is forwarded from here, before the answer, so that it is never taken for
the next task's. The descriptors that it reads them by are not those of the parent: what code does to a
descriptor, it does to itself.
"""

from __future__ import annotations

import _socket
import _thread
import gc
import io
import json
import os
import select
import sys
from time import process_time
from types import CodeType
from typing import Any, Final

from noetl.tools.processes.plain import NotPlainError, to_json
from noetl.tools.processes.tracebacks import describe, summary

MAX_PACKET: Final = 1 << 16
MODULE: Final = "__playbook__"
decode: Final = json.JSONDecoder().raw_decode
_PR_SET_CHILD_SUBREAPER: Final = 36
leave: Final = os._exit
"""As it was before any code of a playbook ran."""
HELLO, RESULT, ERROR, OUTPUT, ERROR_OUTPUT = b"H", b"R", b"E", b"O", b"P"


class Program:
    """Code that is compiled once; `failure` is what it is answered with if it does not compile."""

    __slots__ = ("code", "compiled", "failure", "file", "first_line", "libs")

    def __init__(self, code: str, file: str, first_line: int, libs: dict[str, str]) -> None:
        self.code, self.file, self.first_line, self.libs = code, file, first_line, libs
        self.compiled: CodeType | None = None
        self.failure: dict[str, Any] | None = None
        try:
            # Leading line ends put the code where it stands in the playbook, with no need of `ast`.
            self.compiled = compile("\n" * (first_line - 1) + code, file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.failure = failure("python.syntax", error, self)


class Child:
    def __init__(self, requests: int, answers: int, stdout_reader: int, stderr_reader: int) -> None:
        self.requests = _socket.socket(fileno=requests)
        self.answers = answers
        self.pid = os.getpid()
        self.programs: dict[int, Program] = {}
        self.outputs = {stdout_reader: OUTPUT, stderr_reader: ERROR_OUTPUT}
        self.waiting_output = select.poll()
        for reader in self.outputs:
            self.waiting_output.register(reader, select.POLLIN)
        self.streams = (sys.stdin, sys.stdout, sys.stderr)
        self.path = sys.path
        self.import_path = tuple(sys.path)

    def serve(self) -> None:
        self.write(HELLO, 0, b"")
        while True:
            packet, ancillary, _flags, _address = self.requests.recvmsg(MAX_PACKET, 32)
            if not packet:
                return
            if ancillary:
                packet = body_of_large(ancillary[0][2])
            request, _end = decode(packet.decode())
            number, program, definition, folder, variables, cpu_seconds = request
            if definition is not None:
                self.programs[program] = Program(*definition)
            last_second = None if cpu_seconds is None else limit_cpu(cpu_seconds)
            kind, body, reusable = self.run(self.programs[program], folder, variables)
            if os.getpid() != self.pid:  # a fork made by the code came back from it
                os._exit(0)
            reusable = self.settle() and reusable
            if last_second is not None:  # the next task needs as much, and a limit cannot be raised
                reusable = last_second_of(cpu_seconds) <= last_second and reusable
            self.forward_output(number)
            self.write(kind, number, (b"1" if reusable else b"0") + body)
            if not reusable:  # the parent ends this process: what it would take now would die with it
                leave(0)

    def run(self, program: Program, folder: str, variables: dict[str, Any]) -> tuple[bytes, bytes, bool]:
        """The kind of the answer, its body, and whether this process may go on."""
        if program.failure is not None:
            return ERROR, to_json(program.failure), True
        try:
            os.chdir(folder)
            body = to_json(outcome(program, variables))
        except NotPlainError as error:
            return ERROR, to_json({"kind": "python.result", "message": str(error)}), True
        # Whatever the code raises is the task's outcome; KeyboardInterrupt and MemoryError are no exception.
        except BaseException as error:  # noqa: BLE001
            reusable = not isinstance(error, MemoryError)
            return ERROR, to_json(failure("python.exception", error, program)), reusable
        return RESULT, body, True

    def settle(self) -> bool:
        """Puts back what code commonly changes; says no where this process is not as good as it was."""
        flushed = True
        _, stdout, stderr = self.streams
        changed = sys.stdout is not stdout or sys.stderr is not stderr
        for stream in (stdout, stderr, sys.stdout, sys.stderr) if changed else (stdout, stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                flushed = stream not in self.streams and flushed
        sys.stdin, sys.stdout, sys.stderr = self.streams
        if sys.path is not self.path or tuple(sys.path) != self.import_path:
            sys.path = self.path
            sys.path[:] = self.import_path
        if not gc.isenabled():
            gc.enable()
        return flushed and _thread._count() == 0 and not has_children()

    def forward_output(self, number: int) -> None:
        while ready := self.waiting_output.poll(0):
            for reader, event in ready:
                if not event & select.POLLIN:
                    return
                try:
                    text = os.read(reader, 1 << 16)
                except BlockingIOError:  # the parent was quicker, and knows whose it is
                    continue
                self.write(self.outputs[reader], number, text)

    def write(self, kind: bytes, number: int, body: bytes) -> None:
        frame = kind + number.to_bytes(8, "big") + len(body).to_bytes(8, "big") + body
        written = os.write(self.answers, frame)
        if written < len(frame):
            rest = memoryview(frame)[written:]
            while rest:
                rest = rest[os.write(self.answers, rest) :]


def body_of_large(descriptor: bytes) -> bytes:
    """The body of a request that came as an open file, because it is too large for a packet."""
    with io.FileIO(int.from_bytes(descriptor[:4], sys.byteorder), closefd=True) as file:
        file.seek(0)
        return file.readall()


def keep_descendants() -> None:
    """Makes this process the parent of what its children leave behind.

    So a daemon is found by `has_children` like any other process that outlives its task.
    """
    try:
        # Not `ctypes`, which takes milliseconds at every start.
        from _ctypes import call_function, dlopen, dlsym  # noqa: PLC0415 - not every Python has it

        here = dlopen(None, 0)  # type: ignore[arg-type] # what this process has loaded
        call_function(dlsym(here, "prctl"), (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    except (ImportError, OSError):  # then the worker finds daemons when this process has ended
        return


def has_children() -> bool:
    """Whether the code left a process behind; nothing is reaped, in case a library still wants to know."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def limit_cpu(seconds: float) -> int:
    """The CPU limit of the task: of what this process may still use, since it has used some before. The
    last whole second that it has is returned; code that ignores the signal at its end is killed by the
    kernel a second later."""
    import resource  # noqa: PLC0415 - a limit is rare, and each import delays every process's start

    soft = last_second_of(seconds)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    hard = soft + 1 if hard == resource.RLIM_INFINITY else min(soft + 1, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (min(soft, hard), hard))
    return soft


def last_second_of(seconds: float) -> int:
    return int(process_time() + seconds) + 1


def outcome(program: Program, variables: dict[str, Any]) -> object:
    """What the code gives: what its `main` returns, else what it left in `result`."""
    assert program.compiled is not None
    namespace: dict[str, Any] = {"__name__": MODULE, **variables}
    for alias, module in program.libs.items():
        __import__(module)
        namespace[alias] = sys.modules[module]
    before = namespace.get("main")
    try:
        exec(program.compiled, namespace)
        main = namespace.get("main")
        if not callable(main) or main is before:
            return namespace.get("result")
        returned = main(**arguments_of(main, variables))
        return awaited(returned) if hasattr(returned, "__await__") else returned
    except SystemExit as ended:
        if ended.code in (None, 0):  # a script that says it is done
            return namespace.get("result")
        raise


def arguments_of(main: Any, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - any callable
    """Those of the variables that `main` takes, by name; TypeError naming those it lacks."""
    code = getattr(main, "__code__", None)
    if type(code) is not CodeType or hasattr(main, "__wrapped__"):
        return signature_arguments(main, variables)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if code.co_flags & 0x08:  # it takes **anything
        chosen = dict(variables)
    else:
        chosen = {name: variables[name] for name in names if name in variables}
    defaults = len(main.__defaults__ or ())
    required = set(names[: code.co_argcount - defaults])
    required |= set(names[code.co_argcount :]) - set(main.__kwdefaults__ or ())
    refuse_missing([name for name in names if name in required and name not in chosen])
    if code.co_posonlyargcount:
        return signature_arguments(main, variables)
    return chosen


def signature_arguments(main: Any, variables: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - any callable
    """The same for a callable that is no plain function."""
    import inspect  # noqa: PLC0415 - slow to import, and hardly ever needed

    parameters = inspect.signature(main).parameters.values()
    if any(each.kind is each.POSITIONAL_ONLY for each in parameters):
        raise TypeError("main() takes its arguments by name; it must not declare positional-only ones")
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return dict(variables)
    named = [each for each in parameters if each.kind is not each.VAR_POSITIONAL]
    refuse_missing([each.name for each in named if each.default is each.empty and each.name not in variables])
    return {each.name: variables[each.name] for each in named if each.name in variables}


def refuse_missing(names: list[str]) -> None:
    if names:
        listed = ", ".join(f"`{name}`" for name in names)
        raise TypeError(f"main() needs {listed}, which `args` does not have")


def awaited(coroutine: Any) -> object:  # noqa: ANN401 - anything awaitable
    import asyncio  # noqa: PLC0415 - slow to import; only for an `async def main`

    async def wait() -> object:
        return await coroutine

    return asyncio.run(wait())


def failure(kind: str, error: BaseException, program: Program) -> dict[str, Any]:
    try:
        traceback = describe(error, program.file, program.first_line, program.code)
    except (MemoryError, RecursionError):
        traceback = ""
    return {
        "kind": kind,
        "message": summary(error),
        "exception_type": type(error).__name__,
        "traceback": traceback.encode("utf-8", "backslashreplace").decode(),
    }


def main(requests: int, answers: int, stdout_reader: int, stderr_reader: int, lifeline: int) -> None:
    for descriptor in (requests, answers, stdout_reader, stderr_reader, lifeline):
        os.set_inheritable(descriptor, False)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    child = Child(requests, answers, stdout_reader, stderr_reader)
    keep_descendants()
    # What exists now lives as long as the process; the collector need not look at it again.
    gc.freeze()
    child.serve()
