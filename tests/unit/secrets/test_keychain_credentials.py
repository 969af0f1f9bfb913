"""Keychain entries that stand for stored credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from noetl.errors import NoetlError
from noetl.ids import SystemClock
from noetl.playbook.model import KeychainEntry
from noetl.secrets.keychain import KeychainError, Resolver
from noetl.template import Scope, Template

STORED: dict[str, dict[str, Any]] = {
    "pg": {"host": "db.example.com", "password": "sesame-street"},
    "shop_prod": {"token": "a-token-1", "key": "a-key-2"},
    "other_words": {"access_token": "a-token-3", "api_key": "a-key-4"},
    "client": {"token_url": "https://id.example.com", "client_id": "me", "client_secret": "hidden-1"},
}


class Missing(NoetlError):  # noqa: N818 - as the registry raises it
    code = "credential.unknown"


async def find(name: str) -> Mapping[str, Any]:
    if name not in STORED:
        raise Missing(f"there is no credential `{name}`")
    return STORED[name]


async def fetch(fields: Mapping[str, Any]) -> tuple[str, float]:
    return f"{fields['client_id']}:{fields['client_secret']}:{fields.get('scope')}", 120.0


def resolve(*entries: KeychainEntry, workload: dict[str, Any] | None = None) -> dict[str, Any]:
    resolver = Resolver({}, Path(), SystemClock(), fetch, credentials=find)
    return asyncio.run(resolver.resolve(entries, workload or {}))


def entry(name: str, kind: str, **fields: Any) -> KeychainEntry:
    return KeychainEntry(name=name, kind=kind, fields=fields)


@pytest.mark.parametrize("kind", ["credential", "postgres_credential"])
def test_a_credential_is_its_fields_found_by_the_entrys_name_or_a_locator(kind: str) -> None:
    found = resolve(entry("pg", kind), entry("db", kind, credential="pg"))
    assert found == {"pg": STORED["pg"], "db": STORED["pg"]}
    assert Template("{{ keychain.db.host }}").evaluate(Scope({"keychain": found}, [])) == "db.example.com"


def test_the_locator_may_depend_on_the_workload() -> None:
    wanted = entry("shop", "credential", credential=Template("shop_{{ workload.stage }}"))
    assert resolve(wanted, workload={"stage": "prod"}) == {"shop": STORED["shop_prod"]}


def test_what_is_given_out_is_a_copy() -> None:
    resolve(entry("pg", "credential"))["pg"]["host"] = "changed"
    assert STORED["pg"]["host"] == "db.example.com"


@pytest.mark.parametrize(
    ("kind", "credential", "value"),
    [
        ("bearer", "shop_prod", "a-token-1"),
        ("bearer", "other_words", "a-token-3"),
        ("api_key", "shop_prod", "a-key-2"),
        ("api_key", "other_words", "a-key-4"),
    ],
)
def test_a_bearer_and_a_key_are_one_text_of_their_credential(kind: str, credential: str, value: str) -> None:
    assert resolve(entry("x", kind, credential=credential)) == {"x": value}


def test_a_credential_without_that_text_is_an_error_that_names_the_entry() -> None:
    with pytest.raises(KeychainError, match="`x`: the credential `pg` has no `token` or `access_token`"):
        resolve(entry("x", "bearer", credential="pg"))


def test_a_client_may_be_a_credential_with_some_fields_of_its_own() -> None:
    assert resolve(entry("client", "oauth2", scope="read")) == {"client": "me:hidden-1:read"}
    assert resolve(entry("x", "oauth2", credential="client")) == {"x": "me:hidden-1:None"}


def test_two_clients_of_one_name_do_not_share_a_token() -> None:
    resolver = Resolver({}, Path(), SystemClock(), fetch)

    async def ask(secret: str) -> Any:
        written = entry("api", "oauth2", token_url="u", client_id="me", client_secret=secret)
        return (await resolver.resolve((written,), {}))["api"]

    assert asyncio.run(ask("one")) == "me:one:None"
    assert asyncio.run(ask("two")) == "me:two:None"


def test_a_missing_credential_fails_the_request_with_the_name_of_the_entry() -> None:
    with pytest.raises(KeychainError, match="`db`: there is no credential `nobody`"):
        resolve(entry("db", "credential", credential="nobody"))


def test_where_nothing_is_stored_the_entry_says_so() -> None:
    resolver = Resolver({}, Path(), SystemClock())
    with pytest.raises(KeychainError, match="`pg`: nothing here can look up"):
        asyncio.run(resolver.resolve((entry("pg", "credential"),), {}))
