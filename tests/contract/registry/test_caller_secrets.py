"""Secrets that callers send along: kept for their execution, hidden from all else, forgotten at its end."""

from __future__ import annotations

from noetl.registry.auth_cache import AuthCache
from noetl.registry.caller_secrets import CALLER, CachedCallerSecrets, CallerSecrets, CallerSecretsInMemory
from noetl.secrets.encryption import KeyRing, MasterKey
from noetl.store.registry_protocol import RegistryStore
from tests.contract.registry.conftest import START, Play, SetClock
from tests.contract.registry.test_credentials import desk, draft

VALUES = {"SHOP_TOKEN": "quiet-magpie-4711", "EMPTY": ""}


async def kept_found_and_forgotten(secrets: CallerSecrets, clock: SetClock) -> None:
    await secrets.keep("5", VALUES)
    await secrets.keep("6", {"OTHER": "x"}, "5")
    assert await secrets.find("5") == VALUES
    assert await secrets.find("7") == {}
    assert sorted(await secrets.executions()) == [("5", START), ("6", START)]
    clock.at += 300 * 86_400  # an execution may wait for long
    assert await secrets.find("5") == VALUES
    await secrets.forget(["5", "6", "8"])
    assert await secrets.find("5") == {}
    assert await secrets.executions() == []


def test_they_are_kept_found_and_forgotten_on_every_database(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        cache = AuthCache(store, KeyRing([MasterKey.random()]), clock)
        await kept_found_and_forgotten(CachedCallerSecrets(cache), clock)

    play(scenario)


def test_they_are_kept_found_and_forgotten_in_memory(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        await kept_found_and_forgotten(CallerSecretsInMemory(clock), clock)
        assert await store.cache_entries() == []

    play(scenario)


def test_they_lie_encrypted_in_the_scope_of_their_execution(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        cache = AuthCache(store, KeyRing([MasterKey.random()]), clock)
        await CachedCallerSecrets(cache).keep("5", VALUES, "4")
        (row,) = await store.cache_entries()
        assert (row.credential_name, row.scope_type, row.execution_id, row.parent_execution_id) == (
            CALLER,
            "execution",
            5,
            4,
        )
        assert b"magpie" not in row.data_encrypted
        stranger = AuthCache(store, KeyRing([MasterKey.random()]), clock)
        assert await CachedCallerSecrets(stranger).find("5") == {}

    play(scenario)


def test_a_rotation_encrypts_them_anew_and_forgets_what_can_be_had_again(play: Play, clock: SetClock) -> None:
    before, after = MasterKey.random(), MasterKey.random()

    async def scenario(store: RegistryStore) -> None:
        old = desk(store, clock, KeyRing([before]))
        await old.set(draft("pg"))
        await old.get("pg", include_data=True)
        await CachedCallerSecrets(old.cache).keep("5", VALUES)
        await desk(store, clock, KeyRing([after, before])).rotate()
        assert [row.credential_name for row in await store.cache_entries()] == [CALLER]
        new = desk(store, clock, KeyRing([after]))
        assert await CachedCallerSecrets(new.cache).find("5") == VALUES

    play(scenario)
