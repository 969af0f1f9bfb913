"""Takes secret values out of whatever leaves a worker: outcomes, logs, errors.

A secret is searched for as it is and as it appears encoded: base64, URL-encoded, escaped in JSON, and
each longer line of it alone. A text that others cut before it came here (the message of an error, the end
of an output) may begin or end within a secret, which is searched for as well. What code makes of a secret
in other ways cannot be recognised.
"""

from __future__ import annotations

import base64
import contextlib
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
SHORTEST_PIECE: Final = 8
"""Of a secret that was cut: a shorter piece gives little away, and stands in many texts by chance."""
CUT: Final = re.compile("(…|[.]{3})")
"""How programs write that they left something out."""
PUBLIC_FIELDS: Final = frozenset(
    {"account", "database", "db", "dbname", "host", "hostname", "port", "region", "role", "schema"}
    | {"sslmode", "type", "user", "username", "warehouse"}
)
"""Fields of a credential that say where and who, not how to get in: a short one is no secret."""


class SecretTooShortError(NoetlError):
    code = "secret.too_short"


class KeychainInUse(dict[str, Any]):
    """A keychain as templates read it: whatever text an expression makes of it is secret too."""

    def __init__(self, keychain: Mapping[str, Any], redactor: Redactor) -> None:
        super().__init__(keychain)
        self._redactor = redactor

    def on_secret(self, value: object) -> None:
        # A text that is too short for that gives little away, and would take words out of everything.
        with contextlib.suppress(SecretTooShortError):
            self._redactor.register(value)


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

    def cut_text(self, text: str) -> str:
        """A text that was cut: at its ends, and where it says so, may be a piece of a secret."""
        if not self._forms:
            return text
        parts = CUT.split(self.text(text))
        parts[::2] = [self._without_pieces(part) for part in parts[::2]]
        return "".join(parts)

    def _without_pieces(self, part: str) -> str:
        """Without the end of a secret at its beginning and the beginning of one at its end."""
        for form in self._forms:
            if len(form) <= SHORTEST_PIECE or len(part) < SHORTEST_PIECE:
                continue
            if part in form:
                return MASK
            end = part.find(form[-SHORTEST_PIECE:], 0, len(form)) + SHORTEST_PIECE
            if end >= SHORTEST_PIECE and form.endswith(part[:end]):
                part = MASK + part[end:]
            begin = self._beginning(part, form, SHORTEST_PIECE)
            if begin < len(part):
                part = part[:begin] + MASK
        return part

    @staticmethod
    def _beginning(text: str, form: str, least: int) -> int:
        """Where at the end of a text a secret begins of which at least so much is there; else its length."""
        begin = text.find(form[:least], max(0, len(text) - len(form) + 1))
        while begin >= 0 and not form.startswith(text[begin:]):
            begin = text.find(form[:least], begin + 1)
        return len(text) if begin < 0 else begin

    def unfinished(self, text: str) -> int:
        """Where at the end of a text something begins that may become a secret; else its length.

        Whatever follows a line break is told apart by lines, which are searched for on their own.
        """
        first = text.rfind("\n") + 1
        line = text[first:]
        return first + min((self._beginning(line, form, 1) for form in self._forms), default=len(line))

    def outcome(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """An outcome as data; what tells of an error was cut by whoever told it."""
        found: dict[str, Any] = self.data(outcome)
        if not self._forms or found.get("error") is None:
            return found
        found["error"] = self._cut_data(found["error"])
        if isinstance(found["result"], str):
            found["result"] = self.cut_text(found["result"])
        return found

    def _cut_data(self, value: Any) -> Any:  # noqa: ANN401 - plain data
        if isinstance(value, str):
            return self.cut_text(value)
        if isinstance(value, dict):
            return {key: self._cut_data(item) for key, item in value.items()}
        return [self._cut_data(item) for item in value] if isinstance(value, list) else value

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
