"""What the fast path evaluates: small functions from an evaluation to a value.

Each maker returns one closure. The common shapes (a dotted path, a comparison with a constant) have
closures of their own, because guards run for every event. Meaning lives in `operators`, `lookup` and
`filters`; nothing here decides what an operator does.
"""

from __future__ import annotations

from collections.abc import Callable

from noetl.template.evaluation import Evaluation
from noetl.template.filters import Filter, apply
from noetl.template.lookup import UNDEFINED, Missing, attribute, subscript
from noetl.template.methods import Value
from noetl.template.operators import COMPARISONS, Binary, concat, method_call

Closure = Callable[[Evaluation], Value]

_SIMPLE = frozenset((int, float, bool, str, type(None)))


def constant(value: object) -> Closure:
    return lambda run: value


def read_name(name: str) -> Closure:
    def read(run: Evaluation) -> Value:
        value = run.resolve(name)
        return Missing(name, run.strict) if value is UNDEFINED else value

    return read


def read_path(name: str, keys: tuple[str, ...]) -> Closure:
    if len(keys) == 1:
        return _read_field(name, keys[0])

    def read(run: Evaluation) -> Value:
        value: Value = run.resolve(name)
        if value is UNDEFINED:
            return Missing(name, run.strict)
        for index, key in enumerate(keys):
            if type(value) is dict and key in value:
                value = value[key]
            else:
                value = attribute(run, value, key, ".".join((name, *keys[: index + 1])))
        return value

    return read


def _read_field(name: str, key: str) -> Closure:
    def read(run: Evaluation) -> Value:
        value: Value = run.resolve(name)
        if type(value) is dict and key in value:
            return value[key]
        if value is UNDEFINED:
            return Missing(name, run.strict)
        return attribute(run, value, key, f"{name}.{key}")

    return read


def read_attribute(operand: Closure, name: str, path: str) -> Closure:
    return lambda run: attribute(run, operand(run), name, path)


def read_subscript(operand: Closure, key: Closure, path: str) -> Closure:
    return lambda run: subscript(run, operand(run), key(run), path)


def call_method(operand: Closure, name: str, path: str, args: list[Closure]) -> Closure:
    return lambda run: method_call(run, operand(run), name, path, tuple([arg(run) for arg in args]))


def build_list(items: list[Closure]) -> Closure:
    return lambda run: run.built([item(run) for item in items])


def build_dict(pairs: list[tuple[Closure, Closure]]) -> Closure:
    return lambda run: run.mapping([(key(run), value(run)) for key, value in pairs])


def binary(function: Binary, left: Closure, right: Closure) -> Closure:
    return lambda run: function(run, left(run), right(run))


def unary(function: Callable[[Evaluation, Value], Value], operand: Closure) -> Closure:
    return lambda run: function(run, operand(run))


def compare(left: Closure, symbol: str, right: Closure) -> Closure:
    function = COMPARISONS[symbol]
    return lambda run: function(run, left(run), right(run))


def equals_constant(left: Closure, value: object) -> Closure:
    """`… == value` for a text, number, boolean or null."""
    function = COMPARISONS["=="]

    def test(run: Evaluation) -> Value:
        found = left(run)
        if type(found) in _SIMPLE:
            return found == value
        return function(run, found, value)

    return test


def in_constants(left: Closure, values: list[object]) -> Closure:
    """`… in [values]` for a list written with constants only."""
    function = COMPARISONS["in"]

    def test(run: Evaluation) -> Value:
        found = left(run)
        if type(found) in _SIMPLE:
            return found in values
        return function(run, found, values)

    return test


def compare_chain(left: Closure, links: list[tuple[Binary, Closure]]) -> Closure:
    """`a < b < c`: each operand is computed once, and only as far as the chain holds."""

    def test(run: Evaluation) -> Value:
        value = left(run)
        for function, operand in links:
            following = operand(run)
            held = function(run, value, following)
            if not held:
                return held
            value = following
        return held

    return test


def both(left: Closure, right: Closure) -> Closure:
    return lambda run: left(run) and right(run)


def either(left: Closure, right: Closure) -> Closure:
    return lambda run: left(run) or right(run)


def negation(operand: Closure) -> Closure:
    return lambda run: not operand(run)


def is_defined(operand: Closure) -> Closure:
    return lambda run: type(operand(run)) is not Missing


def is_undefined(operand: Closure) -> Closure:
    return lambda run: type(operand(run)) is Missing


def is_none(operand: Closure, wanted: bool) -> Closure:
    """What is missing is neither none nor something other than none."""

    def test(run: Evaluation) -> Value:
        value = operand(run)
        if type(value) is Missing:
            value.used()
            return False
        return (run.plain(value) is None) is wanted

    return test


def choice(test: Closure, chosen: Closure, otherwise: Closure) -> Closure:
    return lambda run: chosen(run) if test(run) else otherwise(run)


def nothing(run: Evaluation) -> Value:
    """The value of an inline `if` without `else` whose test is false."""
    return Missing("else", run.strict, "an inline `if` without `else` gave no value", silent=True)


def concatenation(operands: list[Closure]) -> Closure:
    return lambda run: concat(run, [operand(run) for operand in operands])


def filtered(function: Filter, operand: Closure, args: list[Closure]) -> Closure:
    return lambda run: apply(run, function, operand(run), tuple([arg(run) for arg in args]), {})
