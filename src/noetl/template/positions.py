"""Makes Jinja's lexer tell character offsets.

Jinja's tokens, nodes and syntax errors know a line number and nothing else. Here each token gets its
offset in the source where Jinja keeps the line, so that every node and every error of the parser knows
the exact place. Nothing downstream of this file may take a `lineno` for a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from jinja2 import TemplateSyntaxError as JinjaSyntaxError
from jinja2.lexer import TOKEN_EOF, Lexer, Token, TokenStream

_NEWLINE = re.compile(r"\r\n?")
_UNCLOSED = re.compile(r"^Unexpected end of template\..*The innermost block.* is '(\w+)'\.$", re.S)
_WORDS = (
    ("'end of print statement'", "`}}`"),
    ("'begin of print statement'", "`{{`"),
    ("'end of statement block'", "`%}`"),
    ("'begin of statement block'", "`{%`"),
    ("'end of template'", "the end of the template"),
)


def offset_stream(lexer: Lexer, source: str) -> TokenStream:
    return TokenStream(_tokens(lexer, source), None, None)


def _tokens(lexer: Lexer, source: str) -> Iterator[Token]:
    # The lexer reads the source with its line ends made one character each.
    text = _NEWLINE.sub("\n", source)
    places = _Places(source)
    pieces = _Pieces(text)
    raw = pieces.track(lexer.tokeniter(source, None))
    try:
        for token in lexer.wrap(raw):
            yield Token(places.original(token.lineno), token.type, token.value)
    except JinjaSyntaxError as error:
        raise JinjaSyntaxError(error.message or "", places.original(pieces.failed_at(error))) from None
    except (ValueError, OverflowError):
        raise JinjaSyntaxError("a number has too many digits", places.original(pieces.start)) from None
    # What is missing at the end is missing after the last thing written, not on the line below it.
    yield Token(len(source.rstrip()), TOKEN_EOF, "")


class _Pieces:
    """Where in the text the lexer is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.start = 0
        self.end = 0
        self._lexing = True

    def track(self, raw: Iterator[tuple[int, str, str]]) -> Iterator[tuple[int, str, str]]:
        for _line, kind, value in raw:
            # Only whitespace that a `-` strips lies between two pieces.
            self.start = max(self._text.find(value, self.end), self.end)
            self.end = self.start + len(value)
            self._lexing = False
            yield self.start, kind, value
            self._lexing = True

    def failed_at(self, error: JinjaSyntaxError) -> int:
        """An error while cutting the next piece is at its start, one about a finished piece at that."""
        unclosed = (error.message or "").startswith("Missing end of")
        return self.end if self._lexing and not unclosed else self.start


class _Places:
    def __init__(self, source: str) -> None:
        self._pairs = [match.start() for match in re.finditer("\r\n", source)]

    def original(self, offset: int) -> int:
        for index, place in enumerate(self._pairs):
            if place - index >= offset:
                return offset + index
        return offset + len(self._pairs)


def message_of(error: JinjaSyntaxError) -> str:
    """Jinja's message in the words of a template rather than of a lexer."""
    message = error.message or "the template does not parse"
    message = re.sub(r"^unexpected char ('.*') at \d+$", r"unexpected character \1", message, flags=re.S)
    for jinja_words, words in _WORDS:
        message = message.replace(jinja_words, words)
    message = _UNCLOSED.sub(r"`\1` is not closed", message)
    return message[:1].lower() + message[1:].rstrip(".")
