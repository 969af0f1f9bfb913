"""Runs the conformance cases against a `noetl` command line; README.md describes the case format.

Called as `python -m tests.conformance.run` from the repository root. It knows NoETL only by its command line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.matching import ABSENT, matches, mismatches, show
from tests.conformance.scripted_http import ScriptedServer

HERE = Path(__file__).resolve().parent
CASE_TIMEOUT = 60.0
CASE_KEYS = {
    "name",
    "seed",
    "http",
    "files",
    "register",
    "payload",
    "env",
    "signals",
    "playbook",
    "text",
    "expect",
}
REPORT_KEYS = {
    "status",
    "result",
    "ctx",
    "vars",
    "workload",
    "steps",
    "absent_steps",
    "error",
}  # need run --json
RUN_KEYS = REPORT_KEYS | {
    "exit",
    "stderr_contains",
    "duration_under",
    "http",
    "max_concurrent_http",
    "min_concurrent_http",
    "requests",
    "events",
    "not_contains",
}
EVENT_KEYS = {"count", "at_least", "order", "has", "none", "max_bytes"}
VALIDATE_KEYS = {"valid", "dialect", "diagnostics"}


# --- one case ------------------------------------------------------------------------------------


@dataclass
class Finished:
    exit: int | None  # None: killed at the time limit
    stdout: str
    stderr: str
    seconds: float


@dataclass
class Options:
    noetl: list[str]
    extra: list[str] = field(default_factory=list)
    timeout: float = CASE_TIMEOUT
    validate_only: bool = False  # leave out what a case expects of `noetl run`

    @property
    def server(self) -> str | None:
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--server")
        found: str | None = parser.parse_known_args(self.extra)[0].server
        return found


class CaseRun:
    """One case in its own folder: `work/` holds the playbook, everything beside it was written by noetl."""

    def __init__(self, case: dict[str, Any], options: Options, folder: Path):
        self.case, self.options, self.folder = case, options, folder
        self.expect = case.get("expect") or {}
        self.problems: list[str] = []
        self.work = folder / "work"
        self.events_file = folder / "events.jsonl"
        self.env = {
            **os.environ,
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
            **{key: str(value) for key, value in (case.get("env") or {}).items()},
        }
        self.where = (
            ["--server", options.server] if options.server else ["--store", f"sqlite:///{folder}/store.db"]
        )
        self.deadline = time.monotonic() + options.timeout
        self.http: ScriptedServer | None = None
        self.finished: Finished | None = None

    def run(self) -> list[str]:
        if unknown := self.unknown_keys():
            return [f"unknown keys in the case: {sorted(unknown)}"]
        if self.options.validate_only and "validate" not in self.expect:
            return ["the case expects nothing of `noetl validate`"]
        self.write_files()
        if "validate" in self.expect:
            check_validate(self, self.noetl("validate", "playbook.yaml", "--json"))
        if set(self.expect) - {"validate"} and not self.options.validate_only:
            self.execute()
        return self.problems

    def unknown_keys(self) -> set[str]:
        return (
            set(self.case) - CASE_KEYS
            | set(self.expect) - RUN_KEYS - {"validate"}
            | set(self.expect.get("events") or {}) - EVENT_KEYS
            | set(self.expect.get("validate") or {}) - VALIDATE_KEYS
        )

    def write_files(self):
        content = self.case["text"] if "text" in self.case else self.case["playbook"]
        for name, data in {"playbook.yaml": content, **(self.case.get("files") or {})}.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(data if isinstance(data, str) else to_yaml(data), encoding="utf-8")

    def execute(self):
        payload = dict(self.case.get("payload") or {})
        try:
            if "http" in self.case:
                self.http = ScriptedServer(self.case["http"])
                payload["api_url"] = self.http.url
            for name in self.case.get("register") or []:
                done = self.noetl("register", name, *self.where)
                if done.exit != 0:
                    self.problems.append(
                        f"register {name}: exit {done.exit}: {tail(done.stderr or done.stdout)}"
                    )
                    return
            store = [] if self.options.server else self.where
            ended = threading.Event()
            sender = threading.Thread(target=self.send_signals, args=(ended,))
            sender.start()
            try:
                self.finished = self.noetl(
                    "run",
                    "playbook.yaml",
                    "--json",
                    "--events",
                    str(self.events_file),
                    "--payload",
                    json.dumps(payload, default=str),
                    *store,
                    *self.options.extra,
                )
            finally:
                ended.set()
                sender.join()
            check_run(self, self.finished)
        finally:
            if self.http:
                self.http.stop()

    def send_signals(self, ended: threading.Event):
        for sent in self.case.get("signals") or []:
            wanted = {key: value for key, value in sent.items() if key not in ("after_event", "name", "data")}
            wanted["event_type"] = sent["after_event"]
            while not (seen := [event for event in self.events() if matches(wanted, event)]):
                if ended.wait(0.05):
                    self.problems.append(
                        f"signal {sent['name']}: the run ended before an event like {show(wanted)}"
                    )
                    return
            done = self.noetl(
                "signal",
                seen[0]["execution_id"],
                sent["name"],
                "--data",
                json.dumps(sent.get("data") or {}, default=str),
                *self.where,
            )
            if done.exit != 0:
                self.problems.append(
                    f"signal {sent['name']}: exit {done.exit}: {tail(done.stderr or done.stdout)}"
                )

    def noetl(self, *args: str) -> Finished:
        begun = time.monotonic()
        process = subprocess.Popen(
            [*self.options.noetl, *args],
            cwd=self.work,
            env=self.env,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        timed_out = False
        try:
            stdout, stderr = process.communicate(timeout=max(0.1, self.deadline - begun))
        except subprocess.TimeoutExpired:
            timed_out = True
            kill_group(process.pid)
            stdout, stderr = process.communicate()
        finally:
            kill_group(process.pid)
        return Finished(None if timed_out else process.returncode, stdout, stderr, time.monotonic() - begun)

    def lines(self) -> list[str]:
        if not self.events_file.exists():
            return []
        text = self.events_file.read_text("utf-8", "replace")
        return [line for line in text[: text.rfind("\n") + 1].splitlines() if line.strip()]

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


def kill_group(pid: int):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def to_yaml(data) -> str:
    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.add_representer(
        str,
        lambda dumper, value: dumper.represent_scalar(
            "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
        ),
    )
    text: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return text


def tail(text: str, size=1500) -> str:
    return text.strip()[-size:]


# --- expectations --------------------------------------------------------------------------------


def document(run: CaseRun, finished: Finished) -> dict[str, Any]:
    """The one JSON document on stdout; a problem is noted once where there is none."""
    try:
        found = json.loads(finished.stdout)
    except ValueError as error:
        run.problems.append(
            f"stdout is not one JSON document ({error}): {show(tail(finished.stdout))};"
            f" stderr: {show(tail(finished.stderr))}"
        )
        found = {}
    return found if isinstance(found, dict) else {}


def check_validate(run: CaseRun, done: Finished):
    want = run.expect["validate"]
    if done.exit is None:
        run.problems.append(f"validate: killed after {run.options.timeout:g} s")
        return
    found = document(run, done)
    got = (found.get("files") or [{}])[0]
    if "valid" in want:
        run.problems += mismatches(want["valid"], found.get("valid", ABSENT), "validate.valid")
        run.problems += mismatches(0 if want["valid"] else 1, done.exit, "validate: exit")
    if "dialect" in want:
        run.problems += mismatches(want["dialect"], got.get("dialect", ABSENT), "validate.dialect")
    diagnostics = got.get("diagnostics") or []
    for wanted in want.get("diagnostics", []):
        if not any(diagnostic_matches(wanted, diagnostic) for diagnostic in diagnostics):
            run.problems.append(f"validate: no diagnostic like {show(wanted)}; got {show(diagnostics, 3000)}")


def diagnostic_matches(want: dict[str, Any], got: dict[str, Any]) -> bool:
    words = want.get("contains", [])
    text = " ".join(str(got.get(key)) for key in ("line", "severity", "code", "message", "hint"))
    return matches({key: value for key, value in want.items() if key != "contains"}, got) and all(
        str(word) in text for word in ([words] if isinstance(words, str) else words)
    )


def check_run(run: CaseRun, done: Finished):
    want, problems = run.expect, run.problems
    if done.exit is None:
        problems.append(f"killed after {run.options.timeout:g} s")
    elif "exit" in want:
        problems += mismatches(want["exit"], done.exit, "exit")
    reported = REPORT_KEYS & set(want)
    got = document(run, done) if reported else {}
    for key in sorted(reported - {"absent_steps"}):
        problems += mismatches(want[key], got.get(key, ABSENT), key)
    for name in want.get("absent_steps", []):
        step = (got.get("steps") or {}).get(name)
        if step and step.get("status") != "skipped":
            problems.append(f"step {name} must not have run, got {show(step)}")
    for text in want.get("stderr_contains", []):
        if text not in done.stderr:
            problems.append(f"stderr: expected {show(text)} in it, got {show(tail(done.stderr))}")
    if done.seconds >= want.get("duration_under", float("inf")):
        problems.append(f"duration: expected under {want['duration_under']} s, took {done.seconds:.2f} s")
    check_http(run)
    check_events(run)
    check_not_contains(run, done)


def check_http(run: CaseRun):
    want, served = run.expect, run.http.requests if run.http else []
    counts = Counter(request["path"] for request in served)
    for path, number in want.get("http", {}).items():
        run.problems += mismatches(number, counts[path], f"requests to {path}")
    most = run.http.most if run.http else 0
    if most > want.get("max_concurrent_http", most):
        run.problems.append(
            f"concurrent requests: expected at most {want['max_concurrent_http']}, got {most}"
        )
    if most < want.get("min_concurrent_http", 0):
        run.problems.append(
            f"concurrent requests: expected {want['min_concurrent_http']} at one time, got {most}"
        )
    for wanted in want.get("requests", []):
        if "headers" in wanted:
            wanted = {**wanted, "headers": {key.lower(): value for key, value in wanted["headers"].items()}}
        if not any(matches(wanted, request) for request in served):
            run.problems.append(f"no request like {show(wanted)}; got {show(served, 3000)}")


def check_events(run: CaseRun):
    if not (want := run.expect.get("events")):
        return
    events, problems = run.events(), run.problems
    types = [event.get("event_type") for event in events]
    counts = Counter(types)
    for kind, number in want.get("count", {}).items():
        problems += mismatches(number, counts[kind], f"events {kind}")
    for kind, number in want.get("at_least", {}).items():
        if counts[kind] < number:
            problems.append(f"events {kind}: expected at least {number}, got {counts[kind]}")
    rest = iter(events)
    for wanted in want.get("order", []):
        wanted = wanted if isinstance(wanted, dict) else {"event_type": wanted}
        if not any(matches(wanted, event) for event in rest):
            problems.append(f"events: {show(wanted)} missing or out of order in {show(types, 3000)}")
            break
    for wanted in want.get("has", []):
        if not any(matches(wanted, event) for event in events):
            alike = [event for event in events if event.get("event_type") == wanted.get("event_type")]
            problems.append(f"events: none like {show(wanted)}; of that type: {show(alike, 3000)}")
    for unwanted in want.get("none", []):
        if found := [event for event in events if matches(unwanted, event)]:
            problems.append(f"events: expected none like {show(unwanted)}, got {show(found[0])}")
    longest = max((len(line.encode()) for line in run.lines()), default=0)
    if not events:
        problems.append("events: the log is empty")
    if longest > want.get("max_bytes", longest):
        problems.append(f"events: a line of {longest} bytes, expected at most {want['max_bytes']}")


def check_not_contains(run: CaseRun, done: Finished):
    places = {"stdout": done.stdout.encode(), "stderr": done.stderr.encode()}
    for path in run.folder.rglob("*"):
        if path.is_file() and run.work not in path.parents:
            places[str(path.relative_to(run.folder))] = path.read_bytes()
    for text in run.expect.get("not_contains", []):
        run.problems += [
            f"{show(text)} found in {place}" for place, data in places.items() if text.encode() in data
        ]


# --- all cases -----------------------------------------------------------------------------------


def run_case(path: Path, options: Options) -> tuple[list[str], str]:
    """The case's problems, and the end of what the run wrote to stderr."""
    with tempfile.TemporaryDirectory(prefix="noetl-case-", ignore_cleanup_errors=True) as folder:
        run = None
        try:
            case = yaml.safe_load(path.read_text("utf-8"))
            run = CaseRun(case, options, Path(folder))
            problems = run.run()
        except Exception as error:  # noqa: BLE001 - a broken case or runner fails this case only
            problems = [f"{type(error).__name__}: {error}"]
        return problems, tail(run.finished.stderr) if run and run.finished else ""


def find_cases(folder: Path, text: str | None) -> list[Path]:
    found = sorted(folder.rglob("*.yaml"))
    return [
        path for path in found if not text or text in str(path.relative_to(folder)) or text in title(path)
    ]


def title(path: Path) -> str:
    case = yaml.safe_load(path.read_text("utf-8"))
    return f"{case.get('name')} [{case.get('seed')}]"


def command(text: str) -> list[str]:
    words = shlex.split(text)
    return [str(Path(word).absolute()) if "/" in word and Path(word).exists() else word for word in words]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noetl", default="noetl", help="the command to call")
    parser.add_argument("--cases", type=Path, default=HERE / "cases")
    parser.add_argument("-k", metavar="TEXT", help="only cases with TEXT in their path, name or seed passage")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--extra", default="", help="appended to every `noetl run`")
    parser.add_argument(
        "-v", action="store_true", help="name the passed cases, show stderr of the failed ones"
    )
    parser.add_argument("--validate-only", action="store_true", help="only what cases expect of `validate`")
    parser.add_argument("--self-test", action="store_true", help="test this runner")
    args = parser.parse_args()
    if args.self_test:
        from tests.conformance import selftest  # noqa: PLC0415 - it imports this module

        return selftest.main()
    options = Options(command(args.noetl), shlex.split(args.extra), validate_only=args.validate_only)
    cases = find_cases(args.cases, args.k)
    failed = 0
    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        outcomes = pool.map(lambda path: run_case(path, options), cases)
        for path, (problems, stderr) in zip(cases, outcomes, strict=True):
            failed += bool(problems)
            if problems or args.v:
                print(
                    f"{'FAIL' if problems else 'ok  '} {path.relative_to(args.cases)}: {title(path)}",
                    flush=True,
                )
            for problem in problems:
                print(f"       {problem}")
            if problems and stderr and args.v:
                print("       stderr: " + stderr.replace("\n", "\n               "))
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
