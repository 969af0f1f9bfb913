"""What the operators of expressions do, bounded, for both engines.

An operator takes the evaluation and its operands. A missing operand raises in a strict evaluation; in a
guard a comparison with it is false and anything else computed from it is missing. Failures of the
operands' types are left to Python and translated once, in `template.py`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Final

from noetl.errors import TemplateValueError
from noetl.template.budget import BLOCK, ITEM_BYTES, check_integer
from noetl.template.evaluation import Evaluation
from noetl.template.lookup import Missing, View, called_attribute, kind_name
from noetl.template.methods import Method, Value, search_cost

Binary = Callable[[Evaluation, Value, Value], Value]

_NUMBERS: Final = frozenset((int, float, bool))
_SIMPLE: Final = frozenset((int, float, bool, str, type(None)))

# A number of this size takes no more room than any other.
_WORD_BITS: Final = 64

# Comparing text is charged only where it could take noticeable time.
_LONG_TEXT: Final = 4096

# What stands between `%`, or the key behind it, and the letter of a format.
_WIDTHS: Final = re.compile(r"[-+ #0]*(\*|[0-9]+)?(?:\.(\*|[0-9]+)?)?[hlL]?")
_PARENTHESIS: Final = re.compile(r"[()]")


def _operands(a: object, b: object) -> tuple[Value, Value, Missing | None]:
    if isinstance(a, Missing):
        return a, b, a.used()
    if isinstance(b, Missing):
        return a, b, b.used()
    return (
        a.operand() if isinstance(a, View) else a,
        b.operand() if isinstance(b, View) else b,
        None,
    )


def add(run: Evaluation, a: Value, b: Value) -> Value:
    if type(a) not in _NUMBERS or type(b) not in _NUMBERS:
        a, b, missing = _operands(a, b)
        if missing is not None:
            return missing
        if isinstance(a, str) and isinstance(b, str):
            run.produce(len(a) + len(b))
        elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            run.produce(ITEM_BYTES * (len(a) + len(b)))
    return checked(run, a + b)


def subtract(run: Evaluation, a: Value, b: Value) -> Value:
    a, b, missing = _operands(a, b)
    return missing if missing is not None else checked(run, a - b)


def multiply(run: Evaluation, a: Value, b: Value) -> Value:
    a, b, missing = _operands(a, b)
    if missing is not None:
        return missing
    if isinstance(a, int) and isinstance(b, int):
        check_integer(a.bit_length() + b.bit_length())
    else:
        for sequence, times in ((a, b), (b, a)):
            if isinstance(times, int) and isinstance(sequence, (str, list, tuple)):
                each = 1 if isinstance(sequence, str) else ITEM_BYTES
                run.produce(each * len(sequence) * max(times, 0))
    return checked(run, a * b)


def divide(run: Evaluation, a: Value, b: Value) -> Value:
    a, b, missing = _operands(a, b)
    return missing if missing is not None else a / b


def floor_divide(run: Evaluation, a: Value, b: Value) -> Value:
    a, b, missing = _operands(a, b)
    return missing if missing is not None else checked(run, a // b)


def modulo(run: Evaluation, a: Value, b: Value) -> Value:
    a, b, missing = _operands(a, b)
    if missing is not None:
        return missing
    if isinstance(a, str):
        return percent_format(run, a, b)
    return checked(run, a % b)


def power(run: Evaluation, a: Value, b: Value) -> Value:
    a, b, missing = _operands(a, b)
    if missing is not None:
        return missing
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 0:
        check_integer((abs(a).bit_length() - 1) * b)
    result = a**b
    if isinstance(result, complex):
        raise TemplateValueError("a root of a negative number has no value")
    return checked(run, result)


def percent_format(run: Evaluation, template: str, values: object) -> str:
    """`'%05d' % n`, also what the filter `format` does."""
    run.produce(len(template))
    count = template.count("%")
    run.spend(count + template.count("("))
    run.produce(_padding(template))
    run.produce(max(count, 1) * run.weigh(values, run.remaining().bytes))
    return template % run.native(values) if isinstance(values, dict) else template % _arguments(run, values)


def _padding(template: str) -> int:
    """How much longer the widths of a format may make its text."""
    size = 0
    position = template.find("%")
    while position >= 0:
        position += 1
        if template.startswith("(", position):
            position = _behind_key(template, position + 1)
        found = _WIDTHS.match(template, position)
        assert found is not None, "it matches the empty text too"
        for number in found.groups():
            if number == "*":
                raise TemplateValueError("a format cannot take its width from the values")
            if number is not None:
                size += int(number) if len(number) < 10 else 10**10
        position = template.find("%", found.end() + 1)
    return size


def _behind_key(template: str, position: int) -> int:
    """Parentheses inside a key belong to it if they are balanced."""
    depth = 1
    for found in _PARENTHESIS.finditer(template, position):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.end()
    raise TemplateValueError("a format has a key that is not closed")


def _arguments(run: Evaluation, values: object) -> object:
    if isinstance(values, tuple):
        return tuple(run.native(value) for value in values)
    return run.native(values)


def checked(run: Evaluation, result: Value) -> Value:
    """Charges for a number that is large."""
    if type(result) is int:
        bits = result.bit_length()
        if bits > _WORD_BITS:
            check_integer(bits)
            run.produce(bits // 8)
    return result


def negative(run: Evaluation, value: Value) -> Value:
    return value.used() if isinstance(value, Missing) else checked(run, -run.plain(value))


def positive(run: Evaluation, value: Value) -> Value:
    return value.used() if isinstance(value, Missing) else checked(run, +run.plain(value))


def _ordered(compare: Callable[[Value, Value], Value]) -> Binary:
    def run_comparison(run: Evaluation, a: Value, b: Value) -> Value:
        if type(a) in _SIMPLE and type(b) in _SIMPLE:
            if type(a) is str and len(a) > _LONG_TEXT:
                run.spend(len(a) // BLOCK)
            return compare(a, b)
        a, b, missing = _operands(a, b)
        if missing is not None:
            return False
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            run.compared(a, b)
        return compare(a, b)

    return run_comparison


def _equality(compare: Callable[[Value, Value], Value]) -> Binary:
    def run_comparison(run: Evaluation, a: Value, b: Value) -> Value:
        if type(a) in _SIMPLE and type(b) in _SIMPLE:
            if type(a) is str and len(a) > _LONG_TEXT:
                run.spend(len(a) // BLOCK)
            return compare(a, b)
        a, b, missing = _operands(a, b)
        if missing is not None:
            return False
        # Python looks inside only if the lengths agree.
        if isinstance(a, (list, tuple, dict)) and isinstance(b, (list, tuple, dict)) and len(a) == len(b):
            run.compared(a, b)
        return compare(a, b)

    return run_comparison


def contains(run: Evaluation, a: Value, b: Value) -> Value:
    found = _contains(run, a, b)
    return found is True


def not_contains(run: Evaluation, a: Value, b: Value) -> Value:
    found = _contains(run, a, b)
    return found is False


def _contains(run: Evaluation, a: Value, b: Value) -> bool | None:
    a, b, missing = _operands(a, b)
    if missing is not None:
        return None
    if isinstance(b, (list, tuple)):
        if isinstance(a, (list, tuple, dict)):
            run.compared(b, a)
        else:
            each = len(a) if isinstance(a, str) else a.bit_length() // 8 if isinstance(a, int) else 1
            run.spend(len(b) // BLOCK + len(b) * each // 4096)
        has_views = any(issubclass(kind, View) for kind in set(map(type, b)))
        return a in [run.plain(item) for item in b] if has_views else a in b
    if isinstance(b, str):
        if not isinstance(a, str):
            raise TemplateValueError(f"a {kind_name(a)} cannot be searched for in text")
        run.spend((len(a) + len(b)) // BLOCK + 1 + search_cost(b, a))
        return a in b
    if isinstance(b, dict):
        return run.sought(a) in b
    if isinstance(b, range):
        # Python would look at each number for the sake of anything but an integer.
        if isinstance(a, float) and a.is_integer():
            a = int(a)
        return isinstance(a, int) and a in b
    raise TemplateValueError(f"a {kind_name(b)} cannot be searched")


def concat(run: Evaluation, values: list[Value]) -> Value:
    """The operator `~`."""
    texts = []
    for value in values:
        if isinstance(value, Missing) and not value.silent:
            return value.used()
        texts.append(run.text(value))
    run.produce(sum(map(len, texts)))
    return "".join(texts)


def call(run: Evaluation, function: object, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    """Calls a method that `attribute` found."""
    if isinstance(function, Missing):
        return function.used()
    if not isinstance(function, Method):
        raise TemplateValueError(f"a {kind_name(function)} cannot be called")
    for arg in (*args, *kwargs.values()):
        if isinstance(arg, Missing):
            # `d.get(k, missing)` may never need its default.
            if function.name != "get" or arg is not args[-1] or len(args) != 2:
                return arg.used()
            return function.receiver.get(run.sought(args[0]), arg)  # type: ignore[attr-defined]
    plain = tuple(run.plain(arg) for arg in args)
    return function.call(run, plain, {name: run.plain(arg) for name, arg in kwargs.items()})


def method_call(run: Evaluation, value: object, name: str, path: str, args: tuple[Value, ...]) -> Value:
    return call(run, called_attribute(run, value, name, path), args, {})


BINARY: Final[dict[str, Binary]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "//": floor_divide,
    "%": modulo,
    "**": power,
}

COMPARISONS: Final[dict[str, Binary]] = {
    "==": _equality(operator.eq),
    "!=": _equality(operator.ne),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "in": contains,
    "not in": not_contains,
}
