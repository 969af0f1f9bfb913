"""Whatever the fast path accepts, Jinja's path gives the same value or the same kind of error for."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jinja2 import Environment, StrictUndefined, UndefinedError

from noetl.errors import TemplateError, TemplateSyntaxError
from noetl.template import UNDEFINED, Scope, View
from noetl.template.evaluation import Evaluation
from noetl.template.grammar import compile_fast
from noetl.template.sandbox import compile_jinja
from noetl.template.template import evaluate_program, guard_program

BINARY = [
    "+", "-", "*", "/", "//", "%", "~", "and", "or", "==", "!=", "<", "<=", ">", ">=", "in", "not in",
]  # fmt: skip
FILTERS = [
    "length", "count", "int", "float", "string", "lower", "upper", "trim", "first", "last", "list", "join",
    "tojson", "default", "d", "default(7)", "default('z', true)", "join(', ')", "int(5)",
    "d(gone)", "float(1.5)",
]  # fmt: skip
WORDS = [
    "{%", "{{", "}}", "%}", "for", "in", "if", "else", "elif", "endif", "endfor", "set", "macro", "endmacro",
    "call", "endcall", "filter", "with", "endwith", "endset", "raw", "endraw", "a", "b", "x", ".", "(", ")",
    "[", "]", "|", "~", "+", "**", ",", "=", "==", "1", "2.5", "'q'", "loop", "range", "namespace", "dict",
    "self", "caller", "recursive", "is", "not", "none", "upper", "sort", "map", "join", "{#", "#}",
    "-", "}", "{",
]  # fmt: skip
NAMES = ("a", "b", "gone")
KEYS = ("x", "y", "items", "get", "lost")

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-30, 30),
    st.floats(-5, 5).map(lambda number: round(number, 2)),
    st.sampled_from(["", "x", "abc", " Mixed Case ", "12", "4.5", "é"]),
)
data = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS[:4]), inner, max_size=3)
    ),
    max_leaves=8,
)
literals = st.one_of(
    st.sampled_from(
        ["true", "false", "none", "True", "None", "''", "'x'", '"abc"', "0", "3", "-2", "1.5", "12"]
    ),
)


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.sampled_from(BINARY)
    filters = st.sampled_from(FILTERS)
    tests = st.sampled_from(["is defined", "is not defined", "is undefined", "is none", "is not none"])
    return st.one_of(
        st.builds("({} {} {})".format, inner, binary, inner),
        st.builds("{} {} {}".format, inner, binary, inner),
        st.builds("{} < {} <= {}".format, inner, inner, inner),
        st.builds("{} if {} else {}".format, inner, inner, inner),
        st.builds("({} if {})".format, inner, inner),
        st.builds("({}) | {}".format, inner, filters),
        st.builds("{} | {}".format, inner, filters),
        st.builds("({}) {}".format, inner, tests),
        st.builds("not {}".format, inner),
        st.builds("not ({})".format, inner),
        st.builds("(-{})".format, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{'x': {}, 'k': {}}}".format, inner, inner),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("({}).{}".format, inner, st.sampled_from(KEYS)),
        st.builds("({}).get({})".format, inner, inner),
        st.builds("({}).get({}, {})".format, inner, inner, inner),
        st.builds("({}).upper()".format, inner),
        st.builds("({}) ** 2".format, inner),
    )


paths = st.builds(
    lambda name, keys: name + "".join(keys),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from([".x", ".y", ".items", ".lost", "['x']", "[0]", "[-1]"]), max_size=3),
)
expressions = st.recursive(st.one_of(paths, literals), combined, max_leaves=6)
several = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


def same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and repr(one) == repr(other)


def outcome(call, program, source: str, run: Evaluation) -> object:
    try:
        return call(program, source, run)
    except TemplateError as error:
        return (type(error), error.message)


class Report(View):
    """A view whose keys come from its data and whose own field is `status`."""

    def __init__(self, value: object) -> None:
        self.value = value

    def lookup(self, name: str) -> object:
        if isinstance(self.value, dict) and name in self.value:
            return self.value[name]
        return "done" if name == "status" else UNDEFINED

    def plain(self) -> object:
        return self.value

    def __str__(self) -> str:
        return f"report of {self.value}"


@several
@given(
    expressions, data, data, st.sampled_from(["{{ %s }}", "{{%s}}", "text {{ %s }} text", "{{ %s }}{{ a }}"])
)
def test_both_engines_give_the_same_value_or_error(expression, a, b, shape):
    source = shape % expression
    fast = compile_fast(source)
    if fast is None:
        return
    jinja = compile_jinja(source)
    scope = Scope({"a": a}, [{}, {"b": b}])
    assert fast.sole == jinja.sole
    assert fast.reads == jinja.reads
    for strict, call in ((True, evaluate_program), (False, guard_program)):
        ours = outcome(call, fast, source, Evaluation(scope, strict))
        jinjas = outcome(call, jinja, source, Evaluation(scope, strict))
        assert same(ours, jinjas), (source, ours, jinjas)


@several
@given(expressions, data, data)
def test_both_engines_treat_views_the_same(expression, a, b):
    source = "{{ " + expression + " }}"
    fast = compile_fast(source)
    if fast is None:
        return
    jinja = compile_jinja(source)
    scope = Scope({"a": Report(a)}, [{"b": {"x": Report(b)}}])
    for strict, call in ((True, evaluate_program), (False, guard_program)):
        ours = outcome(call, fast, source, Evaluation(scope, strict))
        jinjas = outcome(call, jinja, source, Evaluation(scope, strict))
        assert same(ours, jinjas), (source, ours, jinjas)


@several
@given(expressions, data, data)
def test_where_everything_is_defined_the_value_is_that_of_jinja_itself(expression, a, b):
    """Stock Jinja as the judge; only where it prefers methods to keys and sorts JSON do we differ."""
    if any(word in expression for word in ("items", ".get", "['get", "tojson", "lost")):
        return
    source = "{{ " + expression + " }}"
    fast = compile_fast(source)
    if fast is None:
        return
    try:
        ours = evaluate_program(fast, source, Evaluation(Scope({"a": a, "b": b}), True))
    except TemplateError:
        return
    stock = Environment(undefined=StrictUndefined).compile_expression(expression, undefined_to_none=False)
    try:
        theirs = stock(a=a, b=b)
    except UndefinedError:
        # Stock Jinja does not look for `default` and `is defined` through a chain; we do.
        return
    assert same(ours, theirs), source


@several
@given(st.text(alphabet="{}%#-+ab.x|['\"]()0,1~*/<>=!:notifelse \n\\é\x00", max_size=60))
def test_garbage_never_raises_anything_but_a_template_error(source):
    scope = Scope({"a": {"x": 1}})
    for compiled in (compile_fast, compile_jinja):
        try:
            program = compiled(source)
        except TemplateError:
            continue
        if program is not None:
            outcome(evaluate_program, program, source, Evaluation(scope, True))
            outcome(guard_program, program, source, Evaluation(scope, False))


@several
@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_shuffled_words_never_raise_anything_but_a_template_error(words):
    source = " ".join(words)
    scope = Scope({"a": {"x": 1}, "b": [1, "two", None]})
    try:
        program = compile_jinja(source)
    except TemplateSyntaxError as error:
        offset = error.offset
    else:
        offset = 0
        outcome(evaluate_program, program, source, Evaluation(scope, True))
        outcome(guard_program, program, source, Evaluation(scope, False))
    assert 0 <= offset <= len(source)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 ** 3 ** 2", 64),
        ("-2 ** 2", 4),
        ("1 + 2 ~ 3", None),
        ("not 1 == 2", True),
        ("3 - 2 - 1", 0),
        ("7 // 2 * 2", 6),
        ("1 < 2 < 3", True),
        ("3 > 2 > 2", False),
        ("1 in [1] == true", None),
        ("'a' if false else 'b' if false else 'c'", "c"),
    ],
)
def test_precedence_is_that_of_jinja(expression, value):
    source = "{{ " + expression + " }}"
    run = Evaluation(Scope({}), True)
    fast = compile_fast(source)
    assert fast is not None
    ours = outcome(evaluate_program, fast, source, run)
    assert same(ours, outcome(evaluate_program, compile_jinja(source), source, run))
    if value is not None:
        assert ours == value
