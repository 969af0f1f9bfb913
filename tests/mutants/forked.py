"""Tries changes inside one pytest session: tests are collected once, and each change has its own process.

`python -m tests.mutants.forked` runs in a copy of the tree. It reads a request from its standard input and
writes what becomes of each change to the descriptor that is named. A first process runs every test and notes
which lines each one reaches. Each further one puts the changed code into the functions that are in use and
runs the tests that reach it: of a stage first those that noticed something in the same function, then the
fastest. Nothing of the package may have run before, but for what its modules do when they are imported.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pkgutil
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TextIO

import coverage
import pytest

import noetl.control
import noetl.engine
from tests.mutants.changes import Change

LEAST_SECONDS, TIMES_AS_LONG = 20.0, 20.0
"""A test may take so long, or so many times as long as without a change."""
MOST_PROCESSOR_SECONDS = 20.0
"""As much of the tests that reach a change is tried: what these do not notice is taken to be unnoticed."""
PROBED = 30
"""So many tests are seen to pass without a change where changes are tried."""
BYTES = 6 << 30
NOTICED, CANNOT_SWAP = 1, 77


class Reach(NamedTuple):
    """What the tests do without any change."""

    seconds: dict[str, float]
    cost: dict[str, float]
    """The processor's time of each."""
    tests: dict[str, defaultdict[int, list[str]]]
    """By file and line."""

    def add(self, told: str) -> None:
        """Takes in what one process has found."""
        seconds, cost, tests = json.loads(told)
        self.seconds.update(seconds)
        self.cost.update(cost)
        for file, by_line in tests.items():
            for line, names in by_line.items():
                self.tests[file][int(line)] += names


class Running(NamedTuple):
    number: int
    folder: str
    began: float


class Forked:
    """A plugin of pytest that runs what was collected once for each change, and not at all itself."""

    def __init__(self, request: Mapping[str, Any], answers: TextIO) -> None:
        self.jobs: int = request["jobs"]
        self.stages: list[list[str]] = request["stages"]
        self.left_out: list[str] = request["left_out"]
        self.changes = [(Path(file).resolve(), change_from(given)) for file, given in request["changes"]]
        self.answers = answers
        self.noticing: defaultdict[tuple[Path, str], Counter[str]] = defaultdict(Counter)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # Whatever would only be imported later has to be there before its code is changed.
        for package in (noetl.engine, noetl.control):
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{package.__name__}.{module.name}")
        items[:] = [item for item in items if not any(word in item.nodeid for word in self.left_out)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            Path(os.environ["PYTEST_DEBUG_TEMPROOT"], "failed").write_text(
                report.longreprtext[-3000:], "utf-8"
            )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            self.answer(problem="the tests could not be collected")
            return True
        reach = self.reach(session)
        if reach is None or not self.is_sound(session, reach):
            return True
        self.answer(tests=len(session.items), seconds=sum(reach.seconds.values()))
        waiting, running = list(enumerate(self.changes))[::-1], dict[int, Running]()
        while waiting or running:
            while waiting and len(running) < self.jobs:
                number, (file, change) = waiting.pop()
                tests = self.chosen(session, reach, file, change)
                if not tests:
                    self.answer(number=number, by=None, reached=0)
                    continue
                folder = own_folder()
                pid = in_a_process(folder, partial(tried, session, tests, reach, file, change, folder))
                running[pid] = Running(number, folder, time.monotonic())
            if running:
                pid, status = os.wait()
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # whatever it has left behind
                self.ended(running.pop(pid), status)
        return True

    def reach(self, session: pytest.Session) -> Reach | None:
        """Runs every test under the eyes of coverage, in as many processes as may run at once."""
        files = sorted({str(file) for file, _ in self.changes})
        running: dict[int, str] = {}
        for number in range(self.jobs):
            folder = own_folder()
            share = session.items[number :: self.jobs]
            running[in_a_process(folder, partial(watched, session, share, files, Path(folder)))] = folder
        found = Reach({}, {}, {file: defaultdict(list) for file in files})
        is_fine = True
        while running:
            pid, status = os.wait()
            folder = running.pop(pid)
            if status == 0:
                found.add(Path(folder, "reach").read_text("utf-8"))
            elif is_fine:
                is_fine = False
                failed = Path(folder, "failed")
                told = (failed if failed.exists() else Path(folder, "said")).read_text("utf-8")
                self.answer(problem=f"the tests do not pass without any change: {told}")
            shutil.rmtree(folder, ignore_errors=True)
        return found if is_fine else None

    def is_sound(self, session: pytest.Session, reach: Reach) -> bool:
        """Whether tests pass in a process like those of the changes, but without one."""
        tests = sorted(session.items, key=lambda item: reach.cost[item.nodeid])[:PROBED]
        folder = own_folder()
        _, status = os.waitpid(in_a_process(folder, partial(noticed, session, tests, reach, folder)), 0)
        if status != 0:
            test = Path(folder, "test").read_text("utf-8")
            self.answer(problem=f"whatever is changed would be noticed: {test} fails in a process of its own")
        shutil.rmtree(folder, ignore_errors=True)
        return status == 0

    def chosen(self, session: pytest.Session, reach: Reach, file: Path, change: Change) -> list[pytest.Item]:
        """The tests that reach a change, in the order in which they are tried."""
        by_line = reach.tests[str(file)]
        reaching = {
            test for line in range(change.lines[0], change.lines[1] + 1) for test in by_line.get(line, [])
        }
        noticing = self.noticing[file, change.function]

        def rank(item: pytest.Item) -> tuple[int, int, float]:
            return self.stage(item.nodeid), -noticing[item.nodeid], reach.cost[item.nodeid]

        ranked = sorted((item for item in session.items if item.nodeid in reaching), key=rank)
        spent = list(accumulate(reach.cost[item.nodeid] for item in ranked))
        return [item for item, so_far in zip(ranked, spent, strict=True) if so_far <= MOST_PROCESSOR_SECONDS]

    def stage(self, test: str) -> int:
        return next(
            number for number, of in enumerate(self.stages) if any(test.startswith(path) for path in of)
        )

    def ended(self, ended: Running, status: int) -> None:
        with_test = Path(ended.folder, "test")
        test = with_test.read_text("utf-8") if with_test.exists() else ""
        shutil.rmtree(ended.folder, ignore_errors=True)
        code = os.waitstatus_to_exitcode(status)
        took = round(time.monotonic() - ended.began, 1)
        if code == CANNOT_SWAP:
            self.answer(number=ended.number, cannot=True)
        elif code == 0:
            self.answer(number=ended.number, by=None, reached=1, seconds=took)
        else:
            file, change = self.changes[ended.number]
            self.noticing[file, change.function][test] += 1
            self.answer(number=ended.number, by=test, stage=self.stage(test), timeout=code < 0, seconds=took)

    def answer(self, **told: object) -> None:
        self.answers.write(json.dumps(told) + "\n")
        self.answers.flush()


def own_folder() -> str:
    """A folder for the files of one process; it is gone with the copy of the tree, if not before."""
    return tempfile.mkdtemp(prefix="process-", dir=Path.cwd().parent)


def change_from(given: list[Any]) -> Change:
    line, column, before, after, function, (first, last) = given
    return Change(line, column, before, after, function, (first, last))


def in_a_process(folder: str, work: Callable[[], int]) -> int:
    """Forks; the child does its work, in a session of its own and with a place for its files, and is gone."""
    pid = os.fork()
    if pid:
        return pid
    code = NOTICED
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        said = os.open(os.path.join(folder, "said"), os.O_CREAT | os.O_WRONLY)
        for number, descriptor in enumerate((nothing, nothing, said)):
            os.dup2(descriptor, number)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = folder
        code = work()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def watched(session: pytest.Session, items: Sequence[pytest.Item], files: list[str], folder: Path) -> int:
    """Runs tests and writes down which lines of the files each of them reaches."""
    watching = coverage.Coverage(data_file=None, config_file=False, include=files)
    watching.start()
    seconds, cost = {}, {}
    for item, following in pairs(items):
        watching.switch_context(item.nodeid)
        began, used = time.monotonic(), processor_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        seconds[item.nodeid] = time.monotonic() - began
        cost[item.nodeid] = processor_time() - used
        if session.testsfailed:
            return NOTICED
    watching.stop()
    found = watching.get_data()
    tests = {
        file: {
            line: [test for test in of if test in seconds]
            for line, of in found.contexts_by_lineno(file).items()
        }
        for file in files
    }
    (folder / "reach").write_text(json.dumps([seconds, cost, tests]), "utf-8")
    return 0


def processor_time() -> float:
    """Of this process and of those it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def tried(
    session: pytest.Session,
    tests: Sequence[pytest.Item],
    reach: Reach,
    file: Path,
    change: Change,
    folder: str,
) -> int:
    """Makes a change and runs tests until one fails, comes to no end, or takes the process with it."""
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not swapped(str(file), change.applied(file.read_text("utf-8"))):
        return CANNOT_SWAP
    return noticed(session, tests, reach, folder)


def noticed(session: pytest.Session, tests: Sequence[pytest.Item], reach: Reach, folder: str) -> int:
    for item, following in pairs(tests):
        Path(folder, "test").write_text(item.nodeid, "utf-8")
        signal.setitimer(signal.ITIMER_REAL, max(LEAST_SECONDS, TIMES_AS_LONG * reach.seconds[item.nodeid]))
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return NOTICED
    return 0


def swapped(file: str, source: str) -> bool:
    """Gives every function of a file the code that it has in another text of it."""
    codes: dict[tuple[str, int], CodeType | None] = {}
    for code in codes_in(compile(source, file, "exec", dont_inherit=True)):
        key = code.co_qualname, code.co_firstlineno
        codes[key] = None if key in codes else code  # of two lambdas in a line nobody knows which is which
    for function in [each for each in gc.get_objects() if type(each) is FunctionType]:
        was = function.__code__
        other = codes.get((was.co_qualname, was.co_firstlineno)) if was.co_filename == file else None
        if other is not None:
            try:
                function.__code__ = other
            except ValueError:
                return False  # it has other free variables now
    return True


def codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_in(constant)


def pairs(items: Sequence[pytest.Item]) -> Iterable[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def main() -> int:
    request = json.load(sys.stdin)
    with os.fdopen(int(sys.argv[1]), "w") as answers:
        tests = [path for stage in request["stages"] for path in stage]
        return pytest.main(
            ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:faulthandler", *tests],
            plugins=[Forked(request, answers)],
        )


if __name__ == "__main__":
    sys.exit(main())
