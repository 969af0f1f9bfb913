"""What a person at a terminal sees: the tree, drawn in place, and a terminal left as it was."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.e2e.console import SCRIPT, SECONDS, Console
from tests.e2e.test_running import GREET

WAITING = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: waiting}
workflow:
  - step: start
    tool: {kind: wait, signal: never}
"""
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Terminal:
    """A command whose standard output is a terminal."""

    def __init__(self, console: Console, *arguments: str) -> None:
        self._screen, inner = os.openpty()
        environment = console.environment | {"TERM": "xterm"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [SCRIPT, *arguments], cwd=console.folder, env=environment, stdout=inner, stderr=subprocess.PIPE
        )
        os.close(inner)
        self.shown = ""

    def read_until(self, text: str) -> None:
        while text not in self.shown:
            assert self._read(), self.shown

    def _read(self) -> bool:
        try:
            piece = os.read(self._screen, 65536)
        except OSError:  # how Linux says that nobody has the terminal open any more
            return False
        self.shown += piece.decode("utf-8", "replace")
        return bool(piece)

    def ended(self) -> int:
        while self._read():
            pass
        os.close(self._screen)
        self.process.communicate(timeout=SECONDS)
        return self.process.returncode


def test_a_terminal_gets_a_tree_and_then_the_outcome(console: Console) -> None:
    terminal = Terminal(console, "run", console.write("greet.yaml", GREET))
    assert terminal.ended() == 0
    last = terminal.shown.rpartition(HIDE)[2]
    assert "├─" in last
    assert "2/2" in last
    assert last.index(SHOW) < last.index("✓ greet completed")
    assert "each: started" not in terminal.shown, "the lines are for pipes"


@pytest.mark.parametrize("verb", ["run", "status"])
def test_an_interrupted_tree_gives_the_cursor_back(console: Console, verb: str) -> None:
    file = console.write("waiting.yaml", WAITING)
    if verb == "run":
        terminal = Terminal(console, "run", file)
        terminal.read_until("start")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130
        assert "noetl resume " in terminal.shown.rpartition(SHOW)[2]
        return
    with console.followed("run", file) as run:
        execution_id = run.wait_for("task.started")["execution_id"]
        terminal = Terminal(console, "status", execution_id, "-f")
        terminal.read_until("start")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 130
        assert terminal.shown.rindex(SHOW) > terminal.shown.rindex(HIDE)
