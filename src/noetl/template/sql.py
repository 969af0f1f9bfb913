"""Where the values of a SQL text stand: bare, in a string, in a comment, in a quoted name.

A lexer for the SQL dialects' quoting, fed the text between a template's expressions. It decides no
quoting itself; it tells those who do, and those who warn of places where no value can stand.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias

from noetl.template.tokens import END, NAME, OPERATOR, Refused, Token, cut

Dialect: TypeAlias = Literal["postgres", "duckdb", "sqlite", "snowflake"]
Place: TypeAlias = Literal["bare", "string", "comment", "dollar_quote", "identifier"]

NAME_COMES_AFTER: Final = frozenset(
    {"join", "into", "update", "table", "view", "schema", "index", "column", "sequence"}
)
"""Keywords after which SQL wants the name of a thing, never a value."""
NAME_AFTER_FROM: Final = frozenset({"select", "delete"})
"""`from` wants a name in these; in `extract`, `copy` or `is distinct from` a value follows it."""


class Spot(NamedTuple):
    """One expression of a SQL text."""

    offset: int
    """Of its first token in the template's source."""
    place: Place
    wants_name: bool
    """A bare value would stand where SQL needs a name."""
    last_filter: str | None


class SqlText(NamedTuple):
    spots: tuple[Spot, ...]
    whole: bool
    """The text is one expression and nothing else."""


def survey(source: str, dialect: Dialect) -> SqlText | None:
    """The places of a text's expressions; None where statements hide the final text."""
    try:
        parts = cut(source)
    except Refused:
        return None
    lexer = _Lexer(dialect)
    spots = []
    for part in parts:
        if isinstance(part, str):
            lexer.feed(part)
            continue
        spots.append(Spot(part[0].offset, lexer.place, lexer.wants_name, _last_filter(part)))
        lexer.value()
    whole = len(spots) == 1 and not any(part.strip() for part in parts if isinstance(part, str))
    return SqlText(tuple(spots), whole)


_FILTERED: Final = re.compile(r"[nvg](?:\.n|g)*(?:\|ng?)+e")
"""An operand and its filters; anything else applies the filter to a part of the expression only."""


def _last_filter(tokens: list[Token]) -> str | None:
    """The filter applied last to the whole expression, if it ends with one."""
    shape = ""
    filters: list[str] = []
    depth = 0
    for token in tokens:
        if token.kind == OPERATOR and token.value in ("(", "[", "{"):
            depth += 1
            shape += "g" if depth == 1 else ""
        elif token.kind == OPERATOR and token.value in (")", "]", "}"):
            depth -= 1
        elif depth == 0:
            if token.kind == NAME and shape.endswith("|"):
                filters.append(token.value)
            shape += _SHAPES.get(token.kind, "v") if token.kind != OPERATOR else _MARKS.get(token.value, "o")
    return filters[-1] if _FILTERED.fullmatch(shape) else None


_SHAPES: Final = {NAME: "n", END: "e"}
_MARKS: Final = {".": ".", "|": "|"}
_PLAIN: Final = re.compile(r"[^\s'\"`\[$/\-\w.;()]+|\s+|\d[\w.]*")
_WORD: Final = re.compile(r"[^\W\d]\w*")
_DOLLAR: Final = re.compile(r"\$(?:[A-Za-z_]\w*)?\$")


class _Lexer:
    """Keeps the state of the text read so far."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.place: Place = "bare"
        self._closer = ""
        self._depth = 0
        self._escapes = False
        self._before = ""
        """The last word or mark outside quotes and comments."""
        self._clauses = [""]
        """For each open parenthesis, and the statement itself: what it last selects, deletes or compares."""

    @property
    def wants_name(self) -> bool:
        if self.place != "bare":
            return False
        if self._before == "from":
            # DuckDB reads a file whose path is given as text.
            return self.dialect != "duckdb" and self._clauses[-1] in NAME_AFTER_FROM
        if self._before == "join":
            return self.dialect != "duckdb"
        return self._before in NAME_COMES_AFTER or self._before == "."

    def value(self) -> None:
        if self.place == "bare":
            self._before = "value"

    def feed(self, text: str) -> None:
        position = 0
        while position < len(text):
            position = self._bare(text, position) if self.place == "bare" else self._inside(text, position)

    def _bare(self, text: str, position: int) -> int:
        if found := _PLAIN.match(text, position):
            if not found[0].isspace():
                self._before = found[0][-1]
            return found.end()
        if found := _WORD.match(text, position):
            return self._word(text, found)
        return self._mark(text, position)

    def _word(self, text: str, found: re.Match[str]) -> int:
        word = found[0].lower()
        if word == "e" and text.startswith("'", found.end()) and self.dialect in ("postgres", "duckdb"):
            self._enter("string", "'", escapes=True)
            return found.end() + 1
        if word in NAME_AFTER_FROM or (word == "distinct" and self._before in ("is", "not")):
            self._clauses[-1] = word
        elif word == "from" and self._clauses[-1] == "distinct":
            self._before, self._clauses[-1] = "compared", "select"
            return found.end()
        self._before = word
        return found.end()

    def _mark(self, text: str, position: int) -> int:
        character = text[position]
        if character == "'":
            self._enter("string", "'", escapes=self.dialect == "snowflake")
        elif character == '"' or (character == "`" and self.dialect == "sqlite"):
            self._enter("identifier", character)
        elif character == "[" and self.dialect == "sqlite":
            self._enter("identifier", "]")
        elif text.startswith("--", position) or (
            self.dialect == "snowflake" and text.startswith("//", position)
        ):
            self._enter("comment", "\n")
        elif text.startswith("/*", position):
            self._depth = 1
            self._enter("comment", "*/")
            return position + 2
        elif (found := _DOLLAR.match(text, position)) and self.dialect != "sqlite":
            self._enter("dollar_quote", found[0])
            return found.end()
        else:
            self._nest(character)
            self._before = character
        return position + 1

    def _nest(self, character: str) -> None:
        if character == "(":
            self._clauses.append("")
        elif character == ")" and len(self._clauses) > 1:
            self._clauses.pop()
        elif character == ";":
            self._clauses = [""]

    def _enter(self, place: Place, closer: str, *, escapes: bool = False) -> None:
        self.place = place
        self._closer = closer
        self._escapes = escapes

    def _inside(self, text: str, position: int) -> int:
        if self._escapes and text[position] == "\\":
            return position + 2
        if self._closer == "*/" and self.dialect == "postgres" and text.startswith("/*", position):
            self._depth += 1
            return position + 2
        if not text.startswith(self._closer, position):
            return position + 1
        position += len(self._closer)
        if self._closer == "*/":
            self._depth -= 1
            if self._depth > 0:
                return position
        if self.place in ("string", "identifier"):
            self._before = self.place
            # A doubled quote is one character of the text: leaving and entering again comes to the same.
        self.place = "bare"
        return position
