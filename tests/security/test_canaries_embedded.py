"""No secret that goes through an embedded run is in anything that it leaves or shows, however it ends."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.console import SCRIPT, Console
from tests.security.campaign import FAILED_TASKS, Campaign, write
from tests.security.canaries import Canaries
from tests.security.outside import Outside
from tests.security.process_watch import ProcessWatch

REACHED = 40
"""Secrets at least that a campaign carries."""


class Ground:
    """A folder in which campaigns run, with their secrets where each kind of entry looks for them."""

    def __init__(self, folder: Path, world: Outside, dsn: str) -> None:
        self.home = folder / "home"
        self.temporary = folder / "temporary"
        for made in (self.home, self.temporary):
            made.mkdir()
        self.canaries = Canaries()
        self.campaign = Campaign(self.canaries, world.url, dsn, folder / "from_file.secret")
        self.console = Console(self.home)
        self.shown: dict[str, str] = {}
        self.started: set[int] = set()
        world.vault = {"password": self.canaries["from_vault"]}
        world.token = self.canaries["from_endpoint"]
        self.console.environment |= {
            "TMPDIR": str(self.temporary),
            "NOETL_KEY_FILE": str(folder / "keys"),
            "XDG_CONFIG_HOME": str(self.home / "config"),
        }

    def run(self, *arguments: str, given: str = "", secrets: dict[str, str] | None = None) -> int:
        """Runs a command and keeps what it shows."""
        process = subprocess.Popen(
            [SCRIPT, *arguments],
            cwd=self.home,
            env=self.console.environment | (secrets or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        if secrets:
            self.started.add(process.pid)
        out, err = process.communicate(given, timeout=60)
        self.shown[" ".join(arguments)] = out + err
        return process.returncode

    def keep_credentials(self) -> None:
        assert self.run("credential", "rotate", "--add-key") == 0
        for name, fields in self.campaign.credentials().items():
            assert self.run("credential", "set", name, "--type", "any", given=json.dumps(fields)) == 0

    def leaks(self, watch: ProcessWatch) -> list[str]:
        """Where canaries are: files, whatever was shown, and processes.

        A process that was started with secrets in its environment may have them there, and so does a fork of
        it until it is another program.
        """
        found = self.canaries.found_in_files(self.home, self.temporary)
        for name, text in self.shown.items():
            found += [f"shown by {name}: {each}" for each in self.canaries.found_in(text.encode())]
        given = {seen.command for seen in watch.seen if seen.pid in self.started}
        for seen in watch.seen:
            content = seen.command + (b"" if seen.command in given else seen.environment)
            found += [f"process {seen.command!r}: {each}" for each in self.canaries.found_in(content)]
        return found


@pytest.fixture
def ground(tmp_path: Path, world: Outside, dsn: str) -> Ground:
    return Ground(tmp_path, world, dsn)


def outcomes(path: Path) -> dict[str, str]:
    """How each task ended, by its label; the kind of its error where it failed."""
    ends = {}
    for line in path.read_text("utf-8").splitlines():
        event = json.loads(line)
        if event["event_type"] == "task.done":
            error = event["payload"]["outcome"].get("error")
            ends[event["task_label"]] = error["kind"] if error else "ok"
    return ends


def test_no_canary_of_a_whole_campaign_is_found_anywhere(ground: Ground) -> None:
    ground.keep_credentials()
    everything = write(ground.home, "all.yaml", ground.campaign.playbook())
    with ProcessWatch() as watch:
        assert ground.run("register", write(ground.home, "child.yaml", ground.campaign.child())) == 0
        secrets = ground.campaign.environment
        assert ground.run("run", everything, "--events", "events.jsonl", secrets=secrets) == 1, ground.shown
        execution = json.loads((ground.home / "events.jsonl").read_text().partition("\n")[0])["execution_id"]
        for verb, *options in (["status"], ["events"], ["events", "--json"], ["logs"], ["result"]):
            ground.run(verb, execution, *options)
        ground.run("credential", "show", "stored")
    ends = {label: end for label, end in outcomes(ground.home / "events.jsonl").items() if end != "ok"}
    assert ends == FAILED_TASKS | {"task_1": "python.exception"}
    assert len(ground.canaries) >= REACHED
    assert watch.rounds > 10
    assert not (leaks := ground.leaks(watch)), "\n".join(leaks)


def test_no_canary_is_left_by_a_run_that_is_killed(ground: Ground) -> None:
    playbook = write(ground.home, "interrupted.yaml", ground.campaign.interrupted())
    ground.console.environment |= ground.campaign.environment
    with ProcessWatch() as watch:
        with ground.console.followed("run", playbook) as run:
            ground.started.add(run.process.pid)
            held = run.wait_for("task.started", task_label="held")
            run.send(signal.SIGKILL)
            ground.shown["run"] = "".join(run.process.communicate())
        assert run.process.returncode == -signal.SIGKILL
        assert list((ground.home / ".noetl").glob("*-wal"))
        leaks = ground.leaks(watch)
        for name in ground.campaign.environment:
            del ground.console.environment[name]
        assert ground.run("cancel", held["execution_id"]) == 0
        ground.run("events", held["execution_id"], "--json")
    leaks += ground.leaks(watch)
    assert not leaks, "\n".join(leaks)
