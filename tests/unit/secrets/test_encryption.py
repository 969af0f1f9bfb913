"""Envelope encryption: what goes in comes out, and nothing that was touched does."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from noetl.secrets.encryption import (
    About,
    KeyRing,
    KeyRingError,
    KeyUnknownError,
    MasterKey,
    RecordDamagedError,
    Sealed,
    packed,
    rewrap,
    ring_of,
    ring_text,
    seal,
    unpacked,
    unseal,
)

RING = KeyRing([MasterKey.random(), MasterKey.random()])
OTHER = KeyRing([MasterKey.random()])
ABOUT: About = ("credential", "pg", 1)

abouts = some.lists(
    some.text(some.characters(exclude_categories=["Cs"])) | some.integers(0, 2**40), max_size=4
)


@given(plain=some.binary(max_size=300), about=abouts)
def test_what_was_sealed_opens_again_whole_and_packed(plain: bytes, about: list[Any]) -> None:
    sealed = seal(RING, plain, tuple(about))
    assert unseal(RING, sealed, tuple(about)) == plain
    assert unpacked(packed(sealed)) == sealed


@given(plain=some.binary(min_size=1, max_size=100), where=some.data())
def test_no_bit_of_a_record_can_be_changed(plain: bytes, where: some.DataObject) -> None:
    whole = bytearray(packed(seal(RING, plain, ABOUT)))
    place = where.draw(some.integers(0, len(whole) - 1))
    whole[place] ^= 1 << where.draw(some.integers(0, 7))
    with pytest.raises((RecordDamagedError, KeyUnknownError)):
        unseal(RING, unpacked(bytes(whole)), ABOUT)


@given(cut=some.integers(0, 200))
def test_a_record_that_was_cut_does_not_open(cut: int) -> None:
    whole = packed(seal(RING, b"plain text", ABOUT))
    if cut < len(whole):
        with pytest.raises((RecordDamagedError, KeyUnknownError)):
            unseal(RING, unpacked(whole[:cut]), ABOUT)


@given(one=abouts, other=abouts)
def test_a_record_opens_only_as_what_it_was_sealed_as(one: list[Any], other: list[Any]) -> None:
    if one != other:
        with pytest.raises(RecordDamagedError):
            unseal(RING, seal(RING, b"x", tuple(one)), tuple(other))


def test_neither_the_body_nor_the_key_of_another_record_fits() -> None:
    one, other = seal(RING, b"one", ABOUT), seal(RING, b"other", ABOUT)
    for mixed in (
        msgspec.structs.replace(one, body=other.body),
        msgspec.structs.replace(one, data_key=other.data_key),
        msgspec.structs.replace(one, body=one.data_key),
        msgspec.structs.replace(one, key_id=RING.keys[1].key_id),
        Sealed(key_id=one.key_id, data_key=b"", body=b""),
    ):
        with pytest.raises(RecordDamagedError):
            unseal(RING, mixed, ABOUT)


def test_the_same_text_is_never_sealed_the_same_way_twice() -> None:
    sealed = [seal(RING, b"same", ABOUT) for _ in range(20)]
    assert len({each.body for each in sealed}) == len({each.data_key for each in sealed}) == 20
    assert all(b"same" not in packed(each) for each in sealed)


def test_a_ring_without_the_key_says_which_one_is_missing() -> None:
    sealed = seal(RING, b"x", ABOUT)
    with pytest.raises(KeyUnknownError, match=RING.current.key_id):
        unseal(OTHER, sealed, ABOUT)
    with pytest.raises(KeyUnknownError):
        unseal(KeyRing(), sealed, ABOUT)
    with pytest.raises(KeyRingError, match="no master key"):
        seal(KeyRing(), b"x", ABOUT)


@given(plain=some.binary(max_size=100))
def test_rewrapping_leaves_the_body_and_needs_the_earlier_key_no_more(plain: bytes) -> None:
    sealed = seal(OTHER, plain, ABOUT)
    moved = rewrap(KeyRing([RING.current, OTHER.current]), sealed, ABOUT)
    assert (moved.key_id, moved.body) == (RING.current.key_id, sealed.body)
    assert unseal(RING, moved, ABOUT) == plain
    with pytest.raises(RecordDamagedError):
        rewrap(RING, moved, ("credential", "pg", 2))


def test_a_ring_is_read_from_what_it_writes_in_its_order() -> None:
    assert [key.key_id for key in ring_of(ring_text(RING)).keys] == [key.key_id for key in RING.keys]
    commas = ",".join(key.text() for key in RING.keys) + " # a remark, with a comma"
    assert ring_of(commas).current.key_id == RING.current.key_id
    assert len(ring_of(f"{commas}\n\n{commas}").keys) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing but a remark",
        "password",
        "correct horse battery staple",
        base64.b64encode(b"k" * 16).decode(),
        base64.b64encode(b"k" * 33).decode(),
        base64.b64encode(b"k" * 32).decode()[:-1],
    ],
)
def test_a_ring_of_anything_but_keys_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(KeyRingError) as refused:
        ring_of(text)
    assert not text.strip() or text.startswith("#") or text not in refused.value.message


def test_a_key_does_not_show_itself_and_its_id_is_its_own() -> None:
    key = MasterKey(b"k" * 32)
    assert key.text() not in repr(key)
    assert MasterKey(b"k" * 32).key_id == key.key_id != MasterKey(b"l" * 32).key_id
