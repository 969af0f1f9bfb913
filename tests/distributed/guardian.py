"""Ends what a test session has left behind: started beside it, it waits until the session is gone.

The session holds the other end of standard input, so its end is seen however it came. Only processes of the
list are ended, and only while each is still the one that was listed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from noetl.cli.stack.detached import started_at


def end_all(listed: Path) -> None:
    """Ends every process of the list that still runs."""
    lines = listed.read_text("utf-8").splitlines() if listed.exists() else []
    for line in reversed(lines):
        pid, started = line.split()
        if started_at(int(pid)) == started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGCONT)
                os.kill(int(pid), signal.SIGKILL)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_all(Path(sys.argv[1]))
