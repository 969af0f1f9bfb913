"""The filters and tests both engines know; the sandbox adds more to them.

A filter takes the evaluation, the value and its arguments. Missing values reach only the filters that
say so (`default`) and the tests `defined` and `undefined`; `apply` sees to that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl.errors import TemplateValueError
from noetl.template.budget import ITEM_BYTES, check_integer
from noetl.template.evaluation import Evaluation, SqlPart, SqlRole
from noetl.template.lookup import Missing, dotted, kind_name
from noetl.template.methods import Value, strip_cost

Filter = Callable[..., Value]


def default(run: Evaluation, value: Value, default_value: Value = "", boolean: Value = False) -> Value:
    if isinstance(value, Missing):
        return default_value
    if boolean and not value:
        return default_value
    return value


def length(run: Evaluation, value: Value) -> int:
    if not isinstance(value, (list, tuple, str, dict, range)):
        raise TemplateValueError(f"a {kind_name(value)} has no length")
    return len(value)


def to_int(run: Evaluation, value: Value, default: Value = 0, base: Value = 10) -> Value:
    if isinstance(value, str):
        run.spend(len(value) // 16 + 1)
    try:
        result = int(value, base) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        try:
            # "42.9" is 42.
            result = int(float(value))
        except (TypeError, ValueError, OverflowError):
            return default
    check_integer(result.bit_length())
    return result


def to_float(run: Evaluation, value: Value, default: Value = 0.0) -> Value:
    if isinstance(value, str):
        run.spend(len(value) // 16 + 1)
    try:
        return float(value)
    except (TypeError, ValueError):
        return default


def string(run: Evaluation, value: Value) -> str:
    return run.text(value)


def lower(run: Evaluation, value: Value) -> str:
    text = run.text(value)
    run.produce(3 * len(text))
    return text.lower()


def upper(run: Evaluation, value: Value) -> str:
    text = run.text(value)
    run.produce(3 * len(text))
    return text.upper()


def trim(run: Evaluation, value: Value, chars: Value = None) -> str:
    text = run.text(value)
    if isinstance(chars, str):
        run.spend(strip_cost(text, chars))
    return text.strip(chars)


def first(run: Evaluation, value: Value) -> Value:
    for item in run.items(value):
        return item
    return Missing("first", run.strict, "the first item of something empty is not defined")


def last(run: Evaluation, value: Value) -> Value:
    for item in reversed(run.items(value)):
        return item
    return Missing("last", run.strict, "the last item of something empty is not defined")


def to_list(run: Evaluation, value: Value) -> list[Value]:
    items = run.items(value)
    run.produce(ITEM_BYTES * len(items))
    return list(items)


def join(run: Evaluation, value: Value, d: Value = "", attribute: Value = None) -> Value:
    separator = run.text(d)
    items = run.items(value)
    run.spend(len(items))
    if attribute is not None:
        path = run.text(attribute)
        items = [dotted(run, item, path) for item in items]
    texts = [run.text(item) for item in items]
    run.produce(len(separator) * len(texts) + sum(map(len, texts)))
    return separator.join(texts)


def to_json(run: Evaluation, value: Value, indent: Value = None) -> str:
    data = run.native(value)
    if indent is not None and not (isinstance(indent, int) and 0 <= indent <= 16):
        raise TemplateValueError("`tojson` takes an indent from 0 to 16")
    weight = run.written(data)
    if indent:
        # Every line may be as far in as the deepest one.
        run.produce(weight // 4 * indent * _depth(data))
    # Most runs never write JSON in a template, and the module takes a while to load.
    import json  # noqa: PLC0415

    text = json.dumps(data, ensure_ascii=False, indent=indent)
    # Characters under 32 are written as six.
    run.produce(max(len(text) - weight, 0))
    return text


def _depth(data: Value) -> int:
    if isinstance(data, dict):
        return 1 + max(map(_depth, data.values()), default=0)
    return 1 + max(map(_depth, data), default=0) if isinstance(data, list) else 0


def _sql_part(role: SqlRole) -> Filter:
    def mark(run: Evaluation, value: Value) -> SqlPart:
        if run.on_output is None:
            raise TemplateValueError(f"the filter `{role}` belongs to the text of a SQL tool")
        return SqlPart(value, role)

    return mark


FILTERS: Final[dict[str, Filter]] = {
    "count": length,
    "d": default,
    "default": default,
    "first": first,
    "float": to_float,
    "identifier": _sql_part("identifier"),
    "in_list": _sql_part("in_list"),
    "int": to_int,
    "join": join,
    "last": last,
    "length": length,
    "list": to_list,
    "lower": lower,
    "sql": _sql_part("sql"),
    "string": string,
    "tojson": to_json,
    "trim": trim,
    "upper": upper,
}

# These are shown the view itself: its text or its items, rather than its JSON value.
_TAKE_VIEWS: Final = frozenset((default, string, lower, upper, trim))


def apply(
    run: Evaluation, function: Filter, value: Value, args: tuple[Value, ...], kwargs: dict[str, Value]
) -> Value:
    """Calls a filter; what is missing stops here unless the filter is `default`."""
    if function is default:
        return function(run, value, *args, **kwargs)
    if isinstance(value, Missing):
        return value.used()
    for arg in (*args, *kwargs.values()):
        if isinstance(arg, Missing):
            return arg.used()
    if function not in _TAKE_VIEWS:
        value = run.plain(value)
    run.spend(1 + len(args) + len(kwargs))
    return function(
        run,
        value,
        *[run.plain(arg) for arg in args],
        **{name: run.plain(arg) for name, arg in kwargs.items()},
    )
