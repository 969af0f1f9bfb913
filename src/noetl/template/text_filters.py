"""Filters over text and numbers that only the sandbox offers, and its tests.

They take the evaluation first, like those in `filters.py`, and pay for what they make before making it.
There is no filter that takes a regular expression, and none that marks text as HTML.
"""

from __future__ import annotations

import base64
import binascii
import json
import textwrap
import urllib.parse
from collections.abc import Callable
from typing import Final

from jinja2 import filters as jinja_filters
from jinja2 import tests as jinja_tests

from noetl.errors import TemplateValueError
from noetl.records.result_ref import RESULT_REF
from noetl.template import list_filters
from noetl.template.evaluation import Evaluation
from noetl.template.filters import Filter
from noetl.template.lookup import Missing, kind_name
from noetl.template.methods import Value
from noetl.template.methods import replace as replace_text
from noetl.template.operators import COMPARISONS, checked, percent_format

_HTML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})
_MAX_WIDTH: Final = 1 << 24


def _number(value: Value, what: str) -> int:
    if not isinstance(value, int):
        raise TemplateValueError(f"{what} must be a whole number, not a {kind_name(value)}")
    return min(value, _MAX_WIDTH)


def absolute(run: Evaluation, value: Value) -> Value:
    return checked(run, abs(value))


def capitalize(run: Evaluation, value: Value) -> str:
    return run.text(value).capitalize()


def center(run: Evaluation, value: Value, width: Value = 80) -> str:
    wanted = _number(width, "the width")
    run.produce(max(wanted, 0))
    return run.text(value).center(wanted)


def escape(run: Evaluation, value: Value) -> str:
    text = run.text(value)
    run.produce(5 * len(text))
    return text.translate(_HTML)


def safe(run: Evaluation, value: Value) -> str:
    return run.text(value)


def file_size(run: Evaluation, value: Value, binary: Value = False) -> str:
    if not isinstance(value, (int, float)):
        raise TemplateValueError(f"`filesizeformat` takes a number, not a {kind_name(value)}")
    return jinja_filters.do_filesizeformat(value, bool(binary))


def formatted(run: Evaluation, value: Value, *args: Value, **kwargs: Value) -> str:
    if args and kwargs:
        raise TemplateValueError("`format` takes positional or named values, not both")
    return percent_format(run, run.text(value), kwargs or args)


def indent(
    run: Evaluation, value: Value, width: Value = 4, first: Value = False, blank: Value = False
) -> str:
    text = run.text(value)
    prefix = width if isinstance(width, str) else None
    size = len(prefix) if prefix is not None else max(_number(width, "the width"), 0)
    run.produce(len(text) + (text.count("\n") + 1) * size)
    prefix = prefix if prefix is not None else " " * size
    lines = text.split("\n")
    indented = [
        prefix + line if (line or blank) and (number or first) else line for number, line in enumerate(lines)
    ]
    return "\n".join(indented)


def replaced(run: Evaluation, value: Value, old: Value, new: Value, count: Value = None) -> str:
    limit = -1 if count is None else _number(count, "the count")
    return replace_text(run, run.text(value), run.text(old), run.text(new), limit)


def rounded(run: Evaluation, value: Value, precision: Value = 0, method: Value = "common") -> float:
    if not isinstance(value, (int, float)):
        raise TemplateValueError(f"`round` takes a number, not a {kind_name(value)}")
    if not isinstance(method, str):
        raise TemplateValueError(f"the method is named by text, not by a {kind_name(method)}")
    digits = _number(precision, "the precision")
    if not -400 < digits < 400:
        raise TemplateValueError("the precision must be between -400 and 400")
    rounded_to: float = checked(run, jinja_filters.do_round(value, digits, method))  # type: ignore[arg-type]
    return rounded_to


def title(run: Evaluation, value: Value) -> str:
    text = run.text(value)
    run.produce(4 * len(text))
    return jinja_filters.do_title(text)


def truncate(
    run: Evaluation,
    value: Value,
    length: Value = 255,
    killwords: Value = False,
    end: Value = "...",
    leeway: Value = 5,
) -> str:
    text = run.text(value)
    ending = run.text(end)
    limit = _number(length, "the length")
    if limit < len(ending) or _number(leeway, "the leeway") < 0:
        raise TemplateValueError("the length must leave room for the end, and the leeway is 0 or more")
    if len(text) <= limit + leeway:
        return text
    kept = text[: limit - len(ending)]
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + ending


def word_count(run: Evaluation, value: Value) -> int:
    text = run.text(value)
    run.produce(8 * len(text))
    return len(text.split())


def word_wrap(
    run: Evaluation,
    value: Value,
    width: Value = 79,
    break_long_words: Value = True,
    wrapstring: Value = None,
    break_on_hyphens: Value = True,
) -> str:
    text = run.text(value)
    joint = "\n" if wrapstring is None else run.text(wrapstring)
    columns = _number(width, "the width")
    # Each character may become a line of its own; cutting words costs far more than copying text.
    run.spend(len(text))
    lines = text.splitlines()
    # What is left of a long word is copied whenever a piece of it is cut off.
    longest = max((len(word) for line in lines for word in line.split(" ")), default=0)
    run.spend(len(text) * longest // (max(columns, 1) * 16384))
    run.produce(len(text) * (1 + len(joint)))
    wrapped = [
        joint.join(
            textwrap.wrap(
                line,
                width=columns,
                expand_tabs=False,
                replace_whitespace=False,
                break_long_words=bool(break_long_words),
                break_on_hyphens=bool(break_on_hyphens),
            )
        )
        for line in lines
    ]
    return joint.join(wrapped)


def url_encode(run: Evaluation, value: Value) -> str:
    if isinstance(value, (dict, list, tuple)):
        pairs = list(value.items()) if isinstance(value, dict) else run.items(value)
        run.spend(len(pairs))
        return "&".join(f"{_quoted(run, key, '')}={_quoted(run, item, '')}" for key, item in pairs)
    return _quoted(run, value, "/")


def _quoted(run: Evaluation, value: Value, safe_characters: str) -> str:
    text = run.text(value)
    run.produce(12 * len(text))
    if safe_characters:
        return urllib.parse.quote(text, safe=safe_characters)
    return urllib.parse.quote_plus(text, safe="")


def from_json(run: Evaluation, value: Value) -> Value:
    text = run.text(value)
    # A value takes several times the room of its text, and each bracket is an object.
    run.produce(4 * len(text))
    try:
        found: Value = json.loads(text)
    except (ValueError, RecursionError):
        # Python's own message is left out, since it may show a part of the text.
        raise TemplateValueError("`from_json` got text that is not JSON") from None
    if (RESULT_REF in text or "\\u" in text) and _holds_reference(found):
        raise TemplateValueError(
            "`from_json` got a reference to a stored result (`kind: result_ref`); only NoETL makes those"
        )
    return found


def _holds_reference(value: Value) -> bool:
    """Text from outside must not become a reference, which would be followed."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if each.get("kind") == RESULT_REF:
                return True
            left += each.values()
        elif isinstance(each, list):
            left += each
    return False


def encode_base64(run: Evaluation, value: Value) -> str:
    text = run.text(value)
    run.produce(6 * len(text))
    return base64.b64encode(text.encode()).decode("ascii")


def decode_base64(run: Evaluation, value: Value) -> str:
    text = run.text(value)
    run.produce(len(text))
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        raise TemplateValueError("`b64decode` got text that is not base64 of UTF-8 text") from None


TEXT_FILTERS: Final[dict[str, Filter]] = {
    "abs": absolute,
    "b64decode": decode_base64,
    "b64encode": encode_base64,
    "capitalize": capitalize,
    "center": center,
    "e": escape,
    "escape": escape,
    "filesizeformat": file_size,
    "forceescape": escape,
    "format": formatted,
    "from_json": from_json,
    "indent": indent,
    "replace": replaced,
    "round": rounded,
    "safe": safe,
    "title": title,
    "truncate": truncate,
    "urlencode": url_encode,
    "wordcount": word_count,
    "wordwrap": word_wrap,
}


def _plain_test(name: str) -> Filter:
    function: Callable[..., object] = jinja_tests.TESTS[name]  # type: ignore[assignment]

    def test(run: Evaluation, value: Value, *args: Value) -> Value:
        for operand in (value, *args):
            if isinstance(operand, Missing):
                return operand.used()
        return function(run.plain(value), *[run.plain(arg) for arg in args])

    return test


def _comparison_test(symbol: str) -> Filter:
    function = COMPARISONS[symbol]

    def test(run: Evaluation, value: Value, other: Value) -> Value:
        for operand in (value, other):
            if isinstance(operand, Missing):
                return operand.used()
        return function(run, value, other)

    return test


def _defined(run: Evaluation, value: Value) -> bool:
    return not isinstance(value, Missing)


def _undefined(run: Evaluation, value: Value) -> bool:
    return isinstance(value, Missing)


def _number_test(name: str) -> Filter:
    """The remainder of a text would be a format."""
    plain = _plain_test(name)

    def test(run: Evaluation, value: Value, *args: Value) -> Value:
        if not isinstance(value, Missing):
            value = run.plain(value)
            if not isinstance(value, (int, float)):
                raise TemplateValueError(f"a {kind_name(value)} is neither {name} nor not")
        return plain(run, value, *args)

    return test


def _case_test(name: str) -> Filter:
    plain = _plain_test(name)

    def test(run: Evaluation, value: Value) -> Value:
        return plain(run, value if isinstance(value, Missing) else run.text(run.plain(value)))

    return test


_PLAIN_TESTS: Final = [
    "boolean", "false", "float", "integer", "iterable", "mapping", "none", "number", "sequence", "string",
    "true",
]  # fmt: skip

_COMPARISON_TESTS: Final = {
    "==": ("==", "eq", "equalto", "sameas"),
    "!=": ("!=", "ne"),
    ">": (">", "gt", "greaterthan"),
    ">=": (">=", "ge"),
    "<": ("<", "lt", "lessthan"),
    "<=": ("<=", "le"),
    "in": ("in",),
}

TESTS: Final[dict[str, Filter]] = {
    **{name: _plain_test(name) for name in _PLAIN_TESTS},
    **{name: _number_test(name) for name in ("divisibleby", "even", "odd")},
    **{name: _case_test(name) for name in ("lower", "upper")},
    **{name: _comparison_test(symbol) for symbol, names in _COMPARISON_TESTS.items() for name in names},
    "defined": _defined,
    "undefined": _undefined,
}

list_filters.ALL_FILTERS.update(TEXT_FILTERS)
list_filters.ALL_TESTS.update(TESTS)
