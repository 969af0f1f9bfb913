"""The fast path: parses the everyday part of Jinja's expressions straight into closures.

The grammar is Jinja's, precedence and quirks included (`2 ** 3 ** 2` is 64, a test binds tighter than
any operator). Whatever is outside it is refused, never rejected: `compile_fast` then returns None and
Jinja takes the template. Meaning is not decided here but in `operators`, `lookup` and `filters`.
"""

from __future__ import annotations

from typing import Final

from noetl.template import closures
from noetl.template.closures import Closure
from noetl.template.evaluation import Evaluation
from noetl.template.filters import FILTERS, default
from noetl.template.lookup import Read
from noetl.template.methods import Value
from noetl.template.operators import BINARY, COMPARISONS, negative, positive
from noetl.template.tokens import END, NAME, NUMBER, OPERATOR, STRING, Refused, Token, cut

_CONSTANTS: Final[dict[str, object]] = {
    "true": True, "True": True, "false": False, "False": False, "none": None, "None": None,
}  # fmt: skip

# Words that are no names here, and names that mean something to Jinja beyond the scope.
_RESERVED: Final = frozenset((
    "and", "or", "not", "in", "is", "if", "else",
    "range", "dict", "namespace", "self", "caller", "varargs", "kwargs", "super",
))  # fmt: skip

# After a test without arguments Jinja takes any of these as its argument.
_TEST_ARGUMENT_KINDS: Final = frozenset((NAME, NUMBER, STRING))

_MAX_OPERATORS: Final = 60

# How tightly operators bind, loosest first.
_OR, _AND, _NOT, _COMPARISON, _SUM, _CONCATENATION, _PRODUCT, _POWER = range(1, 9)
_LEVELS: Final = {
    "or": _OR, "and": _AND,
    "==": _COMPARISON, "!=": _COMPARISON, "<": _COMPARISON, "<=": _COMPARISON, ">": _COMPARISON,
    ">=": _COMPARISON, "in": _COMPARISON, "not": _COMPARISON,
    "+": _SUM, "-": _SUM, "~": _CONCATENATION,
    "*": _PRODUCT, "/": _PRODUCT, "//": _PRODUCT, "%": _PRODUCT, "**": _POWER,
}  # fmt: skip


_SIGNS: Final = {"-": negative, "+": positive}


class FastProgram:
    """A template as text and closures in turn."""

    __slots__ = ("_pieces", "_pure", "reads", "sole", "value")

    def __init__(
        self, pieces: list[tuple[str, Closure | None, bool]], pure: bool, reads: tuple[Read, ...], sole: bool
    ) -> None:
        self._pieces = pieces
        self._pure = pure
        self.reads = reads
        self.sole = sole
        # What a guard looks at: the bare value of a sole expression, otherwise the text.
        only = pieces[0][1]
        self.value: Closure = only if sole and only is not None else self._render

    def evaluate(self, run: Evaluation) -> object:
        if not self.sole or run.on_output is not None:
            return self._render(run)
        result = self.value(run)
        # Data read from the scope is JSON already, and may be too large to be walked each time.
        if not (self._pure and type(result) in (dict, list)):
            result = run.native(result)
        if self._pieces[0][2]:
            run.native_secret(result)
        return result

    def _render(self, run: Evaluation) -> str:
        texts: list[str] = []
        shown = run.text if run.on_output is None else run.shown
        for text, closure, secret in self._pieces:
            if closure is None:
                texts.append(text)
                continue
            value = closure(run)
            texts.append(shown(value))
            if secret:
                run.secret(value)
        return "".join(texts)


def compile_fast(source: str) -> FastProgram | None:
    """None means that the template needs Jinja."""
    pieces: list[tuple[str, Closure | None, bool]] = []
    reads: list[Read] = []
    pure = False
    try:
        for part in cut(source):
            if isinstance(part, str):
                if part:
                    pieces.append((part, None, False))
                continue
            parser = _Parser(part)
            closure = parser.whole()
            secret = any(read.path[0] == "keychain" for read in parser.reads)
            pieces.append(("", closure, secret))
            reads += parser.reads
            pure = parser.pure
    except Refused:
        return None
    if not pieces:
        pieces.append(("", None, False))
    sole = len(pieces) == 1 and pieces[0][1] is not None
    return FastProgram(pieces, pure, tuple(reads), sole)


class _Parser:
    __slots__ = (
        "_calls",
        "_constants",
        "_index",
        "_negations",
        "_operators",
        "_paths",
        "_tokens",
        "pure",
        "reads",
    )

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self._operators = 0
        self._paths: dict[Closure, tuple[str, int | None]] = {}
        self._calls = False
        self._negations: dict[Closure, Closure] = {}
        # Closures whose value is known now; those that are lists of constants are compared faster.
        self._constants: dict[Closure, object] = {}
        self.reads: list[Read] = []
        self.pure = False

    def whole(self) -> Closure:
        closure = self._conditional()
        if self._tokens[self._index][0] != END:
            raise Refused
        return closure

    def _conditional(self) -> Closure:
        value = self._operation(_OR)
        while self._take_word("if"):
            self._count()
            test = self._operation(_OR)
            otherwise = self._conditional() if self._take_word("else") else closures.nothing
            value = closures.choice(test, value, otherwise)
        return value

    def _operation(self, level: int) -> Closure:
        """Operands joined by operators that bind at least as tightly as `level`."""
        left = self._not() if level <= _NOT and self._take_word("not") else self._unary(filters=True)
        while True:
            kind, symbol, _offset = self._tokens[self._index]
            if kind != OPERATOR and kind != NAME:
                return left
            binds = _LEVELS.get(symbol)
            if binds is None or binds < level:
                return left
            if binds == _COMPARISON:
                links = self._links()
                if not links:
                    return left
                left = self._comparison(left, links)
                continue
            self._index += 1
            self._count()
            if binds == _CONCATENATION:
                left = self._concatenation(left)
                continue
            right = self._operation(binds + 1)
            if binds == _AND:
                left = closures.both(left, right)
            elif binds == _OR:
                left = closures.either(left, right)
            else:
                left = closures.binary(BINARY[symbol], left, right)

    def _not(self) -> Closure:
        self._count()
        operand = self._operation(_NOT)
        return self._negations.get(operand) or closures.negation(operand)

    def _links(self) -> list[tuple[str, Closure]]:
        links: list[tuple[str, Closure]] = []
        while True:
            kind, symbol, _offset = self._tokens[self._index]
            if (kind == OPERATOR and symbol in COMPARISONS) or (kind == NAME and symbol == "in"):
                self._index += 1
            elif kind == NAME and symbol == "not" and self._tokens[self._index + 1][:2] == (NAME, "in"):
                self._index += 2
                symbol = "not in"
            else:
                return links
            self._count()
            links.append((symbol, self._operation(_COMPARISON + 1)))

    def _comparison(self, left: Closure, links: list[tuple[str, Closure]]) -> Closure:
        if len(links) > 1:
            return closures.compare_chain(left, [(COMPARISONS[symbol], operand) for symbol, operand in links])
        symbol, right = links[0]
        if right in self._constants:
            known: Value = self._constants[right]
            if symbol == "in" and type(known) is list:
                return closures.in_constants(left, known)
            if symbol == "==" and type(known) is not list:
                return closures.equals_constant(left, known)
        return closures.compare(left, symbol, right)

    def _concatenation(self, first: Closure) -> Closure:
        operands = [first, self._operation(_CONCATENATION + 1)]
        while self._take("~"):
            operands.append(self._operation(_CONCATENATION + 1))
        return closures.concatenation(operands)

    def _unary(self, filters: bool) -> Closure:
        first_read = len(self.reads)
        kind, symbol, _offset = self._tokens[self._index]
        if kind == OPERATOR and symbol in _SIGNS:
            self._index += 1
            self._count()
            value = closures.unary(_SIGNS[symbol], self._unary(filters=False))
        else:
            value = self._primary()
        if filters:
            value = self._filters_and_tests(value, first_read)
        return value

    def _primary(self) -> Closure:
        token = self._tokens[self._index]
        self._index += 1
        kind, text, offset = token
        if kind == NAME:
            if text in _CONSTANTS:
                return self._postfix(self._constant(_CONSTANTS[text]), text.lower())
            if text in _RESERVED:
                raise Refused
            return self._name(text, offset)
        if kind == STRING:
            return self._postfix(self._constant(text[1:-1]), "text")
        if kind == NUMBER:
            if len(text) > 17 or (text[0] == "0" and len(text) > 1 and text[1] != "."):
                raise Refused
            return self._postfix(self._constant(float(text) if "." in text else int(text)), "number")
        if text == "(" and kind == OPERATOR:
            self._count()
            value = self._conditional()
            self._expect(")")
            # Parentheses around a path change nothing.
            return self._postfix(value, *self._paths.get(value, ("(…)", None)))
        if text == "[" and kind == OPERATOR:
            return self._postfix(self._list(), "list")
        if text == "{" and kind == OPERATOR:
            return self._postfix(self._dict(), "mapping")
        raise Refused

    def _constant(self, value: object) -> Closure:
        closure = closures.constant(value)
        self._constants[closure] = value
        return closure

    def _name(self, name: str, offset: int) -> Closure:
        """A name and the attributes that follow it, as one closure."""
        keys: list[str] = []
        tokens = self._tokens
        index = self._index
        leads = index == 1
        while tokens[index][1] == "." and tokens[index][0] == OPERATOR:
            attribute = tokens[index + 1]
            if attribute[0] != NAME:
                raise Refused
            if tokens[index + 2][1] == "(" and tokens[index + 2][0] == OPERATOR:
                break
            keys.append(attribute[1])
            index += 2
        if len(keys) > _MAX_OPERATORS:
            raise Refused
        self._index = index
        path = (name, *keys)
        position = len(self.reads)
        self.reads.append(Read(path, offset, False))
        value = closures.read_path(name, tuple(keys)) if keys else closures.read_name(name)
        value = self._postfix(value, ".".join(path), position)
        self.pure = leads and tokens[self._index][0] == END and not self._calls
        return value

    def _postfix(self, value: Closure, path: str, read: int | None = None) -> Closure:
        """`read` is the index of the read that constant subscripts still belong to."""
        while True:
            kind, symbol, _offset = self._tokens[self._index]
            if kind != OPERATOR or symbol not in ".[(":
                self._paths[value] = (path, read)
                return value
            self._index += 1
            self._count()
            if symbol == ".":
                attribute = self._tokens[self._index]
                if attribute[0] != NAME:
                    raise Refused
                self._index += 1
                path = f"{path}.{attribute[1]}"
                if self._take("("):
                    self._calls = True
                    value = closures.call_method(value, attribute[1], path, self._arguments())
                    read = None
                    path += "()"
                    continue
                value = closures.read_attribute(value, attribute[1], path)
                self._extend_read(read, attribute[1])
            elif symbol == "[":
                key = self._conditional()
                self._expect("]")
                known = self._constants.get(key)
                path = subscript_path(path, known)
                value = closures.read_subscript(value, key, path)
                if isinstance(known, str):
                    self._extend_read(read, known)
                else:
                    read = None
            else:
                raise Refused

    def _extend_read(self, read: int | None, key: str) -> None:
        if read is not None:
            known = self.reads[read]
            self.reads[read] = known._replace(path=(*known.path, key))

    def _list(self) -> Closure:
        items: list[Closure] = []
        while not self._take("]"):
            if items:
                self._expect(",")
                if self._take("]"):
                    break
            items.append(self._conditional())
        closure = closures.build_list(items)
        known = [self._constants.get(item, items) for item in items]
        if all(type(item) is not list for item in known):
            self._constants[closure] = known
        return closure

    def _dict(self) -> Closure:
        pairs: list[tuple[Closure, Closure]] = []
        while not self._take("}"):
            if pairs:
                self._expect(",")
                if self._take("}"):
                    break
            key = self._conditional()
            self._expect(":")
            pairs.append((key, self._conditional()))
        return closures.build_dict(pairs)

    def _filters_and_tests(self, value: Closure, first_read: int) -> Closure:
        while True:
            token = self._tokens[self._index]
            if token[0] == OPERATOR and token[1] == "|":
                value = self._filter(value, first_read)
            elif token[0] == NAME and token[1] == "is":
                value = self._test(value, first_read)
            else:
                return value

    def _filter(self, value: Closure, first_read: int) -> Closure:
        self._count()
        name = self._tokens[self._index + 1]
        function = FILTERS.get(name[1]) if name[0] == NAME else None
        if function is None:
            raise Refused
        self._index += 2
        if function is default:
            self._guard(first_read)
        args = self._arguments() if self._take("(") else []
        following = self._tokens[self._index]
        if following[0] == OPERATOR and following[1] in "(.":
            # A call of what the filter gave, or a filter with a dotted name.
            raise Refused
        return closures.filtered(function, value, args)

    def _test(self, value: Closure, first_read: int) -> Closure:
        self._count()
        self._index += 1
        negated = self._take_word("not")
        name = self._tokens[self._index]
        following = self._tokens[min(self._index + 1, len(self._tokens) - 1)]
        self._index += 1
        if following[0] in _TEST_ARGUMENT_KINDS:
            if following[1] not in ("and", "or", "else") or following[0] != NAME:
                raise Refused
        elif following[0] == OPERATOR and following[1] in "([{.":
            raise Refused
        if name[0] != NAME:
            raise Refused
        if name[1] == "none":
            positive, negative = closures.is_none(value, True), closures.is_none(value, False)
            self._negations[positive] = negative
        elif name[1] == "defined" or name[1] == "undefined":
            self._guard(first_read)
            positive, negative = closures.is_defined(value), closures.is_undefined(value)
            if name[1] == "undefined":
                positive, negative = negative, positive
        else:
            raise Refused
        return negative if negated else positive

    def _guard(self, first_read: int) -> None:
        for index in range(first_read, len(self.reads)):
            self.reads[index] = self.reads[index]._replace(guarded=True)

    def _arguments(self) -> list[Closure]:
        """Positional arguments, after the opening parenthesis."""
        args: list[Closure] = []
        while not self._take(")"):
            if args:
                self._expect(",")
                if self._take(")"):
                    break
            args.append(self._conditional())
        return args

    # Single tokens.

    def _take(self, symbol: str) -> bool:
        token = self._tokens[self._index]
        if token[1] == symbol and token[0] == OPERATOR:
            self._index += 1
            return True
        return False

    def _take_word(self, word: str) -> bool:
        token = self._tokens[self._index]
        if token[1] == word and token[0] == NAME:
            self._index += 1
            return True
        return False

    def _expect(self, symbol: str) -> None:
        if not self._take(symbol):
            raise Refused

    def _count(self) -> None:
        """Closures call each other as deep as operators nest; Jinja judges what goes deeper."""
        self._operators += 1
        if self._operators > _MAX_OPERATORS:
            raise Refused


def subscript_path(path: str, key: object) -> str:
    """How a subscript is shown in messages; a key that is not a constant is shown as three dots."""
    if isinstance(key, str):
        return f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]"
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}[…]"
