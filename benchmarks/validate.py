"""How long validation takes, as a multiple of what the C YAML loader takes to parse the same text.

The two are measured in turn in one run, so that a busy machine slows both; the ratio of the medians decides.
The budget is 6 for the canonical playbook of a thousand steps. The other figures are for orientation: the
older dialects, and ten thousand steps, which are either validated or refused with the limit they exceed.
"""

import argparse
import gc
import statistics
import sys
import time
from typing import NamedTuple

import yaml

from noetl.playbook.load import Loaded, load
from noetl.tools.registry import builtin_kinds

BUDGET = 6.0
STEPS = 1000

CANONICAL_HEAD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: many_steps, path: benchmarks/many_steps}
keychain:
  - {name: api_token, kind: bearer, var: API_TOKEN}
workload:
  api_url: https://api.example.test
  page_size: 100
  regions: [north, south, east, west]
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: step_0}]}
"""
CANONICAL_STEPS = (
    """\
  - step: step_@
    desc: Fetch one page of orders and keep the cursor
    tool:
      - fetch:
          kind: http
          url: "{{ workload.api_url }}/orders/@?size={{ workload.page_size }}"
          spec:
            policy:
              rules:
                - when: "{{ outcome.status == 'error' and outcome.http.status in [429, 500, @] }}"
                  then: {do: retry, attempts: 5, backoff: exponential, delay: 2s}
                - else: {then: {do: continue, set_ctx: {cursor_@: "{{ outcome.result.next }}"}}}
    next:
      arcs:
        - {step: step_&, when: "{{ event.name == 'step.done' and ctx.cursor_@ is not none }}"}
        - {step: step_&}
""",
    """\
  - step: step_@
    spec: {timeout: 30s}
    loop:
      in: "{{ workload.regions }}"
      iterator: region
      spec: {mode: parallel, max_in_flight: 8}
    tool:
      - count:
          kind: python
          args: {region: "{{ iter.region }}", number: @}
          code: "result = [region, number]"
    next:
      arcs:
        - {step: step_&, when: "{{ event.name == 'loop.done' }}"}
        - {step: end, when: "{{ event.name == 'step.failed' }}"}
""",
    """\
  - step: step_@
    tool:
      - store:
          kind: postgres
          auth: warehouse
          command: |
            INSERT INTO orders_@ (id, total)
            VALUES ({{ args.id | default(@) }}, {{ workload.page_size }})
      - tell:
          kind: noop
          args: {stored: "{{ store.row_count }}", label: order-@}
    next: {spec: {mode: exclusive}, arcs: [{step: step_&, args: {id: "{{ step_@.row_count }}"}}]}
""",
)
V2_HEAD = CANONICAL_HEAD.replace("next: {arcs: [{step: step_0}]}", "next: [{step: step_0}]")
V2_STEPS = (
    """\
  - step: step_@
    desc: Fetch one page of orders
    tool:
      kind: http
      url: "{{ workload.api_url }}/orders/@?size={{ workload.page_size }}"
    retry: {max_attempts: 4, initial_delay: 1, backoff_multiplier: 2, retry_when: "{{ status_code >= 500 }}"}
    case:
      - when: "{{ event.name == 'call.error' and error.status in [429, @] }}"
        then: {retry: {max_attempts: 5}}
      - when: "{{ response.data.total > @ }}"
        then: [{next: [{step: step_&, args: {total: "{{ response.data.total }}"}}]}]
    vars: {total_@: "{{ result.total }}"}
    next: [{step: step_&}]
""",
    """\
  - step: step_@
    args: {region: north, number: @}
    loop: {in: "{{ workload.regions }}", iterator: region, mode: parallel}
    tool:
      kind: python
      args: {region: "{{ region }}", number: "{{ args.number }}"}
      code: "result = [region, number]"
    vars:
      regions_@: "{{ result }}"
    sink:
      tool: {kind: postgres, auth: warehouse, table: regions, args: {rows: "{{ result }}"}}
    next:
      - step: step_&
""",
)
V1_HEAD = """\
apiVersion: noetl.io/v1
kind: Playbook
name: many_steps
path: benchmarks/many_steps
workload:
  api_url: https://api.example.test
  page_size: 100
workflow:
  - step: start
    next: [{step: step_0}]
"""
V1_STEPS = (
    """\
  - step: step_@
    desc: Fetch one page of orders
    call:
      task: fetch
      with:
        page: @
        size: "{{ workload.page_size }}"
    next:
      - when: "{{ fetch.total > @ }}"
        then: [{step: step_&, with: {total: "{{ fetch.total }}"}}]
      - else: [{step: step_&}]
""",
)
V1_TAIL = """\
workbook:
  - task: fetch
    type: http
    method: GET
    endpoint: "{{ workload.api_url }}/orders/{{ page }}?size={{ size }}"
"""


class Shape(NamedTuple):
    """What a playbook is made of: `@` stands for a step's number and `&` for the next one's."""

    name: str
    head: str
    steps: tuple[str, ...]
    tail: str = ""

    def written(self, count: int, first: int = 0) -> bytes:
        parts = [self.head.replace("step_0", f"step_{first}")]
        for number in range(first, first + count):
            following = "end" if number == first + count - 1 else f"step_{number + 1}"
            step = self.steps[number % len(self.steps)]
            parts.append(step.replace("step_&", following).replace("@", str(number)))
        return ("".join(parts) + self.tail).encode()


CANONICAL = Shape("canonical", CANONICAL_HEAD, CANONICAL_STEPS)
V2 = Shape("v2", V2_HEAD, V2_STEPS)
V1 = Shape("v1", V1_HEAD, V1_STEPS, V1_TAIL)
CHAINED = Shape("chained", CANONICAL_HEAD, ("  - step: step_@\n    next: {arcs: [{step: step_&}]}\n",))
BARE = Shape("bare", CANONICAL_HEAD, ("  - {step: step_@, tool: {kind: noop}}\n",))


def seconds(action) -> float:
    # What earlier rounds left behind is kept out of the collector's way, as it would be in a fresh process.
    gc.collect()
    gc.freeze()
    started = time.perf_counter()
    action()
    took = time.perf_counter() - started
    gc.unfreeze()
    return took


def compare(shape: Shape, rounds: int) -> float:
    """The ratio of the medians; also prints it."""
    parsing, validating = [], []
    for number in range(1, rounds + 1):
        # Each round has its own numbers, so that no template was parsed in an earlier one: a fresh process
        # has no such advantage either.
        data = shape.written(STEPS, first=number * 10_000)
        text = data.decode()
        parsing.append(seconds(lambda text=text: yaml.load(text, yaml.CSafeLoader)))
        loaded: list[Loaded] = []
        validating.append(
            seconds(lambda data=data, loaded=loaded: loaded.append(load(data, builtin_kinds())))
        )
        for problem in loaded[0].diagnostics:
            sys.exit(f"the {shape.name} playbook is not clean: {problem.line}: {problem.message}")
    parse, whole = statistics.median(parsing), statistics.median(validating)
    lines = text.count("\n")
    print(
        f"{shape.name:>9}: {STEPS} steps, {lines} lines, {len(data) / 1024:.0f} KiB: "
        f"yaml.CSafeLoader {parse * 1000:.0f} ms, load {whole * 1000:.0f} ms, ratio {whole / parse:.2f}"
    )
    return whole / parse


def ten_thousand(shape: Shape) -> None:
    data = shape.written(10_000)
    started = time.perf_counter()
    loaded = load(data, builtin_kinds())
    took = (time.perf_counter() - started) * 1000
    said = "valid" if loaded.valid else f"refused: {loaded.diagnostics[0].message}"
    print(f"{10_000:>9}: {shape.name} steps, {len(data) / 1024:.0f} KiB, in {took:.0f} ms, {said}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each (default: 9)")
    rounds = parser.parse_args().rounds
    ratio = compare(CANONICAL, rounds)
    compare(V2, rounds)
    compare(V1, rounds)
    for shape in (CANONICAL, CHAINED, BARE):
        ten_thousand(shape)
    kept = ratio <= BUDGET
    print(f"budget: canonical at most {BUDGET:g}, measured {ratio:.2f}: {'kept' if kept else 'EXCEEDED'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
