"""Nothing in a template works on a value whose size was not paid for, however the value was made."""

from __future__ import annotations

from contextlib import suppress
from time import process_time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noetl.errors import TemplateError, TemplateSyntaxError, TemplateValueError
from noetl.template import Budget, Scope, Template
from noetl.template.evaluation import Evaluation
from noetl.template.list_filters import ALL_FILTERS, ALL_TESTS
from noetl.template.methods import METHOD_NAMES
from noetl.template.sandbox import compile_jinja
from noetl.template.template import evaluate_program


def growing(seed: str, turns: int, body: str, after: str) -> str:
    start = f"{{% set ns = namespace(x={seed}, y={seed}) %}}"
    return f"{start}{{% for i in range({turns}) %}}{body}{{% endfor %}}{after}"


DOUBLED = "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}"
DOUBLED_TUPLES = DOUBLED.replace("[", "(").replace("]", ")")
LARGE_PRIME = 2**61 - 1
"""All its multiples have the same hash."""

CHANGES = "{% for i in 'ab' %}{% if loop.changed(ns.x if i == 'a' else ns.y) %}{% endif %}{% endfor %}"

# Each took minutes, or gigabytes, when it was first tried.
FREEZERS = [
    "{{ ([0.5] * 3000) | select('in', range(900000)) | list | length }}",
    "{% for i in range(2000) %}{{ 1.5 in range(10000) }}{% endfor %}",
    "{{ ('%(' * 300000) | format(1) }}",
    "{{ '%(a(b))1000000000d' % {'a(b)': 1} }}",
    "{% set l = [1] * 50000 %}{% for i in range(9000) %}{{ 'x' % l }}{% endfor %}",
    "{{ '%1000000000d' is odd }}",
    "{{ '%1000000000d' is divisibleby(1) }}",
    "{{ ('x' * 100) | round(8, 'ceil') }}",
    "{{ ('a' * 300000) | trim('b' * 300000 ~ 'a') | length }}",
    "{{ ('a' * 200000).lstrip('b' * 200000 ~ 'a') | length }}",
    "{{ ('a' * 200000).rfind('a' * 50000 ~ 'b' ~ 'a' * 50000) }}",
    "{{ ('a' * 200000).rsplit('a' * 50000 ~ 'b' ~ 'a' * 50000) }}",
    "{% set t = ('b',) * 20000 %}{% for i in range(30000) %}{{ 'a'.startswith(t) }}{% endfor %}",
    "{% set l = [0] * 20000 %}{% for i in range(9000) %}{{ 1 in l }}{% endfor %}",
    "{% set l = [10**4200] * 20000 %}{% for i in range(9000) %}{{ (10**4200 + 1) in l }}{% endfor %}",
    "{{ (['X' * 100000] * 30000) | sort | length }}",
    "{{ ([{'a': 'X' * 100000}] * 30000) | groupby('a') | length }}",
    "{{ ([{}] * 7000) | map(attribute='.' * 200000, default=1) | list | length }}",
    "{{ [{}] | sort(attribute=',' * 300000) }}",
    f"{{{{ range(0, 30000 * {LARGE_PRIME}, {LARGE_PRIME}) | unique | length }}}}",
    f"{{{{ dict(range(0, 30000 * {LARGE_PRIME}, {LARGE_PRIME}) | batch(2) | list) | length }}}}",
    "{{ range(10**4200, 10**4200 + 40000) | list | length }}",
    "{{ ([-(10**4200)] * 13000) | map('abs') | list | length }}",
    "{{ ('a' * 300000) | wordwrap(1) | length }}",
    "{% set t = 'a' * 100000 %}{% for i in range(9000) %}{% if t is lower %}{% endif %}{% endfor %}",
    *(
        growing("(1, 1)", 60, DOUBLED_TUPLES, "{{ " + expression + " }}")
        for expression in [
            "ns.x in {}",
            "{}.get(ns.x)",
            "{}.get(ns.x, missing) is defined",
            "{}[ns.x] is defined",
            "{ns.x: 1} | length",
            "dict([[ns.x, 1]]) | length",
            "namespace([[ns.x, 1]])",
            "[1] | map(ns.x) | list",
            "[1] | select(ns.x) | list",
            "[ns.x] | unique",
            "1.5 | round(1, ns.x)",
            "[ns.x, ns.y] | max",
        ]
    ),
    *(
        growing("[1, 1]", 60, DOUBLED, "{{ " + expression + " }}")
        for expression in [
            "ns.x is lower",
            "[ns] | string",
            "'%s' % [ns]",
            "[1] | sort(attribute=ns.x)",
            "[1] | groupby(ns.x)",
            "[1] | map(attribute=ns.x) | list",
            "[1] | selectattr(ns.x) | list",
            "[1] | join(',', ns.x)",
            "[1] | sum(attribute=ns.x)",
        ]
    ),
    growing("[1, 1]", 60, DOUBLED, CHANGES),
    growing("(1,)", 9000, "{% set ns.x = (ns.x,) %}", "{{ [ns.x] | unique }}"),
]  # fmt: skip


def a_tenth() -> Budget:
    return Budget(work=40_000, bytes=800_000)


@pytest.mark.parametrize("source", FREEZERS, ids=range(len(FREEZERS)))
def test_what_python_would_work_on_for_minutes_ends_at_once(source):
    program = Template(source)
    program.parse()
    started = process_time()
    with suppress(TemplateError):
        program.evaluate(Scope({}), budget=a_tenth())
    assert process_time() - started < 0.5


ATOMS = st.sampled_from([
    "ns.x", "ns.y", "ns.x", "ns", "'a' * 9000", "'ab' * 4000", "'%(' * 5000", "range(9000)", "0.5", "1", "-1",
    "none", "'a'", "10**4000", "[ns.x] * 100", "{'a': ns.x}", "(ns.x, 1)", "'a.' * 300", "[0.5] * 3000",
    "['A' * 3000] * 900", "'%1000000000d'", "rows", "dict", "'attribute'",
])  # fmt: skip
OPERATORS = ["+", "-", "*", "//", "%", "**", "~", "==", "!=", "<", ">=", "in", "not in"]


def larger(inner):
    some = st.lists(inner, max_size=2).map(", ".join)
    names = {name: st.sampled_from(sorted(found)) for name, found in (
        ("filter", ALL_FILTERS), ("test", ALL_TESTS), ("method", METHOD_NAMES),
    )}  # fmt: skip
    words = st.sampled_from([name for name in sorted(ALL_TESTS) if name.isidentifier()])
    return st.one_of(
        st.builds("(({}) | {}({}))".format, inner, names["filter"], some),
        st.builds("(({}) is {}({}))".format, inner, words, inner),
        st.builds("(({}) is {})".format, inner, words),
        st.builds("(({}).{}({}))".format, inner, names["method"], some),
        st.builds("(({}) {} ({}))".format, inner, st.sampled_from(OPERATORS), inner),
        st.builds("(({})[{}])".format, inner, inner),
        st.builds("(({})[{}:{}])".format, inner, inner, inner),
        st.builds("{}({})".format, st.sampled_from(["dict", "range", "namespace"]), inner),
        st.builds("{{{}: {}}}".format, inner, inner),
        st.builds("(({}) | map('{}', {}) | list)".format, inner, names["filter"], inner),
        st.builds("(({}) | select('{}', {}) | list)".format, inner, names["test"], inner),
        st.builds("(({}) | sort(attribute={}))".format, inner, inner),
    )


GROWTHS = [
    "[ns.x, ns.x]", "(ns.x, ns.x)", "{'a': ns.x, 'b': ns.x}", "[(ns.x, ns.x)]", "[ns.x] * 3",
    "(ns.x,) + (ns.x,)",
]  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["[1, 1]", "(1, 1)", "{'a': 1}", "'ab'", "(-1, -2)"]),
    st.sampled_from(GROWTHS),
    larger(larger(ATOMS) | ATOMS),
    st.booleans(),
)
def test_no_expression_over_doubled_structures_takes_longer_than_its_budget(seed, growth, expression, often):
    both = f"{{% set ns.x = {growth} %}}{{% set ns.y = {growth.replace('ns.x', 'ns.y')} %}}"
    shown = f"{{% if {expression} %}}{{% endif %}}"
    program = compile_jinja(
        growing(seed, 45, both, f"{{% for i in range(900) %}}{shown}{{% endfor %}}" if often else shown)
    )
    scope = Scope({"rows": [{"a": number, "b": "x"} for number in range(100)]})
    started = process_time()
    with suppress(TemplateError):
        evaluate_program(program, "", Evaluation(scope, True, a_tenth()))
    assert process_time() - started < 1


def test_keys_are_texts_numbers_booleans_or_null():
    assert Template("{{ {1: 'a', true: 'b', none: 'c', 1.5: 'd'}[1.5] }}").evaluate(Scope({})) == "d"
    assert Template("{{ dict([['a', 1], ('b', 2)], c=3) }}").evaluate(Scope({})) == {"a": 1, "b": 2, "c": 3}
    for source in ("{{ {(1, 2): 3} }}", "{{ {}[(1, 2)] }}", "{{ [1] in {} }}", "{{ {2**70: 1} }}"):
        with pytest.raises(TemplateValueError, match="cannot be a key"):
            Template(source).evaluate(Scope({}))


def test_unique_tells_tuples_and_large_numbers_apart_as_equality_does():
    source = (
        "{{ [(1, 2), (1.0, 2), ('1', 2), 2**70, 2.0**70, '2**70', (2**70,), (true, 2)] | unique | list }}"
    )
    assert Template(source).evaluate(Scope({})) == [[1, 2], ["1", 2], 2**70, "2**70", [2**70]]


def test_a_range_holds_whole_numbers_however_they_are_written():
    source = "{{ [2 in range(9), 2.0 in range(9), true in range(9), 2.5 in range(9), 'a' in range(9)] }}"
    assert Template(source).evaluate(Scope({})) == [True, True, True, False, False]


def test_a_format_counts_the_width_behind_a_key_with_parentheses():
    assert Template("{{ '%(a(b))5d%%' % {'a(b)': 1} }}").evaluate(Scope({})) == "    1%"
    assert Template("{{ '%-3s|%.1f|%%' % ('a', 2) }}").evaluate(Scope({})) == "a  |2.0|%"
    for source in ("{{ '%(a' % {} }}", "{{ '%(a)*d' % {'a': 1} }}", "{{ '%.*f' % (1, 2) }}"):
        with pytest.raises(TemplateValueError):
            Template(source).evaluate(Scope({}))


@pytest.mark.parametrize(
    "source",
    [
        r'{{ "\ud800" }}',
        r'{{ "\ud800" ~ "a" }}',
        r'a {{ "\udfff" }}',
        r'{{ ["\ud800"] }}',
        r'{{ {"\ud800": 1} }}',
        "{{ '%c' % 55296 }}",
        "{{ '[\"\\\\ud800\"]' | from_json }}",
        "{% if true %}{{ '%c' % 55296 }}{% endif %}",
    ],
)
def test_half_of_a_surrogate_pair_is_no_value(source):
    with pytest.raises(TemplateValueError, match="surrogate"):
        Template(source).evaluate(Scope({}))


def test_whole_characters_beyond_ascii_are_values():
    assert Template(r'{{ ["\U0001f4a5", "é"] }}').evaluate(Scope({})) == ["\U0001f4a5", "é"]


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "9" * 5000, "0b" + "1" * 20000])
def test_a_number_with_thousands_of_digits_does_not_parse(number):
    with pytest.raises(TemplateSyntaxError, match="too many digits"):
        Template("{{ " + number + " }}").parse()
