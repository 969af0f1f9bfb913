"""Where the values of a SQL text stand: bare, in a string, in a comment, in a quoted name.

A lexer for the SQL dialects' quoting, fed the text between a template's values. It decides no quoting
itself; it tells those who do, and those who warn of places where no value can stand. Where a dialect's
own lexer could read a text in another way than this one, the text is called unclear, never guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from noetl.template.tokens import END, NAME, OPERATOR, Refused, Token, cut

Dialect: TypeAlias = Literal["postgres", "duckdb", "sqlite", "snowflake"]
Place: TypeAlias = Literal["bare", "string", "comment", "dollar_quote", "identifier"]
StringKind: TypeAlias = Literal["plain", "escapes", "coded"]
"""Of a quoted string: as it is, with backslash escapes, or in digits or code points (`X'41'`)."""

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
    lexer = Lexer(dialect)
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

# What the lexers of databases take for letters: every character beyond ASCII is one.
_LETTERS: Final = "A-Za-z_\x80-\U0010ffff"
_SPACE: Final = re.compile(r"[ \t\n\r\f\v]+")
_WORD: Final = re.compile(rf"[{_LETTERS}][{_LETTERS}0-9$]*")
_NUMBER: Final = re.compile(rf"[0-9][{_LETTERS}0-9.]*")
_SIGNS: Final = re.compile(rf"[^\s'\"`\[$/\-.;()@:#0-9{_LETTERS}]+")
_DOLLAR: Final = re.compile(rf"\$(?:[{_LETTERS}][{_LETTERS}0-9]*)?\$")
_VARIABLE_CHARACTER: Final = re.compile(rf"[{_LETTERS}0-9$]")
_ODD_SPACE: Final = re.compile("[\x85\xa0\u1680\u180e\u2000-\u200f\u2028\u2029\u202f\u205f\u3000\ufeff]")

_SHOWN: Final = re.compile(r"[^\r\n]")

_ENDS_STRING: Final = {
    "plain": re.compile("'"),
    "escapes": re.compile(r"'|\\.?", re.DOTALL),
    "coded": re.compile("'"),
}
_ENDS_LINE: Final = re.compile("\n")
_ENDS_LINE_EITHER: Final = re.compile("[\r\n]")
_ENDS_BLOCK: Final = re.compile(r"\*/")
_NESTS_BLOCK: Final = re.compile(r"/\*|\*/")
_ENDS_NAME: Final = {closer: re.compile(re.escape(closer)) for closer in '"`]'}

_LIKE_POSTGRES: Final = ("postgres", "duckdb")
_BACKTICKS: Final = ("sqlite", "duckdb")
_CODED_PREFIXES: Final = ("b", "x")


class Lexer:
    """Keeps the state of the text read so far."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.place: Place = "bare"
        self.string_kind: StringKind = "plain"
        """Of the string the lexer is in, or was in last."""
        self.cuts_escape = False
        """The text stopped right behind a backslash that wants another character."""
        self.escapes_quote = False
        """A string has had a quote behind a backslash."""
        self.unclear: str | None = None
        """Why the database may read the text in another way, once it may."""
        self._ends = _ENDS_LINE
        self._depth = 0
        self._before = ""
        """The last word or mark outside quotes and comments."""
        self._apart = False
        """Something blank stands behind the last string."""
        self._variables: set[int] = set()
        """Where a parameter may begin in the text that is read, since its last opening parenthesis."""
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

    @property
    def after_value(self) -> bool:
        """Nothing but space stands between here and a string or value, which would run together with one."""
        return self.place == "bare" and self._before in ("string", "value")

    def value(self) -> None:
        """A literal stands here."""
        if self.place == "bare":
            self._before = "value"

    def name(self) -> None:
        """A quoted name stands here."""
        if self.place == "bare":
            self._before = "identifier"

    def feed(self, text: str) -> None:
        self._variables.clear()
        position = 0
        while position < len(text):
            position = self.step(text, position)

    def step(self, text: str, position: int) -> int:
        """Reads one piece of the text, and gives the position behind it."""
        self.cuts_escape = False
        return self._bare(text, position) if self.place == "bare" else self._inside(text, position)

    def _bare(self, text: str, position: int) -> int:
        if found := _SPACE.match(text, position):
            self._apart = True
            return found.end()
        if found := _WORD.match(text, position):
            return self._word(text, found)
        if found := _NUMBER.match(text, position):
            self._before = found[0][-1]
            if text.startswith("'", found.end()) and not found[0][-1].isdigit():
                self.unclear = f"`{found[0]}'` may be a number and the beginning of a string"
            return found.end()
        if found := _SIGNS.match(text, position):
            self._before = found[0][-1]
            return found.end()
        return self._mark(text, position)

    def _word(self, text: str, found: re.Match[str]) -> int:
        word, end = found[0].lower(), found.end()
        if _ODD_SPACE.search(word):
            self.unclear = "it has an invisible character that is no ordinary space outside quotes"
        if text.startswith("'", end):
            if word == "e" and self.dialect in _LIKE_POSTGRES:
                return self._string("escapes", end + 1)
            if word in _CODED_PREFIXES:
                return self._string("coded", end + 1)
        if word == "u" and text.startswith("&'", end) and self.dialect == "postgres":
            return self._string("coded", end + 2)
        if word in NAME_AFTER_FROM or (word == "distinct" and self._before in ("is", "not")):
            self._clauses[-1] = word
        elif word == "from" and self._clauses[-1] == "distinct":
            self._before, self._clauses[-1] = "compared", "select"
            return end
        self._before = word
        return end

    def _string(self, kind: StringKind, position: int) -> int:
        self.string_kind = kind
        self._enter("string", _ENDS_STRING[kind])
        return position

    def _mark(self, text: str, position: int) -> int:
        character = text[position]
        if character == "'":
            return self._string(self._kind_of_string(), position + 1)
        if character == '"' or (character == "`" and self.dialect in _BACKTICKS):
            self._enter("identifier", _ENDS_NAME[character])
        elif character == "[" and self.dialect == "sqlite":
            self._enter("identifier", _ENDS_NAME["]"])
        elif text.startswith("--", position) or (
            self.dialect == "snowflake" and text.startswith("//", position)
        ):
            self._enter("comment", _ENDS_LINE_EITHER if self.dialect in _LIKE_POSTGRES else _ENDS_LINE)
            return position + 2
        elif text.startswith("/*", position):
            self._depth = 1
            self._enter("comment", _NESTS_BLOCK if self.dialect in _LIKE_POSTGRES else _ENDS_BLOCK)
            return position + 2
        elif (found := _DOLLAR.match(text, position)) and self._quotes_by_dollar(found[0]):
            self._enter("dollar_quote", re.compile(re.escape(found[0])))
            return found.end()
        else:
            self._sign(text, position)
        return position + 1

    def _kind_of_string(self) -> StringKind:
        if self._before != "string":
            return "escapes" if self.dialect == "snowflake" else "plain"
        # A doubled quote, or a second part of the same string: both go on as it began.
        if self._apart and self.string_kind != "plain" and self.dialect != "postgres":
            self.unclear = "a string with escapes has a second part"
        return self.string_kind

    def _quotes_by_dollar(self, tag: str) -> bool:
        return self.dialect in _LIKE_POSTGRES or (self.dialect == "snowflake" and tag == "$$")

    def _sign(self, text: str, position: int) -> None:
        character = text[position]
        if character in "$@:#" and self.dialect == "sqlite":
            self._variables.add(position)
        if character == "(":
            if self._variables and self._ends_variable(text, position):
                self.unclear = (
                    "a parameter is followed by a parenthesis, which SQLite reads as part of its name"
                )
            self._variables.clear()
            self._clauses.append("")
        elif character == ")" and len(self._clauses) > 1:
            self._clauses.pop()
        elif character == ";":
            self._clauses = [""]
        self._before = character

    def _ends_variable(self, text: str, end: int) -> bool:
        """Whether a parameter's name goes on up to here: `$a::b(`. It is read backwards, so that a text of
        nothing but such marks is read once and not from each of them."""
        # Whether a rest of a name leads here from the next character, and from the one behind it.
        leads = leads_behind = False
        for position in range(end - 1, -1, -1):
            if leads and position in self._variables:
                return True
            begins = leads or position == end - 1
            pairs = leads_behind or position == end - 2
            here = (begins and _VARIABLE_CHARACTER.match(text, position) is not None) or (
                pairs and text.startswith("::", position)
            )
            if not here and not leads and position < end - 1:
                return False
            leads, leads_behind = here, leads
        return False

    def _enter(self, place: Place, ends: re.Pattern[str]) -> None:
        self.place = place
        self._ends = ends

    def _inside(self, text: str, position: int) -> int:
        found = self._ends.search(text, position)
        if found is None:
            return len(text)
        if found[0].startswith("\\") and self._ends is _ENDS_STRING["escapes"]:
            self.cuts_escape = len(found[0]) == 1
            self.escapes_quote = self.escapes_quote or found[0] == "\\'"
            return found.end()
        if self._ends is _NESTS_BLOCK:
            self._depth += 1 if found[0] == "/*" else -1
            if self._depth > 0:
                return found.end()
        if self.place in ("string", "identifier"):
            self._before = self.place
            self._apart = False
        elif self.place == "dollar_quote":
            self._before = "text"
        self.place = "bare"
        return found.end()


def without_quotes(text: str, dialect: Dialect) -> str:
    """The text with everything quoted blotted out and every comment blank, each as long as it was."""
    pieces = []
    for piece, places in _pieces(text, dialect):
        blot = "" if places == ("bare", "bare") else " " if "comment" in places else "\x01"
        pieces.append(blot * len(piece) or piece)
    return "".join(pieces)


def without_comments(text: str, dialect: Dialect) -> str:
    """The text with every comment blank, lines kept."""
    return "".join(
        _SHOWN.sub(" ", piece) if "comment" in places else piece for piece, places in _pieces(text, dialect)
    )


def has_odd_space(text: str) -> bool:
    return _ODD_SPACE.search(text) is not None


def _pieces(text: str, dialect: Dialect) -> Iterator[tuple[str, tuple[Place, Place]]]:
    """The pieces the lexer reads, each with the places it begins and ends in."""
    lexer = Lexer(dialect)
    position = 0
    while position < len(text):
        began_in = lexer.place
        end = lexer.step(text, position)
        yield text[position:end], (began_in, lexer.place)
        position = end
