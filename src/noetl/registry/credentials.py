"""Credentials: secrets under a name, encrypted in the database, decrypted when somebody asks for the data.

Setting one again replaces its data and counts its version up; the data before is gone. Each time data is
handed out, the cache notes for whom. Nothing here decides who may ask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from noetl.errors import NoetlError
from noetl.ids import Clock, Snowflakes, timestamp
from noetl.registry.auth_cache import AuthCache, scope_of
from noetl.registry.caller_secrets import CALLER
from noetl.secrets.encryption import About, KeyRing, Sealed, rewrap, seal, unseal
from noetl.store.codec import decode_json, encode_json
from noetl.store.registry_protocol import CredentialRow, RegistryStore

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,199}")
"""No name looks like an id, and every name can stand in an address."""
TYPE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
MOST_DATA_BYTES: Final = 65_536
MOST_TAGS: Final = 50
MOST_TEXT: Final = 2_000
ATTEMPTS: Final = 5
"""How often a change is tried anew when others change the same credential meanwhile."""
PAGE: Final = 100


class CredentialError(NoetlError):
    """A credential that cannot be stored as it is given."""

    code = "credential.invalid"


class CredentialUnknownError(NoetlError):
    code = "credential.unknown"

    def __init__(self, identifier: str) -> None:
        super().__init__(f"there is no credential `{identifier[:200]}`")


class CredentialChangedError(NoetlError):
    """Somebody else has changed the credential since it was read."""

    code = "credential.conflict"


class CredentialDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller gives to create or replace a credential."""

    name: str
    type: str
    data: dict[str, Any]
    description: str = ""
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = {}

    def __repr__(self) -> str:
        """Without the data: a draft must not reach a log by accident."""
        return f"CredentialDraft(name={self.name!r}, type={self.type!r})"


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A credential as it is shown; `data` is there only when it was asked for."""

    id: str
    name: str
    type: str
    version: int
    description: str
    tags: tuple[str, ...]
    meta: dict[str, Any]
    key_id: str
    created_at: str
    updated_at: str
    data: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET

    def __repr__(self) -> str:
        return f"Credential(name={self.name!r}, type={self.type!r}, version={self.version})"


class Rotation(msgspec.Struct, frozen=True, kw_only=True):
    """What a rotation did."""

    key_id: str
    """The key that wraps all credentials now."""
    rewrapped: int
    unreadable: tuple[str, ...] = ()
    """Credentials whose own master key is not in the ring, or that are damaged: they stay as they were."""


class _Wish(NamedTuple):
    draft: CredentialDraft
    body: bytes


class Credentials:
    def __init__(
        self,
        store: RegistryStore,
        ring: KeyRing,
        *,
        clock: Clock,
        ids: Snowflakes,
        cache: AuthCache | None = None,
    ) -> None:
        self._store = store
        self._ring = ring
        self._clock = clock
        self._ids = ids
        self.cache = cache or AuthCache(store, ring, clock)

    async def set(self, draft: CredentialDraft, *, expected_version: int | None = None) -> Credential:
        """Creates a credential, or replaces the one of that name.

        With `expected_version` only if that is its version now; 0 is one that is not there.
        """
        wish = _Wish(_checked(draft), _encoded(draft))
        for _ in range(ATTEMPTS):
            found = await self._store.credential(draft.name)
            version = 0 if found is None else found.version
            if expected_version is not None and version != expected_version:
                raise CredentialChangedError(
                    f"the credential `{draft.name}` has version {version}, not {expected_version}"
                )
            row = self._row(wish, found)
            written = self._store.add_credential if found is None else self._store.change_credential
            if await written(row):
                return _shown(row)
        raise CredentialChangedError(f"the credential `{draft.name}` is being changed by others: try again")

    async def get(
        self,
        identifier: str,
        *,
        include_data: bool = False,
        execution_id: str | None = None,
        parent_execution_id: str | None = None,
    ) -> Credential:
        """By name or id. Data that is handed out is noted in the cache, for the execution it is for."""
        row = await self._found(identifier)
        if not include_data:
            return _shown(row)
        scope = scope_of(execution_id, parent_execution_id)
        data = self._data(row)
        await self.cache.keep(row.name, row.type, data, scope=scope)
        return msgspec.structs.replace(_shown(row), data=data)

    async def list(
        self, *, of_type: str | None = None, text: str | None = None, after: str = "", limit: int = PAGE
    ) -> list[Credential]:
        """By name; never with data. `after` is the name to page on from."""
        found = await self._store.credentials(of_type=of_type, text=text, after=after, limit=limit)
        return [_shown(row) for row in found]

    async def delete(self, identifier: str) -> Credential:
        """What it was; with it goes what the cache has of it."""
        row = await self._found(identifier)
        if not await self._store.delete_credential(row):
            raise CredentialUnknownError(identifier)
        return _shown(row)

    async def rotate(self) -> Rotation:
        """Wraps the keys of all credentials with the ring's current master key; no body is touched.

        What is cached is forgotten: it may be encrypted with a key that is about to go. Only secrets that
        callers sent along with executions cannot be had again, so they are encrypted anew.
        """
        rewrapped, unreadable, after = 0, list[str](), ""
        key_id = self._ring.current.key_id
        while page := await self._store.credentials_of_other_keys(key_id, after=after, limit=PAGE):
            after = page[-1].name
            for row in page:
                try:
                    rewrapped += await self._rewrap(row)
                except NoetlError as refused:
                    if refused.code not in ("keys.unknown", "keys.damaged"):
                        raise
                    unreadable.append(row.name)
        await self.cache.renew(CALLER)
        return Rotation(key_id=key_id, rewrapped=rewrapped, unreadable=tuple(unreadable))

    async def key_ids(self) -> frozenset[str]:
        """The master keys that some credential needs."""
        found, after = set[str](), ""
        while page := await self._store.credentials(after=after, limit=PAGE):
            found |= {row.key_id for row in page}
            after = page[-1].name
        return frozenset(found)

    async def lookup(self, name: str, execution_id: str | None = None) -> Mapping[str, Any]:
        """The data alone: what a keychain entry that names this credential stands for."""
        found = await self.get(name, include_data=True, execution_id=execution_id)
        assert found.data is not msgspec.UNSET
        return found.data

    async def _found(self, identifier: str) -> CredentialRow:
        row = await self._store.credential(identifier) if "\0" not in identifier else None
        if row is None:
            raise CredentialUnknownError(identifier)
        return row

    async def _rewrap(self, row: CredentialRow) -> bool:
        """False where somebody set it meanwhile: it is under the current key then."""
        sealed = rewrap(self._ring, _sealed(row), _about(row.name, row.version))
        return await self._store.rewrap_credential(
            msgspec.structs.replace(row, key_id=sealed.key_id, data_key=sealed.data_key)
        )

    def _row(self, wish: _Wish, before: CredentialRow | None) -> CredentialRow:
        draft, now = wish.draft, self._clock.now()
        version = 1 if before is None else before.version + 1
        sealed = seal(self._ring, wish.body, _about(draft.name, version))
        return CredentialRow(
            credential_id=self._ids.next() if before is None else before.credential_id,
            name=draft.name,
            type=draft.type,
            version=version,
            description=draft.description,
            tags=draft.tags,
            meta=draft.meta,
            key_id=sealed.key_id,
            data_key=sealed.data_key,
            body=sealed.body,
            created_at=now if before is None else before.created_at,
            updated_at=now,
        )

    def _data(self, row: CredentialRow) -> dict[str, Any]:
        data: dict[str, Any] = decode_json(unseal(self._ring, _sealed(row), _about(row.name, row.version)))
        return data


def _about(name: str, version: int) -> About:
    return ("credential", name, version)


def _sealed(row: CredentialRow) -> Sealed:
    return Sealed(key_id=row.key_id, data_key=row.data_key, body=row.body)


def _shown(row: CredentialRow) -> Credential:
    return Credential(
        id=row.credential_id,
        name=row.name,
        type=row.type,
        version=row.version,
        description=row.description,
        tags=row.tags,
        meta=row.meta,
        key_id=row.key_id,
        created_at=timestamp(row.created_at),
        updated_at=timestamp(row.updated_at),
    )


def _checked(draft: CredentialDraft) -> CredentialDraft:
    """CredentialError for what could not be found, shown or stored later."""
    if not NAME.fullmatch(draft.name):
        raise CredentialError(
            "the name of a credential begins with a letter or `_` and has at most 200 letters, digits, `_`, "
            f"`-` and `.`: `{draft.name[:60]}` is none"
        )
    if not TYPE.fullmatch(draft.type):
        raise CredentialError(
            f"the type of a credential is a word such as `postgres` or `bearer`: `{draft.type[:60]}` is none"
        )
    if len(draft.tags) > MOST_TAGS:
        raise CredentialError(f"a credential has at most {MOST_TAGS} tags")
    for text in (draft.description, *draft.tags):
        if len(text) > MOST_TEXT or "\0" in text or not _is_text(text):
            raise CredentialError(
                f"description and tags are texts of at most {MOST_TEXT} characters, without NUL"
            )
    if len(encode_json(draft.meta)) > MOST_DATA_BYTES:
        raise CredentialError(f"`meta` has more than {MOST_DATA_BYTES} bytes")
    return draft


def _encoded(draft: CredentialDraft) -> bytes:
    body = encode_json(draft.data)
    if not draft.data:
        raise CredentialError("the data of a credential is an object with at least one field")
    if len(body) > MOST_DATA_BYTES:
        raise CredentialError(f"the data of a credential has at most {MOST_DATA_BYTES} bytes")
    return body


def _is_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
