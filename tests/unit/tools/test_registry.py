"""How tool kinds are found, and what finding them costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.errors import NoetlError
from noetl.records.tool import field_types
from noetl.tools import registry
from noetl.tools.registry import BUILTIN, ToolKinds, builtin_kinds, every_kind

KIND_SOURCE = """
from typing import Annotated
import msgspec
from noetl.records.tool import ToolDescription

class Config(msgspec.Struct, frozen=True, kw_only=True):
    to: Annotated[str, msgspec.Meta(description="Who is greeted.")]

DESCRIPTION = ToolDescription(kind="greeting", summary="Greets somebody.", config=Config)
"""


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed distributions, empty at first."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("acme_"):
            del sys.modules[name]


def install(site: Path, name: str, *, kind: str, module: str, source: str) -> None:
    (site / f"{module}.py").write_text(source)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[noetl.tools]\n{kind} = {module}\n")


def test_asking_for_names_imports_no_kind_and_searches_no_distribution() -> None:
    code = (
        "import sys\n"
        "from noetl.tools.registry import builtin_kinds\n"
        "kinds = builtin_kinds()\n"
        "assert 'http' in kinds and 'nothing' not in kinds and len(list(kinds)) == len(kinds)\n"
        "print(sorted(name for name in sys.modules if name.startswith('noetl.tools.')),"
        " 'importlib.metadata' in sys.modules)"
    )
    assert run_python(code) == "['noetl.tools.registry'] False"


def test_looking_a_kind_up_imports_that_kind_alone() -> None:
    code = (
        "import sys\n"
        "from noetl.tools.registry import builtin_kinds\n"
        "assert builtin_kinds()['python'].kind == 'python'\n"
        "print([name for name in sys.modules if name.startswith('noetl.tools.')],"
        " 'importlib.metadata' in sys.modules)"
    )
    assert run_python(code) == "['noetl.tools.registry', 'noetl.tools.auth', 'noetl.tools.python'] False"


def test_every_builtin_kind_has_a_module_that_describes_it() -> None:
    kinds = builtin_kinds()
    for name in kinds:
        assert kinds[name].kind == name
    assert len(set(BUILTIN)) == len(BUILTIN)


def test_no_client_library_is_imported_for_descriptions() -> None:
    libraries = ["aiohttp", "duckdb", "nats", "obstore", "psycopg", "pyarrow", "snowflake", "sqlite3"]
    code = (
        "import sys\n"
        "from noetl.tools.registry import every_kind\n"
        "every_kind()\n"
        f"print([name for name in {libraries} if name in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_an_unknown_kind_is_not_found() -> None:
    kinds = ToolKinds()
    assert kinds.get("nothing") is None
    with pytest.raises(KeyError):
        kinds["nothing"]


def test_a_kind_of_an_installed_distribution_is_found_when_it_is_looked_up(site: Path) -> None:
    install(site, "acme", kind="greeting", module="acme_greeting", source=KIND_SOURCE)
    kinds = ToolKinds()
    assert "greeting" not in kinds
    description = kinds["greeting"]
    assert description.summary == "Greets somebody."
    assert field_types(description)["to"].required
    assert kinds.get("greeting") is description


def test_installed_kinds_are_listed_after_those_that_come_with_noetl(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "acme", kind="greeting", module="acme_greeting", source=KIND_SOURCE)
    monkeypatch.setattr(registry, "builtin_kinds", ToolKinds)
    assert list(every_kind())[: len(BUILTIN)] == list(BUILTIN)
    assert "greeting" in every_kind()


def test_an_installed_kind_cannot_replace_one_that_comes_with_noetl(site: Path) -> None:
    install(site, "acme", kind="http", module="acme_http", source=KIND_SOURCE)
    assert ToolKinds()["http"].outcome_group == "http"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import acme_missing\n", "cannot be imported"),
        ("DESCRIPTION = 5\n", "has no `DESCRIPTION`"),
        ("", "has no `DESCRIPTION`"),
        (KIND_SOURCE.replace('kind="greeting"', 'kind="farewell"'), "describes itself as `farewell`"),
    ],
)
def test_a_broken_distribution_is_named(site: Path, source: str, said: str) -> None:
    install(site, "acme", kind="greeting", module="acme_greeting", source=source)
    with pytest.raises(NoetlError, match=said) as caught:
        ToolKinds()["greeting"]
    assert "acme_greeting" in str(caught.value)


def test_two_distributions_with_one_kind_are_refused(site: Path) -> None:
    install(site, "acme", kind="greeting", module="acme_greeting", source=KIND_SOURCE)
    install(site, "other", kind="greeting", module="acme_other", source=KIND_SOURCE)
    with pytest.raises(NoetlError, match="more than one distribution"):
        ToolKinds()["greeting"]
