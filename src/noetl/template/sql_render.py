"""Renders the text of a SQL tool, so that a value stays a value whatever it holds.

The template is rendered with a mark for each expression's value; then the dialect's lexer walks the text
and each mark is replaced by its value, quoted for the place where it stands. A mark is random and begins
and ends with a NUL, which no value and no SQL text may hold, so nothing in the data can pass for one.
Where no value can stand the rendering fails, and says the way out.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from noetl.errors import TemplateValueError
from noetl.template.budget import Budget
from noetl.template.evaluation import Evaluation, SqlPart, SqlRole
from noetl.template.lookup import Scope, View, kind_name
from noetl.template.sql import Dialect, Lexer, has_odd_space, without_comments
from noetl.template.sql_literals import escaped, list_of, literal, quoted_name, text_of
from noetl.template.template import Template

_NO_VALUE_IN: Final = {
    "comment": "a value cannot stand in a comment: move it out",
    "dollar_quote": "a value cannot stand in a dollar quote: bind it with `params:`",
    "identifier": "a value cannot stand in a quoted name: write `{{ … | identifier }}` without the quotes",
}
# Beside these a literal needs no space to stay apart from its neighbours.
_APART_BEFORE: Final = frozenset(" \t\n\r\f\v([,")
_APART_AFTER: Final = frozenset(" \t\n\r\f\v)],;:")


_MARK: Final = re.compile("(\0[0-9a-f]{24}:)([0-9]{1,9})\0")
_NUL: Final = "the SQL text has a NUL character, or a filter changed a value in it"


class _Marked(NamedTuple):
    value: object
    role: SqlRole | None


def render_sql(
    template: Template,
    scope: Scope,
    dialect: Dialect,
    *,
    budget: Budget | None = None,
    on_secret: Callable[[object], None] | None = None,
) -> str:
    """The SQL text; TemplateError where a value cannot be written in its place.

    `on_secret` also hears of a secret as it is written inside quotes, where that differs.
    """
    marks = _Marks()
    secret = None if on_secret is None else _with_quoted_form(on_secret)
    text = template.render(scope, marks.put, budget=budget, on_secret=secret)
    return _Writing(dialect, marks).written(text)


def _with_quoted_form(on_secret: Callable[[object], None]) -> Callable[[object], None]:
    def tell(value: object) -> None:
        on_secret(value)
        if isinstance(value, str):
            for form in {value.replace("'", "''"), value.replace("\\", "\\\\").replace("'", "''")} - {value}:
                on_secret(form)

    return tell


class _Marks:
    """The values of one rendering, by number."""

    def __init__(self) -> None:
        self.values: list[_Marked] = []
        self._stem = f"\0{secrets.token_hex(12)}:"

    def split(self, text: str) -> tuple[list[str], list[_Marked]]:
        """The pieces of the text between marks, and the values that stand between the pieces."""
        pieces = _MARK.split(text)
        values = []
        for stem, number in zip(pieces[1::3], pieces[2::3], strict=True):
            if stem != self._stem or int(number) >= len(self.values):
                raise TemplateValueError(_NUL)
            values.append(self.values[int(number)])
        texts = pieces[::3]
        if any("\0" in piece for piece in texts):
            raise TemplateValueError(_NUL)
        return texts, values

    def put(self, run: Evaluation, value: object) -> str:
        """Takes an expression's value, and gives the text that stands for it."""
        role: SqlRole | None = None
        if isinstance(value, SqlPart):
            role, value = value.role, value.value
        plain = run.native(value.plain() if isinstance(value, View) else value)
        if role == "sql":
            if not isinstance(plain, str):
                raise TemplateValueError(f"`sql` takes text, not a {kind_name(plain)}")
            run.produce(len(plain))
            return plain
        run.written(plain)
        if isinstance(plain, str) and self._stem in plain:
            raise TemplateValueError("this text holds values already: write `| sql` to put it in as SQL")
        self.values.append(_Marked(plain, role))
        return f"{self._stem}{len(self.values) - 1}\0"


class _Writing:
    """Puts the values in the places of their marks."""

    def __init__(self, dialect: Dialect, marks: _Marks) -> None:
        self._dialect = dialect
        self._marks = marks
        self._lexer = Lexer(dialect)
        self._pieces: list[str] = []

    def written(self, text: str) -> str:
        texts, values = self._marks.split(text)
        if len(values) == 1 and not any(piece.strip() for piece in texts):
            raise TemplateValueError(
                "a SQL text that is one whole expression would run whatever its value says: "
                "write the statement here, or say that you trust it: `{{ … | sql }}`"
            )
        self._feed(texts[0])
        for value, following in zip(values, texts[1:], strict=True):
            try:
                self._put(value, following)
            except TemplateValueError as error:
                line = "".join(self._pieces).count("\n") + 1
                raise TemplateValueError(f"{error.message} (line {line} of the SQL text)") from None
            self._feed(following)
        written = "".join(self._pieces)
        if self._dialect == "duckdb" and has_odd_space(written):
            return self._keeping_spaces(written)
        return written

    def _keeping_spaces(self, written: str) -> str:
        """DuckDB replaces unusual spaces outside strings, and takes the inside for the outside behind a quote
        in a comment or behind a backslash."""
        if self._lexer.escapes_quote:
            raise TemplateValueError(
                "DuckDB would change an unusual space in this text: write `''` instead of the escaped quote"
            )
        return without_comments(written, self._dialect)

    def _feed(self, text: str) -> None:
        self._lexer.feed(text)
        self._pieces.append(text)

    def _put(self, marked: _Marked, following: str) -> None:
        lexer = self._lexer
        if lexer.unclear is not None:
            raise TemplateValueError(f"a value cannot be quoted safely in this text: {lexer.unclear}")
        if lexer.place in _NO_VALUE_IN:
            raise TemplateValueError(_NO_VALUE_IN[lexer.place])
        if lexer.place == "string":
            self._pieces.append(self._in_string(marked))
        elif marked.role == "identifier":
            self._apart(quoted_name(marked.value), following, ".")
            lexer.name()
        else:
            self._apart(self._as_literal(marked), following)
            lexer.value()

    def _as_literal(self, marked: _Marked) -> str:
        if self._lexer.wants_name:
            raise TemplateValueError(
                "a name must stand here, and a value would be quoted as text: write `| identifier`"
            )
        if self._lexer.after_value:
            raise TemplateValueError(
                "a value cannot follow a string or a value directly: join them by `||`, or put it inside"
            )
        if marked.role == "in_list":
            return list_of(marked.value, self._dialect)
        return literal(marked.value, self._dialect)

    def _in_string(self, marked: _Marked) -> str:
        if self._lexer.cuts_escape:
            raise TemplateValueError("a value cannot follow a backslash that escapes it")
        if marked.role == "in_list":
            raise TemplateValueError("`in_list` cannot stand inside quotes")
        text = quoted_name(marked.value) if marked.role == "identifier" else text_of(marked.value)
        return escaped(text, self._lexer.string_kind)

    def _apart(self, written: str, following: str, joint: str = "") -> None:
        """Writes it so that it does not grow together with what stands beside it (`E{{ x }}`, `1{{ x }}`)."""
        before = next((piece[-1] for piece in reversed(self._pieces) if piece), " ")
        if before not in _APART_BEFORE and before != joint:
            self._pieces.append(" ")
        self._pieces.append(written)
        if following and following[0] not in _APART_AFTER and following[0] != joint:
            self._pieces.append(" ")
