"""`noetl retry` through the real command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOETL = Path(sys.executable).parent / "noetl"

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: repeated}
workload: {bad: [2, 4], factor: 1, pad: 1}
workflow:
  - step: start
    tool:
      - make:
          kind: python
          args: {pad: "{{ workload.pad }}"}
          code: "result = 'x' * pad"
          spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: "{{ outcome.result }}"}}}}]}}
    next: {arcs: [{step: work, args: {base: 100}}]}
  - step: work
    loop:
      in: "{{ range(6) | list }}"
      iterator: n
      spec: {mode: parallel, on_error: continue, max_in_flight: 3}
    tool:
      kind: python
      args: {n: "{{ n }}", bad: "{{ workload.bad }}", base: "{{ args.base }}", f: "{{ workload.factor }}"}
      code: |
        if n in bad:
            raise ValueError(f"bad {n}")
        result = base + n * f
    next: {arcs: [{step: last}]}
  - step: last
    tool:
      kind: python
      args: {rows: "{{ work }}", seen: "{{ ctx.seen }}", first: "{{ start }}"}
      code: |
        if None in rows:
            raise ValueError("a row is missing")
        result = [rows, len(seen), len(first)]
"""


def noetl(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(NOETL), *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def failed(tmp_path: Path) -> tuple[Path, str]:
    """A folder with an execution that failed at its last step, because two of a loop's items did."""
    (tmp_path / "playbook.yaml").write_text(PLAYBOOK)
    done = noetl(tmp_path, "run", "playbook.yaml", "--json", "--set", "pad=100000")
    assert done.returncode == 1, done.stderr
    return tmp_path, json.loads(done.stdout)["execution_id"]


def test_only_the_failed_items_of_a_loop_run_again(failed):
    folder, earlier = failed
    done = noetl(
        folder, "retry", earlier, "--from", "work", "--failed-items", "--set", "bad=[]", "--set", "factor=10",
        "--json", "--events", "events.jsonl",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["result"] == [[100, 101, 120, 103, 140, 105], 100000, 100000]
    assert told["execution_id"] != earlier
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    ran = sorted(e["iteration"] for e in events if e["event_type"] == "task.done" and e["step"] == "work")
    assert ran == [2, 4]
    assert events[0]["payload"]["origin"]["execution_id"] == earlier
    assert max(len(json.dumps(event)) for event in events) < 70_000


def test_without_a_step_it_begins_with_the_one_that_failed(failed):
    folder, earlier = failed
    edited = PLAYBOOK.replace('raise ValueError("a row is missing")', "rows = [row for row in rows if row]")
    (folder / "edited.yaml").write_text(edited)
    done = noetl(folder, "retry", earlier, "--playbook", "edited.yaml", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["result"] == [[100, 101, 103, 105], 100000, 100000]
    assert told["steps"]["last"]["runs"] == 1


def test_a_step_that_does_not_exist_is_a_usage_error(failed):
    folder, earlier = failed
    done = noetl(folder, "retry", earlier, "--from", "nowhere")
    assert done.returncode == 2
    assert "no step `nowhere`" in done.stderr
    assert "resume" not in done.stderr


def test_an_unknown_execution_is_a_usage_error(failed):
    folder, _ = failed
    done = noetl(folder, "retry", "123")
    assert done.returncode == 2
    assert "123" in done.stderr


FORK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: forked}
workload: {bad: true}
workflow:
  - step: start
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}]}
  - step: a
    tool: {kind: python, code: "result = 'a'"}
    next: {arcs: [{step: slow, args: {a: "{{ a }}"}}]}
  - step: slow
    tool: {kind: wait, duration: "{{ '10m' if workload.bad else '1ms' }}"}
    next: {arcs: [{step: both, args: {a: "{{ args.a }}"}}]}
  - step: b
    tool: {kind: python, args: {bad: "{{ workload.bad }}"}, code: "result = 1 / (not bad)"}
    next: {arcs: [{step: both, args: {b: "{{ b }}"}}]}
  - step: both
    spec: {join: {of: [slow, b]}}
    tool: {kind: python, args: {a: "{{ args.a }}", b: "{{ args.b }}"}, code: "result = [a, b]"}
"""


def test_a_branch_that_a_failure_beside_it_ended_goes_on_too(tmp_path):
    (tmp_path / "forked.yaml").write_text(FORK)
    earlier = json.loads(noetl(tmp_path, "run", "forked.yaml", "--json").stdout)
    assert earlier["status"] == "failed"
    done = noetl(tmp_path, "retry", earlier["execution_id"], "--set", "bad=false", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == ["a", 1.0]


SUMS = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: sums}
workload: {bad: [2]}
workflow:
  - step: start
    loop: {in: [1, 2, 3], iterator: n, spec: {mode: parallel, on_error: continue, reduce: {total: sum}}}
    tool:
      - add:
          kind: python
          args: {n: "{{ n }}", bad: "{{ workload.bad }}"}
          code: |
            if n in bad:
                raise ValueError(n)
            result = n
          spec:
            policy:
              rules:
                - {when: "{{ outcome.status == 'error' }}", then: {do: fail}}
                - {else: {then: {do: continue, set_ctx: {total: "{{ n }}"}}}}
    next: {arcs: [{step: last}]}
  - step: last
    tool: {kind: python, args: {t: "{{ ctx.total }}"}, code: "result = t"}
"""


def test_without_a_failed_step_the_loop_with_failed_items_is_meant_and_what_it_adds_up_is_whole(tmp_path):
    (tmp_path / "sums.yaml").write_text(SUMS)
    earlier = json.loads(noetl(tmp_path, "run", "sums.yaml", "--json").stdout)
    assert (earlier["status"], earlier["result"]) == ("completed", 4)
    done = noetl(tmp_path, "retry", earlier["execution_id"], "--failed-items", "--set", "bad=[]", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == 6
