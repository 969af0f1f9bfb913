"""The repository keeps to its gates, and each gate finds an offender.

The gates themselves are pure functions in `tests/gates/source.py`. Here they are given the files git knows or
would add, and one made-up offender and one innocent each, so that a gate that went blind fails.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.gates import source as gates
from tests.gates.source import Finding

ROOT = Path(__file__).resolve().parents[1]
CONFORMANCE = "tests/conformance/"  # the runner came from outside, and its cases are data


@cache
def repository_files() -> tuple[str, ...]:
    """Every file that is tracked or would be, as a path from the root."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(sorted({name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}))


def python_files(*folders: str) -> list[str]:
    return [name for name in repository_files() if name.endswith(".py") and name.startswith(folders)]


def own_python_files() -> list[str]:
    return [
        name for name in python_files("src/", "tests/", "benchmarks/") if not name.startswith(CONFORMANCE)
    ]


def findings(names: list[str], gate: Callable[[str], list[Finding]]) -> list[str]:
    found = []
    for name in names:
        text = (ROOT / name).read_text("utf-8", "replace")
        found += [f"{name}:{line}: {problem}" for line, problem in gate(text)]
    return found


def assert_none(found: list[str]) -> None:
    assert found == [], "\n" + "\n".join(found)


def test_no_file_is_longer_than_one_idea() -> None:
    assert_none(findings(own_python_files(), gates.long_file))


def test_no_function_outgrows_a_screen() -> None:
    assert_none(findings(python_files("src/"), gates.long_functions))


def test_every_broad_except_says_why() -> None:
    assert_none(findings(python_files("src/"), gates.unexplained_broad_excepts))


def test_only_the_command_line_reads_the_environment() -> None:
    names = [name for name in python_files("src/") if not name.startswith("src/noetl/cli/")]
    assert_none(findings(names, gates.environment_reads))


def test_there_are_no_star_imports() -> None:
    assert_none(findings(own_python_files(), gates.star_imports))


def test_every_import_inside_a_function_says_why() -> None:
    assert_none(findings(python_files("src/"), gates.unexplained_local_imports))


def test_no_file_is_a_grab_bag() -> None:
    names = [name for name in repository_files() if name.startswith(("src/", "tests/", "benchmarks/"))]
    assert_none([f"{name}: {problem}" for name in names for _, problem in gates.grab_bag_name(name)])


def test_no_name_tells_history() -> None:
    found = []
    for name in python_files("src/"):
        text = (ROOT / name).read_text("utf-8")
        found += [f"{name}:{line}: {problem}" for line, problem in gates.names_of_history(name, text)]
    assert_none(found)


def test_no_file_names_a_path_of_one_machine() -> None:
    assert_none(findings(list(repository_files()), gates.machine_paths))


def test_no_file_names_a_package_registry() -> None:
    assert_none(findings(list(repository_files()), gates.registry_hosts))


def function_of(lines: int) -> str:
    return "def f():\n" + "    pass\n" * (lines - 1)


EXCEPT = "try:\n    pass\n{above}except {kind}:{comment}\n    pass\n"
LOCAL = "def f():\n{above}    import json{comment}\n"
HOME = "/".join(("", "home", "me", "a"))
HOST = "pypi" + ".org"


@pytest.mark.parametrize(
    ("gate", "offender"),
    [
        (gates.long_file, "x = 1\n" * 601),
        (gates.long_functions, function_of(61)),
        (gates.long_functions, "class A:\n    async " + function_of(61).replace("    pass", "        pass")),
        (gates.unexplained_broad_excepts, EXCEPT.format(above="", kind="Exception", comment="")),
        (
            gates.unexplained_broad_excepts,
            EXCEPT.format(above="", kind="Exception as e", comment="  # noqa: BLE001"),
        ),
        (
            gates.unexplained_broad_excepts,
            EXCEPT.format(above="", kind="(OSError, BaseException)", comment=""),
        ),
        (gates.unexplained_broad_excepts, EXCEPT.format(above="", kind="builtins.Exception", comment="")),
        (gates.unexplained_broad_excepts, "try:\n    pass\nexcept:\n    pass\n"),
        (gates.unexplained_broad_excepts, "with contextlib.suppress(Exception):\n    pass\n"),
        (gates.environment_reads, "import os\nx = os.environ['A']\n"),
        (gates.environment_reads, "import os\nx = os.getenv('A')\n"),
        (gates.environment_reads, "from os import environ\n"),
        (gates.star_imports, "from json import *\n"),
        (gates.unexplained_local_imports, LOCAL.format(above="", comment="")),
        (gates.unexplained_local_imports, LOCAL.format(above="", comment="  # noqa: PLC0415")),
        (gates.unexplained_local_imports, LOCAL.format(above="    x = 1  # one\n", comment="")),
        (gates.machine_paths, f"see {HOME} for it\n"),
        (gates.registry_hosts, f"from https://{HOST}/simple\n"),
    ],
)
def test_a_gate_finds_its_offender(gate: Callable[[str], list[Finding]], offender: str) -> None:
    assert len(gate(offender)) == 1


@pytest.mark.parametrize(
    ("gate", "innocent"),
    [
        (gates.long_file, "x = 1\n" * 600),
        (gates.long_functions, function_of(60)),
        (gates.unexplained_broad_excepts, EXCEPT.format(above="", kind="OSError", comment="")),
        (
            gates.unexplained_broad_excepts,
            EXCEPT.format(above="", kind="Exception", comment="  # a crash becomes an outcome"),
        ),
        (
            gates.unexplained_broad_excepts,
            EXCEPT.format(
                above="# a crash becomes an outcome\n", kind="Exception", comment="  # noqa: BLE001"
            ),
        ),
        (gates.environment_reads, "import os\nx = os.path.join('a', settings.environ)\n"),
        (gates.star_imports, "from json import dumps\n"),
        (gates.unexplained_local_imports, "import json\nif True:\n    import re\n"),
        (
            gates.unexplained_local_imports,
            LOCAL.format(above="", comment="  # noqa: PLC0415 - slow to import"),
        ),
        (
            gates.unexplained_local_imports,
            LOCAL.format(above="    # slow to import\n    import re\n", comment="  # noqa: PLC0415"),
        ),
        (gates.machine_paths, f"https://example.org{HOME} and a{HOME}\n"),
        (gates.registry_hosts, "install it from PyPI\n"),
    ],
)
def test_a_gate_lets_the_innocent_pass(gate: Callable[[str], list[Finding]], innocent: str) -> None:
    assert gate(innocent) == []


@pytest.mark.parametrize("path", ["src/noetl/utils.py", "src/noetl/common/a.py", "tests/unit/helpers.py"])
def test_a_grab_bag_is_found_by_its_name(path: str) -> None:
    assert len(gates.grab_bag_name(path)) == 1
    assert gates.grab_bag_name("src/noetl/playbook/model.py") == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a/legacy_reader.py", ""),
        ("a/b.py", "def read_new(): ...\n"),
        ("a/b.py", "class LegacyReader: ...\n"),
        ("a/b.py", "new_state = 1\n"),
        ("a/b.py", "def f(refactored): ...\n"),
        ("a/b.py", "def f(self):\n    self.state_new = 1\n"),
    ],
)
def test_a_name_that_tells_history_is_found(path: str, text: str) -> None:
    assert len(gates.names_of_history(path, text)) == 1


def test_ordinary_names_tell_no_history() -> None:
    text = "class A:\n    def __new__(cls): ...\ndef renew_lease(news, newest): ...\n"
    assert gates.names_of_history("src/noetl/cli/new.py", text) == []
