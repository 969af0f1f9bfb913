"""The methods of text, lists and mappings that a template may call.

Each is listed by name, reads only, and pays for what it makes before making it. Anything that is not
in these tables does not exist for a template.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from noetl.errors import TemplateValueError
from noetl.template.budget import BLOCK

if TYPE_CHECKING:
    from noetl.template.evaluation import Evaluation

# What an expression evaluates to: JSON data, a view, something missing. Operators check it when they run.
Value: TypeAlias = Any

Function = Callable[..., object]


class Method:
    """A method found on a value, not called yet."""

    __slots__ = ("function", "name", "receiver")

    def __init__(self, receiver: object, name: str, function: Function) -> None:
        self.receiver = receiver
        self.name = name
        self.function = function

    def call(self, run: Evaluation, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        return self.function(run, self.receiver, *args, **kwargs)


def search_cost(text: str, sought: str, backwards: bool = False) -> int:
    """What Python may do to find one text in another: forwards it takes care only of long ones."""
    if len(sought) > len(text):
        return 0
    each = len(sought) if backwards or len(text) < 2500 else min(len(sought), 100)
    return len(text) * each // 4096


def strip_cost(text: str, characters: str) -> int:
    """Each character that goes is looked for among all of them."""
    return len(text) * len(characters) // 1024


def _text_method(name: str) -> Function:
    method = getattr(str, name)
    strips = name.endswith("strip")
    backwards = name.startswith("r")

    def call(run: Evaluation, receiver: str, *args: object, **kwargs: object) -> object:
        # Changing case makes text up to three times as long; splitting makes at most one part a character.
        run.produce(3 * len(receiver))
        for arg in (*args, *kwargs.values()):
            if isinstance(arg, str):
                cost = strip_cost(receiver, arg) if strips else search_cost(receiver, arg, backwards)
                run.spend(cost + len(arg) // BLOCK)
            elif isinstance(arg, tuple):
                run.spend(len(arg))
        return method(receiver, *args, **kwargs)

    return call


def _padding_method(name: str) -> Function:
    method = getattr(str, name)

    def call(run: Evaluation, receiver: str, width: Value, *args: object) -> object:
        if not isinstance(width, int):
            raise TemplateValueError(f"the width of `{name}` must be a whole number")
        run.produce(len(receiver) + max(width, 0))
        return method(receiver, width, *args)

    return call


def replace(run: Evaluation, receiver: str, old: str, new: str, count: int = -1) -> str:
    run.produce(len(receiver))
    run.spend(search_cost(receiver, old) + len(old) // BLOCK)
    found = receiver.count(old)
    if count >= 0:
        found = min(found, count)
    run.produce(len(receiver) + found * len(new))
    return receiver.replace(old, new, count)


def _expandtabs(run: Evaluation, receiver: str, tabsize: int = 8) -> str:
    run.produce(len(receiver) + receiver.count("\t") * max(tabsize, 0))
    return receiver.expandtabs(tabsize)


def _join(run: Evaluation, receiver: str, values: object) -> str:
    parts = run.items(values)
    size = 0
    for part in parts:
        if not isinstance(part, str):
            raise TemplateValueError(
                "`join` of a text takes a list of texts; use the filter `join` for others"
            )
        size += len(part)
    run.produce(size + len(receiver) * len(parts))
    return receiver.join(parts)


def _dict_get(run: Evaluation, receiver: dict[str, object], key: str, default: object = None) -> object:
    return receiver.get(run.sought(key), default)


def _dict_keys(run: Evaluation, receiver: dict[str, object]) -> list[object]:
    run.produce(8 * len(receiver))
    return list(receiver)


def _dict_values(run: Evaluation, receiver: dict[str, object]) -> list[object]:
    run.produce(8 * len(receiver))
    return list(receiver.values())


def _dict_items(run: Evaluation, receiver: dict[str, object]) -> list[object]:
    run.produce(32 * len(receiver))
    return list(receiver.items())


def _list_index(run: Evaluation, receiver: list[object], value: object, *bounds: int) -> int:
    run.compared(receiver, value)
    try:
        return receiver.index(value, *bounds)
    except ValueError:
        # Python's own message would show the value, which may be a secret.
        raise TemplateValueError("`index` did not find the value in the list") from None


def _list_count(run: Evaluation, receiver: list[object], value: object) -> int:
    run.compared(receiver, value)
    return receiver.count(value)


_PLAIN_TEXT_METHODS: Final = [
    "capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii",
    "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isspace", "istitle", "isupper",
    "lower", "lstrip", "partition", "removeprefix", "removesuffix", "rfind", "rindex", "rpartition",
    "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper",
]  # fmt: skip

_LIST_METHODS: Final[dict[str, Function]] = {"index": _list_index, "count": _list_count}

METHODS: Final[dict[type, dict[str, Function]]] = {
    str: {
        **{name: _text_method(name) for name in _PLAIN_TEXT_METHODS},
        **{name: _padding_method(name) for name in ("center", "ljust", "rjust", "zfill")},
        "expandtabs": _expandtabs,
        "join": _join,
        "replace": replace,
    },
    dict: {"get": _dict_get, "items": _dict_items, "keys": _dict_keys, "values": _dict_values},
    list: _LIST_METHODS,
    tuple: _LIST_METHODS,
}

METHOD_NAMES: Final = frozenset(name for methods in METHODS.values() for name in methods)
