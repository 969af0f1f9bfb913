"""One code process as its parent sees it: started, given requests, read from, taken back from, killed.

It knows nothing of other processes and decides nothing: the group that owns it (see `pool`) is told of
answers and of its end. Requests travel as packets through a socket whose other end the parent keeps open
too: receiving one is atomic, so what the parent can still receive itself has never been started, and
exactly one of the two has any request. What it writes is its code's word: a frame that is no answer to the
request at hand costs the process, and is never believed. The parent's death is felt through a pipe (the
lifeline): the kernel kills the process's group when the parent's end of it closes, however that came about.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from noetl.tools.processes.guardian import SHELL, TAG_VARIABLE
from noetl.tools.processes.limits import Limits, apply_limits, ulimits
from noetl.tools.processes.orphans import kill_group, mark_process, own_family
from noetl.tools.processes.requests import Answer, Failure, Request, Stream
from noetl.tools.processes.sandbox import Sandbox

INLINE_BYTES: Final = 1 << 15
"""Larger requests go as an open file beside the packet, which has room for twice this."""
HEADER_BYTES: Final = 17
NUMBER_BYTES: Final = 24
"""Enough of a packet to tell its number."""
READ_BYTES: Final = 1 << 16
CUT_OFF_SECONDS: Final = 0.05
MOST_READS: Final = 64
"""In a row; whoever writes without end does not keep the parent from others."""
REAPED_SECONDS: Final = 0.05
_READER: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_PACKAGE_FOLDER: Final = str(Path(__file__).parents[3])
_PROGRAM: Final = (
    "import sys; sys.path.append({folder!r}); from noetl.tools.processes.child import main; "
    "main(*map(int, sys.argv[1:]))"
)
_decode_json: Final = msgspec.json.Decoder().decode
_decode_failure: Final = msgspec.json.Decoder(Failure).decode


class CodeProcess:
    """`on_change` is called when answers came in and when it is ready; `on_end` once, when it is gone."""

    def __init__(
        self,
        tag: str,
        limits: Limits,
        folder: Path,
        on_change: Callable[[CodeProcess], None],
        on_end: Callable[[CodeProcess], None],
        sandbox: Sandbox | None = None,
    ) -> None:
        self.tag, self.limits, self.folder, self.sandbox = tag, limits, folder, sandbox
        self.on_change, self.on_end = on_change, on_end
        self.outstanding: dict[int, Request] = {}
        self.known_programs: set[int] = set()
        self.sent = 0
        self.ready = False
        self.ended = False
        self.killed_because: str | None = None
        self.in_peace = False
        """Whether it was let go, and not for anything that its code did."""
        self.reusable = True
        self.overrunning = False
        self.head_since = self.idle_since = time.monotonic()
        self.task_seconds = 0.0
        """How long a task took lately, on average."""
        self.starting_output = b""
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._reaped = False
        self._output_watched = False
        self._output_came = False
        self._left: list[Request] = []
        self._death = -1
        self._unread = b""
        self._large: bytearray | None = None
        self._large_bytes = 0
        self._disbelieved = False
        self._cpu_seconds = 0.0
        self._mark = own_family().begin_mark()
        self._start()

    # ── starting ──────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        self._requests, self._untaken = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.setblocking(False)  # the other end is the child's too, and the child waits at it
        self._answers, answers_writer = os.pipe()
        stdout_reader, stdout_writer = os.pipe()
        stderr_reader, stderr_writer = os.pipe()
        lifeline_reader, self._lifeline = os.pipe()
        passed = os.dup(self._untaken.fileno())
        # Opened anew for the child: a descriptor that is only passed on shares its flags, and a parent that
        # waits for output could be made to wait for ever.
        readers = [os.open(f"/dev/fd/{each}", _READER) for each in (stdout_reader, stderr_reader)]
        given = (passed, answers_writer, *readers, lifeline_reader)
        closing = (*given, stdout_writer, stderr_writer)
        self._outputs: dict[int, Stream] = {stdout_reader: "stdout", stderr_reader: "stderr"}
        for reader in (self._answers, *self._outputs):
            os.set_blocking(reader, False)
        self._decoders = {stream: _decoder() for stream in self._outputs.values()}
        try:
            self._popen = subprocess.Popen(
                self._command(given),
                stdin=subprocess.DEVNULL,
                stdout=stdout_writer,
                stderr=stderr_writer,
                pass_fds=given,
                start_new_session=True,
                cwd=self.folder,
                env=self._environment(),
            )
            self._death = os.pidfd_open(self._popen.pid)
        except OSError:
            own_family().living.discard(self._mark)
            self._close()
            raise
        else:
            mark_process(self._popen.pid, self._mark)
            with contextlib.suppress(ProcessLookupError):  # it is dead already, which will be found out
                _arm_lifeline(lifeline_reader, self._popen.pid)
                if self.sandbox is None:
                    apply_limits(self.limits, self._popen.pid)
        finally:
            for each in closing:
                os.close(each)
        self._loop.add_reader(self._answers, self._answers_readable)
        self._watch_output(True)
        self._loop.add_reader(self._death, self._died)

    def _command(self, given: tuple[int, ...]) -> list[str]:
        command = [sys.executable, "-I", "-X", "utf8", "-c", _PROGRAM.format(folder=_PACKAGE_FOLDER)]
        command += [str(each) for each in given]
        if self.sandbox is None:
            return command
        # What bubblewrap starts is not the process that this one could set limits for, so it inherits them.
        limited = f'{ulimits(self.limits, with_cpu=False)}exec "$@"'
        return [SHELL, "-c", limited, SHELL, *self.sandbox.wrapped(command, self.folder)]

    def _environment(self) -> dict[str, str]:
        beside = os.path.dirname(sys.executable)
        return {
            "PATH": os.pathsep.join((beside, "/usr/local/bin", os.defpath)),
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "LANG": "C.UTF-8",
            TAG_VARIABLE: self.tag,
        }

    @property
    def pid(self) -> int:
        return self._popen.pid

    # ── requests ──────────────────────────────────────────────────────────────────────────────────

    def send(self, request: Request) -> bool:
        """Whether there was room for it."""
        defines = request.program_number not in self.known_programs
        packet = request.packet(defines)
        try:
            if len(packet) <= INLINE_BYTES:
                self._requests.send(packet)
            else:
                _send_large(self._requests, request.number, packet)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionError):  # it is dying, or code has closed the connection
            self.reusable = False
            return False
        request.carries_definition = defines
        if defines:
            self.known_programs.add(request.program_number)
        if not self.outstanding:
            self.head_since = time.monotonic()
        self.outstanding[request.number] = request
        self.sent += 1
        return True

    def take_back(self) -> list[Request]:
        """The requests that it has not begun, in their order; they are its no longer."""
        taken = []
        while True:
            try:
                packet = self._untaken.recv(INLINE_BYTES * 2, socket.MSG_DONTWAIT)
            except (BlockingIOError, ConnectionError):
                break
            if not packet:
                break
            number = _number_of(packet)
            request = None if number is None else self.outstanding.pop(number, None)
            if request is None:
                self.kill("it meddled with its requests")
                continue
            if request.carries_definition:
                self.known_programs.discard(request.program_number)
            self.sent -= 1
            taken.append(request)
        if taken and not self._output_watched and not self._reaped:
            self._watch_output(True)
        return taken

    # ── answers ───────────────────────────────────────────────────────────────────────────────────

    def read_answers(self) -> bool:
        """Takes in what has been written so far; whether there was anything."""
        some = False
        for _ in range(MOST_READS):
            if self.ended or self._disbelieved:
                break
            try:
                chunk = os.read(self._answers, READ_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                self._cut_off()
                break
            some = True
            self._take_in(chunk)
            if len(chunk) < READ_BYTES:
                break
        return some

    def _take_in(self, chunk: bytes) -> None:
        if self._large is not None:
            self._large += chunk
            if len(self._large) < self._large_bytes:
                return
            chunk, self._large = bytes(self._large), None
        data = self._unread + chunk if self._unread else chunk
        position, end, answered = 0, len(data), 0
        untaken = self._first_untaken()
        while end - position >= HEADER_BYTES:
            body = position + HEADER_BYTES
            kind = data[position]
            size = int.from_bytes(data[position + 9 : body], "big")
            number = int.from_bytes(data[position + 1 : position + 9], "big")
            if not self._believes(kind, number, size, untaken):
                return
            if size > end - body:
                if size > READ_BYTES:
                    self._large, self._large_bytes = bytearray(data[position:]), HEADER_BYTES + size
                    position = end
                break
            answered += self._frame(kind, number, data[body : body + size])
            position = body + size
        self._unread = data[position:] if position < end else b""
        if answered:
            now = time.monotonic()
            self.task_seconds += ((now - self.head_since) / answered - self.task_seconds) / 4
            self.head_since = self.idle_since = now
            self.overrunning = False
            if not self._output_watched and not self._reaped and len(self.outstanding) <= 1:
                self._watch_output(True)

    def _believes(self, kind: int, number: int, size: int, untaken: int) -> bool:
        """Whether such a frame can come now: to the oldest request, which was taken, and not too large."""
        oldest = next(iter(self.outstanding), None)
        if number != oldest or number == untaken or untaken < 0:
            if kind == 0x48 and not self.ready and number == size == 0:
                return True
            return self._disbelieve("it wrote an answer to no request of its own")
        if 0 < size <= READ_BYTES and kind in (0x52, 0x45):
            return True
        if kind in (0x4F, 0x50) and size <= READ_BYTES:
            return True
        if kind not in (0x52, 0x45) or size == 0:  # R, E
            return self._disbelieve("it wrote what is no answer")
        request = self.outstanding[number]
        if size > request.limits.result_bytes:
            said = f"the result is larger than {request.limits.result_bytes} bytes"
            request.fail("python.result", said)
            return self._disbelieve(said)
        return True

    def _first_untaken(self) -> int:
        """The number of the first request that has not even been begun; 0 if there is none."""
        try:
            packet = self._untaken.recv(NUMBER_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionError):
            return 0
        number = _number_of(packet) if packet else 0
        return -1 if number is None else number

    def _disbelieve(self, because: str) -> bool:
        self._disbelieved = True
        self._large, self._unread = None, b""
        if not self._reaped:
            self._loop.remove_reader(self._answers)
        self.kill(because)
        return False

    def _frame(self, kind: int, number: int, body: bytes) -> int:
        """One frame of the child's; 1 if it answers a request."""
        if kind == 0x48:  # H: it is ready
            self.ready = True
            self.head_since = self.idle_since = time.monotonic()
            return 0
        request = self.outstanding[number]
        if kind in (0x4F, 0x50):  # O, P: output that was left in the pipes when the task ended
            stream: Stream = "stdout" if kind == 0x4F else "stderr"
            self._output_came = True
            request.output(stream, self._decoders[stream].decode(body))
            return 0
        del self.outstanding[number]
        if body[0] != 0x31:  # not "1"
            self.reusable = False
        if self._output_came:
            self._output_came = False
            for stream, decoder in self._decoders.items():
                if rest := decoder.decode(b"", final=True):
                    request.output(stream, rest)
        request.answer(_answer(kind, body))
        return 1

    def _answers_readable(self) -> None:
        if self.read_answers():
            self.on_change(self)

    # ── output ────────────────────────────────────────────────────────────────────────────────────

    def _output_readable(self, reader: int, stream: Stream) -> None:
        """Reads along while one request is here, which it then must be from.

        With others behind it the output stays where it is: the child forwards it when the task ends, and
        a task that takes long, or that waits for room in the pipe, has those behind it taken back.
        """
        if len(self.outstanding) > 1:
            self._watch_output(False)
            return
        try:
            text = os.read(reader, READ_BYTES)
        except BlockingIOError:  # the child took it itself
            return
        if not text:
            self._loop.remove_reader(reader)
        elif not self.ready:
            self.starting_output = (self.starting_output + text)[-2000:]
        else:
            self._output_came = True
            for request in self.outstanding.values():
                request.output(stream, self._decoders[stream].decode(text))

    def _watch_output(self, watched: bool) -> None:
        self._output_watched = watched
        for reader, stream in self._outputs.items():
            if watched:
                self._loop.add_reader(reader, self._output_readable, reader, stream)
            else:
                self._loop.remove_reader(reader)

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    def kill(self, because: str, *, in_peace: bool = False) -> None:
        """Ends it and its group. Its owner hears of it when it is gone."""
        if self.killed_because is None and not self._reaped:
            self.killed_because = because
            self.in_peace = in_peace
            self.reusable = False
            kill_group(self.pid)

    def _cut_off(self) -> None:
        """No answer can come any more: it is dying, or its code closed the pipe. Its exit code tells."""
        self.reusable = False
        if not self._reaped:
            self._loop.remove_reader(self._answers)
            self._loop.call_later(CUT_OFF_SECONDS, self.kill, "it closed the connection to its parent")

    def _died(self) -> None:
        """Reaps it, takes in what it had still written, and tells its owner."""
        if self._reaped:
            return
        kill_group(self.pid)  # the rest of its group, while its number cannot be another's yet
        self._reaped = True
        self._reap()
        own_family().living.discard(self._mark)
        self.read_answers()
        self.ended = True
        self.reusable = False
        self._close()
        self.gone.set_result(None)
        self.on_end(self)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):  # then `wait` makes do
            _pid, status, used = os.wait4(self.pid, 0)
            self._popen.returncode = os.waitstatus_to_exitcode(status)
            self._cpu_seconds = used.ru_utime + used.ru_stime
        self._popen.wait()
        if self.sandbox is None or self.limits.cpu_seconds is None or self._exit_code() != -signal.SIGKILL:
            return
        # Bubblewrap does not wait for the process in it that has waited for the code.
        until = time.monotonic() + REAPED_SECONDS
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < until:
                pid, _status, used = os.wait4(-self.pid, os.WNOHANG)
                self._cpu_seconds += used.ru_utime + used.ru_stime
                if pid == 0:
                    time.sleep(0.001)

    def exit_message(self) -> tuple[str, bool]:
        """How it ended, in words; and whether somebody outside did it."""
        code = self._exit_code()
        if self.killed_because is not None:
            return f"the process was ended: {self.killed_because}", False
        if code >= 0:
            return f"the process ended by itself, with exit code {code}", False
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        outside = -code in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        return f"the process was ended by {name}", outside

    @property
    def ran_out_of_cpu(self) -> bool:
        """Whether the kernel ended it for that: at first by request, a second later by force."""
        seconds, code = self.limits.cpu_seconds, self._exit_code()
        if seconds is None or code == -signal.SIGXCPU:
            return code == -signal.SIGXCPU
        return code == -signal.SIGKILL and self.killed_because is None and self._cpu_seconds > seconds + 0.95

    def _exit_code(self) -> int:
        """Below 0 for a signal, which bubblewrap tells of as shells do."""
        code: int = self._popen.returncode
        return 128 - code if self.sandbox is not None and code > 128 else code

    def untaken(self) -> list[Request]:
        """What it never began, after its end."""
        return self._left

    def _close(self) -> None:
        self._left = self.take_back()
        for reader in (self._answers, *self._outputs):
            self._loop.remove_reader(reader)
            os.close(reader)
        if self._death >= 0:
            self._loop.remove_reader(self._death)
            os.close(self._death)
        os.close(self._lifeline)
        self._requests.close()
        self._untaken.close()


def _answer(kind: int, body: bytes) -> Answer:
    try:
        if kind == 0x52:  # R
            return Answer(_decode_json(memoryview(body)[1:]))
        return Answer(failure=_decode_failure(memoryview(body)[1:]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Answer(failure=Failure(kind="python.result", message=f"the result cannot be read: {error}"))


def _number_of(packet: bytes) -> int | None:
    """None where it is not as it was sent: code has the receiving end of the socket, and can set filters."""
    number = packet[1:].partition(b",")
    return int(number[0]) if number[1] and number[0].isdigit() else None


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


def _arm_lifeline(reader: int, group: int) -> None:
    """Lets the kernel kill the group when the other end of the pipe is closed, by whatever means."""
    fcntl.fcntl(reader, fcntl.F_SETOWN, -group)
    fcntl.fcntl(reader, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(reader, fcntl.F_SETFL, fcntl.fcntl(reader, fcntl.F_GETFL) | os.O_ASYNC)


def _send_large(requests: socket.socket, number: int, packet: bytes) -> None:
    descriptor = os.memfd_create("noetl-request", os.MFD_CLOEXEC)
    try:
        rest = memoryview(packet)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        socket.send_fds(requests, [b"[%d," % number], [descriptor])
    finally:
        os.close(descriptor)
