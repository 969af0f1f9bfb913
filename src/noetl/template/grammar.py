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
from noetl.template.tokens import END, NAME, NUMBER, OPERATOR, REFUSED, STRING, Refused, Token, cut

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

_SUMS: Final = frozenset("+-")
_PRODUCTS: Final = frozenset(("*", "/", "//", "%"))
_ORDERINGS: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))


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
        if not self.sole:
            return self._render(run)
        result = self.value(run)
        # Data read from the scope is JSON already, and may be too large to be walked each time.
        if not (self._pure and type(result) in (dict, list)):
            result = run.native(result)
        if self._pieces[0][2] and run.on_secret is not None:
            run.on_secret(result)
        return result

    def _render(self, run: Evaluation) -> str:
        texts: list[str] = []
        for text, closure, secret in self._pieces:
            if closure is None:
                texts.append(text)
                continue
            value = closure(run)
            texts.append(run.text(value))
            if secret and run.on_secret is not None:
                run.on_secret(run.native(value))
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
    __slots__ = ("_calls", "_constants", "_index", "_negations", "_operators", "_tokens", "pure", "reads")

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self._operators = 0
        self._calls = False
        self._negations: dict[Closure, Closure] = {}
        # Closures whose value is known now; those that are lists of constants are compared faster.
        self._constants: dict[Closure, object] = {}
        self.reads: list[Read] = []
        self.pure = False

    def whole(self) -> Closure:
        closure = self._conditional()
        if self._tokens[self._index].kind != END:
            raise REFUSED
        return closure

    # From loosest to tightest.

    def _conditional(self) -> Closure:
        value = self._or()
        while self._take_word("if"):
            self._count()
            test = self._or()
            otherwise = self._conditional() if self._take_word("else") else closures.nothing
            value = closures.choice(test, value, otherwise)
        return value

    def _or(self) -> Closure:
        value = self._and()
        while self._take_word("or"):
            self._count()
            value = closures.either(value, self._and())
        return value

    def _and(self) -> Closure:
        value = self._not()
        while self._take_word("and"):
            self._count()
            value = closures.both(value, self._not())
        return value

    def _not(self) -> Closure:
        if self._take_word("not"):
            self._count()
            operand = self._not()
            return self._negations.get(operand) or closures.negation(operand)
        return self._comparison()

    def _comparison(self) -> Closure:
        left = self._sum()
        links: list[tuple[str, Closure]] = []
        while True:
            symbol = self._comparison_symbol()
            if symbol is None:
                break
            self._count()
            links.append((symbol, self._sum()))
        if not links:
            return left
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

    def _comparison_symbol(self) -> str | None:
        token = self._tokens[self._index]
        if token.kind == OPERATOR:
            if token.value not in _ORDERINGS:
                return None
            self._index += 1
            return token.value
        if token.kind == NAME:
            if token.value == "in":
                self._index += 1
                return "in"
            if token.value == "not" and self._tokens[self._index + 1].value == "in":
                if self._tokens[self._index + 1].kind != NAME:
                    raise REFUSED
                self._index += 2
                return "not in"
        return None

    def _sum(self) -> Closure:
        left = self._concatenation()
        while (symbol := self._take_operator(_SUMS)) is not None:
            left = closures.binary(BINARY[symbol], left, self._concatenation())
        return left

    def _concatenation(self) -> Closure:
        first = self._product()
        if self._tokens[self._index].value != "~" or self._tokens[self._index].kind != OPERATOR:
            return first
        operands = [first]
        while self._take("~"):
            operands.append(self._product())
        return closures.concatenation(operands)

    def _product(self) -> Closure:
        left = self._power()
        while (symbol := self._take_operator(_PRODUCTS)) is not None:
            left = closures.binary(BINARY[symbol], left, self._power())
        return left

    def _power(self) -> Closure:
        left = self._unary(filters=True)
        while self._take("**"):
            self._count()
            left = closures.binary(BINARY["**"], left, self._unary(filters=True))
        return left

    def _unary(self, filters: bool) -> Closure:
        first_read = len(self.reads)
        if self._take("-"):
            self._count()
            value = closures.unary(negative, self._unary(filters=False))
        elif self._take("+"):
            self._count()
            value = closures.unary(positive, self._unary(filters=False))
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
                return self._postfix(self._constant(_CONSTANTS[text]), text)
            if text in _RESERVED:
                raise REFUSED
            return self._name(text, offset)
        if kind == STRING:
            return self._postfix(self._constant(text[1:-1]), "text")
        if kind == NUMBER:
            if len(text) > 17 or (text[0] == "0" and len(text) > 1 and text[1] != "."):
                raise REFUSED
            return self._postfix(self._constant(float(text) if "." in text else int(text)), "number")
        if text == "(" and kind == OPERATOR:
            self._count()
            value = self._conditional()
            self._expect(")")
            return self._postfix(value, "(…)")
        if text == "[" and kind == OPERATOR:
            return self._postfix(self._list(), "list")
        if text == "{" and kind == OPERATOR:
            return self._postfix(self._dict(), "mapping")
        raise REFUSED

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
        while tokens[index].value == "." and tokens[index].kind == OPERATOR:
            attribute = tokens[index + 1]
            if attribute.kind != NAME:
                raise REFUSED
            if tokens[index + 2].value == "(" and tokens[index + 2].kind == OPERATOR:
                break
            keys.append(attribute.value)
            index += 2
        self._index = index
        path = (name, *keys)
        position = len(self.reads)
        self.reads.append(Read(path, offset, False))
        value = closures.read_path(name, tuple(keys)) if keys else closures.read_name(name)
        value = self._postfix(value, ".".join(path), position)
        self.pure = leads and tokens[self._index].kind == END and not self._calls
        return value

    def _postfix(self, value: Closure, path: str, read: int | None = None) -> Closure:
        """`read` is the index of the read that constant subscripts still belong to."""
        while True:
            if self._take("."):
                self._count()
                attribute = self._tokens[self._index]
                if attribute.kind != NAME:
                    raise REFUSED
                self._index += 1
                path = f"{path}.{attribute.value}"
                if self._take("("):
                    self._calls = True
                    value = closures.call_method(value, attribute.value, path, self._arguments())
                    read = None
                    path += "()"
                    continue
                value = closures.read_attribute(value, attribute.value, path)
                self._extend_read(read, attribute.value)
            elif self._take("["):
                self._count()
                key = self._conditional()
                self._expect("]")
                known = self._constants.get(key)
                path = subscript_path(path, known)
                value = closures.read_subscript(value, key, path)
                if isinstance(known, str):
                    self._extend_read(read, known)
                else:
                    read = None
            elif self._tokens[self._index].value == "(" and self._tokens[self._index].kind == OPERATOR:
                raise REFUSED
            else:
                return value

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
            if token.kind == OPERATOR and token.value == "|":
                value = self._filter(value, first_read)
            elif token.kind == NAME and token.value == "is":
                value = self._test(value, first_read)
            else:
                return value

    def _filter(self, value: Closure, first_read: int) -> Closure:
        self._count()
        name = self._tokens[self._index + 1]
        function = FILTERS.get(name.value) if name.kind == NAME else None
        if function is None:
            raise REFUSED
        self._index += 2
        if function is default:
            self._guard(first_read)
        args = self._arguments() if self._take("(") else []
        following = self._tokens[self._index]
        if following.kind == OPERATOR and following.value in "(.":
            # A call of what the filter gave, or a filter with a dotted name.
            raise REFUSED
        return closures.filtered(function, value, args)

    def _test(self, value: Closure, first_read: int) -> Closure:
        self._count()
        self._index += 1
        negated = self._take_word("not")
        name = self._tokens[self._index]
        following = self._tokens[min(self._index + 1, len(self._tokens) - 1)]
        self._index += 1
        if following.kind in _TEST_ARGUMENT_KINDS:
            if following.value not in ("and", "or", "else") or following.kind != NAME:
                raise REFUSED
        elif following.kind == OPERATOR and following.value in "([{.":
            raise REFUSED
        if name.kind != NAME:
            raise REFUSED
        if name.value == "none":
            positive, negative = closures.is_none(value, True), closures.is_none(value, False)
            self._negations[positive] = negative
        elif name.value == "defined" or name.value == "undefined":
            self._guard(first_read)
            positive, negative = closures.is_defined(value), closures.is_undefined(value)
            if name.value == "undefined":
                positive, negative = negative, positive
        else:
            raise REFUSED
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
        if token.value == symbol and token.kind == OPERATOR:
            self._index += 1
            return True
        return False

    def _take_operator(self, symbols: frozenset[str]) -> str | None:
        token = self._tokens[self._index]
        if token.kind == OPERATOR and token.value in symbols:
            self._index += 1
            self._count()
            return token.value
        return None

    def _take_word(self, word: str) -> bool:
        token = self._tokens[self._index]
        if token.value == word and token.kind == NAME:
            self._index += 1
            return True
        return False

    def _expect(self, symbol: str) -> None:
        if not self._take(symbol):
            raise REFUSED

    def _count(self) -> None:
        """Closures call each other as deep as operators nest; Jinja judges what goes deeper."""
        self._operators += 1
        if self._operators > _MAX_OPERATORS:
            raise REFUSED


def subscript_path(path: str, key: object) -> str:
    """How a subscript is shown in messages; a key that is not a constant is shown as three dots."""
    if isinstance(key, str):
        return f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]"
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}[…]"
