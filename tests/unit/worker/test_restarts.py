# ruff: noqa: E501 - a step of a playbook on one line reads better than folded
"""Steps with cases, waits, groups and spreads come to the same end wherever their process dies."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.testing import after, answers, fails
from tests.unit.worker.restarts import Play, survives_death_after_every_commit

V2 = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p, path: tests/p}
workflow:
"""

CHAIN = (
    V2
    + """
  - step: start
    tool: {kind: python, code: pass}
    case:
      - when: "{{ event.name == 'step.enter' }}"
        then:
          - set: {ctx: {began: 1}}
          - greet: {tool: {kind: python, code: pass}}
      - when: "{{ event.name == 'call.done' }}"
        then:
          - collect: {from: result.n, into: seen}
          - one: {tool: {kind: python, code: pass}}
          - set: {ctx: {sum: "{{ ctx.began + one.n }}"}}
          - two: {tool: {kind: python, code: pass, args: {sum: "{{ ctx.sum }}"}}}
          - result: {from: "{{ {'sum': ctx.sum, 'seen': ctx.seen, 'two': two.n} }}"}
      - when: "{{ event.name == 'step.exit' }}"
        then:
          - bye: {tool: {kind: python, code: pass}}
          - next: {to: [{step: last, args: {got: "{{ result.sum }}"}}]}
    vars: {times: "{{ vars.times | default(0) + 1 }}"}
    sink: {tool: {kind: python, code: pass}}
  - step: last
    args: {times: "{{ vars.times }}"}
    tool: {kind: python, code: pass, args: {got: "{{ args.got }}", times: "{{ vars.times }}"}}
    vars: {done: "{{ result.n }}"}
"""
)

NAMED_RETRY = (
    V2
    + """
  - step: start
    tool: {kind: python, code: pass}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then:
          - flaky:
              tool: {kind: python, code: pass, args: {fails: 2}}
              retry: {max_attempts: 3, backoff: {type: fixed, delay_seconds: 5}}
          - polled:
              tool: {kind: python, code: pass}
              poll: {until: "{{ attempt >= 3 }}", interval: 2s, max_attempts: 5}
          - result: {from: "{{ flaky.n + polled.n }}"}
"""
)

NAMED_FAILURE = (
    V2
    + """
  - step: start
    tool: {kind: python, code: pass}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then:
          - bad: {tool: {kind: python, code: pass, args: {fails: 99}}}
          - never: {tool: {kind: python, code: pass}}
          - next: {to: [{step: end}]}
  - step: end
"""
)

CHAIN_RETRY = (
    V2
    + """
  - step: start
    tool: {kind: python, code: pass}
    case:
      - when: "{{ event.name == 'call.done' }}"
        retry: {scope: chain, max_attempts: 3, backoff: {type: fixed, delay_seconds: 3}}
        then:
          - collect: {from: "{{ 1 }}", into: tries}
          - first: {tool: {kind: python, code: pass}}
          - second: {tool: {kind: python, code: pass, args: {bad: "{{ ctx.tries | length < 2 }}"}}}
          - result: {from: "{{ ctx.tries | length }}"}
"""
)

SINKS = (
    V2
    + """
  - step: start
    tool: {kind: python, code: pass}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then:
          - sink: {tool: {kind: python, code: pass, args: {part: 1}}}
          - sink: {tool: {kind: python, code: pass, args: {part: 2, fails: 1}, retry: {max_attempts: 2}}}
          - set: {ctx: {stored: true}}
          - next: {to: [{step: last, args: {stored: "{{ ctx.stored }}"}}]}
    sink: {tool: {kind: python, code: pass, args: {part: 3}}, when: "{{ result.n == 1 }}"}
  - step: last
    tool: {kind: python, code: pass}
    sink: {tool: {kind: python, code: pass, args: {fails: 99}}}
"""
)

SINK_FAILS_IN_CHAIN = (
    V2
    + """
  - step: start
    tool: {kind: python, code: pass}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then:
          - sink: {tool: {kind: python, code: pass, args: {fails: 99}}}
          - next: {to: [{step: end}]}
  - step: end
"""
)

PAGES = (
    V2
    + """
  - step: start
    tool: {kind: python, code: pass, args: {page: 1}}
    case:
      - when: "{{ event.name == 'call.done' and response.more }}"
        then:
          - collect: {from: response.rows, into: rows, mode: extend}
          - call: {args: {page: "{{ response.page + 1 }}"}}
      - when: "{{ event.name == 'call.done' }}"
        then:
          - collect: {from: response.rows, into: rows, mode: extend}
          - result: {from: ctx.rows}
    next: [{step: last}]
  - step: last
    args: {count: "{{ start | length }}", first: "{{ start[0].id }}", final: "{{ start[-1].id }}"}
    tool: {kind: python, code: pass, args: {v: ["{{ args.count }}", "{{ args.first }}", "{{ args.final }}"]}}
"""
)

CASE_RETRY = (
    V2
    + """
  - step: start
    tool: {kind: python, code: pass}
    case:
      - when: "{{ event.name == 'call.error' }}"
        then:
          - set: {ctx: {failed: true}}
          - retry: {max_attempts: 3, backoff: {type: fixed, delay_seconds: 4}}
      - when: "{{ event.name == 'call.done' and error is not defined }}"
        then: [{result: {from: "{{ ctx.failed }}"}}]
"""
)

SEQUENTIAL = (
    V2
    + """
  - step: start
    loop: {in: [1, 2, 3, 4], iterator: item}
    tool: {kind: python, code: pass, args: {v: "{{ item }}"}}
    case:
      - when: "{{ event.name == 'call.done' and item == 3 }}"
        then:
          - also: {tool: {kind: python, code: pass}}
          - collect: {from: result.v, into: seen}
          - result: {from: ctx.seen}
          - next: {to: [{step: last}]}
      - when: "{{ event.name == 'call.done' }}"
        then: [{collect: {from: result.v, into: seen}}]
      - when: "{{ event.name == 'step.exit' }}"
        then: [{set: {ctx: {left: true}}}]
    vars: {all: "{{ result }}", left: "{{ vars.left | default(0) + 1 }}"}
    sink: {tool: {kind: python, code: pass, args: {v: "{{ result }}"}}}
  - step: last
    tool: {kind: python, code: pass, args: {v: "{{ vars.all }}"}}
"""
)

PARALLEL = (
    V2
    + """
  - step: start
    loop: {in: [3, 1, 2], iterator: item, mode: parallel}
    tool: {kind: python, code: pass, args: {v: "{{ item }}", takes: "{{ item }}"}}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then:
          - set: {ctx: {last: "{{ item }}"}}
          - collect: {from: result.v, into: seen}
          - more: {tool: {kind: python, code: pass}}
          - collect: {from: "{{ item * 10 }}", into: seen}
      - when: "{{ event.name == 'step.exit' }}"
        then:
          - result: {from: "{{ {'seen': ctx.seen, 'last': ctx.last, 'all': result | map(attribute='v') | list} }}"}
"""
)

ENTER_NEXT = (
    V2
    + """
  - step: start
    tool: {kind: python, code: pass}
    case:
      - when: "{{ event.name == 'step.enter' }}"
        then:
          - look: {tool: {kind: python, code: pass}}
          - next: {to: [{step: last}]}
    sink: {tool: {kind: python, code: pass, args: {part: 1}}}
  - step: last
    tool: {kind: python, code: pass}
"""
)

INCLUSIVE = (
    V2
    + """
  - step: start
    spec: {case_mode: inclusive, next_policy: break_chain}
    tool: {kind: python, code: pass}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then:
          - a: {tool: {kind: python, code: pass}}
          - next: {to: [{step: x}], spec: {delay: 5s}}
          - unreached: {tool: {kind: python, code: pass}}
      - when: "{{ event.name == 'call.done' }}"
        then:
          - b: {tool: {kind: python, code: pass}}
          - next: {to: [{step: y}, {step: x}], priority: 3, spec: {delay: 7s}}
  - step: x
    tool: {kind: python, code: pass}
  - step: y
    tool: {kind: python, code: pass}
    vars: {y: 1}
"""
)

WAITING = (
    V2
    + """
  - step: start
    next: [{step: wait}, {step: work}]
  - step: work
    tool: {kind: python, code: pass, args: {takes: 4}}
    vars: {worked: 1}
  - step: wait
    spec: {eval_mode: on_event, timers: {early: 2s}, timeout: 60s}
    case:
      - when: "{{ event.name == 'timer.fired' and event.data.timer_id == 'early' }}"
        then: [{set: {ctx: {early: true}}}]
      - when: "{{ event.name == 'step.done' and event.step == 'work' }}"
        then:
          - noted: {tool: {kind: python, code: pass}}
          - set: {ctx: {after: "{{ event.step }}"}}
      - when: "{{ event.name == 'approve' }}"
        then:
          - tell: {tool: {kind: python, code: pass}}
          - result: {from: "{{ {'by': event.data.by, 'early': ctx.early, 'after': ctx.after} }}"}
          - next: {to: [{step: last, args: {by: "{{ event.data.by }}"}}]}
  - step: last
    tool: {kind: python, code: pass, args: {v: "{{ args.by }}"}}
"""
)

TIMEOUT = (
    V2
    + """
  - step: start
    spec: {eval_mode: on_event, timeout: 30s}
    case:
      - when: "{{ event.name == 'timer.fired' and event.data.timer_id == 'timeout' }}"
        then:
          - tell: {tool: {kind: python, code: pass}}
          - result: {from: "{{ event.data.timer_id }}"}
"""
)

TWO_WAITS = (
    V2
    + """
  - step: start
    spec: {eval_mode: on_event}
    case:
      - when: "{{ event.name == 'first' }}"
        then: [{next: {to: [{step: second}]}}]
  - step: second
    spec: {eval_mode: on_event}
    case:
      - when: "{{ event.name == 'early' }}"
        then: [{result: {from: event.data.n}}]
"""
)

V1 = """
apiVersion: noetl.io/v1
kind: Playbook
name: p
path: tests/p
workload: {cities: [a, b, c]}
"""

SPREAD = (
    V1
    + """
workflow:
  - step: start
    next: [{step: cities}]
  - step: cities
    loop: {in: "{{ workload.cities }}", iterator: city}
    next: [{step: fetch, with: {city: "{{ city }}"}}]
  - step: fetch
    call: {task: fetch, with: {v: "{{ city }}"}}
    next: [{when: "{{ city == 'b' }}", then: [{step: lost}]}, {else: [{step: more, with: {city: "{{ city }}"}}]}]
  - step: more
    call: {task: more, with: {v: "{{ city }}"}}
    next: [{step: gather}]
  - step: lost
    call: {task: fetch, with: {v: lost}}
  - step: gather
    join: cities
    call: {task: gather, with: {v: "{{ join_results | map(attribute='v') | list }}"}}
    next: [{step: end}]
  - step: end
workbook:
  - {task: fetch, type: python, code: pass}
  - {task: more, type: python, code: pass, retry: 1}
  - {task: gather, type: python, code: pass}
"""
)

NESTED_RUN = (
    V1
    + """
workflow:
  - step: start
    call: {task: whole}
    next: [{step: end}]
  - step: end
workbook:
  - task: whole
    type: task
    run:
      - {task: one, type: python, code: pass, with: {v: 1}}
      - {task: two, type: python, code: pass, with: {v: "{{ one.v }}"}}
      - task: three
        type: python
        code: pass
        with: {v: 3}
        run:
          - {task: four, type: python, code: pass, with: {v: "{{ three.v }}"}}
          - {task: five, type: python, code: pass, with: {v: 9}, when: "{{ false }}"}
          - {task: six, type: python, code: pass, with: {v: "{{ four.v }}", fails: 1}, on_error: continue}
          - {task: seven, type: python, code: pass, with: {v: "{{ four.v + 4 }}"}}
"""
)

ITERATOR = (
    V1
    + """
workflow:
  - step: start
    next: [{step: each}]
  - step: each
    type: iterator
    collection: "{{ workload.cities }}"
    element: city
    task: {task: look, type: python, code: pass, with: {v: "{{ city }}"}, save: {tool: {kind: python, code: pass, args: {v: 1}}}}
    next: [{step: gather}]
  - step: gather
    join: each
    call: {task: gather, with: {v: "{{ join_results | map(attribute='v') | list }}"}}
    next: [{step: end}]
  - step: end
workbook:
  - {task: gather, type: python, code: pass}
"""
)


def scripted(call: Any) -> Any:
    """Does what the args say; nothing in it depends on how often it was asked."""
    args = call.args or {}
    if call.attempt <= args.get("fails", 0) or args.get("bad"):
        answer: Any = fails("scripted", "as told", retryable=True)
    elif "page" in args:
        page = args["page"]
        rows = [{"id": 100 * page + number, "text": "x" * 900} for number in range(40)]
        answer = answers({"page": page, "more": page < 4, "rows": rows})
    else:
        answer = answers({"n": 1, "v": args.get("v")})
    return after(args.get("takes", 0.3), answer)


TOOLS = {"python": scripted}


@pytest.mark.parametrize(
    ("text", "status", "result"),
    [
        pytest.param(CHAIN, "completed", {"n": 1, "v": None}, id="a chain at every moment"),
        pytest.param(NAMED_RETRY, "completed", 2, id="retries and polls of named tasks"),
        pytest.param(NAMED_FAILURE, "failed", None, id="a named task that fails"),
        pytest.param(CHAIN_RETRY, "completed", 2, id="a chain that is tried again"),
        pytest.param(SINKS, "failed", None, id="sinks of chains and steps"),
        pytest.param(SINK_FAILS_IN_CHAIN, "failed", None, id="a sink that fails in a chain"),
        pytest.param(PAGES, "completed", {"n": 1, "v": [160, 100, 439]}, id="large pages that are collected"),
        pytest.param(SEQUENTIAL, "completed", {"n": 1, "v": [1, 2, 3]}, id="a sequential loop ended early"),
        pytest.param(
            PARALLEL,
            "completed",
            {"seen": [3, 30, 1, 10, 2, 20], "last": 2, "all": [3, 1, 2]},
            id="a parallel loop that collects",
        ),
        pytest.param(ENTER_NEXT, "completed", {"n": 1, "v": None}, id="a way out on entry"),
        pytest.param(INCLUSIVE, "completed", {"n": 1, "v": None}, id="delayed ways out of several branches"),
        pytest.param(TIMEOUT, "completed", "timeout", id="a timeout of a waiting step"),
        pytest.param(SPREAD, "completed", None, id="tokens for each item and their join"),
        pytest.param(NESTED_RUN, "completed", None, id="nested runs"),
        pytest.param(ITERATOR, "completed", None, id="an iterator with a save"),
    ],
)
def test_a_death_after_any_commit_changes_nothing(text: str, status: str, result: Any) -> None:
    state = survives_death_after_every_commit(Play(text, TOOLS))
    assert state.status == status, state.error
    if result is not None:
        assert state.result == result


def test_a_retry_by_the_case_survives_a_death_after_any_commit() -> None:
    def busy(call: Any) -> Any:
        # The third attempt is answered, however often a death has one made again.
        return answers({"n": 1}) if call.attempt >= 3 else fails("busy")

    play = Play(CASE_RETRY, {"python": busy})
    state = survives_death_after_every_commit(play)
    assert (state.status, state.result) == ("completed", True)
    assert len({each.action_id for each in play.calls if each.step == "start"}) == 1


def test_a_waiting_step_survives_a_death_after_any_commit() -> None:
    play = Play(WAITING, TOOLS, signals={10: ("approve", {"by": "ann"})})
    state = survives_death_after_every_commit(play)
    assert (state.status, state.result) == ("completed", {"n": 1, "v": "ann"})
    assert state.steps["wait"].result == {"by": "ann", "early": True, "after": "work"}


def test_a_signal_that_a_waiting_step_does_not_want_is_kept_for_a_later_one() -> None:
    play = Play(TWO_WAITS, TOOLS, signals={1: ("early", {"n": 5}), 2: ("first", None)})
    state = survives_death_after_every_commit(play)
    assert (state.status, state.result) == ("completed", 5)


# --- the same, in less usual places ------------------------------------------------------------------------

WORKBOOK_PIPELINES = (
    V2.replace(
        "workflow:",
        """workbook:
  - name: pair
    tool:
      - first: {kind: python, code: pass, args: {v: 1}}
      - second: {kind: python, code: pass, args: {v: "{{ first.v + 1 }}"}}
  - name: single
    tool: {kind: python, code: pass, args: {v: 8}}
    sink: {tool: {kind: python, code: pass, args: {v: "{{ result.v }}"}}}
workflow:""",
    )
    + """
  - step: start
    tool: {kind: workbook, name: pair}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then:
          - again: {tool: {kind: workbook, name: pair}}
          - sink: {tool: {kind: workbook, name: pair}}
          - one: {tool: {kind: workbook, name: single}}
          - result: {from: "{{ [result.v, again.v, one.v] }}"}
    sink: {tool: {kind: workbook, name: pair}}
"""
)

LOOP_CHAINS = (
    V2
    + """
  - step: start
    loop: {in: [1, 2, 3], iterator: item, mode: MODE, spec: {on_error: continue, max_in_flight: 2}}
    tool: {kind: python, code: pass, args: {v: "{{ item }}", fails: "{{ 9 if item == 2 else 0 }}"}}
    case:
      - when: "{{ event.name == 'call.error' }}"
        then: [{collect: {from: "{{ item }}", into: bad}}, {retry: {max_attempts: 2, initial_delay: 3}}]
      - when: "{{ event.name == 'call.done' and error is not defined }}"
        retry: {scope: chain, max_attempts: 2, backoff: {type: fixed, delay_seconds: 2}}
        then:
          - collect: {from: "{{ item }}", into: good}
          - told: {tool: {kind: python, code: pass, args: {bad: "{{ ctx.good | length < item }}"}}}
          - sink: {tool: {kind: python, code: pass, args: {v: "{{ result.v }}"}}}
          - result: {from: "{{ result.v * 10 }}"}
      - when: "{{ event.name == 'step.exit' }}"
        then: [{result: {from: "{{ [ctx.good, ctx.bad, result] }}"}}]
    vars: {all: "{{ result }}"}
"""
)

NESTED_SPREAD = (
    V1
    + """
workflow:
  - {step: start, next: [{step: outer}]}
  - {step: outer, loop: {in: "{{ [1, 2] }}", iterator: a, spec: {max_in_flight: 1}}, next: [{step: inner, with: {a: "{{ a }}"}}]}
  - {step: inner, loop: {in: "{{ [10, 20] }}", iterator: b}, call: {task: one, with: {v: "{{ a + b }}"}}, next: [{step: half}]}
  - {step: half, join: inner, call: {task: one, with: {v: "{{ join_results | map(attribute='v') | list }}"}}, next: [{step: gather}]}
  - {step: gather, join: outer, call: {task: one, with: {v: "{{ join_results | map(attribute='v') | list }}"}}}
workbook:
  - {task: one, type: python, code: pass}
"""
)

SKIPPED = (
    V2
    + """
  - step: start
    tool: {kind: python, code: pass}
    case:
      - when: "{{ event.name == 'call.done' }}"
        then: [{look: {tool: {kind: python, code: pass}}}, {skip: {}}, {never: {tool: {kind: python, code: pass}}}]
    next: [{step: last}]
  - step: last
    spec: {on_error: ignore}
    tool: {kind: python, code: pass, args: {fails: 9}}
    retry: {max_attempts: 2, backoff: {type: fixed, delay_seconds: 3}}
    next: [{step: end}]
  - {step: end, tool: {kind: python, code: pass, args: {v: "{{ start is none }}"}}}
"""
)

CALLS_ON_EVENTS = (
    V2
    + """
  - step: start
    spec: {eval_mode: on_event, timers: {tick: 4s}}
    tool: {kind: python, code: pass, args: {v: 1}}
    case:
      - when: "{{ event.name == 'timer.fired' }}"
        then: [{collect: {from: event.data.timer_id, into: ticks}}, {call: {args: {v: 2}}}]
      - when: "{{ event.name == 'call.done' and result.v == 2 }}"
        then: [{told: {tool: {kind: python, code: pass}}}, {result: {from: ctx.ticks}}]
"""
)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        pytest.param(WORKBOOK_PIPELINES, [2, 2, 8], id="workbook pipelines as calls, tasks and sinks"),
        pytest.param(
            LOOP_CHAINS.replace("MODE", "sequential"),
            [[1, 3, 3], [2, 2], [10, None, 30]],
            id="chains in a sequential loop",
        ),
        pytest.param(
            LOOP_CHAINS.replace("MODE", "parallel").replace("ctx.good | length < item", "false"),
            [[1, 3], [2, 2], [10, None, 30]],
            id="chains in a parallel loop",
        ),
        pytest.param(NESTED_SPREAD, {"n": 1, "v": [[11, 21], [12, 22]]}, id="nested spreads"),
        pytest.param(
            SKIPPED, {"n": 1, "v": True}, id="a step that is skipped and one whose error is ignored"
        ),
        pytest.param(CALLS_ON_EVENTS, ["tick"], id="calls on events"),
    ],
)
def test_a_death_after_any_commit_changes_nothing_here_either(text: str, result: Any) -> None:
    state = survives_death_after_every_commit(Play(text, TOOLS))
    assert (state.status, state.result) == ("completed", result), state.error
