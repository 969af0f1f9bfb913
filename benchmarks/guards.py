"""How much faster a cached guard is than Jinja's compiled expression on the same data.

Prints the ratio of medians, measured interleaved in one run, and exits 1 if it is below 3. The cost of
creating and parsing a template for the first time is printed for orientation.
"""

from __future__ import annotations

import statistics
import sys
from time import perf_counter

from jinja2 import Environment

from noetl.template import Scope, Template
from noetl.template.grammar import compile_fast

EXPRESSION = "outcome.status == 'error' and outcome.http.status in [429, 500]"
ROUNDS = 60
CALLS = 1_000
WANTED = 3.0

RESERVED = {
    "workload": {"api_url": "http://localhost", "cities": ["Lisbon", "Oslo"]},
    "ctx": {"seen": [1, 2, 3]},
    "vars": {},
    "args": {"page": 4},
    "keychain": {},
    "execution_id": "278412345678901248",
    "iter": {"city": "Lisbon", "index": 3},
    "outcome": {
        "status": "error",
        "http": {"status": 500, "headers": {"Content-Type": "application/json"}},
        "error": {"kind": "http.status", "message": "status 500", "retryable": True},
    },
}
LAYERS = [
    {"city": "Lisbon"},
    {"page": 4},
    {"index": 3},
    {"seen": [1, 2, 3]},
    {"fetch_page": {"items": list(range(25))}, "api_url": "http://localhost"},
]
NEW_TEMPLATES = [
    "{{ workload.api_url }}/pages/%d",
    "{{ (response.paging.page | int) + %d }}",
    "{{ event.name == 'call.done' and response.total > %d }}",
]


def time_calls(function, *args, **kwargs) -> float:
    start = perf_counter()
    for _ in range(CALLS):
        function(*args, **kwargs)
    return (perf_counter() - start) / CALLS * 1e6


def compare_guards() -> float:
    scope = Scope(RESERVED, LAYERS)
    guard = Template("{{ " + EXPRESSION + " }}")
    expression = Environment().compile_expression(EXPRESSION)
    names = {name: value for layer in reversed([RESERVED, *LAYERS]) for name, value in layer.items()}
    if guard.test(scope) is not True or expression(**names) is not True:
        raise SystemExit("the guard and Jinja's expression disagree")
    ours, jinjas = [], []
    for _ in range(ROUNDS):
        ours.append(time_calls(guard.test, scope))
        jinjas.append(time_calls(expression, **names))
    our_median, jinja_median = statistics.median(ours), statistics.median(jinjas)
    ratio = jinja_median / our_median
    print(f"guard: {our_median:.2f} us, Jinja: {jinja_median:.2f} us, ratio {ratio:.1f}")
    return ratio


def time_parsing() -> None:
    for pattern in NEW_TEMPLATES:
        sources = [pattern % number for number in range(2_000)]
        start = perf_counter()
        for source in sources:
            Template(source).parse()
        cost = (perf_counter() - start) / len(sources) * 1e6
        assert compile_fast(sources[0]) is not None
        start = perf_counter()
        for source in sources:
            Template(source).parse()
        again = (perf_counter() - start) / len(sources) * 1e6
        print(f"create and parse: {cost:.1f} us, the same source again: {again:.2f} us   {sources[0]}")


if __name__ == "__main__":
    time_parsing()
    sys.exit(0 if compare_guards() >= WANTED else 1)
