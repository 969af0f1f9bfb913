"""Draws playbooks and the troubles they meet, from a source of chance.

Everything comes from one `random.Random`: a seeded one in `make simulate`, hypothesis' own in the test
suite, which then shrinks what fails. A scripted task does what its `args` say and nothing else, so an
execution's outcome can depend on the schedule only where the language lets it.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from tests.simulation.edits import edited
from tests.simulation.older_dialects import OlderDrawing
from tests.simulation.racing import reads_what_others_write

Data = dict[str, Any]

OLDER_SHARE = 0.3
"""Of the playbooks drawn, those of dialects v1 and v2."""
DISTRIBUTED_SHARE = 0.5
"""Of the scenarios, those with several replicas and workers."""
BIG = 70_000
"""Characters that do not fit into one event."""


class Trouble(NamedTuple):
    """What happens from outside at a point of the log: after so many commits."""

    kind: str
    at: int


class Again(NamedTuple):
    """The execution is to be repeated once it is over."""

    step: str | None
    failed_items: bool
    playbook: Data | None = None
    """An edited one."""


class Scenario(NamedTuple):
    playbook: Data
    payload: Data
    troubles: tuple[Trouble, ...]
    seed: int
    """Of the schedule: delays and the order in which what is ready runs."""
    racy: bool
    """The language lets the schedule decide parts of the outcome."""
    distributed: bool = False
    """Played by several replicas and workers over one store."""
    children: tuple[Data, ...] = ()
    """Playbooks that this one calls."""
    again: Again | None = None
    has_secrets: bool = True
    """The environment has what the keychain asks for."""


TROUBLES = (
    "crash before commit",
    "crash after commit",
    "crash in between",
    "blip before commit",
    "blip after commit",
    "slow commit",
    "slow answer to a commit",
    "duplicate commit",
    "stale reads",
    "lost lease",
    "lost leases",
    "zombie",
    "worker dies",
    "replica dies",
    "lost reply",
    "repeated report",
    "late report",
    "pause",
    "cancel",
    "signal",
)


def draw_scenario(chance: random.Random) -> Scenario:
    drawing = Drawing(chance)
    if drawing.often(OLDER_SHARE):
        older = OlderDrawing(chance)
        drawing.racy = True
        playbook = older.v2() if drawing.often(0.8) else older.v1()
    else:
        playbook = drawing.playbook()
    payload: Data = {}
    if drawing.often(0.3):
        payload = {"flag": chance.choice([True, False]), "text": "{{ not a template }}", "deep": {"a": 2}}
    if drawing.often(0.03):
        payload |= {"pad": "p" * BIG} if drawing.often(0.5) else {f"k{n}": "p" * 300 for n in range(400)}
    distributed = drawing.often(DISTRIBUTED_SHARE)
    many = [0, 1, 2, 3, 5] if distributed else [0, 1, 1, 2, 3]
    troubles = tuple(
        Trouble(chance.choice(TROUBLES), chance.randint(1, 12)) for _ in range(chance.choice(many))
    )
    return Scenario(
        playbook,
        payload,
        troubles,
        chance.randint(0, 2**32),
        drawing.racy or reads_what_others_write(playbook),
        distributed=distributed,
        children=(drawing.child(),) if f"'{CHILD}'" in repr(playbook) else (),
        again=drawing.again(playbook) if drawing.often(0.25) else None,
        has_secrets=drawing.often(0.85),
    )


CHILD = "simulation/child"


class Drawing:
    """One playbook being drawn."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.calm = self.often(0.5)
        """One token at a time, or branches that do not touch each other: the outcome is fixed."""
        self.racy = False
        self.in_workbook = False
        self.in_parallel_block = False
        self.counter = 0
        self.names: list[str] = []
        self.is_diamond = False

    def often(self, share: float) -> bool:
        return self.chance.randint(0, 999) < share * 1000

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    # --- the playbook -------------------------------------------------------------------------------------

    def playbook(self) -> Data:
        count = self.chance.randint(1, 6)
        self.names = ["start", *(f"s{number}" for number in range(1, count))]
        if self.often(0.2):
            self.names[-1] = "end" if count > 1 else "start"
        self.is_diamond = self.calm and count > 3 and self.often(0.8)
        arcs = {name: self.arcs(place) for place, name in enumerate(self.names)}
        if self.is_diamond:
            arcs = self.diamond()
        steps = [self.step(place, arcs) for place in range(len(self.names))]
        drawn: Data = {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": "drawn", "path": "simulation/drawn"},
            "workload": self.workload(),
            "workflow": steps,
        }
        if self.often(0.1):
            drawn["keychain"] = [{"name": "token", "kind": "env", "var": "TOKEN"}]
        if "'workbook'" in repr(steps):
            drawn["workbook"] = self.workbook()
        if not self.calm and self.often(0.02):
            self.run_away(steps)
        if not self.calm and self.often(0.05):
            deadline = self.chance.choice([2, 40, "{{ workload.numbers | length }}", "{{ 1 / 0 }}"])
            drawn["executor"] = {"spec": {"deadline": deadline}}
            self.racy = True
        return drawn

    def run_away(self, steps: list[Data]) -> None:
        """Lets the last step go round and round without calling a tool."""
        steps[-1] = {"step": steps[-1]["step"], "next": {"arcs": [{"step": steps[-1]["step"]}]}}
        self.racy = True

    def child(self) -> Data:
        """A playbook that another one calls: it works, waits or fails as its payload says."""
        first: Data = {"step": "start", "tool": [{"work": {"kind": "python", "code": "pass"}}]}
        first["tool"][0]["work"]["args"] = {"v": "{{ workload.n }}", "fails": "{{ workload.fails }}"}
        if self.often(0.5):
            first["tool"].append({"rest": {"kind": "wait", "duration": self.chance.choice([0.5, 4, 40])}})
        first["next"] = {"arcs": [{"step": "end"}]}
        last: Data = {"step": "end", "tool": {"kind": "python", "code": "pass", "args": {"v": "{{ start }}"}}}
        return {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": "child", "path": CHILD},
            "workload": {"n": 0, "fails": 0},
            "workflow": [first, last],
        }

    def again(self, playbook: Data) -> Again:
        """Runs once more from a step, perhaps on a playbook that has changed."""
        names = [step["step"] for step in playbook["workflow"]]
        loops = [step["step"] for step in playbook["workflow"] if "loop" in step]
        step = self.chance.choice([None, *names, *loops * 3, "nowhere"])
        changed = edited(playbook) if self.often(0.35) else None
        return Again(step, step in (None, *loops) and self.often(0.8), changed)

    def workload(self) -> Data:
        drawn: Data = {
            "flag": self.often(0.5),
            "numbers": list(range(self.chance.randint(0, 5))),
            "derived": "{{ workload.numbers | length }}",
            "deep": {"a": 1, "b": ["{{ derived }}"]},
            "has_id": "{{ execution_id != '' }}",
        }
        if self.often(0.02):
            drawn["bad"] = "{{ 1 / 0 }}"
        return drawn

    def workbook(self) -> list[Data]:
        self.in_workbook = True
        tool: Any = self.task("task_1", ["task_1"], plain=True)
        if self.often(0.4):
            tool = [{"one": self.task("one", ["one", "two"])}, {"two": self.task("two", ["one", "two"])}]
        entry: Data = {"name": "helper", "tool": tool}
        if self.often(0.3):
            entry["loop"] = {"in": [1, 2], "iterator": "part"}
        return [entry]

    def diamond(self) -> dict[str, list[Data]]:
        """The first step leads to all but the last, and these to the last."""
        first, *between, last = self.names
        arcs: dict[str, list[Data]] = {name: [] for name in self.names}
        arcs[first] = [{"step": name, "args": self.arc_args()} for name in between]
        for name in between:
            arcs[name] = [{"step": last, "when": True, "args": {name: f"{{{{ {name} }}}}"}}]
            if self.often(0.2):
                arcs[name][0]["when"] = "{{ event.name != 'step.failed' }}"
        return arcs

    def arcs(self, place: int) -> list[Data]:
        later = self.names[place + 1 :]
        drawn: list[Data] = []
        for _ in range(self.chance.choice([0, 1, 1, 2, 2, 3]) if later else 0):
            arc: Data = {"step": self.chance.choice(later)}
            guard = self.arc_guard()
            if guard is not None:
                arc["when"] = guard
            if self.often(0.4):
                arc["args"] = self.arc_args()
            drawn.append(arc)
        if later and self.often(0.6) and all("when" in arc for arc in drawn):
            drawn.append({"step": later[0]})
        if self.often(0.15):
            lap = f"lap{place}"
            back = self.chance.choice(self.names[: place + 1])
            drawn.insert(0, {"step": back, "when": f"{{{{ (ctx.{lap} | default(0)) < 2 }}}}"})
        if "end" not in self.names and self.often(0.03):
            drawn.append({"step": "end"})
        return drawn

    def arc_guard(self) -> Any:
        if self.often(0.5):
            return None
        before = self.chance.choice(self.names)
        return self.chance.choice(
            [
                "{{ event.name == 'step.failed' }}",
                "{{ event.name == 'step.failed' }}",
                "{{ event.name in ['step.done', 'loop.done'] }}",
                "{{ event.name != 'step.started' }}",
                "{{ workload.flag }}",
                f"{{{{ {before}.v > 2 }}}}",
                f"{{{{ {before}.status == 'done' }}}}",
                f"{{{{ {before} | length > 1 }}}}",
                "{{ ctx.seen is defined }}",
                "{{ args.n == 1 }}",
                "{{ event.data.error.kind == 'scripted' }}",
                True,
                "{{ 1 / (args.n | default(1)) > 0 }}",
            ]
        )

    def arc_args(self) -> Data:
        drawn: Data = {"n": self.chance.choice([0, 1, 1, 1, 2])}
        if self.often(0.15):
            drawn["pad"] = f"{{{{ 'a' * {BIG} }}}}"
        if self.often(0.05):
            drawn["key"] = "{{ keychain.token | default('') }}"
        if self.often(0.2):
            drawn["got"] = f"{{{{ {self.chance.choice(self.names)} }}}}"
        if self.often(0.01):
            drawn["bad"] = "{{ nothing.at.all }}"
        return drawn

    # --- a step -------------------------------------------------------------------------------------------

    def step(self, place: int, arcs: dict[str, list[Data]]) -> Data:
        name = self.names[place]
        drawn: Data = {"step": name}
        spec: Data = {}
        sources = [each for each in self.names if any(arc["step"] == name for arc in arcs[each])]
        if self.is_diamond and name == self.names[-1]:
            spec["join"] = {"of": sources, "mode": self.chance.choice(["all", "active"])}
        elif self.calm:
            pass
        elif len(sources) > 1 and name not in sources and self.often(0.7):
            mode = self.chance.choice(["all", "all", "any", "active"])
            spec["join"] = {"of": sources, "mode": mode}
            self.racy |= mode == "any" or self.has_cycle(arcs)
        elif len(sources) > 1:
            self.racy = True
        if self.often(0.15):
            spec["policy"] = {"admit": {"rules": self.admit_rules()}}
        if not self.calm and self.often(0.03):
            spec["deadline"] = self.chance.choice([3, 20, "{{ args.n }}", "{{ 1 / 0 }}"])
            self.racy = True
        if self.often(0.05):
            spec["pool"] = "default"
        if self.often(0.05):
            spec["limits"] = {"task_runs": self.chance.choice([1, 2, 4])}
        if spec:
            drawn["spec"] = spec
        has_lap = any(str(arc.get("when", "")).startswith(f"{{{{ (ctx.lap{place}") for arc in arcs[name])
        # An empty loop counts no laps: a step that leads to itself runs away at once, a longer way for ever.
        runs_away = 0.1 if has_lap and arcs[name][0]["step"] == name else 0.0
        if self.often(0.35) and (not has_lap or self.often(runs_away)):
            drawn["loop"] = self.loop()
        if has_lap or self.often(0.9):
            drawn["tool"] = self.body(depth=0, loop=drawn.get("loop"), lap=f"lap{place}" if has_lap else None)
        if arcs[name]:
            drawn["next"] = {"arcs": arcs[name]}
            if self.is_diamond and place == 0:
                drawn["next"]["spec"] = {"mode": "inclusive"}
            elif not self.calm and self.often(0.5):
                drawn["next"]["spec"] = {"mode": self.chance.choice(["exclusive", "inclusive"])}
                if len({arc["step"] for arc in arcs[name]}) < len(arcs[name]):
                    self.racy = True
        return drawn

    def has_cycle(self, arcs: dict[str, list[Data]]) -> bool:
        places = {name: place for place, name in enumerate(self.names)}
        return any(
            places.get(arc["step"], 99) <= places[name] for name, leaving in arcs.items() for arc in leaving
        )

    def admit_rules(self) -> list[Data]:
        rules: list[Data] = []
        for _ in range(self.chance.randint(0, 2)):
            when = self.chance.choice(
                ["{{ workload.flag }}", "{{ args.n == 1 }}", "{{ event.name == 'step.failed' }}"]
            )
            rules.append({"when": when, "then": {"allow": self.often(0.5)}})
        if self.often(0.03):
            rules.insert(0, {"when": "{{ 1 / 0 }}", "then": {"allow": True}})
        if not rules or self.often(0.7):
            rules.append({"else": {"then": {"allow": self.often(0.7)}}})
        return rules

    def loop(self, depth: int = 0) -> Data:
        source: Any = self.chance.choice(
            [
                list(range(self.chance.randint(1, 6))),
                list(range(self.chance.randint(1, 6))),
                "{{ workload.numbers }}",
                "{{ workload.numbers }}",
                [],
                f"{{{{ range({self.chance.randint(1, 4)}) | list }}}}",
                "{{ ctx.rows | default([1]) }}",
            ]
        )
        if self.is_diamond and isinstance(source, str) and "ctx" in source:
            source = [1]
        if self.often(0.04):
            source = self.chance.choice(["{{ workload.flag }}", "{{ nothing }}", "{{ 1 / 0 }}"])
        elif self.often(0.06):
            source = f"{{{{ ['b' * {BIG}, 2] }}}}"
        spec: Data = {}
        if self.often(0.7):
            spec["mode"] = self.chance.choice(["parallel", "parallel", "sequential"])
        if self.often(0.7):
            spec["max_in_flight"] = self.chance.choice([1, 2, 2, 3, "{{ (workload.numbers | length) + 1 }}"])
        if self.often(0.5):
            spec["on_error"] = self.chance.choice(["continue", "fail"])
        if spec.get("on_error", "fail") == "fail" and spec.get("mode") == "parallel":
            if self.calm:
                spec["on_error"] = "continue"
            else:
                self.racy = True
        if spec.get("mode") == "parallel" and self.often(0.25):
            spec["batch_size"] = self.chance.choice([2, 3, "{{ 2 }}"])
        if spec and self.often(0.02):
            spec["max_in_flight"] = self.chance.choice(["{{ 'many' }}", "{{ 0 }}", "{{ 1 / 0 }}"])
        if depth == 0 and self.often(0.1):
            spec["policy"] = {"exec": self.chance.choice(["local", "distributed"])}
        if spec.get("mode") == "parallel" and (depth == 0 or not self.calm) and self.often(0.6):
            reducers = ["sum", "min", "max", "append", "extend", "union", "last"]
            spec["reduce"] = {"total": self.chance.choice(reducers), "rows": self.chance.choice(reducers[3:])}
        drawn: Data = {"in": source, "iterator": "item" if depth == 0 else f"item{depth}"}
        if spec:
            drawn["spec"] = spec
        return drawn

    # --- a body -------------------------------------------------------------------------------------------

    def body(self, depth: int, loop: Data | None, lap: str | None = None) -> Any:
        labels = [self.fresh("t") for _ in range(self.chance.choice([1, 1, 2, 2, 3, 4]))]
        nodes: list[Data] = []
        for label in labels:
            if depth < 2 and self.often(0.15):
                inner: Data = {"loop": self.loop(depth + 1)}
                outside = self.in_parallel_block
                self.in_parallel_block |= inner["loop"].get("spec", {}).get("mode") == "parallel"
                inner["tool"] = self.body(depth + 1, loop)
                self.in_parallel_block = outside
                nodes.append({label: inner})
            else:
                nodes.append({label: self.task(label, labels, loop=loop)})
        if lap is not None:
            patch = {lap: f"{{{{ (ctx.{lap} | default(0)) + 1 }}}}"}
            rule: Data = {"else": {"then": {"do": "continue", "set_ctx": patch}}}
            last: Data = {"kind": "python", "code": "pass", "args": {"v": 1}}
            last["spec"] = {"policy": {"rules": [rule]}}
            nodes.insert(0, {self.fresh("t"): last})
            if loop is not None:
                loop.get("spec", {}).pop("mode", None)
                loop.get("spec", {}).pop("reduce", None)
        if len(nodes) == 1 and self.often(0.5):
            only: Data = next(iter(nodes[0].values()))
            if "kind" in only and "jump" not in repr(only):
                return only
        return nodes

    def task(self, label: str, labels: list[str], *, loop: Data | None = None, plain: bool = False) -> Data:
        if not plain and self.often(0.08):
            if self.often(0.7) or self.in_workbook:
                return self.waiting_task()
            return {"kind": "workbook", "name": "helper", "args": {"given": 2}}
        drawn: Data = {"kind": "python", "code": "pass", "args": self.task_args(loop)}
        if drawn["args"].get("hang"):
            drawn["timeout"] = 1
        spec: Data = {}
        if self.often(0.55):
            spec["policy"] = {"rules": self.rules(label, labels, loop)}
        if self.often(0.1):
            spec["result"] = {"inline_max_bytes": 16, "select": ["v"]}
        if spec:
            drawn["spec"] = spec
        return drawn

    def waiting_task(self) -> Data:
        """One that waits for a time or a signal; a deadline may be shorter than the wait."""
        drawn: Data = self.chance.choice(
            [
                {"kind": "noop"},
                {"kind": "wait", "duration": self.chance.choice([0.2, 3, 50])},
                {"kind": "wait", "signal": "go"},
                {"kind": "wait", "signal": "go", "timeout": 90},
                {"kind": "wait", "duration": 20, "timeout": 4},
                {"kind": "playbook", "path": CHILD, "args": {"n": self.chance.choice([1, 2, 3])}},
                {"kind": "playbook", "path": CHILD, "args": {"n": 1, "fails": self.chance.choice([1, 9])}},
                {"kind": "playbook", "path": CHILD, "args": {"n": 1}, "timeout": 20},
            ]
        )
        self.racy |= drawn.get("timeout") == 20
        self.racy |= drawn.get("timeout") == 90  # the signal may come later than that, by a crash
        return drawn

    def task_args(self, loop: Data | None) -> Data:
        in_loop = loop is not None
        values = [
            1,
            2,
            3,
            "{{ ctx.total | default(0) }}",
            "{{ _attempt }}",
            "{{ _prev }}",
            "{{ workload.deep.a }}",
            "{{ args.n | default(7) }}",
            "{{ iter.seen | default(4) }}",
            "{{ args.pad | default('') | length }}",
            "{{ (args.pad.stored_path | default('')) and 1 }}",
            "{{ args['n'] | default(8) }}",
            "{{ args.got | default(2) }}",
            "{{ ctx.rows | default([]) | length }}",
            "{{ ctx.total | default(5) }}",
            "{{ keychain.token | default('') }}",
            "x{{ ctx }}{{ args }}",
        ]
        if self.often(0.3):
            # Branches side by side must not read each other: what they find depends on who is first.
            before = "start" if self.is_diamond else self.chance.choice(self.names)
            reads = ["{{ %s }}", "{{ %s[0].v | default(1) }}", "{{ %s | length }}", "{{ %s.status }}"]
            reads += [
                "{{ %s.results }}",
                "{{ %s.rows | default([]) | length }}",
                "{{ %s.row_count }}",
                "{{ %s.result.v | default(6) }}",
                "{{ %s.data }}",
                "{{ (%s.stored_path | default('')) and 1 }}",
                "x{{ %s }}",
            ]
            values = [f"{{{{ {before} | default(3) }}}}", self.chance.choice(reads) % before]
        if in_loop:
            values += ["{{ loop_index }}", "{{ item }}", "{{ iter.index }}"]
        drawn: Data = {"v": self.chance.choice(values)}
        if self.often(0.15):
            drawn["fails"] = self.chance.choice([1, 1, 2, 99])
        if in_loop and self.often(0.15):
            drawn["fails"] = f"{{{{ 99 if loop_index == {self.chance.randint(0, 2)} else 0 }}}}"
        if self.often(0.08):
            drawn["size"] = self.chance.choice([9_000, 30_000, 61_000, BIG])
        if self.often(0.04):
            drawn["shape"] = self.chance.choice(["list", "text", "number", "none"])
        if self.often(0.03):
            drawn["hang"] = True
        if self.often(0.02):
            drawn["long"] = True
        if self.often(0.02):
            drawn["log"] = 9_000
        if self.often(0.01):
            drawn["crash"] = True
        if self.often(0.02):
            drawn["bad"] = "{{ nothing.at.all }}"
        return drawn

    def rules(self, label: str, labels: list[str], loop: Data | None) -> list[Data]:
        rules: list[Data] = []
        if self.often(0.2):
            guards = ["{{ ctx.seen is defined }}", "{{ workload.flag }}", "{{ _attempt > 1 }}"]
            guards += ["{{ loop_index == 0 }}"] if loop is not None else []
            rules.append({"when": self.chance.choice(guards), "then": {"do": "skip"}})
        if self.often(0.5):
            rules.append(self.retry_rule(loop))
        if self.often(0.25):
            back = self.chance.choice(labels)
            lap = f"laps_{label}"
            then = {"do": "jump", "to": back, "set_iter": {lap: f"{{{{ (iter.{lap} | default(0)) + 1 }}}}"}}
            rules.append({"when": f"{{{{ (iter.{lap} | default(0)) < 2 }}}}", "then": then})
        if self.often(0.15):
            rules.append({"when": "{{ outcome.result.v == 2 }}", "then": self.patched({"do": "break"}, loop)})
        if self.often(0.12):
            rules.append({"when": "{{ outcome.result.v == 3 }}", "then": self.patched({"do": "fail"}, loop)})
        if self.often(0.02):
            rules.append({"when": "{{ outcome.result.v + 'x' == 1 }}", "then": {"do": "continue"}})
        if self.often(0.02):
            rules.append({"when": "{{ 1 / 0 }}", "then": {"do": "skip"}})
        if not rules or self.often(0.6):
            do = self.chance.choice(["continue", "continue", "continue", "fail", "break"])
            rules.append({"else": {"then": self.patched({"do": do}, loop)}})
        return rules

    def retry_rule(self, loop: Data | None) -> Data:
        when = self.chance.choice(
            [
                "{{ outcome.status == 'error' }}",
                "{{ outcome.error.retryable }}",
                "{{ outcome.result.v == 1 }}",
            ]
        )
        then: Data = {"do": "retry", "attempts": self.chance.choice([1, 2, 3, 3, "{{ 2 }}"])}
        if self.often(0.7):
            then["delay"] = self.chance.choice([0.5, 1, 60, "{{ 3 }}"])
            if self.often(0.02):
                then["delay"] = "{{ 'soon' }}"
            then["backoff"] = self.chance.choice(["none", "linear", "exponential"])
            if self.often(0.3):
                then["max_delay"] = 2
            if self.often(0.2):
                then["jitter"] = True
        if self.often(0.02):
            then["attempts"] = "{{ 'many' }}"
        return {"when": when, "then": self.patched(then, loop)}

    def patched(self, then: Data, loop: Data | None) -> Data:
        if self.often(0.25):
            then["set_iter"] = {
                "seen": self.chance.choice([5, "{{ iter.seen | default(0) }}", "{{ _attempt }}"])
            }
        if self.often(0.3) and (patch := self.ctx_patch(loop)):
            then["set_ctx"] = patch
        return then

    def ctx_patch(self, loop: Data | None) -> Data:
        if self.in_parallel_block and self.calm:
            return {}  # the last to write wins, whoever that is
        spec = {} if loop is None else loop.get("spec", {})
        if spec.get("mode") == "parallel":
            value: Any = self.chance.choice([1, 2.5, "{{ loop_index }}", "{{ outcome.result.v }}", True])
            if self.often(0.05):
                value = f"{{{{ 'c' * {BIG} }}}}"
            if "reduce" in spec and self.often(0.85):
                if self.often(0.1):
                    return {"rows": f"{{{{ ['e' * {BIG}, loop_index] }}}}"}
                return {"total": value} if self.often(0.6) else {"total": value, "rows": [value]}
            if self.calm:
                return {"same": 1}
            self.racy = True
            if self.often(0.4):
                value = "{{ loop_index }}"
            return {self.chance.choice(["seen", "mine"]): value}
        if self.is_diamond:
            return {}
        self.racy |= not self.calm  # other branches write too
        key = self.chance.choice(["seen", "mine", "rows"])
        if self.often(0.1):
            return {key: f"{{{{ ['d' * {BIG}] }}}}"}
        return {key: self.chance.choice([[1], ["{{ _attempt }}", 2]])}
