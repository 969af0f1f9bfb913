"""How a template finds a value: names in a scope, then attributes and subscripts of what it found.

Templates see JSON data and `View` objects, nothing else. Python's own attribute access is never used
on a value, so there is no way from data to the interpreter; keys of a mapping come before its methods
everywhere. What is not there becomes a `Missing`, which remembers the dotted path that failed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from noetl.errors import TemplateValueError, UndefinedNameError
from noetl.template.budget import BLOCK
from noetl.template.methods import METHOD_NAMES, METHODS, Method

if TYPE_CHECKING:
    from noetl.template.evaluation import Evaluation


class _Undefined:
    __slots__ = ()

    def __repr__(self) -> str:
        return "UNDEFINED"

    def __bool__(self) -> bool:
        return False


UNDEFINED: Final = _Undefined()


class Read(NamedTuple):
    """One name a template reads, with the constant attributes and string subscripts that follow it."""

    path: tuple[str, ...]
    offset: int
    guarded: bool


class Scope:
    """Names in layers: the reserved ones first, then each layer in order."""

    __slots__ = ("layers", "reserved")

    def __init__(self, reserved: Mapping[str, object], layers: Sequence[Mapping[str, object]] = ()) -> None:
        self.reserved = reserved
        self.layers = layers

    def resolve(self, name: str) -> object:
        if name in self.reserved:
            return self.reserved[name]
        for layer in self.layers:
            if name in layer:
                return layer[name]
        return UNDEFINED


class View(ABC):
    """An object templates may read although it is not plain JSON.

    `plain` is taken whenever a value leaves the template, or a filter, a loop or a numeric subscript works
    on it; `operand` where an operator does.
    """

    __slots__ = ()

    @abstractmethod
    def lookup(self, name: str) -> object:
        """The value of an attribute, or UNDEFINED."""

    @abstractmethod
    def plain(self) -> object:
        """The JSON value this view stands for."""

    def operand(self) -> object:
        """What operators and methods of text work on, where it is not the JSON value."""
        return self.plain()

    def __str__(self) -> str:
        return str(self.plain())

    def __repr__(self) -> str:
        return repr(self.plain())

    def __bool__(self) -> bool:
        return bool(self.plain())


class Missing:
    """What was looked up and is not there.

    In a strict evaluation every use but `default` and `is defined` raises; in a guard it is false, and
    whatever is computed from it is missing too. A silent one comes from an inline `if` without `else`:
    like in Jinja, it is empty text.
    """

    __slots__ = ("name", "reason", "silent", "strict")

    def __init__(self, name: str, strict: bool, reason: str | None = None, silent: bool = False) -> None:
        self.name = name
        self.strict = strict
        self.reason = reason
        self.silent = silent

    def error(self) -> UndefinedNameError:
        return UndefinedNameError(self.reason or f"`{self.name}` is not defined", self.name)

    def used(self) -> Missing:
        """Raises if the evaluation is strict; otherwise the missing value is the result of its use."""
        if self.strict:
            raise self.error()
        return self

    def __bool__(self) -> bool:
        self.used()
        return False

    def __str__(self) -> str:
        if not self.silent:
            self.used()
        return ""

    def __repr__(self) -> str:
        self.used()
        return ""


def attribute(run: Evaluation, value: object, name: str, path: str) -> object:
    """`value.name`: a key of a mapping, or a field of a view.

    A method that is not called is not found: `response.items is defined` asks for a key.
    """
    if type(value) is dict:
        if name in value:
            return value[name]
    elif isinstance(value, Missing):
        return value
    elif isinstance(value, View):
        found = value.lookup(name)
        if found is not UNDEFINED:
            return found
    if name.startswith("__"):
        raise TemplateValueError(f"access to `{path}` is refused")
    return Missing(path, run.strict)


def called_attribute(run: Evaluation, value: object, name: str, path: str) -> object:
    """`value.name` in `value.name(…)`: a safe method, unless a key or field has that name."""
    found = attribute(run, value, name, path)
    if not isinstance(found, Missing) or found is value:
        return found
    if isinstance(value, View) and name in METHOD_NAMES:
        whole = value.plain()
        value = whole if name in METHODS.get(type(whole), ()) else value.operand()
    methods = METHODS.get(type(value))
    if methods is not None and name in methods:
        return Method(value, name, methods[name])
    if isinstance(value, str) and name in ("format", "format_map"):
        raise TemplateValueError(f"access to `{path}` is refused")
    return found


def subscript(run: Evaluation, value: object, key: object, path: str) -> object:
    """`value[key]`: keys and indices only, never a method."""
    if isinstance(value, Missing):
        return value
    if isinstance(key, Missing):
        return key.used()
    if isinstance(key, View):
        key = key.plain()
    if isinstance(value, View):
        if isinstance(key, str):
            found = value.lookup(key)
            return Missing(path, run.strict) if found is UNDEFINED else found
        value = value.plain()
    if isinstance(value, dict):
        if type(key) is not str:
            key = run.sought(key)
        return value[key] if key in value else Missing(path, run.strict)
    if isinstance(value, (list, tuple, str, range)):
        if isinstance(key, slice):
            return _slice(run, value, key)
        if isinstance(key, int) and -len(value) <= key < len(value):
            return value[key]
    elif isinstance(key, slice):
        raise TemplateValueError(f"a {kind_name(value)} cannot be sliced")
    return Missing(path, run.strict)


def _slice(run: Evaluation, value: list[object] | tuple[object, ...] | str | range, bounds: slice) -> object:
    parts = []
    for part in (bounds.start, bounds.stop, bounds.step):
        if isinstance(part, Missing):
            return part.used()
        number = part.plain() if isinstance(part, View) else part
        if number is not None and not isinstance(number, int):
            raise TemplateValueError(f"a slice needs numbers, not a {kind_name(number)}")
        parts.append(number)
    run.produce(len(value))
    return value[slice(*parts)]


def dotted(run: Evaluation, value: object, path: str) -> object:
    """`path` is what filters take as `attribute=`: names and numbers with dots between."""
    if len(path) < BLOCK and path.isidentifier():
        return attribute(run, value, path, path)
    # It may be as long as the template likes, and is walked for every item of a list.
    run.spend(path.count(".") + len(path) // BLOCK)
    for part in path.split("."):
        if part.isdecimal() and part.isascii() and len(part) < 10:
            value = subscript(run, value, int(part), path)
        else:
            value = attribute(run, value, part, path)
    return value


_KIND_NAMES: Final = {
    "NoneType": "null",
    "bool": "boolean",
    "int": "number",
    "float": "number",
    "str": "text",
    "dict": "mapping",
}


def kind_name(value: object) -> str:
    """A word for a value's type, for messages."""
    name = type(value).__name__
    return _KIND_NAMES.get(name, name.lower())
