"""The python tool: what code finds, what it may give back, and what its failures look like."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from noetl.records.outcome import Outcome, OutcomeError
from noetl.tools import python
from noetl.tools.processes.python_call import free_names
from tests.unit.tools.code_context import CodeContext, python_call

T = TypeVar("T")


class Bench:
    """An event loop and a context that last for all tests of this module, so that processes stay warm."""

    def __init__(self, folder: Path) -> None:
        self.runner = asyncio.Runner()
        self.folder = folder
        self.pool: dict[str, Any] = {}

    def context(self, **names: object) -> CodeContext:
        context = CodeContext(self.folder, names=names)
        context.shared_things = self.pool
        return context

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    def run(
        self, code: str, args: object = None, *, context: CodeContext | None = None, **more: Any
    ) -> Outcome:
        return self.wait(python.run(python_call(code, args, **more), (context or self.context()).for_tools()))

    def result(self, code: str, args: object = None, **more: Any) -> Any:
        outcome = self.run(code, args, **more)
        assert outcome.error is None, outcome.error
        return outcome.result

    def error(self, code: str, args: object = None, **more: Any) -> OutcomeError:
        outcome = self.run(code, args, **more)
        assert outcome.error is not None
        return outcome.error


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("execution"))
    yield bench
    bench.wait(bench.context().aclose())
    bench.runner.close()


# ── what the code finds ─────────────────────────────────────────────────────────────────────────────


def test_code_sets_result_from_its_args(bench: Bench) -> None:
    outcome = bench.run("import math\nresult = {'root': math.sqrt(n)}", {"n": 4})
    assert (outcome.status, outcome.result) == ("ok", {"root": 2.0})
    assert outcome.groups == {"py": {"exception_type": None}}
    assert outcome.meta.attempt == 1


def test_main_is_called_with_the_args_that_it_takes(bench: Bench) -> None:
    assert bench.result("def main(a, b=10, *, c): return [a, b, c]", {"a": 1, "c": 3, "other": 4}) == [
        1,
        10,
        3,
    ]
    assert bench.result("def main(**rest): return rest", {"a": 1}) == {"a": 1}
    assert bench.result("main = lambda: 7") == 7
    assert bench.result("class Job:\n  def __call__(self, a): return a\nmain = Job()", {"a": 5}) == 5


def test_main_may_be_a_coroutine(bench: Bench) -> None:
    code = "import asyncio\nasync def main(a):\n    await asyncio.sleep(0)\n    return a + 1"
    assert bench.result(code, {"a": 1}) == 2


def test_an_argument_that_main_lacks_is_named(bench: Bench) -> None:
    error = bench.error("def main(a, b, *, c): return 1", {"b": 1})
    assert (error.kind, error.message) == (
        "python.exception",
        "TypeError: main() needs `a`, `c`, which `args` does not have",
    )


def test_an_arg_called_main_is_only_a_variable(bench: Bench) -> None:
    assert bench.result("result = main * 2", {"main": 2}) == 4


def test_code_without_result_gives_null(bench: Bench) -> None:
    assert bench.result("x = 1") is None


def test_nothing_of_one_task_is_defined_in_the_next(bench: Bench) -> None:
    bench.result(
        "import sys, os, builtins\nleft = 1\nsys.path.append('/nowhere')\nos.chdir('/')\nsys.stdout = None"
    )
    code = (
        "import os, sys\nresult = ['left' in globals(), '/nowhere' in sys.path, os.getcwd(), not sys.stdout]"
    )
    assert bench.result(code) == [False, False, str(bench.folder), False]


def test_free_names_come_from_the_context_unless_args_have_them(bench: Bench) -> None:
    context = bench.context(factor=3, label="workload", unused=1)
    code = "def scaled(n):\n    return n * factor\nresult = [scaled(2), label, sum([1, 2])]"
    assert bench.result(code, {"label": "given"}, context=context) == [6, "given", 3]


def test_what_main_needs_and_args_lack_comes_from_the_context(bench: Bench) -> None:
    context = bench.context(y=4, z=5, unused=1)
    code = "def main(x, y, *, z, unused=0):\n    return [x, y, z, unused]"
    assert bench.result(code, {"x": 1, "z": 9}, context=context) == [1, 4, 9, 0]
    error = bench.error("def main(missing): return 1", context=context)
    assert error.message == "TypeError: main() needs `missing`, which `args` does not have"


def test_a_free_name_that_is_nothing_is_a_name_error_at_its_line(bench: Bench) -> None:
    error = bench.error("x = 1\nresult = missing")
    assert error.message == "NameError: name 'missing' is not defined"
    assert "line 2" in error.details["traceback"]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("result = a + len(b)", {"a", "b"}),
        ("a = 1\nresult = a", set()),
        ("def f(x, *y, z=d, **k):\n    q = x\n    return q + g", {"d", "g"}),
        ("result = [i * n for i in items]", {"n", "items"}),
        ("import os.path as p\nfrom re import match\nresult = p, match", set()),
        ("def f():\n    global made\n    made = 1\nresult = made", set()),
        ("try:\n    pass\nexcept ValueError as e:\n    print(e)", set()),
        ("class A(Base):\n    x = y\n    def m(self): return x2", {"Base", "y", "x2"}),
        ("if (n := limit) > 1: result = n", {"limit"}),
        ("def f(a): return a\ndef g(): return a", {"a"}),
        ("match data:\n    case {'x': v}: result = v", {"data"}),
        ("this is no code", set()),
    ],
)
def test_the_free_names_of_code(code: str, names: set[str]) -> None:
    assert set(free_names(code)) == names


def test_libs_are_imported_under_their_alias(bench: Bench) -> None:
    assert bench.result(
        "result = [path.basename('/a/b'), m.floor(1.5)]", libs={"path": "os.path", "m": "math"}
    ) == [
        "b",
        1,
    ]
    error = bench.error("result = 1", libs={"x": "no_such_module_anywhere"})
    assert error.message == "ModuleNotFoundError: No module named 'no_such_module_anywhere'"


def test_a_credential_is_the_variable_auth(bench: Bench) -> None:
    context = bench.context()
    context.credentials["db"] = {"user": "u"}
    assert bench.result("result = auth['user']", context=context, auth="db") == "u"
    assert bench.result("result = auth", context=context, auth={"token": "t"}) == {"token": "t"}


def test_code_runs_in_the_folder_of_its_execution(bench: Bench) -> None:
    bench.result("open('written.txt', 'w').write('here')")
    assert (bench.folder / "written.txt").read_text() == "here"


def test_the_environment_holds_nothing_of_the_workers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    found = bench.result(
        "import os, tempfile\nresult = [sorted(os.environ), os.environ['TMPDIR'], tempfile.gettempdir()]"
    )
    assert set(found[0]) <= {"HOME", "LANG", "NOETL_PROCESS_TAG", "PATH", "TMPDIR", "LC_CTYPE"}
    assert found[1] == found[2]
    assert Path(found[1]).stat().st_mode & 0o777 == 0o700


def test_args_are_not_in_the_command_line(bench: Bench) -> None:
    code = "result = open('/proc/self/cmdline').read() + open('/proc/self/environ').read()"
    assert "hush-hush" not in bench.result(code, {"secret": "hush-hush"})


def test_args_that_are_no_mapping_are_refused(bench: Bench) -> None:
    assert bench.error("result = 1", [1, 2]).kind == "spec.invalid"


def test_another_isolation_is_refused_rather_than_ignored(bench: Bench) -> None:
    assert bench.error("result = 1", spec={"isolation": "container"}).kind == "isolation.unavailable"


# ── what it may give back ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("None", None),
        ("{'a': [1, 2.5, True, 'é\\u2028\\0']}", {"a": [1, 2.5, True, "é\u2028\0"]}),
        ("2 ** 100", 2**100),
        ("(1, (2,))", [1, [2]]),
        ("{3, 1, 2}", [1, 2, 3]),
        ("range(3)", [0, 1, 2]),
        ("{1: 'a', None: 'b', True: 'c', 2.5: 'd'}.keys() and {2: 'a', None: 'b'}", {"2": "a", "null": "b"}),
        ("__import__('datetime').date(2024, 2, 29)", "2024-02-29"),
        ("__import__('datetime').datetime(2024, 1, 2, 3, 4, 5)", "2024-01-02T03:04:05"),
        ("[__import__('datetime').time(1, 2)]", ["01:02:00"]),
        ("__import__('datetime').timedelta(minutes=1)", 60.0),
        ("{__import__('datetime').date(2024, 2, 29): 1}", {"2024-02-29": 1}),
        ("__import__('decimal').Decimal('19.99')", 19.99),
        ("__import__('decimal').Decimal('3.00')", 3),
        ("__import__('decimal').Decimal('0.1234567890123456789012345')", "0.1234567890123456789012345"),
        ("__import__('uuid').UUID(int=1)", "00000000-0000-0000-0000-000000000001"),
        ("__import__('pathlib').Path('a/b')", "a/b"),
        ("__import__('collections').deque([1])", [1]),
        ("__import__('collections').OrderedDict(a=1)", {"a": 1}),
        ("__import__('enum').Enum('Colour', 'red')['red']", 1),
    ],
)
def test_plain_values_and_their_relatives_become_json(
    bench: Bench, expression: str, expected: object
) -> None:
    assert bench.result(f"result = {expression}") == expected


def test_dataclasses_become_mappings(bench: Bench) -> None:
    code = "from dataclasses import *\n@dataclass\nclass P:\n  x: int\n  y: list\nresult = [P(1, [P(2, [])])]"
    assert bench.result(code) == [{"x": 1, "y": [{"x": 2, "y": []}]}]


ARRAYS = """
class Array:
    def __init__(self, data): self.data = data
    def tolist(self): return self.data
class Frame:
    columns = ["a", "b"]
    def to_dict(self, orient):
        assert orient == "records"
        return [{"a": 1, "b": float("nan")}, {"a": Array(2), "b": NaTType()}]
class NaTType: pass
Array.__module__ = "numpy"
Frame.__module__ = "pandas.core.frame"
NaTType.__module__ = "pandas._libs.tslibs.nattype"
"""


def test_arrays_and_frames_are_told_by_what_they_can_do(bench: Bench) -> None:
    assert bench.result(ARRAYS + "result = {'one': Array(1.5), 'many': Array([[1], [2]])}") == {
        "one": 1.5,
        "many": [[1], [2]],
    }
    assert bench.result(ARRAYS + "result = Frame()") == [{"a": 1, "b": None}, {"a": 2, "b": None}]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("class Foo: pass\nresult = {'rows': [0, 1, 2, {'x': Foo()}]}", "result.rows[3].x is a Foo"),
        ("result = {'my key': object()}", "result['my key'] is a object, which JSON cannot hold"),
        ("result = [1.0, float('nan')]", "result[1] is nan"),
        ("result = float('inf')", "result is inf"),
        ("import decimal\nresult = decimal.Decimal('NaN')", "result is NaN"),
        ("result = {'raw': b'x'}", "result.raw is bytes: return text, by .decode() or base64"),
        ("result = {(1, 2): 3}", "result has the key (1, 2), a tuple"),
        ("a = []\na.append(a)\nresult = {'a': a}", "result.a[0] contains itself"),
        ("result = []\nfor _ in range(3000): result = [result]", "nested deeper than 500"),
        ("result = '\\ud800'", "half of a surrogate pair"),
        ("result = (i for i in [1])", "is a generator, which JSON cannot hold: return list(…) of it"),
        ("def main(): return main", "result is a function"),
        ("import fractions\nresult = [fractions.Fraction(1, 3)]", "result[0] is a Fraction"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_place_and_type(bench: Bench, code: str, said: str) -> None:
    error = bench.error(code)
    assert error.kind == "python.result"
    assert said in error.message
    assert not error.retryable


def test_a_large_result_and_large_args_come_through_whole(bench: Bench) -> None:
    text = "ä" * 6_000_000
    assert bench.result("result = [text, len(text)]", {"text": text}) == [text, 6_000_000]


def test_a_result_above_its_limit_is_refused(bench: Bench) -> None:
    error = bench.error("result = 'x' * 3_000_000", spec={"resources": {"result_bytes": "1Mi"}})
    assert (error.kind, error.message) == ("python.result", "the result is larger than 1048576 bytes")


# ── what it prints ──────────────────────────────────────────────────────────────────────────────────


def test_what_code_prints_is_the_tasks_log(bench: Bench) -> None:
    context = bench.context()
    code = (
        "import sys, os\nprint('line', 'ä')\nsys.stderr.write('open end')\nos.system('echo from a command')"
    )
    assert bench.result(code, context=context) is None
    assert context.text_of("stdout") == "line ä\nfrom a command\n"
    assert context.text_of("stderr") == "open end"


def test_output_belongs_to_the_task_that_wrote_it(bench: Bench) -> None:
    contexts = [bench.context() for _ in range(40)]

    async def all_at_once() -> None:
        code = "import os\nos.write(1, b'raw %d\\n' % n)\nprint('text', n)"
        await asyncio.gather(
            *(
                python.run(python_call(code, {"n": n}), context.for_tools())
                for n, context in enumerate(contexts)
            )
        )

    bench.wait(all_at_once())
    assert [context.text_of("stdout") for context in contexts] == [f"raw {n}\ntext {n}\n" for n in range(40)]


def test_a_flood_of_output_is_cut_and_the_log_says_so(bench: Bench) -> None:
    context = bench.context()
    code = "line = 'x' * 99\nfor _ in range(500_000): print(line)\nresult = 'done'"
    assert bench.result(code, context=context, spec={"resources": {"output_bytes": "10k"}}) == "done"
    assert len(context.text_of("stdout")) == 10_000
    assert context.text_of("stderr").count("the rest of the output is left out") == 1


def test_output_that_is_no_text_does_no_harm(bench: Bench) -> None:
    context = bench.context()
    bench.result("import os\nos.write(1, b'\\xff\\xfe ok')\nprint('\\ud800')", context=context)
    assert "ok" in context.text_of("stdout")
    assert "\\ud800" in context.text_of("stdout")


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────────────


def test_an_exception_is_an_outcome_with_its_type(bench: Bench) -> None:
    outcome = bench.run("result = int(text)", {"text": "abc"})
    assert outcome.error is not None
    assert outcome.error.kind == "python.exception"
    assert outcome.error.message == "ValueError: invalid literal for int() with base 10: 'abc'"
    assert not outcome.error.retryable
    assert outcome.groups["py"]["exception_type"] == "ValueError"


def test_a_traceback_shows_the_playbooks_own_lines(bench: Bench) -> None:
    context = bench.context()
    context.source = ("orders.yaml", 41)
    error = bench.error("def f(x):\n    return 1 / x\n\nresult = f(0)", context=context)
    assert error.details["traceback"].splitlines() == [
        "Traceback (most recent call last):",
        '  File "orders.yaml", line 44, in <module>',
        "    result = f(0)",
        '  File "orders.yaml", line 42, in f',
        "    return 1 / x",
        "ZeroDivisionError: division by zero",
    ]


def test_a_traceback_names_the_library_that_raised_and_the_cause(bench: Bench) -> None:
    error = bench.error(
        "import json\ntry:\n    json.loads('{')\nexcept ValueError as e:\n    raise KeyError('x') from e"
    )
    trace = error.details["traceback"]
    assert "json/decoder.py" in trace
    assert trace.index("JSONDecodeError") < trace.index("direct cause") < trace.index("KeyError: 'x'")
    assert "processes/child.py" not in trace


def test_code_that_does_not_parse_says_where(bench: Bench) -> None:
    context = bench.context()
    context.source = ("orders.yaml", 41)
    outcome = bench.run("x = 1\nif x\n    pass", context=context)
    assert outcome.error is not None
    assert outcome.error.kind == "python.syntax"
    assert 'File "orders.yaml", line 42' in outcome.error.details["traceback"]
    assert outcome.groups["py"]["exception_type"] == "SyntaxError"


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("input()", "python.exception", "EOFError: EOF when reading a line"),
        ("import sys; sys.exit('broken')", "python.exception", "SystemExit: broken"),
        ("raise KeyboardInterrupt", "python.exception", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "python.exception", "RecursionError: maximum recursion depth exceeded"),
        ("import os; os._exit(3)", "process.died", "the process ended by itself, with exit code 3"),
        ("import ctypes; ctypes.string_at(0)", "process.died", "the process was ended by SIGSEGV"),
        ("import os; os.abort()", "process.died", "the process was ended by SIGABRT"),
        ("import os\nos.closerange(3, 200)\nwhile True: pass", "process.died", "it closed the connection"),
        (
            "class E(Exception):\n  def __str__(self): raise ValueError\nraise E",
            "python.exception",
            "E: <its text",
        ),
    ],
)
def test_no_way_to_fail_goes_unnoticed(bench: Bench, code: str, kind: str, message: str) -> None:
    error = bench.error(code)
    assert error.kind == kind
    assert message in error.message
    assert not error.retryable
    assert bench.result("result = 'still works'") == "still works"


def test_a_script_that_exits_in_peace_keeps_its_result(bench: Bench) -> None:
    assert bench.result("import sys\nresult = 5\nsys.exit()") == 5


def test_a_kill_from_outside_may_be_retried(bench: Bench) -> None:
    error = bench.error("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert (error.kind, error.retryable) == ("process.died", True)


def test_a_memory_limit_is_a_memory_error_of_the_task_alone(bench: Bench) -> None:
    spec = {"resources": {"memory": "256Mi"}}
    outcome = bench.run("x = 'x' * (1 << 30)", spec=spec)
    assert outcome.groups["py"]["exception_type"] == "MemoryError"
    assert bench.result("result = len('x' * (1 << 20))", spec=spec) == 1 << 20


def test_a_cpu_limit_ends_the_code(bench: Bench) -> None:
    error = bench.error("while True: pass", spec={"resources": {"cpu_seconds": 0.1}})
    assert (error.kind, error.message) == ("process.limit", "the code used more than 0.1 s of CPU time")


def test_limits_on_files_are_errors_of_the_code(bench: Bench) -> None:
    spec = {"resources": {"file_bytes": "4Ki", "open_files": 20}}
    error = bench.error(
        "with open('big', 'wb', 0) as f:\n    for _ in range(9): f.write(b'x' * 1000)", spec=spec
    )
    assert "File too large" in error.message
    error = bench.error("kept = [open('/dev/null') for _ in range(30)]", spec=spec)
    assert "Too many open files" in error.message


def test_a_limit_that_is_none_is_refused(bench: Bench) -> None:
    for resources in ({"memory": "lots"}, {"cpu_seconds": 0}, {"open_files": True}, "512Mi"):
        assert bench.error("result = 1", spec={"resources": resources}).kind == "spec.invalid"
