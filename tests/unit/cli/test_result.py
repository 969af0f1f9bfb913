"""`noetl result` of what a server has: bytes that are no value, and executions without a result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from noetl.cli import main
from noetl.cli import result as result_verb
from noetl.cli.served import ServedStore
from noetl.client.api import Api
from noetl.client.connection import ServerError
from noetl.engine.state import State
from noetl.store.protocol import ExecutionRow
from tests.contract.store.changes import execution

REF = {
    "kind": "result_ref",
    "ref": "noetl://7/file/c",
    "store": "file",
    "key": "7/results/c",
    "checksum": "c",
    "size": 2048,
    "schema_hint": {"media_type": "image/png"},
}
RESULT = ["result", "7", "--server", "http://127.0.0.1:1"]


class BinaryError(ServerError):
    code = "result.binary"


def serve(monkeypatch: pytest.MonkeyPatch, status: str, result: Any, *, is_binary: bool = False) -> None:
    async def row(_store: ServedStore, execution_id: str) -> ExecutionRow:
        return execution(execution_id, status)

    async def loaded(_api: Api, _execution_id: str, _step: str | None = None) -> Any:
        if is_binary:
            raise BinaryError("neither text nor JSON")
        return result

    async def replayed(_store: ServedStore, execution_id: str) -> State:
        return State(execution_id=execution_id, status="completed", result=result)

    monkeypatch.setattr(ServedStore, "execution", row)
    monkeypatch.setattr(Api, "result", loaded)
    monkeypatch.setattr(result_verb, "replayed", replayed)


def test_bytes_that_a_server_has_are_told_by_their_reference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, "completed", REF, is_binary=True)
    assert main(RESULT) == 2
    assert "(2,048 bytes of image/png) is neither text nor JSON" in capsys.readouterr().err
    assert main([*RESULT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == REF


@pytest.mark.parametrize(("status", "how"), [("failed", "it failed"), ("cancelled", "it was cancelled")])
def test_null_is_a_result_only_of_what_completed(
    status: str, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(monkeypatch, "completed", None)
    assert main(RESULT) == 0
    assert capsys.readouterr().out == "null\n"
    serve(monkeypatch, status, None)
    assert main(RESULT) == 2
    assert f"execution 7 has no result: {how}" in capsys.readouterr().err
