"""Strings that hold templates: good ones, broken ones, and ones that mean harm."""

from __future__ import annotations

from random import Random

GOOD = (
    "{{ workload.api_url }}/items?page={{ iter.page | default(1) }}",
    "{{ outcome.status == 'error' and outcome.http.status in [429, 500] }}",
    "{{ ctx.total | default(0) + 1 }}",
    "{{ start.data.rows[0]['id'] if start is defined else none }}",
    "{% for row in start %}{{ row.id }},{% endfor %}",
    "{% if workload.flag %}yes{% else %}no{% endif %}",
    "{{ event.name == 'step.failed' }}",
    "{{ {'a': [1, 2.5, none], 'b': (args.x ~ '!') | upper} }}",
    "{# a remark #}{{ _prev.items }}",
    "{{ not (workload.a > 1 and workload.b is not none) }}",
    "{{ items | map(attribute='id') | list | tojson }}",
    "SELECT * FROM t WHERE id = {{ args.id }} AND name = '{{ args.name }}'",
    "SELECT * FROM {{ table | identifier }} WHERE id IN {{ ids | in_list }}",
    "{{ keychain.token }}",
    "{{ response.data }}",
    "{{ iter.parent.room }}",
    "{{ join_results | length }}",
    "{{ 'é' ~ '\U0001f600' ~ workload.naïve }}",
)

BROKEN = (
    "{{", "}}", "{{ }}", "{{ a. }}", "{{ a b }}", "{{ 'open }}", "{% if x %}", "{% endfor %}",
    "{# never closed",
    "{{ a | }}", "{{ a | nofilter }}", "{{ a is }}", "{{ [1, 2 }}", "{{ a }} {{", "{{{{ a }}}}", "{{ a['x }}",
    "{{ a..b }}", "{{ 1 + }}", "{{ a if }}", "{%", "{% raw %}", "{% include 'x' %}", "{% set x %}",
    "{{ \\ }}",
    "{{ a if b else }}", "{{ (((((a }}", "{% for x %}{% endfor %}", "{{ a(**) }}", "{{ 0x }}", "{{ ${x} }}",
    "{{ a\n  | b\n", "{{ '\\ud800' }}", "{{ 1__0 }}", "{{ a:b }}", "{% block x %}", "{{ a }\u2028}", "{{-}}",
    "SELECT '{{ a }}", "SELECT $x${{ a }}", "-- {{ a }}", "/* {{ a }}", 'SELECT "{{ a }}"',
    "{{ a }}{{ b | sql }}",
)  # fmt: skip

HOSTILE = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{% for i in range(10**12) %}x{% endfor %}",
    "{{ 'a' * 10**10 }}",
    "{{ 9**9**9**9 }}",
    "{{ range(10**9) | join('x') }}",
    "{{ ('a' * 1000).replace('a', 'b' * 100000) }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set x = lipsum(1000) %}",
    "{{ '%0999999999d' % 1 }}",
    "{{ '{0.__class__}'.format(workload) }}",
    "{{ x | attr('__class__') }}",
)
MOST_REPEATS = 400


def any_template(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(GOOD)
    if kind < 0.7:
        return rng.choice(BROKEN)
    if kind < 0.8:
        return rng.choice(HOSTILE)
    if kind < 0.9:
        return _scrambled(rng)
    return _repeated(rng)


def _scrambled(rng: Random) -> str:
    """A template with some characters replaced by ones that mean something in a template."""
    letters = list(rng.choice(GOOD))
    for _ in range(rng.randint(1, 4)):
        letters[rng.randrange(len(letters))] = rng.choice(
            "{}%#'\"\\|.()[],:~-+*/ \n\r\tif_0é\x00\u2028\U0001f600"
        )
    return "".join(letters)


def _repeated(rng: Random) -> str:
    """Something nested or repeated more often than any hand would write it."""
    times = rng.randint(2, MOST_REPEATS)
    return rng.choice(
        (
            "{{ " + "(" * times + "a" + ")" * times + " }}",
            "{{ " + "[" * times + "]" * times + " }}",
            "{{ a" + ".b" * times + " }}",
            "{{ a" + " | default(b" * times + ")" * times + " }}",
            "{{ " + "not " * times + "a }}",
            "{{ " + "-" * times + "1 }}",
            "{{ a" + " and a" * times + " }}",
            "{{ a" + " if b else c" * times + " }}",
            "{{ a }}" * times,
            "{% if a %}" * times + "{% endif %}" * times,
            "{" * times,
            "{{ 'x' }} {# " * times,
        )
    )
