"""One evaluation under way: its scope, its budget, and what both engines ask of it.

Both the closures and the code Jinja generates get an `Evaluation`, so that charging, unwrapping and the
conversion of results are written once. It lives as long as one call of `evaluate` or `test`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NoReturn, TypeAlias

from noetl.errors import TemplateBudgetError, TemplateValueError
from noetl.template.budget import BLOCK, ITEM_BYTES, Budget
from noetl.template.lookup import Missing, Scope, View, kind_name
from noetl.template.methods import Value

SqlRole: TypeAlias = Literal["in_list", "identifier", "sql"]

MAX_RESULT_DEPTH = 100
MAX_CALL_DEPTH = 24
MAX_KEY_BITS = 60

_SCALARS = frozenset((str, int, float, bool, type(None)))
_TEXT_KINDS = (list, tuple, dict, range)


class SqlPart:
    """A value, and what it is to become in SQL text: the work of the filters of the same names.

    It is no value of its own: whatever else is done with it is refused.
    """

    __slots__ = ("role", "value")

    def __init__(self, value: object, role: SqlRole) -> None:
        self.value = value
        self.role = role


ON_SECRET: Final = "keychain.on_secret"
"""The name under which a scope has who hears of what expressions make of secrets; no template can say it."""


class Evaluation:
    __slots__ = ("budget", "depth", "on_output", "on_secret", "resolve", "strict")

    def __init__(
        self,
        scope: Scope,
        strict: bool,
        budget: Budget | None = None,
        on_secret: Callable[[object], None] | None = None,
        on_output: Callable[[Evaluation, object], str] | None = None,
    ) -> None:
        self.resolve = scope.resolve
        self.strict = strict
        self.budget = budget
        self.on_secret = on_secret
        # Writes each value that a template puts into its text; without it `text` does.
        self.on_output = on_output
        self.depth = 0

    def spend(self, work: int) -> None:
        if self.budget is None:
            self.budget = Budget()
        self.budget.spend(work)

    def produce(self, size: int) -> None:
        if self.budget is None:
            self.budget = Budget()
        self.budget.produce(size)

    def enter_call(self) -> None:
        self.depth += 1
        if self.depth > MAX_CALL_DEPTH:
            raise TemplateBudgetError(f"the template calls itself more than {MAX_CALL_DEPTH} levels deep")

    def leave_call(self) -> None:
        self.depth -= 1

    # Values going into operators and filters.

    def plain(self, value: Value) -> Value:
        return value.plain() if isinstance(value, View) else value

    def items(self, value: object) -> Value:
        """Something with a length to iterate over: a list, tuple, text, mapping or range."""
        if isinstance(value, View):
            value = value.plain()
        if isinstance(value, Missing):
            value.used()
            return ()
        if not isinstance(value, (list, tuple, str, dict, range)):
            raise TemplateValueError(f"a {kind_name(value)} cannot be iterated over")
        self.spend(len(value) // BLOCK + 1)
        return value

    def turns(self, value: object) -> Value:
        """Like `items`, but each item costs a unit, since the template's own text runs for each."""
        found = self.items(value)
        self.spend(len(found))
        return found

    def built(self, value: Value) -> Value:
        """Charges for a list, tuple or mapping the template wrote down."""
        self.produce(ITEM_BYTES * len(value))
        if self.strict:
            for item in value.values() if type(value) is dict else value:
                if type(item) is Missing:
                    item.used()
        return value

    # Keys. Hashing a tuple hashes all it holds, again wherever it holds it again; so none is a key.

    def sought(self, key: Value) -> Value:
        """A key to look for in a mapping."""
        if type(key) in _SCALARS or isinstance(key, (str, int, float)):
            return key
        if isinstance(key, View):
            return self.sought(key.plain())
        if isinstance(key, Missing):
            key.used()
        raise TemplateValueError(f"a {kind_name(key)} cannot be a key")

    def mapping(self, pairs: list[tuple[Value, Value]]) -> dict[Value, Value]:
        """A mapping the template wrote down or asked for."""
        found: dict[Value, Value] = self.built(
            {key if type(key) is str else self._kept(key): value for key, value in pairs}
        )
        return found

    def _kept(self, key: Value) -> Value:
        key = self.sought(key)
        # Larger ones may all have the same hash.
        if isinstance(key, int) and key.bit_length() > MAX_KEY_BITS:
            raise TemplateValueError("a number of more than 18 digits cannot be a key")
        return key

    # Deep sizes, for what works on a whole structure at C level.

    def weigh(self, value: object, limit: int) -> int:
        """About the length of the value's text; counting stops a little above `limit`."""
        total = 0
        stack = [value]
        while stack and total <= limit:
            item = stack.pop()
            if isinstance(item, str):
                total += len(item) + 4
            elif isinstance(item, (list, tuple)):
                total += 4 * len(item) + 4
                if total <= limit:
                    stack.extend(item)
            elif isinstance(item, dict):
                total += 6 * len(item) + 4
                if total <= limit:
                    stack.extend(item)
                    stack.extend(item.values())
            elif isinstance(item, int):
                total += item.bit_length() // 3 + 6
            elif isinstance(item, View):
                stack.append(item.plain())
            elif item is None or isinstance(item, (float, range, Missing)):
                total += 24
            else:
                # Something of the sandbox's own, which could hold anything.
                refuse(item)
        return total

    def written(self, value: object) -> int:
        """Charges for turning the whole value into text; about its length."""
        weight = self.weigh(value, self.remaining().bytes)
        self.produce(weight)
        return weight

    def compared(self, *values: object) -> None:
        """Charges for comparing whole structures."""
        for value in values:
            if not isinstance(value, (int, float, str, type(None))):
                self.spend(self.weigh(value, 16 * self.remaining().work + 16) // 16)

    def remaining(self) -> Budget:
        if self.budget is None:
            self.budget = Budget()
        return self.budget

    # Values coming out.

    def shown(self, value: object) -> str:
        """The value as an expression puts it into the template's text."""
        return self.text(value) if self.on_output is None else self.on_output(self, value)

    def secret(self, value: object) -> None:
        """Tells that an expression which reads the keychain gave this value."""
        self.native_secret(self.native(value.value if isinstance(value, SqlPart) else value))

    def native_secret(self, value: object) -> None:
        """The same of a value that is native already. Without a listener the scope may have one."""
        heard = self.on_secret or self.resolve(ON_SECRET)
        if callable(heard):
            heard(value)

    def text(self, value: object) -> str:
        """The value as it stands in rendered text."""
        if type(value) is str:
            shown = value
        elif isinstance(value, (View, Missing, str)):
            shown = str(value)
        else:
            if isinstance(value, _TEXT_KINDS):
                self.written(value)
            elif not (value is None or isinstance(value, (int, float))):
                refuse(value)
            shown = str(value)
        self.produce(len(shown))
        return shown

    def native(self, value: object) -> object:
        """The value as JSON data, with views, tuples and ranges inside it replaced."""
        if type(value) in _SCALARS:
            return value
        return _NativeWalk(self).convert(value, 0)


class _NativeWalk:
    """Copies a structure into plain lists and dicts.

    Each distinct container is converted once. Real data costs nothing, however large; a container met
    again costs what it would take if written out, or a few nested doublings would describe a value that
    nobody could ever write down.
    """

    __slots__ = ("_done", "_run", "_size")

    def __init__(self, run: Evaluation) -> None:
        self._run = run
        self._done: dict[int, tuple[object, object, int]] = {}
        self._size = 0

    def convert(self, value: Value, depth: int) -> object:
        self._size += 1
        kind = type(value)
        if kind in _SCALARS:
            return value if kind is not str or value.isascii() else whole_text(value)
        if isinstance(value, View):
            value = value.plain()
            kind = type(value)
        if isinstance(value, Missing):
            raise value.error()
        if isinstance(value, str):
            return whole_text(str(value))
        if not isinstance(value, _TEXT_KINDS):
            if kind in _SCALARS:
                return value
            refuse(value)
        known = self._done.get(id(value))
        if known is not None:
            self._run.produce(ITEM_BYTES * known[2])
            self._size += known[2]
            return known[1]
        if depth >= MAX_RESULT_DEPTH:
            raise TemplateBudgetError(f"the result is nested more than {MAX_RESULT_DEPTH} levels deep")
        before = self._size
        result: object
        if isinstance(value, dict):
            result = {self._key(key): self.convert(item, depth + 1) for key, item in value.items()}
        else:
            result = [self.convert(item, depth + 1) for item in value]
        # The original is kept in the entry so that its id stays taken.
        self._done[id(value)] = (value, result, self._size - before)
        return result

    @staticmethod
    def _key(key: object) -> str:
        if not isinstance(key, str):
            raise TemplateValueError(f"a {kind_name(key)} cannot be a key in the result; keys are text")
        return str(key) if key.isascii() else whole_text(str(key))


def whole_text(text: str) -> str:
    """The text, if it can be written as data at all: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TemplateValueError("a text with half of a surrogate pair is no value") from None
    return text


def refuse(value: object) -> NoReturn:
    if isinstance(value, SqlPart):
        raise TemplateValueError(f"the filter `{value.role}` must be the last of its expression")
    raise TemplateValueError(f"a {kind_name(value)} is not a value a template can give")
