"""A template that would do too much is stopped promptly, before it takes the time or the memory."""

from __future__ import annotations

import tracemalloc
from time import process_time

import pytest

from noetl.errors import TemplateBudgetError, TemplateSyntaxError
from noetl.template import Budget, Scope, Template

GROW = "{% set ns = namespace(x=SEED, y=SEED) %}{% for i in range(TURNS) %}BODY{% endfor %}"


def growing(seed: str, turns: int, body: str, after: str = "") -> str:
    return GROW.replace("SEED", seed).replace("TURNS", str(turns)).replace("BODY", body) + after


BOMBS = [
    "{% for i in range(10**12) %}{% endfor %}",
    "{{ range(10**9) | list }}",
    "{{ range(10**30) | length }}",
    "{{ 'a' * 10**10 }}",
    "{{ 10**10 * 'a' }}",
    "{{ [0] * 10**10 }}",
    "{{ 2 ** (10**9) }}",
    "{{ 10 ** (10 ** 10) }}",
    "{{ (10**4000) * (10**4000) }}",
    "{% for i in range(1000) %}" * 3 + "{% endfor %}" * 3,
    "{{ ('a' * 1000) | replace('a', 'b' * 100000) }}",
    "{{ ('a' * 1000).replace('a', 'b' * 100000) }}",
    "{{ ('x' * 100000).join(['a', 'b'] * 1000) }}",
    "{{ (range(900) | list) | join('x' * 100000) }}",
    "{{ 'x'.center(10**9) }}",
    "{{ 'x'.ljust(10**9) }}",
    "{{ 'x'.rjust(10**9) }}",
    "{{ 'x'.zfill(10**9) }}",
    "{{ 'a\\t'.expandtabs(10**9) }}",
    "{{ 'x' | center(10**9) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%.1000000000f' % 1 }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ 'a' | indent(10**9, true) }}",
    "{{ ('a ' * 1000000) | wordwrap(1) }}",
    "{{ [1] | batch(10**9, 0) | list }}",
    "{{ [1] | slice(10**9) | list }}",
    "{{ ('f' * 1000000) | int(0, 16) }}",
    "{{ ('a' * 1000000) | urlencode }}",
    "{{ dict([[1, 2]] * 100000000) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "{% for i in range(100000) %}" + "x" * 200 + "{% endfor %}",
    "{% macro m() %}{% for i in range(100000) %}"
    + "x" * 200
    + "{% endfor %}{% endmacro %}{{ m() | length }}",
    "{{ range(900000) | sum }}",
    "{{ range(900000) | map('string') | list }}",
    "{{ range(900000) | select('odd') | list }}",
    "{{ range(900000) | sort }}",
    "{{ range(900000) | groupby('x') }}",
    "{{ ([[1] * 1000] * 1000) | sum(start=[]) }}",
    growing("'a'", 100, "{% set ns.x = ns.x ~ ns.x %}"),
    growing("[1]", 100, "{% set ns.x = ns.x + ns.x %}"),
    growing("['a']", 60, "{% set ns.x = [ns.x, ns.x] %}", "{{ ns.x | tojson }}"),
    growing("['a']", 60, "{% set ns.x = [ns.x, ns.x] %}", "{{ ns.x }}"),
    growing("['a']", 60, "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}", "{{ ns.x == ns.y }}"),
    growing(
        "['a']", 60, "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}", "{{ [ns.x, ns.y] | sort }}"
    ),
    growing("[]", 20000, "{% set ns.x = [ns.x] %}", "{{ ns.x }}"),
    growing("'a' * 1000000", 90000, "{% set y = ns.x.count('b') %}"),
    growing("'a' * 1000000", 90000, "{% if ns.x[::2] %}{% endif %}"),
    growing("'a' * 2000000", 90000, "{% if ns.x == ns.y %}{% endif %}"),
    growing("'a' * 1000000", 1, "{% set ns.y = [ns.y] * 100000 %}", "{{ (ns.x ~ 'b') in ns.y }}"),
]


@pytest.mark.parametrize("source", BOMBS, ids=range(len(BOMBS)))
def test_a_bomb_is_stopped_in_well_under_a_second_and_within_memory(source):
    template = Template(source)
    template.parse()
    tracemalloc.start()
    started = process_time()
    try:
        with pytest.raises(TemplateBudgetError) as caught:
            template.evaluate(Scope({}))
        # Tracing allocations slows everything down several times.
        assert process_time() - started < 3
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert caught.value.message.startswith("the ")


def test_a_number_in_a_long_text_is_not_read_digit_by_digit():
    assert Template("{{ ('9' * 1000000) | int(7) }}").evaluate(Scope({})) == 7


def test_the_same_template_spends_the_same_on_every_run():
    template = Template("{% for i in range(50) %}{{ i + 1 }}{% endfor %}")
    spent = []
    for _ in range(3):
        budget = Budget(work=1000, bytes=1000)
        template.evaluate(Scope({}), budget=budget)
        spent.append((budget.work, budget.bytes))
    assert len(set(spent)) == 1
    assert spent[0] < (1000, 1000)


def test_templates_that_share_a_budget_stay_within_it_together():
    budget = Budget(bytes=100)
    template = Template("{{ 'a' * 60 }}")
    template.evaluate(Scope({}), budget=budget)
    with pytest.raises(TemplateBudgetError):
        template.evaluate(Scope({}), budget=budget)


def test_a_guard_has_a_budget_too():
    with pytest.raises(TemplateBudgetError):
        Template("{{ 'a' * 10**10 == 'b' }}").test(Scope({}))


def test_reading_large_data_costs_nothing():
    rows = [{"id": number} for number in range(300_000)]
    scope = Scope({"rows": rows, "kept": {"rows": rows}})
    assert Template("{{ rows }}").evaluate(scope, budget=Budget(work=1, bytes=1)) is rows
    assert Template("{{ kept['rows'] }}").evaluate(scope, budget=Budget(work=1, bytes=1)) is rows
    assert Template("{{ rows | default([]) }}").evaluate(scope, budget=Budget(work=10, bytes=10)) == rows
    assert Template("{{ rows | length }}").evaluate(scope, budget=Budget(work=10, bytes=10)) == 300_000


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 60 + "1" + ")" * 60 + " }}",
        "{{ " + "[" * 500 + "]" * 500 + " }}",
        "{{ " + "x|default(" * 60 + "1" + ")" * 60 + " }}",
        "{{ " + "not " * 3000 + "x }}",
        "{{ " + "-" * 3000 + "1 }}",
        "{{ " + "1+" * 20000 + "1 }}",
        "{{ a" + ".b" * 20000 + " }}",
        "{{ x" + "|upper" * 5000 + " }}",
        "{{ " + "1 if x else " * 3000 + "2 }}",
        "{% if x %}" * 60 + "{% endif %}" * 60,
        "{% for i in x %}" * 30 + "{% endfor %}" * 30,
        "{{ 1 }}" + "x" * 70_000,
        "é" * 40_000,
    ],
    ids=range(13),
)
def test_what_is_too_long_or_too_deep_does_not_parse(source):
    with pytest.raises(TemplateSyntaxError) as caught:
        Template(source).parse()
    assert 0 <= caught.value.offset <= len(source)


def test_forty_levels_are_not_too_deep():
    assert Template("{{ " + "(" * 40 + "1" + ")" * 40 + " }}").evaluate(Scope({})) == 1
