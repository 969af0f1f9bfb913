"""What does not parse is reported at the exact character; what parses tells what it reads."""

from __future__ import annotations

import pytest

from noetl.errors import TemplateSyntaxError
from noetl.template import Read, Template, is_template


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        ("{{ workload.n + ¶}}", "unexpected `}}`"),
        ("{{ workload.n > ¶}}", "unexpected `}}`"),
        ("{% if workload.n %}¶", "`if` is not closed"),
        ("{{ a ¶b }}", "expected token `}}`, got 'b'"),
        ("{{ a.1¶b }}", None),
        ("{{ a ¶? b }}", "unexpected character '?'"),
        ("{{ (a ¶}}", None),
        ("{{ a[1¶) }}", "unexpected ')', expected ']'"),
        ("{{ a | ¶nosuch }}", "there is no filter named `nosuch`"),
        ("{{ a ¶is nosuch }}", "there is no test named `nosuch`"),
        ("one\ntwo {{ a }}\n  {{ b + ¶}}\nthree", "unexpected `}}`"),
        ("one\r\ntwo {{ a }}\r\n  {{ b + ¶}}", "unexpected `}}`"),
        ("{% for x in rows %}\n{{ x ¶y }}\n{% endfor %}", None),
        ("{% for x in rows %}\n{{ x }}\n{% ¶endif %}", None),
        ("{% ¶nosuch %}", None),
        ("text\n{{ a }} ¶{# never closed", "missing end of comment tag"),
        ("{{ 'never closed }}", None),
        ("{{ a }} {{ ¶}}", None),
        ("{{ a", None),
        ("{% ¶include 'other' %}", "the statement `include` is not available in playbooks"),
        ("{% ¶block x %}{% endblock %}", "the statement `block` is not available in playbooks"),
        ("{%- set x = -%}", None),
        ("{{ {'a': 1¶ 'b'} }}", None),
        ("{{ ¶* 2 }}", None),
    ],
)
def test_a_broken_template_is_reported_at_the_offending_token(marked, message):
    source = marked.replace("¶", "")
    with pytest.raises(TemplateSyntaxError) as caught:
        Template(source).parse()
    if "¶" in marked:
        expected = marked.index("¶")
        # The mark may stand before the space that separates two tokens.
        assert caught.value.offset - expected == len(source[expected:]) - len(source[expected:].lstrip(" "))
    assert 0 <= caught.value.offset <= len(source)
    if message is not None:
        assert caught.value.message == message


def test_an_error_is_raised_each_time_it_is_asked_for():
    template = Template("{{ a + }}")
    for ask in (template.parse, lambda: template.reads, lambda: template.sole):
        with pytest.raises(TemplateSyntaxError):
            ask()


def paths(source: str) -> list[tuple[str, ...]]:
    return [read.path for read in Template(source).reads]


def test_reads_are_paths_as_far_as_they_are_constant():
    assert paths("{{ workload.api_url }}/{{ a['b c'].d }}") == [("workload", "api_url"), ("a", "b c", "d")]
    assert paths("{{ rows[0].x }}") == [("rows",)]
    assert paths("{{ outcome.http.headers.get('X-A', other.one) }}") == [
        ("outcome", "http", "headers"),
        ("other", "one"),
    ]
    assert paths("{{ a.b[c.d].e }}") == [("a", "b"), ("c", "d")]
    assert paths("plain") == []


def test_a_read_knows_where_it_stands_and_whether_it_is_guarded():
    source = "{{ a.b | default(c) }} {{ d is defined and e }}"
    assert Template(source).reads == (
        Read(("a", "b"), 3, True),
        Read(("c",), source.index("c"), False),
        Read(("d",), source.index("d is"), True),
        Read(("e",), source.index("e }}", 30), False),
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "{% for row in rows %}{{ row.id }}{{ loop.index }}{{ other }}{% endfor %}{{ row }}",
            ["rows", "other", "row"],
        ),
        ("{% set x = y %}{{ x }}", ["y"]),
        ("{{ x }}{% set x = 1 %}{{ x }}", ["x"]),
        ("{% if a %}{% set x = 1 %}{% endif %}{{ x }}", ["a", "x"]),
        ("{% if a %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x }}", ["a"]),
        ("{% macro m(p, q=d) %}{{ p }}{{ q }}{{ r }}{% endmacro %}{{ m(s) }}", ["d", "r", "s"]),
        ("{% with x = y %}{{ x }}{% endwith %}{{ x }}", ["y", "x"]),
        ("{% set x %}{{ y }}{% endset %}{{ x }}", ["y"]),
        (
            "{% for k, v in d.items() %}{{ k }}{{ v }}{% else %}{{ none_left }}{% endfor %}",
            ["d", "none_left"],
        ),
        ("{% for x in xs if x.ok and y %}{% endfor %}", ["xs", "y"]),
        ("{{ range(n) | list }}", ["n"]),
        ("{% filter upper %}{{ a }}{% endfilter %}", ["a"]),
        ("{% raw %}{{ a }}{% endraw %}", []),
    ],
)
def test_names_the_template_binds_itself_are_no_reads(source, expected):
    assert [path[0] for path in paths(source)] == expected


def test_reading_the_keychain_is_noticed():
    assert Template("{{ keychain.token }}").reads_secret
    assert Template("{% if keychain.token %}x{% endif %}").reads_secret
    assert not Template("{{ workload.keychain }}").reads_secret


def test_only_one_bare_expression_is_sole():
    for source in ("{{ a }}", "{{a}}", "{{ a | sort }}", "{{- a -}}", "{{ {'a': {}} }}"):
        assert Template(source).sole
    for source in (
        "{{ a }} ",
        " {{ a }}",
        "{{ a }}{{ b }}",
        "a",
        "",
        "{{ a }}\n",
        "{# c #}{{ a }}",
        "{% set a = 1 %}",
    ):
        assert not Template(source).sole


def test_text_with_any_of_jinjas_delimiters_is_a_template():
    assert is_template("{{ a }}")
    assert is_template("{% if a %}")
    assert is_template("{# a #}")
    assert not is_template("a { b } % #")
