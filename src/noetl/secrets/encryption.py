"""Envelope encryption of records: AES-256-GCM, a random key for each record, wrapped by a master key.

What a record is (its name, its version) goes in as associated data: a body or a wrapped key that is moved
to another record does not open there. Master keys come from a `KeyRing`; there is no default one. Nothing
here reads files or the environment.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Sequence
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from noetl.errors import NoetlError

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
WRAPPED_BYTES: Final = NONCE_BYTES + KEY_BYTES + TAG_BYTES
PACKED_MARK: Final = b"nk1"
"""What a record in one piece begins with; the digit is its format."""

About = tuple[str | int, ...]
"""What a record is: what it is opened with must be the same as what it was sealed with."""


class KeyRingError(NoetlError):
    """There is no usable master key."""

    code = "keys.invalid"


class KeyUnknownError(NoetlError):
    """A record was encrypted with a master key that the ring does not have."""

    code = "keys.unknown"

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"this was encrypted with the master key {key_id}, which is not in the key ring: add it there, "
            "or set the credential again"
        )
        self.key_id = key_id


class RecordDamagedError(NoetlError):
    """A record is not what was encrypted: altered, cut, or moved from another one."""

    code = "keys.damaged"


class MasterKey:
    """A key that wraps the keys of records. Its id is made from it, so no other key can have the same."""

    __slots__ = ("_cipher", "_key", "key_id")

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise KeyRingError(f"a master key has {KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        self._cipher = AESGCM(key)
        self.key_id = "k" + hashlib.sha256(b"noetl master key\0" + key).hexdigest()[:16]

    @classmethod
    def random(cls) -> MasterKey:
        return cls(os.urandom(KEY_BYTES))

    def __repr__(self) -> str:
        return f"MasterKey({self.key_id})"

    def text(self) -> str:
        """The key as a key ring writes it: whoever has it can open everything."""
        return base64.b64encode(self._key).decode("ascii")

    def wrap(self, data_key: bytes, about: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, data_key, b"key\0" + about)

    def unwrap(self, wrapped: bytes, about: bytes) -> bytes:
        return _opened(self._cipher, wrapped, b"key\0" + about)


class KeyRing:
    """Master keys by their ids. The first encrypts; all of them decrypt. An empty one does neither."""

    def __init__(self, keys: Sequence[MasterKey] = ()) -> None:
        self.keys = tuple({key.key_id: key for key in keys}.values())
        self._by_id = {key.key_id: key for key in keys}

    @property
    def current(self) -> MasterKey:
        if not self.keys:
            raise KeyRingError("there is no master key to encrypt with")
        return self.keys[0]

    def key(self, key_id: str) -> MasterKey:
        found = self._by_id.get(key_id)
        if found is None:
            raise KeyUnknownError(key_id)
        return found


def ring_of(text: str) -> KeyRing:
    """The ring that a text holds: keys in base64, the current one first.

    Each stands on a line of its own, or they are parted by commas; a remark begins with `#`.
    """
    keys = []
    for number, line in enumerate(text.splitlines(), 1):
        for written in line.partition("#")[0].split(","):
            if not written.strip():
                continue
            try:
                keys.append(MasterKey(base64.b64decode(written.strip(), validate=True)))
            except (binascii.Error, ValueError):  # the text itself must not be shown
                raise KeyRingError(f"line {number} of the key ring is no key in base64") from None
            except KeyRingError as refused:
                raise KeyRingError(f"line {number} of the key ring: {refused.message}") from None
    if not keys:
        raise KeyRingError("there is no master key: the key ring is empty")
    return KeyRing(keys)


def ring_text(ring: KeyRing) -> str:
    """What `ring_of` reads."""
    return "".join(f"{key.text()}  # {key.key_id}\n" for key in ring.keys)


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """An encrypted record: which master key wraps its key, that key, and the body."""

    key_id: str
    data_key: bytes
    body: bytes


def seal(ring: KeyRing, plain: bytes, about: About) -> Sealed:
    bound = _bound(about)
    data_key = os.urandom(KEY_BYTES)
    nonce = os.urandom(NONCE_BYTES)
    master = ring.current
    return Sealed(
        key_id=master.key_id,
        data_key=master.wrap(data_key, bound),
        body=nonce + AESGCM(data_key).encrypt(nonce, plain, bound),
    )


def unseal(ring: KeyRing, sealed: Sealed, about: About) -> bytes:
    """The plain text. KeyUnknownError without its master key, RecordDamagedError if anything differs."""
    bound = _bound(about)
    data_key = ring.key(sealed.key_id).unwrap(sealed.data_key, bound)
    return _opened(AESGCM(data_key), sealed.body, bound)


def rewrap(ring: KeyRing, sealed: Sealed, about: About) -> Sealed:
    """The same body under the ring's current key."""
    bound = _bound(about)
    data_key = ring.key(sealed.key_id).unwrap(sealed.data_key, bound)
    return Sealed(key_id=ring.current.key_id, data_key=ring.current.wrap(data_key, bound), body=sealed.body)


def packed(sealed: Sealed) -> bytes:
    """A record in one piece, for a column that holds it whole."""
    key_id = sealed.key_id.encode("ascii")
    return PACKED_MARK + bytes([len(key_id)]) + key_id + sealed.data_key + sealed.body


def unpacked(record: bytes) -> Sealed:
    mark, rest = record[: len(PACKED_MARK)], record[len(PACKED_MARK) :]
    if mark != PACKED_MARK or not rest or len(rest) < 1 + rest[0] + WRAPPED_BYTES:
        raise RecordDamagedError("an encrypted record is damaged: it has not the form of one")
    body = 1 + rest[0] + WRAPPED_BYTES
    return Sealed(
        key_id=rest[1 : 1 + rest[0]].decode("ascii", "replace"),
        data_key=rest[1 + rest[0] : body],
        body=rest[body:],
    )


def _bound(about: About) -> bytes:
    # JSON, so that ("a", "bc") and ("ab", "c") are two things.
    return msgspec.json.encode(about)


def _opened(cipher: AESGCM, box: bytes, about: bytes) -> bytes:
    if len(box) < NONCE_BYTES + TAG_BYTES:
        raise RecordDamagedError("an encrypted record is damaged: it is too short")
    try:
        return cipher.decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], about)
    except InvalidTag:
        raise RecordDamagedError(
            "an encrypted record is damaged: it was altered, or belongs to another name or version"
        ) from None
