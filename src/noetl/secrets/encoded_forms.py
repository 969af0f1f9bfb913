"""How a secret may be written: what is looked for, and the views of a text in which that is found.

A text is seen in three ways: as it is; with its escapes undone (percent-encoding, backslashes of JSON and of
code), whichever characters were escaped and how often; and with only letters and digits left, in which
base64 is whole however its lines were broken and its signs were written. A view knows where each of its
bytes came from. Nothing here keeps a secret or decides what becomes of it.
"""

from __future__ import annotations

import base64
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

SHORTEST: Final = 6
"""Shorter texts appear everywhere by chance."""
SHORTEST_LINE: Final = 8
SHORTEST_ANCHOR: Final = 3
WIDEST: Final = 8
"""Bytes that one byte of a secret may become: a backslash twice and `u0041`, or a sign and a line break."""
ESCAPE_LEFT: Final = 5
"""Of an escape that was cut: what may be left of it."""

_PERCENT: Final = rb"%(?:25)*[0-9A-Fa-f]{2}"
_BACKSLASH: Final = (
    rb"\\++u[dD][89abAB][0-9A-Fa-f]{2}\\++u[dD][c-fC-F][0-9A-Fa-f]{2}"
    rb"|\\++(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[bfnrt])?"
)
_UNESCAPED: Final = re.compile(rb"\+|" + _PERCENT + rb"|" + _BACKSLASH)
_PERCENT_ONLY: Final = re.compile(rb"\+|" + _PERCENT)
_BACKSLASH_ONLY: Final = re.compile(rb"\+|" + _BACKSLASH)
_INCOMPLETE: Final = re.compile(
    rb"(?:%(?:25)*[0-9A-Fa-f]?|\\+u[dD][89abAB][0-9A-Fa-f]{2}(?:\\+(?:u[0-9A-Fa-f]{0,3})?)?"
    rb"|\\+(?:u[0-9A-Fa-f]{0,3}|x[0-9A-Fa-f]?)?)\Z"
)
_LETTERS_AND_DIGITS: Final = rb"(?:3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa])"
# Patterns that begin with one certain byte are searched for several times faster.
_NEEDLESSLY_ESCAPED: Final = (
    re.compile(rb"%(?:25)*" + _LETTERS_AND_DIGITS),
    re.compile(rb"\\(?:u00|x)" + _LETTERS_AND_DIGITS),
)

_SIGNS: Final = b" \t\r\n\\+/=_-"
_CODES_OF_SIGNS: Final = rb"(?:0[9AaDd]|2[0BbDdFf]|3[Dd]|5[Ff])"
_PERCENT_SIGN: Final = re.compile(rb"%(?:25)*" + _CODES_OF_SIGNS)
# A row of backslashes is looked at once, not from each of them.
_BACKSLASH_SIGN: Final = re.compile(rb"\\(?<!\\\\)\\*+(?:u00" + _CODES_OF_SIGNS + rb"|[nrt])")
_ANY_SIGN: Final = re.compile(_BACKSLASH_SIGN.pattern + rb"|[ \t\r\n+/=_-]+|\\")
_PADDING: Final = re.compile(rb"(?:=|%(?:25)*3[Dd]|\\+u003[Dd]){0,2}")


Span = tuple[int, int]


class View:
    """Bytes with tokens replaced, and where each of them stood before."""

    def __init__(
        self, content: bytes, tokens: list[tuple[int, int, int, int]], of: View | None = None
    ) -> None:
        """`tokens`: where each stands in the content, how long it is there, and where it began and ended.

        `of`: the view that this is a view of.
        """
        self.content = content
        self._tokens = tokens
        self._of = of
        self._places = [token[0] for token in tokens]

    def begin(self, place: int) -> int:
        """Where the byte at a place of the content began."""
        at = self._origin(place)[0]
        return at if self._of is None else self._of.begin(at)

    def end(self, place: int) -> int:
        """Where it ended."""
        at = self._origin(place)[1]
        return at if self._of is None else self._of.end(at - 1)

    def _origin(self, place: int) -> tuple[int, int]:
        number = bisect_right(self._places, place) - 1
        if number < 0:
            return place, place + 1
        at, size, begin, end = self._tokens[number]
        if place < at + size:
            return begin, end
        begin = end + place - at - size
        return begin, begin + 1


class Sought:
    """Forms of secrets that are looked for in one view."""

    def __init__(self) -> None:
        self.forms: set[bytes] = set()
        self.longest = 0
        self._beginnings: dict[bytes, set[bytes]] = {}
        """The forms by the first one, two and three of their bytes."""

    def add(self, forms: set[bytes]) -> None:
        for form in forms - self.forms:
            self.forms.add(form)
            self.longest = max(self.longest, len(form))
            for size in (1, 2, 3):
                self._beginnings.setdefault(form[:size], set()).add(form)

    def is_in(self, data: bytes) -> bool:
        return any(form in data for form in self.forms)

    def places(self, data: bytes) -> Iterator[Span]:
        for form in self.forms:
            at = data.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = data.find(form, at + len(form))

    def unfinished(self, data: bytes, least: int = 1) -> int:
        """Where at the end a form begins of which at least so much is there, but not all; else the length."""
        size, beginnings = len(data), self._beginnings
        for begin in range(max(0, size - self.longest + 1), size - least + 1):
            for form in beginnings.get(data[begin : begin + 3], ()):
                if len(form) > size - begin and form.startswith(data[begin:]):
                    return begin
        return size


class Needles(NamedTuple):
    """What one secret is looked for by."""

    plain: set[bytes]
    """In a text as it is."""
    escaped: set[bytes]
    """In a text with its escapes undone."""
    encoded: set[bytes]
    """In a text of letters and digits alone."""
    anchors: set[bytes]
    """One of these stands in every text that has it with some of its signs escaped."""


def needles_of(text: str) -> Needles:
    """By what a secret, and each longer line of it, is found."""
    made = Needles(set(), set(), set(), set())
    lines = (line for line in text.splitlines() if len(line) >= SHORTEST_LINE)
    for each in {text, *lines}:
        data = each.encode("utf-8", "surrogatepass")
        made.plain.add(data)
        made.escaped.update(_long_enough(_unescaped_in_any_way(data)))
        if not data.isalnum():
            anchor = max(re.findall(rb"[0-9A-Za-z]+", data), key=len, default=b"")
            made.anchors.add(anchor if len(anchor) >= SHORTEST_ANCHOR else b"")
    encoded, short = _base64_of(text.encode("utf-8", "surrogatepass"))
    made.encoded.update(encoded)
    made.plain.update(short)
    return made


def _unescaped_in_any_way(data: bytes) -> set[bytes]:
    """A secret may itself look escaped; whoever escaped it may have left that alone or not."""
    patterns = (_PERCENT_ONLY, _BACKSLASH_ONLY, _UNESCAPED)
    return {data.replace(b"+", b" "), *(_replaced(pattern, data).content for pattern in patterns)}


def _base64_of(data: bytes) -> tuple[set[bytes], set[bytes]]:
    """The letters and digits of what base64 makes of it; where these are too few, all of it."""
    whole = base64.b64encode(data)
    forms = {whole}
    # Only the characters that do not depend on what stands before and after.
    for shift, first in enumerate((0, 2, 3)):
        form = base64.b64encode(b"\0" * shift + data)
        forms.add(form[first : (shift + len(data)) * 8 // 6])
    encoded, short = set(), set()
    for form in forms:
        letters = form.translate(None, _SIGNS)
        if len(letters) >= SHORTEST:
            encoded.add(letters)
        else:
            short |= {form, form.replace(b"+", b"-").replace(b"/", b"_")}
    return encoded, set(_long_enough(short))


def _long_enough(forms: Iterable[bytes]) -> Iterator[bytes]:
    return (form for form in forms if len(form) >= SHORTEST)


def has_escapes(data: bytes) -> bool:
    return b"%" in data or b"\\" in data or b"+" in data


def is_needlessly_escaped(data: bytes) -> bool:
    """Whether letters or digits are escaped, which no anchor survives."""
    return any(pattern.search(data) is not None for pattern in _NEEDLESSLY_ESCAPED)


def unescaped(data: bytes) -> View:
    """A space may have been written as `+`, so that both are spaces here."""
    return _replaced(_UNESCAPED, data)


def letters(data: bytes) -> bytes:
    """The content of `letters_view`, many times faster."""
    data = _PERCENT_SIGN.sub(b"", data)
    return _BACKSLASH_SIGN.sub(b"", data).translate(None, _SIGNS)


def letters_view(data: bytes) -> View:
    """Without line breaks, spaces, backslashes and the signs of base64, however they are written."""
    unquoted = _replaced(_PERCENT_SIGN, data, b"")
    return _replaced(_ANY_SIGN, unquoted.content, b"", unquoted)


def with_padding(data: bytes, end: int) -> int:
    """Where base64 ends that ends somewhere but for what fills it up."""
    found = _PADDING.match(data, end)
    return end if found is None else found.end()


def without_incomplete(data: bytes) -> bytes:
    """Without an escape at its end of which more may come."""
    start = max(0, len(data) - 24)
    found = _INCOMPLETE.search(data[start:])
    return data if found is None else data[: start + found.start()]


def _replaced(
    pattern: re.Pattern[bytes], data: bytes, by: bytes | None = None, of: View | None = None
) -> View:
    """`by`: what stands for every token; else each for what it means."""
    parts: list[bytes] = []
    tokens, size, copied = [], 0, 0
    for found in pattern.finditer(data):
        begin, end = found.span()
        meaning = _meaning(found[0]) if by is None else by
        parts += (data[copied:begin], meaning)
        size += begin - copied
        tokens.append((size, len(meaning), begin, end))
        size += len(meaning)
        copied = end
    parts.append(data[copied:])
    return View(b"".join(parts), tokens, of)


@lru_cache(maxsize=4096)
def _meaning(token: bytes) -> bytes:
    if token[:1] == b"%":
        return bytes.fromhex(token[-2:].decode()).replace(b"+", b" ")
    if token == b"+":
        return b" "
    written = token.lstrip(b"\\")
    match written[:1]:
        case b"":
            return b""
        case b"u":
            numbers = [int(each, 16) for each in re.findall(rb"u([0-9A-Fa-f]{4})", written)]
            units = b"".join(number.to_bytes(2, "big") for number in numbers)
            character = units.decode("utf-16-be", "surrogatepass")
            return character.encode("utf-8", "surrogatepass").replace(b"+", b" ")
        case b"x":
            return bytes.fromhex(written[1:].decode()).replace(b"+", b" ")
        case _:
            return {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}[written]
