"""What templates give: native values, text, guards, secrets, and the errors that name what went wrong."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

from noetl.errors import TemplateValueError, UndefinedNameError
from noetl.template import UNDEFINED, Scope, Template, View

SCOPE = Scope(
    {
        "workload": {
            "url": "http://x",
            "items": [1, 2],
            "n": 3,
            "nothing": None,
            "_id": "m1",
            "text": "{{ n }}",
        },
        "keychain": {"token": "s3cret-token", "user": "bob"},
        "outcome": {"status": "error", "http": {"status": 500, "headers": {"X-A": "1"}}},
    },
    [
        {"name": "bob", "workload": "hidden"},
        {"name": "eve", "rows": [{"id": 1, "tag": "b"}, {"id": 2, "tag": "a"}]},
    ],
)


def evaluate(source: str) -> object:
    return Template(source).evaluate(SCOPE)


def holds(source: str) -> bool:
    return Template(source).test(SCOPE)


class StepResult(View):
    """Keys of the result first, then fields of its own."""

    def __init__(self, result: object) -> None:
        self.result = result

    def lookup(self, name: str) -> object:
        if isinstance(self.result, dict) and name in self.result:
            return self.result[name]
        return {"result": self.result, "status": "done"}.get(name, UNDEFINED)

    def plain(self) -> object:
        return self.result

    def __str__(self) -> str:
        return f"<{self.result}>"


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ workload.items }}", [1, 2]),
        ("{{ workload.url }}/p", "http://x/p"),
        ("{{ workload.nothing }}", None),
        ("{{ workload._id }}", "m1"),
        ("{{ '[1, 2]' }}", "[1, 2]"),
        ("{{ workload.text }}", "{{ n }}"),
        ("n={{ workload.n }}, {{ none }} {{ true }}", "n=3, None True"),
        ("{{ (workload.n | int) + 1 }}", 4),
        ("{{ 'a' if workload.n else 'b' }}", "a"),
        ("{{ outcome.http.headers.get('X-A') }}", "1"),
        ("{{ outcome.http.headers.get('X-B', 'no') }}", "no"),
        ("{{ outcome.http.headers.get('X-B') }}", None),
        ("{{ outcome.http.headers.items() }}", [["X-A", "1"]]),
        ("{{ workload.items | length }}", 2),
        ("{{ name }}", "bob"),
        ("{{ workload.gone.deeper | default(1) }}", 1),
        ("{{ gone.very.gone is defined }}", False),
        ("{{ rows[:1] | map(attribute='id') | list }}", [1]),
        ("{{ rows | map(attribute='tag') | sort | join('+') }}", "a+b"),
        ("{{ rows | selectattr('id', 'gt', 1) | list }}", [{"id": 2, "tag": "a"}]),
        ("{{ rows | sum(attribute='id') }}", 3),
        ("{{ (1, 2) }}", [1, 2]),
        ("{{ range(3) }}", [0, 1, 2]),
        ("{{ {'a': (1,)} }}", {"a": [1]}),
        ("{% for row in rows %}{{ loop.index }}{{ row.tag }}{% endfor %}", "1b2a"),
        ("{% for g in rows | groupby('tag') %}{{ g.grouper }}{{ g.list | length }}{% endfor %}", "a1b1"),
        ("{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "12"),
        (
            "{% set n = namespace(x=0) %}{% for r in rows %}{% set n.x = n.x + r.id %}{% endfor %}{{ n.x }}",
            "3",
        ),
        ("{{ {'b': '<é>', 'a': [1]} | tojson }}", '{"b": "<é>", "a": [1]}'),
        ("{{ '{\"a\": [1]}' | from_json }}", {"a": [1]}),
        ("{{ 'hi' | b64encode }}{{ 'aGk=' | b64decode }}", "aGk=hi"),
        ("{{ 'a b/c' | urlencode }}", "a%20b/c"),
        ("{{ {'a': 'x y'} | urlencode }}", "a=x+y"),
        ("{{ 'abc' | replace('b', 'x') }}", "axc"),
        ("{{ '%05.1f' % 2.25 }}", "002.2"),
        ("x{{ 'a' if false }}", "x"),
        ("{{ '<a href=\"b\">' | e }}", "&lt;a href=&#34;b&#34;&gt;"),
        ("{{ workload.url.upper() }}", "HTTP://X"),
        ("{{ workload.values is defined }}", False),
        ("{{ rows.count is defined or (rows | first).keys is defined }}", False),
        ("{% for r in rows %}{{ loop.cycle('x', 'y') }}{% endfor %}", "xy"),
        ("line\n", "line\n"),
        ("", ""),
    ],
)
def test_a_template_gives(source, value):
    found = evaluate(source)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("{{ gone }}", "gone"),
        ("{{ gone.b.c }}", "gone"),
        ("{{ workload.gone.c }}", "workload.gone"),
        ("{{ workload['gone'].c }}", "workload.gone"),
        ("{{ workload.items[7].x }}", "workload.items[7]"),
        ("{{ workload.nothing.x }}", "workload.nothing.x"),
        ("text {{ workload.gone }}", "workload.gone"),
        ("{{ 1 + gone }}", "gone"),
        ("{{ gone == 1 }}", "gone"),
        ("{{ 'a' if gone else 'b' }}", "gone"),
        ("{{ [gone] }}", "gone"),
        ("{{ gone | upper }}", "gone"),
        ("{{ gone.get('x') }}", "gone"),
        ("{{ gone is none }}", "gone"),
        ("{% for x in gone %}{% endfor %}", "gone"),
        ("{% if gone %}{% endif %}", "gone"),
        ("{{ rows | map(attribute='lost') | list }}", "lost"),
        ("{% set ns = namespace() %}{{ ns.x }}", "ns.x"),
    ],
)
def test_an_undefined_name_is_an_error_that_names_the_path_it_failed_on(source, name):
    with pytest.raises(UndefinedNameError) as caught:
        evaluate(source)
    assert caught.value.name == name
    assert f"`{name}` is not defined" in caught.value.message


@pytest.mark.parametrize(
    "source",
    [
        "{{ gone }}",
        "{{ gone.x.y }}",
        "{{ gone > 3 }}",
        "{{ gone == gone }}",
        "{{ gone != 1 }}",
        "{{ gone < 3 < 4 }}",
        "{{ gone in [1] }}",
        "{{ gone not in [1] }}",
        "{{ 1 in gone }}",
        "{{ gone + 1 > 0 }}",
        "{{ gone | length > 0 }}",
        "{{ gone.get('x') }}",
        "{{ gone is none }}",
        "{{ gone is not none }}",
        "{{ gone is odd }}",
        "{{ gone is not odd }}",
        "{{ gone and true }}",
        "{{ gone is defined }}",
        "{{ gone.x[gone] }}",
        "{% if gone %}yes{% endif %}",
        "{% for x in gone %}yes{% endfor %}",
        "{{ workload.nothing }}",
        "{{ 0 }}",
        "",
        "{% if gone %}true{% else %}false{% endif %}",
    ],
)
def test_in_a_guard_what_is_undefined_is_false(source):
    assert holds(source) is False


@pytest.mark.parametrize(
    "source",
    [
        "{{ outcome.status == 'error' and outcome.http.status in [429, 500] }}",
        "  {{ workload.n > 2 }}\n",
        "{{ not gone }}",
        "{{ not gone.x.y }}",
        "{{ gone or true }}",
        "{{ gone is not defined }}",
        "{{ gone | default(true) }}",
        "{{ gone.x.y | default(1) == 1 }}",
        "{{ not (gone == 1) }}",
        "{{ 'false' }}",
        "{% if workload.n %}yes{% endif %}",
        "{{ 1 < 2 < 3 }}",
    ],
)
def test_a_guard_holds(source):
    assert holds(source) is True


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1 / 0 > 1 }}",
        "{{ workload.nothing > 3 }}",
        "{{ workload.url + 1 }}",
        "{{ 1 in 5 }}",
        "{{ 5 | length }}",
        "{{ ''.__class__ }}",
        "{{ workload.n() }}",
        "{% for x in 5 %}{% endfor %}",
        "{{ 10.0 ** 400 }}",
        "{{ [1] | sort(nosuch=1) }}",
    ],
)
def test_any_other_failure_of_a_guard_is_an_error_that_shows_the_expression(source):
    with pytest.raises(TemplateValueError) as caught:
        holds(source)
    assert source in caught.value.message


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() | length }}",
        "{{ workload.__class__ }}",
        "{{ '{}'.format(1) }}",
        "{{ '{a}'.format_map(workload) }}",
        "{{ workload.n.__add__(1) }}",
        "{{ range }}",
        "{{ self }}",
        "{{ self.x }}",
        "{% macro m() %}{% endmacro %}{{ m }}",
        "{{ workload.url.upper }}",
        "{{ namespace(a=1) }}",
        "{{ {1: 2} }}",
        "{{ rows | in_list }}",
        "{{ name | identifier }}",
        "{{ name | sql }}",
        "{{ (-8) ** 0.5 }}",
        "{{ 'a' | b64decode }}",
        "{{ 'x' | from_json }}",
        "{{ [1].index(keychain.token) }}",
        "{{ keychain.token | filesizeformat }}",
        "{{ 'a'.center(keychain.token) }}",
        "{{ keychain.token * keychain.token }}",
        "{{ keychain.token | round }}",
        "{{ keychain.token | from_json }}",
        """{{ '[{"kind": "result_ref", "ref": "noetl://1/x", "store": "log"}]' | from_json }}""",
        r"""{{ '{"kind": "result\\u005fref", "ref": "noetl://1/x"}' | from_json }}""",
    ],
)
def test_what_is_unsafe_or_no_data_is_refused(source):
    with pytest.raises((TemplateValueError, UndefinedNameError)) as caught:
        evaluate(source)
    assert "s3cret" not in caught.value.message


@pytest.mark.parametrize("call", ["append(3)", "pop()", "clear()", "sort()", "extend([3])", "insert(0, 1)"])
def test_nothing_changes_the_data(call):
    with pytest.raises(UndefinedNameError):
        evaluate("{{ rows." + call + " }}")
    assert len(SCOPE.resolve("rows")) == 2  # type: ignore[arg-type]


def test_keys_come_before_methods():
    scope = Scope({"w": {"items": 1, "get": 2, "keys": 3}})
    assert Template("{{ [w.items, w.get, w['keys']] }}").evaluate(scope) == [1, 2, 3]
    assert (
        Template("{% if true %}{{ w.items }}{{ w.values() | list }}{% endif %}").evaluate(scope)
        == "1[1, 2, 3]"
    )


def test_names_are_looked_up_in_the_reserved_ones_and_then_layer_by_layer():
    assert SCOPE.resolve("name") == "bob"
    assert SCOPE.resolve("workload") != "hidden"
    assert SCOPE.resolve("gone") is UNDEFINED
    assert not UNDEFINED


def test_a_view_shows_its_keys_then_its_fields_and_leaves_as_plain_data():
    scope = Scope(
        {},
        [
            {
                "start": StepResult({"n": 1, "status": "ready"}),
                "items": StepResult([3, 1, 2]),
                "no": StepResult([]),
            }
        ],
    )

    def value(source: str) -> object:
        return Template(source).evaluate(scope)

    assert value("{{ start }}") == {"n": 1, "status": "ready"}
    assert value("{{ start.n + 1 }}") == 2
    assert value("{{ start.status }}") == "ready"
    assert value("{{ start['n'] }}") == 1
    assert value("{{ start.get('n') }}") == 1
    assert value("{{ items.status }}") == "done"
    assert value("{{ items[0] }}") == 3
    assert value("{{ items | sort }}") == [1, 2, 3]
    assert value("{{ items + [4] }}") == [3, 1, 2, 4]
    assert value("{{ items | length }}") == 3
    assert value("{{ 3 in items }}") is True
    assert value("{{ items == [3, 1, 2] }}") is True
    assert value("{% for i in items %}{{ i }}{% endfor %}") == "312"
    assert value("at {{ items }}") == "at <[3, 1, 2]>"
    assert value("{{ [items] }}") == [[3, 1, 2]]
    assert value("{{ 'some' if no else 'none' }}") == "none"
    assert Template("{{ start.lost.deeper }}").test(scope) is False
    with pytest.raises(UndefinedNameError):
        value("{{ start.lost }}")


def test_an_exception_a_view_raises_on_purpose_passes_through():
    class BodyNeededError(Exception):
        pass

    class Stored(StepResult):
        def plain(self) -> object:
            raise BodyNeededError

    scope = Scope({"big": Stored(None)})
    for source in ("{{ big + [1] }}", "{{ big | sort }}"):
        with pytest.raises(BodyNeededError):
            Template(source).evaluate(scope)
        with pytest.raises(BodyNeededError):
            Template(source).test(scope)


@pytest.mark.parametrize(
    ("source", "secrets"),
    [
        ("{{ keychain.token }}", ["s3cret-token"]),
        ("{{ keychain }}", [{"token": "s3cret-token", "user": "bob"}]),
        ("Bearer {{ keychain.token }} {{ name }}", ["s3cret-token"]),
        ("{{ keychain.user ~ ':' ~ keychain.token }}", ["bob:s3cret-token"]),
        ("{{ (keychain.user ~ ':x') | b64encode }}", ["Ym9iOng="]),
        ("{{ name }} {{ keychain.token | replace('s', 'z') }}", ["z3cret-token"]),
        ("{% set t = keychain.token %}{{ t }} {{ name }}", ["s3cret-token", "bob"]),
        ("{{ name }}", []),
    ],
)
def test_the_value_of_every_expression_that_reads_the_keychain_is_told(source, secrets):
    told: list[object] = []
    Template(source).evaluate(SCOPE, on_secret=told.append)
    assert told == secrets


def test_templates_are_equal_by_source_wherever_they_stand():
    one, other = Template("{{ a }}", at=("file", 1)), Template("{{ a }}", at=None)
    assert one == other
    assert hash(one) == hash(other)
    assert one != Template("{{ b }}")
    assert one != "{{ a }}"
    assert one.at == ("file", 1)
    assert repr(one) == "Template('{{ a }}')"


def test_a_template_cannot_be_changed_but_copied():
    template = Template("{{ name }}", at=7)
    with pytest.raises(AttributeError):
        template.source = "x"
    with pytest.raises(AttributeError):
        del template.at
    for twin in (copy.copy(template), copy.deepcopy(template), pickle.loads(pickle.dumps(template))):
        assert twin == template
        assert twin.at == 7
        assert twin.evaluate(SCOPE) == "bob"


def test_jinja_is_not_loaded_while_every_template_is_fast():
    program = (
        "import sys; from noetl.template import Scope, Template;"
        "s = Scope({'a': {'b': [1, 2]}});"
        "assert Template('{{ a.b | length }} x {{ a.get(1) }}').evaluate(s) == '2 x None';"
        'assert Template("{{ a.b[0] == 1 and c.d is not defined }}").test(s);'
        "assert not [m for m in sys.modules if m.startswith(('jinja2', 'markupsafe', 'json'))]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
