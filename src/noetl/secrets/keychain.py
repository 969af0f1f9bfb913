"""Resolves a playbook's keychain before its workflow starts: each entry to its value.

A value is a text (`{{ keychain.NAME }}`) or a mapping of fields. What cannot be found fails the request
with the name of the entry, before anything runs. The environment and the token endpoint are handed in.
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
    ) -> None:
        self._environment = environment
        self._folder = folder
        self._clock = clock
        self._fetch_token = fetch_token
        self._tokens: dict[str, tuple[str, float]] = {}

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
            case "bearer":
                return self._given(entry, fields, "token")
            case "api_key":
                return self._given(entry, fields, "key")
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

    def _given(self, entry: KeychainEntry, fields: dict[str, Any], field: str) -> str:
        """A token or key written as a template, in a variable, or in a file."""
        if field in fields:
            return str(fields[field])
        if "path" in fields:
            return self._file(entry, fields)
        return self._variable(entry, str(fields.get("var", entry.name)))

    async def _token(self, entry: KeychainEntry, fields: dict[str, Any]) -> str:
        """A client-credentials token, kept until shortly before it expires."""
        for needed in ("token_url", "client_id", "client_secret"):
            if not fields.get(needed):
                raise KeychainError(f"keychain entry `{entry.name}` needs `{needed}`")
        kept = self._tokens.get(entry.name)
        if kept is not None and kept[1] - REFRESH_EARLY > self._clock.monotonic():
            return kept[0]
        if self._fetch_token is None:
            raise KeychainError(f"keychain entry `{entry.name}`: nothing here can ask a token endpoint")
        try:
            token, lasts = await self._fetch_token(fields)
        except KeychainError as error:
            raise KeychainError(f"keychain entry `{entry.name}`: {error.message}") from error
        self._tokens[entry.name] = (token, self._clock.monotonic() + lasts)
        return token
