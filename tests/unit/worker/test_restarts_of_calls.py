# ruff: noqa: E501 - a step of a playbook on one line reads better than folded
"""Deaths after any commit of calls asked for again, of steps without a tool, of exits, of items that fork."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.worker.restarts import Play, survives_death_after_every_commit
from tests.unit.worker.test_restarts import TOOLS, V1, V2

ASKED_AGAIN = (
    V2
    + """
  - step: start
    spec: {case_mode: inclusive}
    tool: {kind: python, code: pass, args: {page: 1, takes: 0.1}}
    vars: {pages: "{{ result.page }}"}
    case:
      - when: "{{ event.name == 'call.done' and result.more }}"
        then:
          - collect: {from: "{{ result.page }}", into: seen}
          - call: {args: {page: "{{ result.page + 1 }}"}}
      - when: "{{ event.name == 'call.done' }}"
        retry: {scope: chain, max_attempts: 2, initial_delay: 3}
        then:
          - log: {tool: {kind: python, code: pass, args: {v: "{{ result.page }}"}}}
          - sink: {when: "{{ result.page < 3 }}", tool: {kind: python, code: pass, args: {v: "{{ log.v }}"}}}
          - late: {tool: {kind: python, code: pass, args: {fails: 1}}}
    next: [{step: done, args: {v: "{{ [vars.pages, start.page] }}"}}]
  - step: done
    tool: {kind: python, code: pass, args: {v: "{{ args.v }}"}}
"""
)

LARGE_OVERRIDES = (
    V2
    + """
  - step: start
    tool: {kind: python, code: pass, args: {page: 1}}
    case:
      - when: "{{ event.name == 'call.done' and response.page == 1 }}"
        then: [{call: {args: {page: 3, twice: "{{ response.rows + response.rows }}"}}}]
      - when: "{{ event.name == 'call.done' and response.more }}"
        then: [{retry: {max_attempts: 2, initial_delay: 3}}]
    next: [{step: done, args: {v: "{{ start.page }}"}}]
  - step: done
    tool: {kind: python, code: pass, args: {v: "{{ args.v }}"}}
"""
)

WITHOUT_TOOL = (
    V2
    + """
  - step: start
    loop: {in: [5, 1, 9], iterator: i, mode: parallel}
    vars: {all: "{{ result }}"}
    sink: {tool: {kind: python, code: pass, args: {v: "{{ result }}"}}}
    case:
      - when: "{{ i == 1 }}"
        then: [{skip: {}}]
      - when: "{{ i == 9 }}"
        then: [{told: {tool: {kind: python, code: pass, args: {v: "{{ result }}"}}}}, {result: {from: "{{ told.v }}"}}]
    next: between
  - step: between
    args: {seen: "{{ vars.all }}"}
    vars: {again: "{{ args.seen }}"}
    sink: {tool: {kind: python, code: pass, args: {v: "{{ vars.again }}"}}}
    next: done
  - step: done
    tool: {kind: python, code: pass, args: {v: "{{ [start, vars.again] }}"}}
"""
)

WAITING_WITH_EXIT = (
    V2
    + """
  - step: start
    spec: {eval_mode: on_event, timeout: 20}
    vars: {told: "{{ result }}"}
    case:
      - when: "{{ event.name == 'step.exit' }}"
        then: [{left: {tool: {kind: python, code: pass, args: {v: 1}}}}, {sink: {tool: {kind: python, code: pass}}}]
      - when: "{{ event.name == 'timer.fired' }}"
        then: [{late: {tool: {kind: python, code: pass, args: {v: 7}}}}, {next: [{step: done}]}]
  - step: done
    tool: {kind: python, code: pass, args: {v: "{{ vars.told.v }}"}}
"""
)

FORKED = (
    V1
    + """
workflow:
  - step: start
    next: [{step: cities}]
  - step: cities
    loop: {in: "{{ workload.cities }}", iterator: city}
    with: {twice: "{{ city ~ city }}"}
    call: {task: fetch, with: {v: "{{ twice }}"}}
    next: [{step: left}, {step: right}, {step: gather}]
  - step: left
    call: {task: fetch, with: {v: "l{{ city }}"}}
    next: [{step: gather}]
  - step: right
    call: {task: more, with: {v: "r{{ city }}"}}
    next: [{step: gather}]
  - step: gather
    join: cities
    call: {task: gather, with: {v: "{{ join_results | map(attribute='v') | join(' ') }}"}}
workbook:
  - {task: fetch, type: python, code: pass}
  - {task: more, type: python, code: pass, retry: 1}
  - {task: gather, type: python, code: pass}
"""
)


@pytest.mark.parametrize(
    ("text", "status", "result"),
    [
        pytest.param(
            ASKED_AGAIN, "completed", {"n": 1, "v": [4, 4]}, id="a call asked for beside other chains"
        ),
        pytest.param(LARGE_OVERRIDES, "completed", {"n": 1, "v": 3}, id="a call with large overrides"),
        pytest.param(WITHOUT_TOOL, "completed", {"n": 1, "v": [[5, None, 9], [5, None, 9]]}, id="no tool"),
        pytest.param(WAITING_WITH_EXIT, "completed", {"n": 1, "v": 1}, id="the exit of a waiting step"),
        pytest.param(
            FORKED,
            "completed",
            {"n": 1, "v": "aa la ra bb lb rb cc lc rc"},
            id="items that fork and come to the join by several ways",
        ),
    ],
)
def test_a_death_after_any_commit_changes_nothing(text: str, status: str, result: Any) -> None:
    state = survives_death_after_every_commit(Play(text, TOOLS))
    assert (state.status, state.result) == (status, result), state.error
