"""Resolves a playbook's keychain before its workflow starts: each entry to its value.

A value is a text (`{{ keychain.NAME }}`) or a mapping of fields. What cannot be found fails the request
with the name of the entry, before anything runs. The environment, the token endpoint and the stored
credentials are handed in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from noetl.errors import NoetlError, TemplateError
from noetl.ids import Clock
from noetl.playbook.model import KeychainEntry
from noetl.secrets.redaction import KeychainInUse, Redactor
from noetl.template import Scope, Template

REFRESH_EARLY: Final = 30.0
"""Seconds before a token expires in which it is no longer handed out."""

FetchToken = Callable[[Mapping[str, Any]], Awaitable[tuple[str, float]]]
"""Asks a token endpoint by client credentials: the token, and the seconds it lasts."""

FindCredential = Callable[[str], Awaitable[Mapping[str, Any]]]
"""The fields of a stored credential, by its name; a NoetlError says why there are none."""

Fields = dict[str, Any]

TOKEN_FIELDS: Final = ("token", "access_token")
KEY_FIELDS: Final = ("key", "api_key")
"""Where a credential holds the one text that a `bearer` or an `api_key` stands for."""
OF_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "env": (),
    "bearer": (TOKEN_FIELDS[0], "credential", "path"),
    "api_key": (KEY_FIELDS[0], "credential", "path"),
}
"""Kinds of entries that read a variable, and the fields by which they do not."""


class KeychainError(NoetlError):
    """An entry cannot be resolved; the message names it."""

    code = "keychain.unresolved"


class Resolver:
    def __init__(
        self,
        environment: Mapping[str, str],
        folder: Path,
        clock: Clock,
        fetch_token: FetchToken | None = None,
        credentials: FindCredential | None = None,
        confined: bool = False,
        hidden: Path | None = None,
    ) -> None:
        """`folder`: where paths begin. `confined`: and where they stay. `hidden`: a file nobody may read."""
        self._environment = environment
        self._folder = folder
        self._is_confined = confined
        self._hidden = hidden
        self._clock = clock
        self._fetch_token = fetch_token
        self._credentials = credentials
        self._tokens: dict[str, tuple[str, float]] = {}
        """Tokens and when they expire, by all that they were asked for with."""

    async def resolve(
        self,
        entries: tuple[KeychainEntry, ...],
        workload: Mapping[str, Any],
        given: Mapping[str, str] | None = None,
        found: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Every entry by name; later ones may be made from earlier ones.

        `given`: variables of whoever asks, which come before those of the environment. `found`: where the
        entries are put, so that those before one that cannot be resolved are known; an error shows no value.
        """
        variables = self._environment if not given else {**self._environment, **given}
        found = {} if found is None else found
        redactor = Redactor()
        on_secret = KeychainInUse({}, redactor).on_secret
        for entry in entries:
            scope = Scope({"workload": workload, "keychain": found}, [workload])
            try:
                fields = {
                    name: _rendered(entry, value, scope, on_secret) for name, value in entry.fields.items()
                }
                found[entry.name] = await self._value(entry, fields, variables)
            except KeychainError as error:
                redactor.register_keychain(found)  # raises for one that could not be masked
                raise KeychainError(redactor.cut_text(error.message)) from None  # that one may show a value
        return found

    async def _value(self, entry: KeychainEntry, fields: Fields, variables: Mapping[str, str]) -> Any:  # noqa: ANN401
        match entry.kind:
            case "env":
                return _variable(entry, fields, variables)
            case "file":
                return self._file(entry, fields)
            case "credential" | "postgres_credential":
                return await self._credential(entry, fields)
            case "bearer":
                return await self._given(entry, fields, TOKEN_FIELDS, variables)
            case "api_key":
                return await self._given(entry, fields, KEY_FIELDS, variables)
            case "oauth2":
                return await self._token(entry, fields)
            case _:
                raise KeychainError(
                    f"keychain entry `{entry.name}` is of kind `{entry.kind}`, which needs a server"
                )

    def _file(self, entry: KeychainEntry, fields: dict[str, Any]) -> str:
        written = str(fields.get("path", entry.name))
        try:
            return self._allowed(entry, written).read_text("utf-8").rstrip("\r\n")
        # A path from outside may hold what no path can: that is a ValueError.
        except (OSError, ValueError) as error:
            raise KeychainError(f"keychain entry `{entry.name}`: its file cannot be read: {error}") from error

    def _allowed(self, entry: KeychainEntry, written: str) -> Path:
        """Where a file really lies, links followed; KeychainError for one that is not to be read."""
        path = (self._folder / written).resolve()
        if self._is_confined and not path.is_relative_to(self._folder.resolve()):
            raise KeychainError(
                f"keychain entry `{entry.name}`: `{written}` is not below the folder that this server reads "
                "the files of keychains from"
            )
        hidden = self._hidden
        if hidden is not None and hidden.exists() and path.exists() and path.samefile(hidden):
            raise KeychainError(f"keychain entry `{entry.name}`: the file of the master keys is nobody's")
        return path

    async def _credential(self, entry: KeychainEntry, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of the credential that an entry names, by default the one of its own name."""
        name = str(fields.get("credential", entry.name))
        if self._credentials is None:
            raise KeychainError(
                f"keychain entry `{entry.name}`: nothing here can look up the credential `{name}`"
            )
        try:
            return dict(await self._credentials(name))
        except NoetlError as error:
            raise KeychainError(f"keychain entry `{entry.name}`: {error.message}") from error

    async def _given(
        self,
        entry: KeychainEntry,
        fields: dict[str, Any],
        names: tuple[str, str],
        variables: Mapping[str, str],
    ) -> str:
        """A token or key written as a template, in a credential, in a variable, or in a file."""
        if names[0] in fields:
            return str(fields[names[0]])
        if "credential" in fields:
            found = await self._credential(entry, fields)
            for name in names:
                if found.get(name):
                    return str(found[name])
            raise KeychainError(
                f"keychain entry `{entry.name}`: the credential `{fields['credential']}` has no "
                f"{' or '.join(f'`{name}`' for name in names)}"
            )
        if "path" in fields:
            return self._file(entry, fields)
        return _variable(entry, fields, variables)

    async def _token(self, entry: KeychainEntry, fields: dict[str, Any]) -> str:
        """A client-credentials token, kept until shortly before it expires."""
        if "credential" in fields or ("token_url" not in fields and self._credentials is not None):
            fields = await self._credential(entry, fields) | fields
        for needed in ("token_url", "client_id", "client_secret"):
            if not fields.get(needed):
                raise KeychainError(f"keychain entry `{entry.name}` needs `{needed}`")
        # Two playbooks may call two clients by the same name.
        asked_with = repr(sorted(fields.items()))
        kept = self._tokens.get(asked_with)
        if kept is not None and kept[1] - REFRESH_EARLY > self._clock.monotonic():
            return kept[0]
        if self._fetch_token is None:
            raise KeychainError(f"keychain entry `{entry.name}`: nothing here can ask a token endpoint")
        try:
            token, lasts = await self._fetch_token(fields)
        except KeychainError as error:
            raise KeychainError(f"keychain entry `{entry.name}`: {error.message}") from error
        self._tokens[asked_with] = (token, self._clock.monotonic() + lasts)
        return token


def variables_named(entries: tuple[KeychainEntry, ...], workload: Mapping[str, Any]) -> frozenset[str]:
    """The environment variables that a keychain reads.

    A name that is made from a secret, or cannot be made at all, is left out: whoever resolves says why.
    """
    scope = Scope({"workload": workload, "keychain": {}}, [workload])
    found = set()
    for entry in entries:
        others = OF_VARIABLES.get(entry.kind)
        if others is not None and not any(field in entry.fields for field in others):
            with contextlib.suppress(KeychainError):
                found.add(str(_rendered(entry, entry.fields.get("var", entry.name), scope)))
    return frozenset(found)


def _rendered(
    entry: KeychainEntry,
    value: Any,  # noqa: ANN401 - plain data
    scope: Scope,
    on_secret: Callable[[object], None] | None = None,
) -> Any:  # noqa: ANN401 - plain data
    if not isinstance(value, Template):
        return value
    try:
        return value.evaluate(scope, on_secret=on_secret)
    except TemplateError as error:
        raise KeychainError(f"keychain entry `{entry.name}`: {error.message}") from error


def _variable(entry: KeychainEntry, fields: dict[str, Any], variables: Mapping[str, str]) -> str:
    name = str(fields.get("var", entry.name))
    value = variables.get(name)
    if value is None:
        raise KeychainError(f"keychain entry `{entry.name}`: the environment variable `{name}` is not set")
    return value
