"""The examples in versions 1 and 2 of the language, with what is expected of them, and what they run against.

Each playbook under `examples/generations` has a JSON file beside it: `runs`, and if it needs them `postgres`
(SQL that makes its tables) and `register` (playbooks it calls). A run says what is `set`, which `signal`
another process sends at which step, and what must come of it: `exit`, `status`, `error`, `result`,
`vars`, the status of every step that ran, and the `requests` that reached the service, in order, or
`requests_in_any_order`. What a run leaves out is not compared.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GENERATIONS = EXAMPLES / "generations"
PLAYBOOKS = sorted(path.relative_to(GENERATIONS).as_posix() for path in GENERATIONS.rglob("*.yaml"))
EXPECTED = ("exit", "status", "error", "result", "vars", "steps", "requests", "requests_in_any_order")


def expectation(playbook: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GENERATIONS / playbook).with_suffix(".json").read_text("utf-8"))
    return found


def demanded(run: dict[str, Any]) -> dict[str, Any]:
    """What must come of a run, in the form of `happened`."""
    return {
        name: sorted(run[name]) if name == "requests_in_any_order" else run[name]
        for name in EXPECTED
        if name in run
    }


def happened(run: dict[str, Any], exit_code: int, told: dict[str, Any], asked: list[str]) -> dict[str, Any]:
    """What came of a run, as far as it says what must."""
    found = {
        "exit": exit_code,
        "status": told["status"],
        "error": (told["error"] or {}).get("message"),
        "result": told["result"],
        "vars": told["vars"],
        "steps": {name: step["status"] for name, step in told["steps"].items()},
        "requests": asked,
        "requests_in_any_order": sorted(asked),
    }
    return {name: found[name] for name in EXPECTED if name in run}


def options(run: dict[str, Any], url: str) -> list[str]:
    """The `--set` of a run: the service's address, whatever the playbook calls it, and what the run sets."""
    given = {"api_url": url, "base_url": url, **run.get("set", {})}
    texts = (
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in given.items()
    )
    return [word for text in texts for word in ("--set", text)]


def stand_in() -> ModuleType:
    """The module of the service that the examples call; they are no package, so it is loaded by its path."""
    name = "examples_generations_service"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, GENERATIONS / "service.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, list[str]]]:
    """A service with nothing asked of it yet: its address, and what it is asked."""
    server = stand_in().Service()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
