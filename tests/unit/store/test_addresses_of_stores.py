"""Addresses of stores that cannot be read: what is said of them, and that it never holds the password."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from noetl.registry.opening import open_registry
from noetl.store.open import open_any
from noetl.store.postgres_connections import connect
from noetl.store.postgres_errors import shown_address
from noetl.store.postgres_schema import migrate
from noetl.store.protocol import StoreError

MISWRITTEN = [
    "postgresql://noetl:canary%zz@localhost:1/db",
    "postgresql://noetl:can ary@localhost:1/db",
    "postgresql://noetl:canary@[::1/db",
    "postgresql://noetl:canary/x@localhost:1/db",
    "postgresql://noetl:1234/canary@localhost:1/db",
    "postgresql://noetl:x@canary@localhost:1/db",
    "postgresql://noetl:x@localhost:1/db?canary=1",
]


@pytest.mark.parametrize("url", MISWRITTEN)
@pytest.mark.parametrize(
    "use",
    [
        open_any,
        migrate,
        lambda url: asyncio.run(open_registry(url)),
        lambda url: asyncio.run(connect(url)),
    ],
    ids=["open", "migrate", "registry", "connect"],
)
def test_an_address_that_cannot_be_read_is_told_without_what_stands_in_it(
    url: str, use: Callable[[str], object]
) -> None:
    with pytest.raises(StoreError, match="cannot be read") as refused:
        use(url)
    assert "ary" not in refused.value.message
    assert refused.value.__cause__ is None
    assert "%40" in refused.value.message
    assert "ary" not in shown_address(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://noetl:canary@h/db", "`mysql://…` is"),
        ("POSTGRESQL://noetl:canary@h/db", "`POSTGRESQL://…` is"),
        ("sqlite://noetl:canary@h/db", "`sqlite://…` is"),
        ("postgresql:noetl:canary@h/db", "What was given is"),
        ("canary", "What was given is"),
        ("canary word://x", "What was given is"),
        ("sqlite:///canary\0", "`sqlite://…` is"),
    ],
)
def test_an_address_of_nothing_known_is_told_by_its_scheme_alone(url: str, shown: str) -> None:
    with pytest.raises(StoreError, match="is no address of a SQLite database") as refused:
        open_any(url)
    assert refused.value.message.startswith(shown)
    assert "canary" not in refused.value.message


def test_addresses_that_are_unusual_but_right_are_read() -> None:
    assert shown_address("postgresql://a:p%40ss@h1:1,h2:2/db") == "PostgreSQL database db at h1,h2:1,2"
    assert shown_address("postgresql:///db?host=@/abstract") == "PostgreSQL database db at @/abstract:5432"
    assert shown_address("postgresql://a:b@h/d@b") == "PostgreSQL database d@b at h:5432"
