"""The table of parts, and the test that the package keeps to it.

Imports point up the table only, function-local ones included; parts of one row do not import each other. A
part that does not exist yet has its row already, so that its first import is judged. A library is imported
only by the parts that name it here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gates.imports import Architecture, violations

SOURCE = Path(__file__).resolve().parents[1] / "src"

ROWS = (
    ("errors", "ids", "private_folders", "settings"),
    ("records",),
    ("template",),
    ("playbook",),
    ("engine",),
    ("store", "bus", "secrets", "results", "tools"),
    ("control", "registry"),
    ("client", "worker"),
    ("server",),
    ("embedded",),
    ("cli", "testing"),
)

# Parts that stand higher in the table and still may not be imported.
MUST_NOT_KNOW = {
    "store": {"engine"},
    "bus": {"engine"},
    "secrets": {"engine"},
    "results": {"engine"},
    "tools": {"engine"},
    "client": {"store"},
    "worker": {"store"},
    "server": {"engine"},
}

THIRD_PARTY = {
    "settings": {"msgspec"},
    "records": {"msgspec"},
    "template": {"jinja2"},
    "playbook": {"msgspec", "yaml"},
    "engine": {"msgspec"},
    "store": {"msgspec", "psycopg", "psycopg_pool"},
    "bus": {"msgspec", "nats"},
    "secrets": {"aiohttp", "cryptography", "msgspec"},
    "results": {"msgspec", "nats", "obstore", "pyarrow"},
    "tools": {
        "aiohttp",
        "multidict",
        "yarl",
        "duckdb",
        "msgspec",
        "nats",
        "obstore",
        "psycopg",
        "psycopg_pool",
        "pyarrow",
        "snowflake",
    },
    "control": {"msgspec", "opentelemetry", "prometheus_client", "structlog"},
    "registry": {"cryptography", "msgspec"},
    "client": {"aiohttp", "msgspec"},
    "worker": {"msgspec", "opentelemetry", "prometheus_client", "structlog"},
    # Replicas make the spans of an execution from the events they commit (`server/tracing.py`).
    "server": {"litestar", "msgspec", "opentelemetry", "prometheus_client", "structlog", "uvicorn"},
    "embedded": {"msgspec", "structlog"},
    "cli": {"msgspec", "rich", "uvicorn", "uvloop"},
    "testing": {"msgspec"},
}

RUNTIME = {"asyncio", "concurrent", "multiprocessing", "subprocess", "threading"}
WORLD = {"ftplib", "http", "logging", "shutil", "smtplib", "socket", "sqlite3", "ssl", "tempfile"}
CHANCE = {"datetime", "random", "secrets", "time", "uuid"}

# The language is read and the engine decides without touching the world; clocks and chance come in as values.
FORBIDDEN_STDLIB = {
    "records": RUNTIME | WORLD,
    "template": RUNTIME | WORLD | {"os", "pathlib"},
    "playbook": RUNTIME | WORLD | {"os"},
    "engine": RUNTIME | WORLD | CHANCE | {"io", "os", "pathlib"},
}


def frozen(table: dict[str, set[str]]) -> dict[str, frozenset[str]]:
    return {part: frozenset(names) for part, names in table.items()}


ARCHITECTURE = Architecture(
    rows=ROWS,
    must_not_know=frozen(MUST_NOT_KNOW),
    third_party=frozen(THIRD_PARTY),
    forbidden_stdlib=frozen(FORBIDDEN_STDLIB),
)


def test_the_package_keeps_to_the_table_of_parts() -> None:
    assert (found := violations(SOURCE, ARCHITECTURE)) == [], "\n".join(found)


def test_every_part_a_table_names_has_a_row() -> None:
    parts = {part for row in ROWS for part in row}
    named = set(MUST_NOT_KNOW) | set(THIRD_PARTY) | set(FORBIDDEN_STDLIB)
    named |= {part for known in MUST_NOT_KNOW.values() for part in known}
    assert named <= parts
    assert len(parts) == sum(len(row) for row in ROWS)


def judged(tmp_path: Path, module: str, text: str) -> list[str]:
    """What the checker says of a package that holds only `module` with this text."""
    file = tmp_path / "noetl" / module
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return violations(tmp_path, ARCHITECTURE)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("playbook/check.py", "from noetl.template.compile import parse\nimport noetl.errors\n"),
        ("playbook/dialects/v1.py", "from noetl.playbook.model import Step\nfrom ..model import Task\n"),
        ("playbook/__init__.py", "from .model import Step\nfrom . import model\n"),
        ("template/sandbox.py", "def run():\n    import jinja2.sandbox\n"),
        ("tools/http.py", "import aiohttp\nfrom noetl.records import Outcome\n"),
        ("cli/graph.py", "from noetl import __version__, playbook\nimport os, sys\n"),
        ("__main__.py", "from noetl.cli import main\n"),
        ("worker/loop.py", "import asyncio\nfrom noetl.engine.body import advance\n"),
    ],
)
def test_an_import_up_the_table_is_accepted(tmp_path: Path, module: str, text: str) -> None:
    assert judged(tmp_path, module, text) == []


@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("template/a.py", "from noetl.playbook.model import Step\n", "`playbook`, which stands below"),
        ("template/a.py", "def f():\n    from noetl.playbook import model\n", "a.py:2: "),
        ("template/a.py", "from noetl import playbook\n", "`playbook`, which stands below"),
        ("template/a.py", "from ..playbook import model\n", "`playbook`, which stands below"),
        ("template/deep/a.py", "from ... import playbook\n", "`playbook`, which stands below"),
        (
            "template/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import noetl.playbook.model\n",
            "a.py:3: ",
        ),
        ("template/a.py", "import importlib\nimportlib.import_module('noetl.playbook')\n", "a.py:2: "),
        ("ids.py", "from noetl.settings import Settings\n", "stand in one row"),
        ("store/sqlite.py", "from noetl.bus import Bus\n", "stand in one row"),
        ("testing.py", "from noetl.cli.run import run\n", "stand in one row"),
        ("embedded.py", "from noetl.cli import main\n", "`cli`, which stands below"),
        ("store/sqlite.py", "from noetl.engine.state import State\n", "must not know `engine`"),
        ("worker/loop.py", "from noetl.store import Store\n", "must not know `store`"),
        ("server/app.py", "from noetl.engine import decide\n", "must not know `engine`"),
        ("engine/decide.py", "import time\n", "must not know `time`"),
        ("playbook/reader.py", "import asyncio.tasks\n", "must not know `asyncio`"),
        ("errors.py", "import msgspec\n", "may not import the library `msgspec`"),
        ("template/fast.py", "def f():\n    import yaml\n", "may not import the library `yaml`"),
        ("__init__.py", "from noetl.playbook import model\n", "`noetl` may not import `playbook`"),
        ("__init__.py", "import jinja2\n", "`noetl` may not import the library `jinja2`"),
        ("__main__.py", "from noetl.playbook import model\n", "`__main__` may not import `playbook`"),
        ("extras/a.py", "", "`extras` is not in the table of parts"),
        ("cli/a.py", "from noetl.extras import a\n", "`extras` is not in the table of parts"),
    ],
)
def test_an_import_against_the_table_is_found(tmp_path: Path, module: str, text: str, said: str) -> None:
    found = judged(tmp_path, module, text)
    assert len(found) == 1
    assert said in found[0]
