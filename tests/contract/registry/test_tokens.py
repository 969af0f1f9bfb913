"""API tokens on every database."""

from __future__ import annotations

import pytest

from noetl.ids import Snowflakes, timestamp
from noetl.registry.tokens import NOTE_USE_SECONDS, TokenError, Tokens, TokenUnknownError, digest_of
from noetl.store.registry_protocol import RegistryStore
from tests.contract.registry.conftest import START, Play, SetClock


def desk(store: RegistryStore, clock: SetClock) -> Tokens:
    return Tokens(store, clock=clock, ids=Snowflakes(clock))


def test_a_token_is_verified_and_stored_only_as_its_digest(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        tokens = desk(store, clock)
        issued = await tokens.create("ci", "operator")
        found = await tokens.verify(issued.text)
        assert found is not None
        assert (found.name, found.role) == ("ci", "operator")
        (row,) = await store.tokens()
        assert row.digest == digest_of(issued.text)
        assert issued.text not in repr(row)
        assert issued.text not in repr(issued)
        assert len(issued.text.removeprefix("noetl_")) == 43

    play(scenario)


def test_what_is_no_token_is_refused(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        tokens = desk(store, clock)
        issued = await tokens.create("ci", "viewer")
        for wrong in (
            "",
            "noetl_",
            issued.text[:-1],
            issued.text + "x",
            issued.text.upper(),
            "noetl_" + "é" * 43,
        ):
            assert await tokens.verify(wrong) is None
        assert await tokens.verify("noetl_" + "a" * 43) is None

    play(scenario)


def test_a_token_ends_when_its_time_is_over_even_while_it_is_remembered(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        tokens = desk(store, clock)
        issued = await tokens.create("ci", "viewer", lasts_seconds=3)
        assert issued.token.expires_at == timestamp(START + 3)
        assert await tokens.verify(issued.text) is not None
        clock.at += 3
        assert await tokens.verify(issued.text) is None

    play(scenario)


def test_a_revoked_token_is_refused_at_once_here_and_soon_elsewhere(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        here, elsewhere = desk(store, clock), desk(store, clock)
        issued = await here.create("ci", "viewer")
        for desk_ in (here, elsewhere):
            assert await desk_.verify(issued.text) is not None
        revoked = await here.revoke("ci")
        assert revoked.revoked_at == timestamp(START)
        assert await here.verify(issued.text) is None
        assert await elsewhere.verify(issued.text) is not None
        clock.at += 5
        assert await elsewhere.verify(issued.text) is None

    play(scenario)


def test_a_name_is_free_again_once_its_token_is_revoked(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        tokens = desk(store, clock)
        first = await tokens.create("ci", "viewer")
        with pytest.raises(TokenError, match="already"):
            await tokens.create("ci", "admin")
        await tokens.revoke(first.token.id)
        second = await tokens.create("ci", "admin")
        assert [each.id for each in await tokens.list()] == [first.token.id, second.token.id]
        assert await tokens.verify(first.text) is None
        found = await tokens.verify(second.text)
        assert found is not None
        assert found.role == "admin"
        for gone in (first.token.id, "nobody", "a\0b"):
            with pytest.raises(TokenUnknownError):
                await tokens.revoke(gone)

    play(scenario)


def test_the_last_use_is_noted_but_not_at_every_use(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        tokens = desk(store, clock)
        issued = await tokens.create("ci", "viewer")
        assert (await tokens.list())[0].last_used_at is None
        noted = []
        for passed in (0, NOTE_USE_SECONDS - 1, 1):
            clock.at += passed
            await tokens.verify(issued.text)
            noted.append((await store.tokens())[0].last_used_at)
        assert noted == [START, START, START + NOTE_USE_SECONDS]

    play(scenario)


@pytest.mark.parametrize(
    ("name", "role", "lasts"),
    [("", "viewer", None), ("7", "viewer", None), ("a", "god", None), ("a", "viewer", 0)],
)
def test_a_token_without_name_role_or_time_is_refused(
    play: Play, clock: SetClock, name: str, role: str, lasts: float | None
) -> None:
    async def scenario(store: RegistryStore) -> None:
        with pytest.raises(TokenError):
            await desk(store, clock).create(name, role, lasts_seconds=lasts)

    play(scenario)


def test_the_pools_that_a_token_is_bound_to_are_kept(play: Play, clock: SetClock) -> None:
    async def scenario(store: RegistryStore) -> None:
        tokens = desk(store, clock)
        issued = await tokens.create("gpu", "worker", pools=("gpu", "cpu-2"))
        anywhere = await tokens.create("any", "worker")
        for text, pools in ((issued.text, ("gpu", "cpu-2")), (anywhere.text, ())):
            found = await desk(store, clock).verify(text)
            assert found is not None
            assert found.pools == pools
        assert (await tokens.revoke("gpu")).pools == ("gpu", "cpu-2")

    play(scenario)
