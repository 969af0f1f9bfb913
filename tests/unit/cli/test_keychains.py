"""Keychains of a server's executions, and what callers send along for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from noetl.cli.keychains import Keychains
from noetl.cli.sent_secrets import secrets_to_send
from noetl.control.executions import Origin
from noetl.errors import UsageError
from noetl.ids import SystemClock
from noetl.playbook.load import load
from noetl.playbook.model import Playbook
from noetl.records.protocols import ExecutionRequest
from noetl.registry.caller_secrets import CallerSecretsInMemory
from noetl.secrets.keychain import Resolver
from noetl.tools.registry import builtin_kinds

SECRET = "quiet-magpie-4711"
KEYCHAIN = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: tests/p}
keychain:
  - {name: SHOP_TOKEN, kind: env}
  - {name: login, kind: bearer, var: "{{ workload.who }}_LOGIN"}
  - {name: made, kind: bearer, token: "x {{ keychain.SHOP_TOKEN }}"}
  - {name: own, kind: api_key, var: NOETL_TOKEN}
workload: {who: ADA}
workflow: [{step: start, tool: {kind: noop}}]
"""
NO_KEYCHAIN = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: q, path: tests/q}\n" + (
    "workflow: [{step: start, tool: {kind: noop}}]\n"
)
VALUES = {"SHOP_TOKEN": SECRET, "ADA_LOGIN": f"{SECRET}-login", "NOETL_TOKEN": "a-token-of-mine", "HOME": "/"}


def playbook(text: str = KEYCHAIN) -> Playbook:
    found = load(text.encode(), builtin_kinds()).playbook
    assert found is not None
    return found


def desk(callers: CallerSecretsInMemory, durable: bool = True, **environment: str) -> Keychains:
    resolver = Resolver({"NOETL_TOKEN": "of the server"} | environment, Path(), SystemClock())
    return Keychains(resolver, callers, durable=durable)


def played(given: Mapping[str, str] = VALUES, **about: Any) -> tuple[dict[str, Any], CallerSecretsInMemory]:
    callers = CallerSecretsInMemory(SystemClock())

    async def scenario() -> dict[str, Any]:
        keychains = desk(callers, **about)
        found, problem = await keychains.prepare(playbook(), {}, Origin("5", None, given))
        assert problem is None, problem
        again, _ = await keychains.prepare(playbook(), {}, Origin("5"))
        assert again == found
        return found

    return asyncio.run(scenario()), callers


def test_what_a_caller_sends_comes_before_the_servers_own_and_is_there_again_later() -> None:
    found, _ = played(SHOP_TOKEN="of-the-server")
    assert found == {
        "SHOP_TOKEN": SECRET,
        "login": f"{SECRET}-login",
        "made": f"x {SECRET}",
        "own": "a-token-of-mine",
    }


def test_only_what_the_keychain_names_is_kept() -> None:
    _, callers = played()
    kept = asyncio.run(callers.find("5"))
    assert sorted(kept) == ["ADA_LOGIN", "NOETL_TOKEN", "SHOP_TOKEN"]


def test_without_a_master_key_the_log_says_that_they_are_in_memory_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    played(durable=True)
    assert caplog.text == ""
    played(durable=False)
    (line,) = caplog.records
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith("secrets of a caller are in memory only")
    assert line.getMessage().endswith("execution 5")
    assert SECRET not in caplog.text


def test_nothing_is_kept_for_a_request_that_cannot_be_started() -> None:
    callers = CallerSecretsInMemory(SystemClock())

    async def scenario() -> None:
        keychains = desk(callers)
        found, problem = await keychains.prepare(playbook(), {}, Origin("5", None, {"ADA_LOGIN": SECRET}))
        assert found == {}
        assert problem is not None
        assert "`SHOP_TOKEN` is not set" in str(problem["message"])
        assert SECRET not in str(problem)
        assert await callers.executions() == []

    asyncio.run(scenario())


def test_a_called_execution_finds_what_was_sent_along_with_its_callers() -> None:
    async def scenario() -> None:
        callers = CallerSecretsInMemory(SystemClock())
        keychains = desk(callers)
        await keychains.prepare(playbook(), {}, Origin("1", None, VALUES))
        without = playbook(NO_KEYCHAIN)
        assert await keychains.prepare(without, {}, Origin("2", "1")) == ({}, None)
        found, problem = await keychains.prepare(playbook(), {}, Origin("3", "2"))
        assert problem is None
        assert found["SHOP_TOKEN"] == SECRET
        again, _ = await keychains.prepare(playbook(), {}, Origin("3"))
        assert again == found
        _, problem = await keychains.prepare(playbook(), {}, Origin("9"))
        assert problem is not None

    asyncio.run(scenario())


def test_no_value_is_shown_where_a_request_is() -> None:
    request = ExecutionRequest(path="p", secrets={"SHOP_TOKEN": SECRET})
    origin = Origin("1", None, request.secrets)
    assert SECRET not in f"{request!r} {request} {origin!r} {origin}"
    assert "SHOP_TOKEN" in repr(origin)


# --- what a command sends -----------------------------------------------------------------------------


def test_a_file_sends_the_variables_that_its_keychain_names_and_that_are_set() -> None:
    assert secrets_to_send([], playbook(), {}, VALUES) == {
        "ADA_LOGIN": f"{SECRET}-login",
        "SHOP_TOKEN": SECRET,
    }
    assert secrets_to_send([], playbook(), {"who": "BOB"}, VALUES) == {"SHOP_TOKEN": SECRET}
    assert secrets_to_send([], playbook(), {}, {}) == {}


def test_a_registered_playbook_is_sent_only_what_is_named() -> None:
    assert secrets_to_send([], None, {}, VALUES) == {}
    assert secrets_to_send(["SHOP_TOKEN"], None, {}, VALUES) == {"SHOP_TOKEN": SECRET}
    with pytest.raises(UsageError, match="GONE: the variable is not set"):
        secrets_to_send(["GONE"], None, {}, VALUES)
