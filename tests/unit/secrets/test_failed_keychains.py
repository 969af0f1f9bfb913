"""A keychain of which one entry cannot be resolved: those before it stay secret, wherever they stand."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.cli.keychains import Keychains
from noetl.control.executions import Origin
from noetl.embedded import Embedded
from noetl.engine.masking import masked
from noetl.errors import NoetlError
from noetl.ids import SystemClock
from noetl.playbook.load import load
from noetl.playbook.model import KeychainEntry
from noetl.records.event import Event
from noetl.registry.caller_secrets import CallerSecretsInMemory
from noetl.secrets.keychain import KeychainError, Resolver
from noetl.secrets.redaction import Redactor, SecretTooShortError
from noetl.store.memory import MemoryStore
from noetl.template import Template
from noetl.tools.registry import builtin_kinds

SECRET = "quiet/magpie 4711"
UNRESOLVED = {
    "path": {"kind": "file", "path": "{{ keychain.K }}"},
    "var": {"kind": "env", "var": "X_{{ keychain.K }}"},
    "credential": {"kind": "credential", "credential": "{{ keychain.K }}"},
    "made": {"kind": "env", "var": "{{ keychain.K | upper }}"},
    "template": {"kind": "bearer", "token": "{{ keychain.K + 1 }}"},
}


class Missing(NoetlError):  # noqa: N818 - as the registry raises it
    code = "credential.unknown"


async def find(name: str) -> Mapping[str, Any]:
    raise Missing(f"there is no credential `{name}`")


def resolver(folder: Path, secret: str = SECRET) -> Resolver:
    return Resolver({"K": secret}, folder, SystemClock(), credentials=find)


def entries(way: str) -> tuple[KeychainEntry, ...]:
    kind, *fields = UNRESOLVED[way].items()
    made = {name: Template(value) for name, value in fields}
    first = KeychainEntry(name="K", kind="env", fields={})
    return (first, KeychainEntry(name="L", kind=kind[1], fields=made))


def playbook_text(way: str) -> str:
    fields = ", ".join(f'{name}: "{value}"' for name, value in UNRESOLVED[way].items())
    return (
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: tests/p}\n"
        f"keychain: [{{name: K, kind: env}}, {{name: L, {fields}}}]\nworkload: {{known: 1}}\n"
        "workflow: [{step: start, tool: {kind: noop}}]\n"
    )


def shows(text: str) -> bool:
    return "magpie" in text.lower() or "4711" in text


@pytest.mark.parametrize("way", UNRESOLVED)
def test_the_error_names_the_entry_and_shows_no_value(way: str, tmp_path: Path) -> None:
    found: dict[str, Any] = {}
    with pytest.raises(KeychainError, match="`L`") as caught:
        asyncio.run(resolver(tmp_path).resolve(entries(way), {}, found=found))
    assert not shows(caught.value.message)
    assert found == {"K": SECRET}


def test_a_value_that_could_not_be_masked_is_what_is_told_instead(tmp_path: Path) -> None:
    with pytest.raises(SecretTooShortError, match=r"keychain\.K is shorter") as caught:
        asyncio.run(resolver(tmp_path, "4711").resolve(entries("var"), {}))
    assert not shows(caught.value.message)


@pytest.mark.parametrize("way", UNRESOLVED)
def test_a_server_gives_what_was_resolved_with_the_problem(way: str, tmp_path: Path) -> None:
    playbook = load(playbook_text(way).encode(), builtin_kinds()).playbook
    assert playbook is not None
    keychains = Keychains(resolver(tmp_path), CallerSecretsInMemory(SystemClock()), durable=True)
    found, problem = asyncio.run(keychains.prepare(playbook, {}, Origin("5")))
    assert found == {"K": SECRET}
    assert problem is not None
    assert not shows(str(problem))


@pytest.mark.parametrize("way", UNRESOLVED)
def test_the_log_of_a_request_that_cannot_be_started_shows_no_secret(way: str, tmp_path: Path) -> None:
    loaded = load(playbook_text(way).encode(), builtin_kinds())
    assert loaded.playbook is not None, loaded.diagnostics
    events: list[Event] = []
    payload = {"said": f"it is {SECRET}", SECRET: 1, "deep": {SECRET: [SECRET]}, "known": 2}

    async def scenario() -> None:
        store, given = MemoryStore(), resolver(tmp_path)
        async with Embedded(store, tmp_path, on_event=events.append, resolver=given) as engine:
            await engine.finished(await engine.start(loaded, payload))

    asyncio.run(scenario())
    assert [event.event_type for event in events][-1] == "playbook.processed"
    assert events[0].payload["payload"] == {
        "said": "it is ***",
        "***": 1,
        "deep": {"***": ["***"]},
        "known": 2,
    }
    assert not shows(msgspec.json.encode(events).decode())


@pytest.mark.parametrize("part", ["payload", "workload"])
def test_keys_from_outside_are_masked_but_for_names_that_templates_go_by(part: str) -> None:
    redactor = Redactor()
    for secret in ("quiet magpie", "aB3dE5fG7", "orders", "shop_db"):
        redactor.register(secret)
    given = {"quiet magpie": 1, "aB3dE5fG7": 2, "orders": 3, "shop_db": 4, "orders_2024": 5, "x aB3dE5fG7": 6}
    assert masked({part: given}, redactor.data) == {
        part: {"***": 2, "orders": 3, "shop_db": 4, "orders_2024": 5, "x ***": 6}
    }


def test_keys_that_the_engine_goes_by_stay() -> None:
    redactor = Redactor()
    redactor.register("aB3dE5fG7")
    payload = {"ctx": {"aB3dE5fG7": "aB3dE5fG7"}, "args": {"aB3dE5fG7": 1}, "results": {"aB3dE5fG7": 1}}
    assert masked(payload, redactor.data) == payload | {"ctx": {"aB3dE5fG7": "***"}}
