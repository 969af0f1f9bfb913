"""Filters over lists and mappings that only the sandbox offers: sorting, grouping, mapping, selecting.

They take the evaluation first, like those in `filters.py`, always give finished lists (never a
generator), and pay for each item before touching it. Attributes are looked up by the template's own
rules, so keys come before methods here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from noetl.errors import TemplateBudgetError, TemplateValueError
from noetl.template.budget import BLOCK, ITEM_BYTES
from noetl.template.evaluation import MAX_KEY_BITS, MAX_RESULT_DEPTH, Evaluation
from noetl.template.filters import FILTERS, Filter, apply
from noetl.template.lookup import Missing, dotted, kind_name
from noetl.template.methods import Value
from noetl.template.operators import add

Getter = Callable[[Value], Value]


class Group(NamedTuple):
    """One group of `groupby`; it unpacks like a pair."""

    grouper: Value
    list: list[Value]


def _keyed(run: Evaluation, value: Value, get: Getter) -> tuple[list[Value], list[Value]]:
    """The items and what they are compared by, both paid for."""
    items = list(run.turns(value))
    keys = [get(item) for item in items]
    run.compared(keys)
    run.produce(2 * ITEM_BYTES * len(items))
    return items, keys


def _in_order(items: list[Value], keys: list[Value], reverse: bool = False) -> list[Value]:
    return [items[index] for index in sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)]


def _getter(run: Evaluation, attribute: Value, ignore_case: bool = False) -> Getter:
    path = None if attribute is None else _path(attribute)

    def get(item: Value) -> Value:
        if path is not None:
            item = dotted(run, item, path)
            if isinstance(item, Missing):
                item.used()
        item = run.plain(item)
        return _lowered(run, item) if ignore_case else item

    return get


def _path(attribute: Value) -> str:
    if isinstance(attribute, (str, int)):
        return str(attribute)
    raise TemplateValueError(f"an attribute is named by text or a number, not by a {kind_name(attribute)}")


def _lowered(run: Evaluation, key: Value) -> Value:
    if not isinstance(key, str):
        return key
    # A short one is paid for with the item it belongs to.
    if len(key) > BLOCK:
        run.produce(len(key))
    return key.lower()


def sort(
    run: Evaluation,
    value: Value,
    reverse: Value = False,
    case_sensitive: Value = False,
    attribute: Value = None,
) -> Value:
    parts = [None] if attribute is None else [part.strip() for part in _path(attribute).split(",")]
    run.spend(len(parts))
    getters = [_getter(run, part, not case_sensitive) for part in parts]

    def get_each(item: Value) -> list[Value]:
        run.spend(len(getters))
        return [getter(item) for getter in getters]

    get = getters[0] if len(getters) == 1 else get_each
    return _in_order(*_keyed(run, value, get), bool(reverse))


def dictsort(
    run: Evaluation, value: Value, case_sensitive: Value = False, by: Value = "key", reverse: Value = False
) -> Value:
    if not isinstance(value, dict) or by not in ("key", "value"):
        raise TemplateValueError("`dictsort` takes a mapping, and `by` is 'key' or 'value'")
    get = _getter(run, None, not case_sensitive)
    place = 0 if by == "key" else 1
    run.produce(4 * ITEM_BYTES * len(value))
    return _in_order(*_keyed(run, list(value.items()), lambda pair: get(pair[place])), bool(reverse))


def unique(run: Evaluation, value: Value, case_sensitive: Value = False, attribute: Value = None) -> Value:
    get = _getter(run, attribute, not case_sensitive)
    seen = set()
    found = []
    for item, key in zip(*_keyed(run, value, get), strict=True):
        mark = _mark(key)
        if mark not in seen:
            seen.add(mark)
            found.append(item)
    return found


def _mark(key: Value) -> Value:
    """What equal keys have in common, and can be hashed: many tuples and large numbers have one hash."""
    if isinstance(key, tuple) or (isinstance(key, int) and key.bit_length() > MAX_KEY_BITS):
        return _Mark(_spelled(key, 0))
    return _Mark(_spelled(key, 0)) if isinstance(key, float) and abs(key) >= 2.0**MAX_KEY_BITS else key


class _Mark(NamedTuple):
    """Apart from all texts that are keys themselves."""

    spelled: str


def _spelled(key: Value, depth: int) -> str:
    if isinstance(key, tuple):
        if depth >= MAX_RESULT_DEPTH:
            raise TemplateBudgetError(f"a tuple is nested more than {MAX_RESULT_DEPTH} levels deep")
        return f"({','.join([_spelled(item, depth + 1) for item in key])})"
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, (str, float)) or key is None:
        return repr(key)
    if isinstance(key, int):
        return format(key, "x")
    raise TemplateValueError(f"a {kind_name(key)} cannot be told from others by `unique`")


def group_by(
    run: Evaluation, value: Value, attribute: Value, default: Value = None, case_sensitive: Value = False
) -> Value:
    path = _path(attribute)

    def get(item: Value) -> Value:
        found = run.plain(dotted(run, item, path))
        if isinstance(found, Missing):
            return found.used() if default is None else default
        return found

    def folded(item: Value) -> Value:
        return get(item) if case_sensitive else _lowered(run, get(item))

    groups: list[Group] = []
    previous: Value = None
    for item in _in_order(*_keyed(run, value, folded)):
        key = folded(item)
        if not groups or key != previous:
            groups.append(Group(get(item), []))
            previous = key
        groups[-1].list.append(item)
    return groups


def minimum(run: Evaluation, value: Value, case_sensitive: Value = False, attribute: Value = None) -> Value:
    items, keys = _keyed(run, value, _getter(run, attribute, not case_sensitive))
    if not items:
        return Missing("min", run.strict, "the smallest item of something empty is not defined")
    return items[min(range(len(items)), key=keys.__getitem__)]


def maximum(run: Evaluation, value: Value, case_sensitive: Value = False, attribute: Value = None) -> Value:
    items, keys = _keyed(run, value, _getter(run, attribute, not case_sensitive))
    if not items:
        return Missing("max", run.strict, "the largest item of something empty is not defined")
    return items[max(range(len(items)), key=keys.__getitem__)]


def total(run: Evaluation, value: Value, attribute: Value = None, start: Value = 0) -> Value:
    get = _getter(run, attribute)
    for item in run.turns(value):
        start = add(run, start, get(item))
    return start


def reverse(run: Evaluation, value: Value) -> Value:
    items = run.items(value)
    run.produce(ITEM_BYTES * len(items))
    return items[::-1] if isinstance(items, str) else list(reversed(items))


def pairs(run: Evaluation, value: Value) -> Value:
    if not isinstance(value, dict):
        raise TemplateValueError(f"`items` takes a mapping, not a {kind_name(value)}")
    run.produce(4 * ITEM_BYTES * len(value))
    return list(value.items())


def batch(run: Evaluation, value: Value, linecount: Value, fill_with: Value = None) -> Value:
    items = list(run.turns(value))
    size = _count(linecount)
    rows = [items[start : start + size] for start in range(0, len(items), size)]
    if rows and fill_with is not None:
        run.produce(ITEM_BYTES * (size - len(rows[-1])))
        rows[-1] += [fill_with] * (size - len(rows[-1]))
    return rows


def cut(run: Evaluation, value: Value, slices: Value, fill_with: Value = None) -> Value:
    """The filter `slice`: that many lists, the longer ones first."""
    items = list(run.turns(value))
    number = _count(slices)
    run.produce(8 * ITEM_BYTES * number)
    each, longer = divmod(len(items), number)
    columns = []
    start = 0
    for index in range(number):
        stop = start + each + (1 if index < longer else 0)
        column = items[start:stop]
        if fill_with is not None and index >= longer:
            column.append(fill_with)
        columns.append(column)
        start = stop
    return columns


def _count(value: Value) -> int:
    if not isinstance(value, int) or value < 1:
        raise TemplateValueError("a number of items must be 1 or more")
    return value


def mapped(run: Evaluation, value: Value, *args: Value, **kwargs: Value) -> Value:
    if not args and "attribute" in kwargs:
        path = _path(kwargs.pop("attribute"))
        default = kwargs.pop("default", None)
        if kwargs:
            raise TemplateValueError("`map` takes `attribute` and `default`, or the name of a filter")

        def convert(item: Value) -> Value:
            found = dotted(run, item, path)
            if isinstance(found, Missing):
                return found.used() if default is None else default
            return found

    else:
        name, *rest = args or ("",)
        function = ALL_FILTERS.get(name) if isinstance(name, str) else None
        if function is None:
            raise TemplateValueError(f"`map` does not know a filter named {_shown(name)}")

        def convert(item: Value) -> Value:
            return apply(run, function, item, tuple(rest), kwargs)

    items = run.turns(value)
    run.produce(ITEM_BYTES * len(items))
    return [convert(item) for item in items]


def _shown(name: Value) -> str:
    return repr(name[:40]) if isinstance(name, str) else f"by a {kind_name(name)}"


def _chosen(
    run: Evaluation, value: Value, args: tuple[Value, ...], wanted: bool, by_attribute: bool
) -> Value:
    path: str | None = None
    if by_attribute:
        if not args:
            raise TemplateValueError("`selectattr` and `rejectattr` need the name of an attribute")
        path, args = _path(args[0]), args[1:]
    name, *rest = args or ("",)
    test = ALL_TESTS.get(name) if args and isinstance(name, str) else None
    if args and test is None:
        raise TemplateValueError(f"there is no test named {_shown(name)}")
    items = run.turns(value)
    run.produce(ITEM_BYTES * len(items))
    found = []
    for item in items:
        subject = item if path is None else dotted(run, item, path)
        passed = bool(subject) if test is None else test(run, subject, *rest)
        # What is missing passes neither a test nor its opposite.
        if not isinstance(passed, Missing) and bool(passed) is wanted:
            found.append(item)
    return found


def select(run: Evaluation, value: Value, *args: Value) -> Value:
    return _chosen(run, value, args, True, False)


def reject(run: Evaluation, value: Value, *args: Value) -> Value:
    return _chosen(run, value, args, False, False)


def select_by(run: Evaluation, value: Value, *args: Value) -> Value:
    return _chosen(run, value, args, True, True)


def reject_by(run: Evaluation, value: Value, *args: Value) -> Value:
    return _chosen(run, value, args, False, True)


LIST_FILTERS: Final[dict[str, Filter]] = {
    "batch": batch,
    "dictsort": dictsort,
    "groupby": group_by,
    "items": pairs,
    "map": mapped,
    "max": maximum,
    "min": minimum,
    "reject": reject,
    "rejectattr": reject_by,
    "reverse": reverse,
    "select": select,
    "selectattr": select_by,
    "slice": cut,
    "sort": sort,
    "sum": total,
    "unique": unique,
}

# What `map` and `select` may name; the sandbox adds its other filters and its tests.
ALL_FILTERS: Final[dict[str, Filter]] = {**FILTERS, **LIST_FILTERS}
ALL_TESTS: Final[dict[str, Filter]] = {}
