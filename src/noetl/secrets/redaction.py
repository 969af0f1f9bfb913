"""Takes secret values out of whatever leaves a worker: outcomes, logs, errors.

A secret is searched for as it is and as it appears encoded: base64, URL-encoded, escaped in JSON, and
each longer line of it alone. What code makes of a secret in other ways cannot be recognised.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

from noetl.errors import NoetlError

MASK: Final = "***"
SHORTEST: Final = 6
"""Shorter texts appear everywhere by chance."""
SHORTEST_LINE: Final = 8
PUBLIC_FIELDS: Final = frozenset(
    {"account", "database", "db", "dbname", "host", "hostname", "port", "region", "role", "schema"}
    | {"sslmode", "type", "user", "username", "warehouse"}
)
"""Fields of a credential that say where and who, not how to get in: a short one is no secret."""


class SecretTooShortError(NoetlError):
    code = "secret.too_short"


class Redactor:
    """The secrets of one execution."""

    def __init__(self) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def register_keychain(self, keychain: Mapping[str, Any]) -> None:
        """All entries of a keychain; raises for the first that is too short once the others are kept."""
        refused: SecretTooShortError | None = None
        for name, value in keychain.items():
            try:
                plain = value if isinstance(value, str | dict | list) else str(value)
                self.register(plain, f"keychain.{name}")
            except SecretTooShortError as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def share(self, other: Redactor) -> None:
        """Keeps out what another execution keeps out by now."""
        self._forms |= other._forms
        self._pattern = None

    def register(self, value: object, name: str = "a secret") -> None:
        """Keeps a value and everything in it out of what is written."""
        if isinstance(value, dict):
            for key, item in value.items():
                if key in PUBLIC_FIELDS and isinstance(item, str) and len(item) < SHORTEST:
                    continue
                self.register(item, f"{name}.{key}")
        elif isinstance(value, list):
            for item in value:
                self.register(item, name)
        elif isinstance(value, str):
            self._register_text(value, name)

    def _register_text(self, text: str, name: str) -> None:
        if len(text) < SHORTEST:
            raise SecretTooShortError(
                f"{name} is shorter than {SHORTEST} characters, so it cannot be kept out of logs and events"
            )
        forms = {text, *(line for line in text.splitlines() if len(line) >= SHORTEST_LINE)}
        encoded = text.encode()
        # Of base64 only the characters that do not depend on what stands before and after.
        for shift, first in enumerate((0, 2, 3)):
            form = base64.b64encode(b"\0" * shift + encoded).decode()
            inner = form[first : (shift + len(encoded)) * 8 // 6]
            forms |= {inner, inner.replace("+", "-").replace("/", "_")}
        whole = base64.b64encode(encoded).decode()
        forms |= {whole, whole.replace("+", "-").replace("/", "_")}
        forms |= {quote(text, safe=""), quote_plus(text), quote(text), json.dumps(text)[1:-1]}
        forms.add(json.dumps(text, ensure_ascii=False)[1:-1])
        self._forms |= {form for form in forms if len(form) >= SHORTEST}
        self._pattern = None

    @property
    def knows_secrets(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        if not self._forms:
            return text
        if self._pattern is None:
            longest_first = sorted(self._forms, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        return self._pattern.sub(MASK, text)

    async def stream(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A body without secrets, also where one begins in one piece and ends in the next."""
        forms = sorted((form.encode() for form in self._forms), key=len, reverse=True)
        pattern = re.compile(b"|".join(map(re.escape, forms)))
        held = b""
        async for piece in pieces:
            held += piece
            last = 0
            if any(form in held for form in forms):  # many times faster than the pattern where there is none
                *_, last = [0, *(found.end() for found in pattern.finditer(held))]
            # What could still be the beginning of a secret waits for the next piece.
            cut = max(last, len(held) - len(forms[0]) + 1)
            yield pattern.sub(MASK.encode(), held[:cut]) if last else held[:cut]
            held = held[cut:]
        yield pattern.sub(MASK.encode(), held)

    def data(self, value: Any) -> Any:  # noqa: ANN401 - plain data
        """The value without secrets; keys are searched too."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.data(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.data(item) for item in value]
        return value
