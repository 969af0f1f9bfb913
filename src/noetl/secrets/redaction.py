"""Takes secret values out of whatever leaves a worker: outcomes, logs, errors.

A secret is searched for as it is and as it appears encoded: base64, URL-encoded, escaped in JSON, and
each longer line of it alone. A text that others cut before it came here (the message of an error, the end
of an output) may begin or end within a secret, which is searched for as well. What code makes of a secret
in other ways cannot be recognised.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

from noetl.errors import NoetlError
from noetl.secrets.encoded_forms import (
    ESCAPE_LEFT,
    SHORTEST,
    WIDEST,
    Sought,
    Span,
    View,
    has_escapes,
    is_needlessly_escaped,
    letters,
    letters_view,
    needles_of,
    unescaped,
    with_padding,
    without_incomplete,
)

MASK: Final = "***"
SHORTEST_PIECE: Final = 8
"""Of a secret that was cut: a shorter piece gives little away, and stands in many texts by chance."""
CUT: Final = re.compile("(…|[.]{3})")
"""How programs write that they left something out."""
PUBLIC_FIELDS: Final = frozenset(
    {"account", "database", "db", "dbname", "host", "hostname", "port", "region", "role", "schema"}
    | {"sslmode", "type", "user", "username", "warehouse"}
)
"""Fields of a credential that say where and who, not how to get in: no short text is a secret, no number."""
SECRET_FIELDS: Final = frozenset(
    {"access_key", "access_token", "api_key", "client_secret", "key", "passcode", "passphrase", "passwd"}
    | {"password", "pin", "private_key", "pwd", "refresh_token", "secret", "secret_key", "token"}
)
"""Fields in which a short number is refused as a short text is; in others it is a limit or a count."""
BETWEEN: Final = "\0"
"""What stands between texts that are searched at once; no form of a secret goes across it."""


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
        self._texts: set[str] = set()
        self._numbers: set[str] = set()
        """Those of the texts that are numbers, as data writes them."""
        self._plain, self._escaped, self._encoded = Sought(), Sought(), Sought()
        self._anchors: set[bytes] = set()

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

    def register(self, value: object, name: str = "a secret") -> None:
        """Keeps a value and everything in it out of what is written; raises as `register_keychain` does."""
        refused: SecretTooShortError | None = None
        for text, called in _secrets_in(value, name):
            try:
                self._register_text(text, called)
            except SecretTooShortError as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def _register_text(self, text: str, name: str) -> None:
        if len(text) < SHORTEST:
            raise SecretTooShortError(
                f"{name} is shorter than {SHORTEST} characters, so it cannot be kept out of logs and events"
            )
        if text in self._texts:
            return
        self._texts.add(text)
        number = _number_in(text)
        if number is not None:
            self._numbers.add(number)
        needles = needles_of(text)
        self._plain.add(needles.plain)
        self._escaped.add(needles.escaped)
        self._encoded.add(needles.encoded)
        self._anchors |= needles.anchors

    @property
    def knows_secrets(self) -> bool:
        return bool(self._texts)

    def text(self, text: str) -> str:
        if not self._texts:
            return text
        data = text.encode("utf-8", "surrogatepass")
        spans = self._spans(data)
        return _masked(data, spans).decode("utf-8", "surrogatepass") if spans else text

    def _spans(self, data: bytes) -> list[Span]:
        """Where secrets stand, in order; what overlaps is one."""
        found = list(self._plain.places(data))
        if self._encoded.is_in(letters(data)):
            view = letters_view(data)
            for begin, end in self._encoded.places(view.content):
                found.append((view.begin(begin), with_padding(data, view.end(end - 1))))
        if self._may_be_escaped(data):
            view = unescaped(data)
            for begin, end in self._escaped.places(view.content):
                found.append((view.begin(begin), view.end(end - 1)))
        return _joined(found)

    def _may_be_escaped(self, data: bytes) -> bool:
        """Whether it is worth the time to undo the escapes: most of what has any has nothing of a secret."""
        if not has_escapes(data):
            return False
        return any(anchor in data for anchor in self._anchors) or is_needlessly_escaped(data)

    async def stream(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A body without secrets, also where one begins in one piece and ends in the next."""
        held = b""
        async for piece in pieces:
            held += piece
            spans = self._spans(held)
            # What could still be the beginning of a secret waits for the next piece.
            cut = self._unfinished(held)
            # So does a secret that a longer one may begin with.
            cut = min([cut, *(begin for begin, end in spans if begin < cut < end)])
            yield _masked(held[:cut], [span for span in spans if span[1] <= cut])
            held = held[cut:]
        yield _masked(held, self._spans(held))

    def cut_text(self, text: str) -> str:
        """A text that was cut: at its ends, and where it says so, may be a piece of a secret."""
        if not self._texts:
            return text
        parts = CUT.split(self.text(text))
        parts[::2] = [self._without_pieces(part) for part in parts[::2]]
        return "".join(parts)

    def _without_pieces(self, part: str) -> str:
        """Without the end of a secret at its beginning and the beginning of one at its end."""
        data = part.encode("utf-8", "surrogatepass")
        complete = without_incomplete(data)
        views = [(View(data, []), self._plain, 0), (letters_view(complete), self._encoded, ESCAPE_LEFT)]
        if has_escapes(data):
            views.append((unescaped(complete), self._escaped, ESCAPE_LEFT))
        first, last = 0, len(data)
        for view, sought, extra in views:
            content = view.content
            if len(content) < SHORTEST_PIECE:
                continue
            if any(content in form for form in sought.forms):
                return MASK
            end = max((_piece_at_begin(content, form, extra) for form in sought.forms), default=0)
            if end:
                first = max(first, view.end(end - 1))
            begin = sought.unfinished(content, SHORTEST_PIECE)
            if begin < len(content):
                last = min(last, view.begin(begin))
        if first >= last:
            return MASK if data else ""
        left = data[first:last].decode("utf-8", "surrogatepass")
        return f"{MASK if first else ''}{left}{MASK if last < len(data) else ''}"

    def unfinished(self, text: str) -> int:
        """Where at the end of a text something begins that may become a secret; else its length.

        Whatever follows a line break is told apart by lines, which are searched for on their own; but base64
        goes on in the next line.
        """
        tail = text[-self._reach() :].encode("utf-8", "surrogatepass")
        at = self._unfinished(tail, tail.rfind(b"\n") + 1)
        return len(text) - len(tail[at:].decode("utf-8", "surrogatepass"))

    def _reach(self) -> int:
        """The most characters that a secret may take, however it is written."""
        return WIDEST * max(self._plain.longest, self._escaped.longest, self._encoded.longest, 1)

    def _unfinished(self, data: bytes, line: int = 0) -> int:
        """`line`: where the last line begins, if it matters."""
        skipped = max(line, len(data) - self._reach())
        last = data[skipped:]
        complete = without_incomplete(last)
        found = min(self._plain.unfinished(last), len(complete), self._base64_at_end(complete, 1))
        if has_escapes(last):
            view = unescaped(complete)
            found = min(found, view.begin(self._escaped.unfinished(view.content)))
        return min(skipped + found, self._base64_at_end(data, SHORTEST_PIECE)) if line else skipped + found

    def _base64_at_end(self, data: bytes, least: int) -> int:
        flat = letters(data)
        at = self._encoded.unfinished(flat, least)
        return len(data) if at == len(flat) else letters_view(data).begin(at)

    def outcome(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """An outcome as data; what tells of an error was cut by whoever told it."""
        found: dict[str, Any] = self.data(outcome)
        if not self._texts or found.get("error") is None:
            return found
        found = found | {"error": self._cut_data(found["error"])}
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
        """The value without secrets; keys are searched too, and a number that is one becomes a text."""
        if not self._texts:
            return value
        if isinstance(value, str):
            return self.text(value)
        # All texts at once: each search costs the same for a short text as for a long one.
        texts: list[str] = []
        _gather(value, texts)
        whole = BETWEEN.join(texts)
        masked = self.text(whole)
        if masked == whole and not self._numbers:
            return value
        parts = masked.split(BETWEEN)
        # They, or a secret, may hold what stands between them.
        if len(parts) != len(texts) or whole.count(BETWEEN) != len(texts) - 1:
            parts = [self.text(text) for text in texts]
        return self._rebuilt(value, iter(parts))

    def _rebuilt(self, value: Any, texts: Iterator[str]) -> Any:  # noqa: ANN401 - plain data
        """The value with other texts, in the order of `_gather`."""
        if isinstance(value, str):
            return next(texts)
        if isinstance(value, dict):
            return {next(texts): self._rebuilt(item, texts) for item in value.values()}
        if isinstance(value, list):
            return [self._rebuilt(item, texts) for item in value]
        if isinstance(value, int | float) and _number_text(value) in self._numbers:
            return MASK
        return value


def _secrets_in(value: object, name: str) -> Iterator[tuple[str, str]]:
    """The texts that are to be kept out of what is written, and what to call each."""
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, int | float) and not isinstance(item, bool):
                text = str(item)
                if key not in PUBLIC_FIELDS and (len(text) >= SHORTEST or key in SECRET_FIELDS):
                    yield text, f"{name}.{key}"
            elif not (key in PUBLIC_FIELDS and isinstance(item, str) and len(item) < SHORTEST):
                yield from _secrets_in(item, f"{name}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from _secrets_in(item, name)
    elif isinstance(value, str):
        yield value, name
    elif isinstance(value, int | float) and len(str(value)) >= SHORTEST and name not in PUBLIC_FIELDS:
        yield str(value), name


def _gather(value: Any, texts: list[str]) -> None:  # noqa: ANN401 - plain data
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            texts.append(key)
            _gather(item, texts)
    elif isinstance(value, list):
        for item in value:
            _gather(item, texts)


def _number_in(text: str) -> str | None:
    """How data writes the number that a text is; None: it is none, or too short for a secret."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            found = _number_text(kind(text))
            return found if len(found) >= SHORTEST else None
    return None


def _number_text(number: float) -> str:
    """One text for the same number, whether it is whole by its type or by chance."""
    return str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)


def _joined(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _masked(data: bytes, spans: list[Span]) -> bytes:
    parts: list[bytes] = []
    copied = 0
    for begin, end in spans:
        parts += (data[copied:begin], MASK.encode())
        copied = end
    return b"".join([*parts, data[copied:]])


def _piece_at_begin(data: bytes, form: bytes, extra: int) -> int:
    """To where the end of a form goes that stands at the beginning, or after a bit of something cut; or 0."""
    if len(form) <= SHORTEST_PIECE:
        return 0
    end = data.find(form[-SHORTEST_PIECE:], 0, len(form) + extra) + SHORTEST_PIECE
    skips = range(min(extra, end - SHORTEST_PIECE) + 1)
    return end if end >= SHORTEST_PIECE and any(form.endswith(data[skip:end]) for skip in skips) else 0
