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
from noetl.template.methods import Method, Value

Binary = Callable[[Evaluation, Value, Value], Value]

_NUMBERS: Final = frozenset((int, float, bool))
_SIMPLE: Final = frozenset((int, float, bool, str, type(None)))

# Comparing text is charged only where it could take noticeable time.
_LONG_TEXT: Final = 4096

# Formats whose width or precision is given in the text; `*` takes it from the values.
_PERCENT = re.compile(r"%(?:\([^)]*\))?[-+ #0]*(\*|[0-9]+)?(?:\.(\*|[0-9]+))?")


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
    return _checked(a + b)


def subtract(run: Evaluation, a: Value, b: Value) -> Value:
    a, b, missing = _operands(a, b)
    return missing if missing is not None else _checked(a - b)


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
    return a * b


def divide(run: Evaluation, a: Value, b: Value) -> Value:
    a, b, missing = _operands(a, b)
    return missing if missing is not None else a / b


def floor_divide(run: Evaluation, a: Value, b: Value) -> Value:
    a, b, missing = _operands(a, b)
    return missing if missing is not None else a // b


def modulo(run: Evaluation, a: Value, b: Value) -> Value:
    a, b, missing = _operands(a, b)
    if missing is not None:
        return missing
    if isinstance(a, str):
        return percent_format(run, a, b)
    return a % b


def power(run: Evaluation, a: Value, b: Value) -> Value:
    a, b, missing = _operands(a, b)
    if missing is not None:
        return missing
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and b > 0:
        check_integer((abs(a).bit_length() - 1) * b)
    result = a**b
    if isinstance(result, complex):
        raise TemplateValueError("a root of a negative number has no value")
    return result


def percent_format(run: Evaluation, template: str, values: object) -> str:
    """`'%05d' % n`, also what the filter `format` does."""
    size = len(template)
    count = 0
    for match in _PERCENT.finditer(template):
        count += 1
        for number in match.groups():
            if number == "*":
                raise TemplateValueError("a format cannot take its width from the values")
            if number is not None:
                size += int(number) if len(number) < 10 else 10**10
    run.produce(size)
    run.produce(count * run.weigh(values, 1 << 24))
    return template % run.native(values) if isinstance(values, dict) else template % _arguments(run, values)


def _arguments(run: Evaluation, values: object) -> object:
    if isinstance(values, tuple):
        return tuple(run.native(value) for value in values)
    return run.native(values)


def _checked(result: Value) -> Value:
    if type(result) is int:
        check_integer(result.bit_length())
    return result


def negative(run: Evaluation, value: Value) -> Value:
    return value.used() if isinstance(value, Missing) else -run.plain(value)


def positive(run: Evaluation, value: Value) -> Value:
    return value.used() if isinstance(value, Missing) else +run.plain(value)


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
            each = len(a) if isinstance(a, str) else 1
            run.spend(len(b) // BLOCK + len(b) * each // 4096)
        for_views = any(isinstance(item, View) for item in b)
        return a in [run.plain(item) for item in b] if for_views else a in b
    if isinstance(b, str):
        if not isinstance(a, str):
            raise TemplateValueError(f"a {kind_name(a)} cannot be searched for in text")
        run.spend((len(a) + len(b)) // BLOCK + 1)
        return a in b
    if isinstance(b, (dict, range)):
        return a in b
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
            if function.receiver.get(args[0], arg) is arg:  # type: ignore[attr-defined]
                return arg
            return function.receiver[args[0]]  # type: ignore[index]
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
