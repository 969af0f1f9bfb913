"""Resolves a playbook's keychain before its workflow starts: each entry to its value.

A value is a text (`{{ keychain.NAME }}`) or a mapping of fields. What cannot be found fails the request
with the name of the entry, before anything runs. The environment, the token endpoint and the stored
credentials are handed in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from noetl.errors import NoetlError, TemplateError
from noetl.ids import Clock
from noetl.playbook.model import KeychainEntry
from noetl.template import Scope, Template

REFRESH_EARLY: Final = 30.0
"""Seconds before a token expires in which it is no longer handed out."""

FetchToken = Callable[[Mapping[str, Any]], Awaitable[tuple[str, float]]]
"""Asks a token endpoint by client credentials: the token, and the seconds it lasts."""

FindCredential = Callable[[str], Awaitable[Mapping[str, Any]]]
"""The fields of a stored credential, by its name; a NoetlError says why there are none."""

TOKEN_FIELDS: Final = ("token", "access_token")
KEY_FIELDS: Final = ("key", "api_key")
"""Where a credential holds the one text that a `bearer` or an `api_key` stands for."""


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
    ) -> None:
        self._environment = environment
        self._folder = folder
        self._clock = clock
        self._fetch_token = fetch_token
        self._credentials = credentials
        self._tokens: dict[str, tuple[str, float]] = {}
        """Tokens and when they expire, by all that they were asked for with."""

    async def resolve(
        self, entries: tuple[KeychainEntry, ...], workload: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Every entry by name; later ones may be made from earlier ones."""
        found: dict[str, Any] = {}
        for entry in entries:
            scope = Scope({"workload": workload, "keychain": found}, [workload])
            fields = {name: self._rendered(entry, value, scope) for name, value in entry.fields.items()}
            found[entry.name] = await self._value(entry, fields)
        return found

    def _rendered(self, entry: KeychainEntry, value: Any, scope: Scope) -> Any:  # noqa: ANN401 - plain data
        if not isinstance(value, Template):
            return value
        try:
            return value.evaluate(scope)
        except TemplateError as error:
            raise KeychainError(f"keychain entry `{entry.name}`: {error.message}") from error

    async def _value(self, entry: KeychainEntry, fields: dict[str, Any]) -> Any:  # noqa: ANN401
        match entry.kind:
            case "env":
                return self._variable(entry, str(fields.get("var", entry.name)))
            case "file":
                return self._file(entry, fields)
            case "credential" | "postgres_credential":
                return await self._credential(entry, fields)
            case "bearer":
                return await self._given(entry, fields, TOKEN_FIELDS)
            case "api_key":
                return await self._given(entry, fields, KEY_FIELDS)
            case "oauth2":
                return await self._token(entry, fields)
            case _:
                raise KeychainError(
                    f"keychain entry `{entry.name}` is of kind `{entry.kind}`, which needs a server"
                )

    def _variable(self, entry: KeychainEntry, name: str) -> str:
        value = self._environment.get(name)
        if value is None:
            raise KeychainError(
                f"keychain entry `{entry.name}`: the environment variable `{name}` is not set"
            )
        return value

    def _file(self, entry: KeychainEntry, fields: dict[str, Any]) -> str:
        path = self._folder / str(fields.get("path", entry.name))
        try:
            return path.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise KeychainError(f"keychain entry `{entry.name}`: its file cannot be read: {error}") from error

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

    async def _given(self, entry: KeychainEntry, fields: dict[str, Any], names: tuple[str, str]) -> str:
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
        return self._variable(entry, str(fields.get("var", entry.name)))

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
