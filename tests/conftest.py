"""What holds for every test: Ctrl-C means the same, however the tests were started."""

from __future__ import annotations

import signal

# A shell has what it starts in the background ignore Ctrl-C, and every process that is started from there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
