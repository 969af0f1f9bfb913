"""Credentials on every database: set, shown, found, handed out, deleted, rotated."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from noetl.ids import Snowflakes
from noetl.registry.auth_cache import ExecutionIdError, Scope
from noetl.registry.credentials import (
    CredentialChangedError,
    CredentialDraft,
    CredentialError,
    Credentials,
    CredentialUnknownError,
)
from noetl.secrets.encryption import KeyRing, KeyUnknownError, MasterKey, RecordDamagedError
from noetl.store.registry_protocol import RegistryStore
from tests.contract.registry.conftest import START, Play, SetClock

SECRET = "correct horse battery"


def draft(name: str = "pg", **fields: Any) -> CredentialDraft:
    given: dict[str, Any] = {
        "type": "postgres",
        "data": {"host": "db.example.com", "password": SECRET},
        **fields,
    }
    return CredentialDraft(name=name, **given)


def desk(store: RegistryStore, clock: SetClock, ring: KeyRing | None = None) -> Credentials:
    return Credentials(store, ring or KeyRing([MasterKey.random()]), clock=clock, ids=Snowflakes(clock))


def test_a_credential_comes_back_by_name_and_by_id(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        made = await credentials.set(
            draft(description="the shop", tags=("shop", "prod"), meta={"owner": "me", "n": [1, "a\0b"]})
        )
        assert (made.version, made.tags, made.description) == (1, ("shop", "prod"), "the shop")
        assert made.created_at == made.updated_at == "2027-01-15T08:00:00.000000Z"
        assert await credentials.get("pg") == made
        assert await credentials.get(made.id) == made
        shown = await credentials.get("pg", include_data=True)
        assert shown.data == {"host": "db.example.com", "password": SECRET}
        assert msgspec.structs.replace(shown, data=msgspec.UNSET) == made

    play(scenario)


def test_data_is_shown_only_when_it_is_asked_for_and_never_in_lists_or_reprs(
    play: Play, clock: SetClock
) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        made = await credentials.set(draft())
        listed = await credentials.list()
        for seen in (made, await credentials.get("pg"), *listed):
            assert seen.data is msgspec.UNSET
            assert SECRET.encode() not in msgspec.json.encode(seen)
        assert SECRET not in repr(draft())
        assert SECRET not in repr(await credentials.get("pg", include_data=True))

    play(scenario)


def test_setting_again_replaces_all_but_id_and_beginning_and_counts_up(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        first = await credentials.set(draft(tags=("old",)))
        clock.at += 10
        second = await credentials.set(draft(type="bearer", data={"token": "abcdef"}))
        assert (second.id, second.version, second.type, second.tags) == (first.id, 2, "bearer", ())
        assert second.created_at == first.created_at < second.updated_at
        assert (await credentials.get("pg", include_data=True)).data == {"token": "abcdef"}

    play(scenario)


def test_a_change_decided_on_an_older_version_is_refused(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        await credentials.set(draft(), expected_version=0)
        await credentials.set(draft(), expected_version=1)
        for stale in (0, 1, 3):
            with pytest.raises(CredentialChangedError, match="version 2"):
                await credentials.set(draft(), expected_version=stale)

    play(scenario)


def test_of_many_who_set_it_at_once_none_is_lost_or_half_written(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        done = await asyncio.gather(
            *(credentials.set(draft(data={"number": number})) for number in range(4)),
            return_exceptions=True,
        )
        # Whoever lost too many races is told so; every success has a version of its own.
        written = [each for each in done if not isinstance(each, BaseException)]
        assert all(isinstance(each, CredentialChangedError) for each in done if each not in written)
        assert sorted(each.version for each in written) == list(range(1, len(written) + 1))
        assert (await credentials.get("pg", include_data=True)).version == len(written)

    play(scenario)


def test_the_list_is_filtered_by_type_and_text_and_paged_by_name(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        await credentials.set(draft("zebra", type="bearer"))
        await credentials.set(draft("alpha", description="the Shop's database"))
        await credentials.set(draft("Beta", tags=("shop",)))

        async def names(**wanted: Any) -> list[str]:
            return [each.name for each in await credentials.list(**wanted)]

        assert await names() == ["Beta", "alpha", "zebra"]
        assert await names(of_type="postgres") == ["Beta", "alpha"]
        assert await names(text="sHOP") == ["Beta", "alpha"]
        assert await names(text="zeb", of_type="postgres") == []
        assert await names(text="%") == []
        assert await names(limit=1) == ["Beta"]
        assert await names(limit=1, after="Beta") == ["alpha"]

    play(scenario)


def test_what_is_not_there_is_named_in_the_error(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        for missing in ("nobody", "123", "a\0b", ""):
            with pytest.raises(CredentialUnknownError):
                await credentials.get(missing)
        with pytest.raises(CredentialUnknownError, match="`nobody`"):
            await credentials.delete("nobody")

    play(scenario)


def test_deleting_takes_the_cached_data_along(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        made = await credentials.set(draft())
        await credentials.get("pg", include_data=True)
        await credentials.get("pg", include_data=True, execution_id="77")
        assert len(await store.cache_entries("pg")) == 2
        assert (await credentials.delete(made.id)).name == "pg"
        assert await store.cache_entries() == []
        with pytest.raises(CredentialUnknownError):
            await credentials.get("pg")

    play(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        draft("12"),
        draft("a b"),
        draft("a/b"),
        draft(""),
        draft("a" * 201),
        draft(type=""),
        draft(type="a b"),
        draft(data={}),
        draft(data={"x": "y" * 70_000}),
        draft(description="a\0b"),
        draft(tags=("\ud800",)),
        draft(tags=("t",) * 51),
        draft(meta={"x": "y" * 70_000}),
    ],
    ids=range(13),
)
def test_what_could_not_be_found_or_stored_later_is_refused(
    play: Play, clock: SetClock, wrong: CredentialDraft
) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        with pytest.raises(CredentialError):
            await credentials.set(wrong)
        assert await credentials.list() == []

    play(scenario)


def test_the_cache_notes_who_was_given_what_and_how_often(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        await credentials.set(draft())
        await credentials.get("pg")
        assert await store.cache_entries() == []
        await credentials.get("pg", include_data=True)
        clock.at += 60
        for _ in range(3):
            await credentials.get("pg", include_data=True, execution_id="5", parent_execution_id="4")
        for _ in range(2):
            await credentials.get("pg", include_data=True)
        scoped, everywhere = await store.cache_entries("pg")
        assert (scoped.scope_type, scoped.execution_id, scoped.parent_execution_id) == ("execution", 5, 4)
        assert (everywhere.scope_type, everywhere.execution_id) == ("global", None)
        for entry in (scoped, everywhere):
            assert (entry.cache_type, entry.credential_type, entry.access_count) == ("secret", "postgres", 2)
            assert (entry.accessed_at, entry.expires_at) == (START + 60, START + 60 + 3600)
            assert SECRET.encode() not in entry.data_encrypted
        assert (scoped.created_at, everywhere.created_at) == (START + 60, START)

    play(scenario)


def test_a_change_forgets_what_was_handed_out_before_it(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        for name in ("pg", "other"):
            await credentials.set(draft(name))
            await credentials.get(name, include_data=True)
        await credentials.set(draft(data={"password": "another one"}))
        assert [entry.credential_name for entry in await store.cache_entries()] == ["other"]

    play(scenario)


def test_no_id_but_a_number_reaches_the_cache(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        await credentials.set(draft())
        for wrong in ("abc", "-1", "1" * 30, ""):
            with pytest.raises(ExecutionIdError):
                await credentials.get("pg", include_data=True, execution_id=wrong)

    play(scenario)


def test_a_kept_token_is_given_back_to_its_scope_until_it_expires(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        cache = desk(store, clock).cache
        one, other = Scope(5), Scope(6)
        await cache.keep("api", "oauth2", {"token": "abc"}, scope=one, cache_type="token", lasts_seconds=100)
        assert await cache.find("api", scope=one) == {"token": "abc"}
        assert await cache.find("api", scope=other) is None
        assert await cache.find("api") is None
        assert await cache.find("api", scope=one, cache_type="secret") is None
        assert (await store.cache_entries())[0].access_count == 1
        clock.at += 100
        assert await cache.find("api", scope=one) is None
        assert await cache.clean_up() == 1
        assert await store.cache_entries() == []

    play(scenario)


def test_the_end_of_an_execution_takes_its_entries_and_its_childrens(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        cache = desk(store, clock).cache
        for scope in (Scope(), Scope(5), Scope(6, 5), Scope(7)):
            await cache.keep("api", "bearer", {"x": "y"}, scope=scope)
        assert await cache.forget_executions(["5", "9"]) == 2
        assert [entry.execution_id for entry in await store.cache_entries()] == [7, None]

    play(scenario)


def test_an_entry_that_was_moved_or_altered_counts_as_absent(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        cache = desk(store, clock).cache
        row = await cache.keep("api", "bearer", {"x": "y"}, cache_type="token")
        await cache.keep("other", "bearer", {"x": "z"}, cache_type="token")
        moved = msgspec.structs.replace(
            row, cache_key="token:global:other", credential_name="other", accessed_at=START
        )
        await store.keep_cached(moved)
        assert await cache.find("other") is None
        await store.keep_cached(msgspec.structs.replace(row, data_encrypted=b"nonsense"))
        assert await cache.find("api") is None

    play(scenario)


def test_rotation_rewraps_the_keys_and_touches_no_body(play: Play, clock: SetClock) -> None:
    before, after = MasterKey.random(), MasterKey.random()

    async def scenario(store: RegistryStore) -> None:
        old = desk(store, clock, KeyRing([before]))
        for number in range(3):
            await old.set(draft(f"c{number}", data={"number": number}))
        await old.get("c0", include_data=True)
        bodies = [row.body for row in await store.credentials()]
        both = desk(store, clock, KeyRing([after, before]))
        await both.set(draft("fresh"))
        done = await both.rotate()
        assert (done.key_id, done.rewrapped, done.unreadable) == (after.key_id, 3, ())
        assert [row.body for row in await store.credentials()][:3] == bodies
        assert await both.key_ids() == {after.key_id}
        assert await store.cache_entries() == []
        only = desk(store, clock, KeyRing([after]))
        assert [(await only.lookup(f"c{number}"))["number"] for number in range(3)] == [0, 1, 2]
        assert (await only.get("c0")).version == 1
        with pytest.raises(KeyUnknownError, match=after.key_id):
            await old.lookup("c0")
        assert (await both.rotate()).rewrapped == 0

    play(scenario)


def test_rotation_goes_on_past_what_it_cannot_open_and_names_it(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        lost, kept, fresh = (MasterKey.random() for _ in range(3))
        await desk(store, clock, KeyRing([lost])).set(draft("lost"))
        await desk(store, clock, KeyRing([kept])).set(draft("readable"))
        done = await desk(store, clock, KeyRing([fresh, kept])).rotate()
        assert (done.rewrapped, done.unreadable) == (1, ("lost",))

    play(scenario)


def test_a_body_that_was_moved_to_another_credential_does_not_open(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        await credentials.set(draft("a"))
        await credentials.set(draft("a"))
        await credentials.set(draft("b"))
        row_of_a, row_of_b = await store.credentials()
        assert row_of_a.version == 2
        moved = msgspec.structs.replace(
            row_of_b, version=2, key_id=row_of_a.key_id, data_key=row_of_a.data_key, body=row_of_a.body
        )
        assert await store.change_credential(moved)
        with pytest.raises(RecordDamagedError):
            await credentials.lookup("b")

    play(scenario)


def test_a_body_of_an_earlier_version_does_not_open_as_the_later_one(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        credentials = desk(store, clock)
        await credentials.set(draft(data={"password": "leaked password"}))
        (earlier,) = await store.credentials()
        await credentials.set(draft(data={"password": "another password"}))
        assert await store.change_credential(msgspec.structs.replace(earlier, version=3))
        with pytest.raises(RecordDamagedError):
            await credentials.lookup("pg")

    play(scenario)
