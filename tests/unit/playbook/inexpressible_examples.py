"""For each construct that canonical YAML has no words for, a playbook that uses it and no other of them."""

from __future__ import annotations

V2 = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: example}
workflow:
"""
V1 = """apiVersion: noetl.io/v1
kind: Playbook
name: example
path: example
"""
HTTP = "{kind: http, method: GET, url: 'http://localhost/a'}"
AFTER = """
  - step: after
    tool: {kind: noop}
"""


def _case(entries: str, tool: str = HTTP, rest: str = "") -> str:
    """A playbook whose first step has a case with these entries."""
    indented = "".join(f"      {line}\n" for line in entries.strip().splitlines())
    return f"{V2}  - step: start\n    tool: {tool}\n{rest}    case:\n{indented}{AFTER}"


EXAMPLES: dict[str, str] = {
    "on-event": V2
    + """  - step: start
    spec: {eval_mode: on_event}
    case:
      - when: "{{ event.name == 'go' }}"
        then: {next: after}
"""
    + AFTER,
    "inclusive-case": _case(
        """
- when: "{{ event.name == 'call.done' and response.a }}"
  then: [{tell: {tool: {kind: noop}}}]
- when: "{{ event.name == 'call.done' and response is defined }}"
  then: {next: after}
""",
        rest="    spec: {case_mode: inclusive}\n",
    ),
    "next-policy": _case(
        """
- when: "{{ event.name == 'call.done' and response is defined }}"
  then: {next: {to: [{step: after}], policy: defer}}
"""
    ),
    "next-delay": _case(
        """
- when: "{{ event.name == 'call.done' and response is defined }}"
  then: {next: {to: [{step: after}], spec: {delay: 5s}}}
"""
    ),
    "computed-target": _case(
        """
- when: "{{ event.name == 'call.done' and response is defined }}"
  then: {next: {to: [{step: "{{ 'after' if response.ok else 'end' }}"}]}}
"""
    ),
    "event-guard": _case(
        """
- when: "{{ event.name == 'call.done' or event.name == 'step.exit' }}"
  then: {next: after}
"""
    ),
    "guard-both-ways": _case(
        """
- when: "{{ event.name == 'call.done' and not response.more }}"
  then: {next: after}
"""
    ),
    "dead-entry": _case(
        """
- when: "{{ event.name == 'call.done' }}"
  then: {next: after}
- when: "{{ event.name == 'call.done' and response.more }}"
  then: {tell: {tool: {kind: noop}}}
"""
    ),
    "dead-action": _case(
        """
- when: "{{ event.name == 'call.done' and response is defined }}"
  then: [{next: after}, {tell: {tool: {kind: noop}}}]
"""
    ),
    "enter-action": _case(
        """
- when: "{{ event.name == 'step.enter' and workload.dry }}"
  then: {next: after}
"""
    ),
    "exit-action": _case(
        """
- when: "{{ event.name == 'step.exit' }}"
  then: {tell: {tool: {kind: noop}}}
"""
    ),
    "failed-call-tasks": _case(
        """
- when: "{{ event.name == 'call.error' }}"
  then: {tell: {tool: {kind: noop}}}
"""
    ),
    "hidden-decision": _case(
        """
- when: "{{ event.name == 'call.done' and response.status_code == 200 }}"
  then: {next: after}
"""
    ),
    "failure-details": _case(
        """
- when: "{{ event.name == 'call.error' and error.status == 404 }}"
  then: {next: after}
"""
    ),
    "failure-of-many": _case(
        """
- when: "{{ event.name == 'call.error' }}"
  then: {next: after}
- when: "{{ event.name == 'call.done' and response is defined }}"
  then: {tell: {tool: {kind: noop}}}
"""
    ),
    "fail-message": _case(
        """
- when: "{{ event.name == 'call.done' and response.rows == 0 }}"
  then: {fail: {message: nothing there}}
"""
    ),
    "skip-action": _case(
        """
- when: "{{ event.name == 'step.enter' and workload.dry }}"
  then: {skip: {}}
"""
    ),
    "call-override": _case(
        """
- when: "{{ event.name == 'call.done' and response.more }}"
  then: {call: {params: {page: 2}}}
"""
    ),
    "case-values": _case(
        """
- when: "{{ event.name == 'call.done' and response is defined }}"
  then: {tell: {tool: {kind: python, args: {code: "{{ response.status_code }}"}, code: result = code}}}
"""
    ),
    "case-result": _case(
        """
- when: "{{ event.name == 'call.done' and response is defined }}"
  then:
    - result: {from: response.data}
    - tell: {tool: {kind: python, args: {n: "{{ result }}"}, code: result = n}}
"""
    ),
    "ignored-failure": _case(
        """
- when: "{{ event.name == 'call.done' and response is defined }}"
  then: {next: after}
""",
        rest="    spec: {on_error: ignore}\n",
    ),
    "loop-exit": _case(
        """
- when: "{{ event.name == 'call.done' and response.found }}"
  then: {next: after}
""",
        rest="    loop: {in: [1, 2], iterator: item}\n",
    ),
    "loop-values": _case(
        """
- when: "{{ event.name == 'call.done' and response is defined }}"
  then: {collect: {from: response.data, into: rows}}
""",
        rest="    loop: {in: [1, 2], iterator: item}\n",
    ),
    "loop-sink": V2
    + f"""  - step: start
    loop: {{in: [1, 2], iterator: item, mode: sequential}}
    tool: {HTTP}
    sink: {{tool: {{kind: http, method: POST, url: "http://localhost/b", body: "{{{{ result }}}}"}}}}
""",
    "item-tokens": V1
    + """workflow:
  - step: start
    loop: {in: [1, 2], iterator: item, join: gather}
    next: [{step: each, with: {item: "{{ item }}"}}]
  - step: each
    call: {task: echo, with: {item: "{{ item }}"}}
    next: [{step: gather}]
  - step: gather
    call: {task: echo, with: {item: "{{ join_results }}"}}
workbook:
  - {task: echo, type: python, code: "def main(item): return item"}
""",
    "retry-growth": V2
    + f"""  - step: start
    tool: {HTTP}
    retry: {{max_attempts: 3, initial_delay: "{{{{ workload.delay }}}}", backoff_multiplier: 1.5}}
""",
    "retry-exception": V2
    + f"""  - step: start
    tool: {HTTP}
    retry: {{on: exception}}
""",
    "retry-chain": _case(
        """
- when: "{{ event.name == 'call.done' and response is defined }}"
  retry: {scope: chain}
  then: {tell: {tool: {kind: noop}}}
"""
    ),
    "retry-twice": _case(
        """
- when: "{{ event.name == 'call.done' and error is defined }}"
  then: {retry: {max_attempts: 3}}
""",
        rest="    retry: {max_attempts: 2}\n",
    ),
    "retry-predicate": V2
    + f"""  - step: start
    tool: {HTTP}
    retry: {{max_attempts: 3, retry_when: "{{{{ 'later' in error }}}}"}}
""",
    "retry-count": V2
    + f"""  - step: start
    tool: {HTTP}
    retry: {{max_attempts: "{{{{ workload.most }}}}", stop_when: "{{{{ result.ready }}}}"}}
""",
    "poll-deadline": _case(
        """
- when: "{{ event.name == 'call.done' }}"
  then:
    - ask:
        tool: {kind: http, method: GET, url: "http://localhost/a"}
        poll: {until: "{{ result.ready }}", deadline: 60s}
""",
        tool="{kind: noop}",
    ),
    "vars": V2
    + f"""  - step: start
    tool: {HTTP}
    vars: {{id: "{{{{ result.id }}}}"}}
""",
    "step-args": V2
    + """  - step: start
    args: {n: 1}
    tool: {kind: python, code: "result = n"}
""",
    "result-name": V1
    + """workflow:
  - step: start
    call: {task: echo, with: {item: 1}}
    next: [{step: again}]
  - step: again
    call: {task: echo, with: {item: 2}}
    next: [{step: end}]
  - step: end
    call: {task: echo, with: {item: "{{ echo.result }}"}}
workbook:
  - {task: echo, type: python, code: "def main(item): return item"}
""",
    "result-view": V2
    + """  - step: start
    tool: {kind: duckdb, query: "select 1 as n"}
    sink: {tool: {kind: http, method: POST, url: "http://localhost/b", body: "{{ result }}"}}
    next: after
  - step: after
    tool: {kind: python, args: {n: "{{ start.row_count }}"}, code: "result = n"}
""",
    "step-name": _case(
        """
- when: "{{ event.name == 'call.done' and response.ok }}"
  then: {next: next-one}
"""
    ).replace("step: start", "step: start\n    tool: {kind: noop}\n    next: first-one\n  - step: first-one")
    + "  - step: next-one\n    tool: {kind: noop}\n",
    "sink": V2
    + f"""  - step: start
    tool: {HTTP}
    sink: {{tool: {{kind: http, method: POST, url: "http://localhost/b", body: "{{{{ this.status }}}}"}}}}
""",
    "parallel-run": V1
    + """workflow:
  - step: start
    call: {task: both}
workbook:
  - task: both
    type: task
    run:
      - {task: a, type: python, code: "def main(): return 1"}
      - {task: b, type: python, code: "def main(): return 2"}
""",
    "run-scope": V1
    + """workflow:
  - step: start
    call: {task: outer}
workbook:
  - task: outer
    type: task
    run:
      - task: inner
        type: task
        with: {n: 1}
        run:
          - {task: a, type: python, code: "def main(n): return n"}
""",
    "task-when": V1
    + """workflow:
  - step: start
    call: {task: maybe}
workbook:
  - {task: maybe, type: python, when: "{{ workload.go }}", code: "def main(): return 1"}
""",
    "join-sources": V1
    + """workload: {items: [1, 2]}
workflow:
  - step: start
    next:
      - when: "{{ workload.short }}"
        then: [{step: gather}]
      - else: [{step: each}]
  - step: each
    type: iterator
    collection: "{{ workload.items }}"
    element: item
    task: {type: python, with: {item: "{{ item }}"}, code: "def main(item): return item"}
    next: [{step: gather}]
  - step: gather
    join: each
    call: {task: echo, with: {item: "{{ join_results }}"}}
workbook:
  - {task: echo, type: python, code: "def main(item): return item"}
""",
}
