"""Draws playbooks of the dialects v1 and v2: cases, retries, polls, sinks, variables, spreads and joins."""

from __future__ import annotations

import random
from typing import Any

Data = dict[str, Any]

BIG = 70_000
MOMENTS = ("step.enter", "call.done", "call.done", "call.done", "call.error", "step.exit")


class OlderDrawing:
    """One playbook of a chain of steps; `racy` is always true: its outcome is not compared."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.counter = 0
        self.names: list[str] = []

    def often(self, share: float) -> bool:
        return self.chance.randint(0, 999) < share * 1000

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def workload(self) -> Data:
        return {"flag": self.often(0.5), "numbers": list(range(self.chance.randint(0, 4)))}

    def args(self) -> Data:
        drawn: Data = {
            "v": self.chance.choice(
                [1, 2, 3, "{{ loop_index | default(4) }}", "{{ vars.kept | default(5) }}"]
            )
        }
        if self.often(0.25):
            drawn["fails"] = self.chance.choice([1, 2, 99])
        if self.often(0.06):
            drawn["size"] = self.chance.choice([9_000, BIG])
        if self.often(0.04):
            drawn["long"] = True
        if self.often(0.03):
            drawn["bad"] = "{{ nothing.at.all }}"
        if self.often(0.05):
            drawn["http"] = self.chance.choice([404, 503])
        return drawn

    def tool(self) -> Data:
        drawn: Data = {"kind": "python", "code": "pass", "args": self.args()}
        if self.often(0.1):
            drawn["spec"] = {"retry": self.chance.choice([2, 3])}
        return drawn

    def polled_tool(self) -> Data:
        """One that is called again until its answer is there."""
        return {**self.tool(), "poll": self.poll()}

    def retry(self) -> Data:
        drawn: Data = {
            "max_attempts": self.chance.choice([1, 2, 3]),
            "initial_delay": self.chance.choice([0.01, 2]),
        }
        drawn["backoff_multiplier"] = self.chance.choice([1, 2])
        if self.often(0.3):
            drawn["retry_when"] = self.chance.choice(
                ["{{ error is defined }}", "{{ attempt < 2 }}", "{{ not success }}"]
            )
        if self.often(0.3):
            drawn["stop_when"] = self.chance.choice(
                ["{{ result.v == 2 }}", "{{ attempt >= 2 }}", "{{ success }}"]
            )
        if self.often(0.2):
            drawn["on"] = self.chance.choice([["error"], ["exception"], [503, 404]])
        return drawn

    def poll(self) -> Data:
        until = self.chance.choice(["{{ result.v == 2 }}", "{{ attempt >= 2 }}", "{{ false }}"])
        drawn: Data = {"until": until, "interval": "500ms", "max_attempts": self.chance.choice([2, 3])}
        if self.often(0.3):
            drawn["deadline"] = self.chance.choice(["1s", "20s"])
        return drawn

    # --- v2 -----------------------------------------------------------------------------------------------

    def v2(self) -> Data:
        count = self.chance.randint(2, 5)
        self.names = ["start", *(f"s{number}" for number in range(1, count))]
        drawn: Data = {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": "drawn", "path": "simulation/drawn"},
            "workload": self.workload(),
            "workflow": [self.v2_step(place) for place in range(count)],
        }
        if self.often(0.15):
            drawn["keychain"] = [{"name": "token", "kind": "env", "var": "TOKEN"}]
        return drawn

    def v2_step(self, place: int) -> Data:
        later = self.names[place + 1 :]
        drawn: Data = {"step": self.names[place]}
        spec: Data = {}
        waits = self.often(0.08)
        if waits:
            spec = {"eval_mode": "on_event", "timeout": "3s"}
            if self.often(0.3):
                spec["timers"] = {"early": "1s"}
            drawn["case"] = self.waiting_case(later)
            spec["case_mode"] = self.chance.choice(["exclusive", "inclusive"])
        elif later and self.often(0.05):
            drawn["tool"] = self.tool()
            drawn["case"] = self.rivals(later)
            spec = {"case_mode": "inclusive", "next_policy": "defer"}
        else:
            drawn["tool"] = self.polled_tool() if self.often(0.08) else self.tool()
            if self.often(0.3):
                drawn["loop"] = {"in": "{{ workload.numbers }}", "iterator": "item"}
                drawn["loop"]["mode"] = self.chance.choice(["sequential", "parallel"])
            if self.often(0.6):
                drawn["case"] = [self.branch(later) for _ in range(self.chance.randint(1, 3))]
                if self.often(0.2):
                    drawn["case"].append({"else": {"then": {"set": {"ctx": {"missed": True}}}}})
                spec["case_mode"] = self.chance.choice(["exclusive", "inclusive"])
                if self.often(0.3):
                    spec["next_policy"] = self.chance.choice(["end_step", "break_chain", "defer"])
                if self.often(0.2):
                    spec["branch_order"] = "priority"
            if self.often(0.25):
                drawn["retry"] = self.retry()
            if self.often(0.2):
                spec["on_error"] = self.chance.choice(["ignore", "retry"])
            if self.often(0.2):
                drawn["vars"] = {"kept": "{{ result.v | default(1) }}"}
            if self.often(0.2):
                drawn["sink"] = self.sink()
        if spec:
            drawn["spec"] = spec
        if later and self.often(0.85):
            drawn["next"] = self.v2_next(later)
        elif "case" not in drawn and "retry" not in drawn:
            drawn["vars"] = {"kept": 1}  # keeps the playbook v2
        return drawn

    def v2_next(self, later: list[str]) -> Any:
        if self.often(0.4):
            return later[0]
        targets: list[Data] = [{"step": self.chance.choice(later)} for _ in range(self.chance.randint(1, 2))]
        if self.often(0.4):
            targets[0]["args"] = {"n": 1}
        return targets

    def sink(self) -> Data:
        drawn: Data = {"tool": self.tool()}
        if self.often(0.4):
            drawn["when"] = "{{ result.v == 2 }}"
        return drawn

    def branch(self, later: list[str]) -> Data:
        moment = self.chance.choice(MOMENTS)
        extra = self.chance.choice(
            ["", "", " and workload.flag", " and result.v == 2", " and error is defined"]
        )
        drawn: Data = {"when": f"{{{{ event.name == '{moment}'{extra} }}}}"}
        if self.often(0.1):
            drawn["when"] = self.chance.choice(
                ["{{ result.v == 2 }}", "{{ error is defined }}", "{{ 1 / 0 }}"]
            )
        if self.often(0.15):
            drawn["spec"] = {"priority": self.chance.randint(0, 5)}
        after_call = moment.startswith("call")
        if self.often(0.2) and after_call:
            drawn["retry"] = {"scope": self.chance.choice(["tool", "chain"]), **self.retry()}
        drawn["then"] = self.chain(later, after_call) if self.often(0.6) else self.mapping(later, after_call)
        if "'call': {" in repr(drawn["then"]):
            drawn["when"] = "{{ event.name == 'call.done' and (ctx.calls | default(0)) < 2 }}"
            count: Data = {"ctx": {"calls": "{{ (ctx.calls | default(0)) + 1 }}"}}
            if isinstance(drawn["then"], list):
                drawn["then"].insert(0, {"set": count})
            else:
                drawn["then"]["set"] = count
        return drawn

    def rivals(self, later: list[str]) -> list[Data]:
        """Branches that all fire and ask for different transitions: the highest priority wins."""
        entries: list[Data] = []
        for priority in self.chance.sample(range(5), 3):
            target: Data = {"to": [{"step": self.chance.choice(later)}], "priority": priority}
            entries.append({"when": "{{ event.name == 'call.done' }}", "then": [{"next": target}]})
        return entries

    def chain(self, later: list[str], after_call: bool) -> list[Data]:
        actions: list[Data] = []
        for _ in range(self.chance.randint(1, 3)):
            kind = self.chance.choice(["set", "collect", "task", "task", "sink", "result"])
            if kind == "task":
                task: Data = {"tool": self.tool()}
                if self.often(0.2):
                    task["retry"] = self.retry()
                if self.often(0.2):
                    task["poll"] = self.poll()
                actions.append({self.fresh("t"): task})
            elif kind == "sink":
                actions.append({"sink": self.sink()})
            else:
                actions.append(self.simple(kind))
        last = self.last(later, after_call)
        return [*actions, last] if last else actions

    def simple(self, kind: str) -> Data:
        match kind:
            case "set":
                values = [
                    1,
                    "{{ workload.flag }}",
                    ["a"],
                    f"{{{{ 's' * {BIG} }}}}",
                    "{{ seen | default([]) }}",
                ]
                return {"set": {"ctx": {"seen": self.chance.choice(values)}}}
            case "collect":
                mode = self.chance.choice(["append", "extend"])
                source = self.chance.choice(
                    [
                        "{{ result.pad | default([1]) }}",
                        f"{{{{ ['c' * {BIG}] }}}}",
                        f"{{{{ 'c' * {BIG} }}}}",
                        "{{ [result.v, 2] }}",
                    ]
                )
                return {"collect": {"from": source, "into": "seen", "mode": mode}}
        return {"result": {"from": self.chance.choice(["seen", "{{ workload.numbers }}"])}}

    def last(self, later: list[str], after_call: bool) -> Data:
        kind = self.chance.choice(["next", "next", "fail", "skip", "call", "retry", "none", "none"])
        if kind == "next" and later:
            target: Data = {"to": [{"step": self.chance.choice(later)}]}
            if self.often(0.15):
                target["to"][0]["args"] = {"pad": f"{{{{ 'n' * {BIG} }}}}"}
            if self.often(0.2):
                target["spec"] = {"delay": "2s"}
            if self.often(0.5):
                target["priority"] = self.chance.randint(0, 5)
            return {"next": target}
        if kind == "fail":
            return {"fail": {"message": "as told"}}
        if kind == "skip":
            return {"skip": {}}
        if kind == "retry" and after_call:
            return {"retry": self.retry()}
        if kind == "call" and after_call:
            return {"call": {"args": {"v": 2, "fails": 0}}} if self.often(0.5) else {}
        return {}

    def mapping(self, later: list[str], after_call: bool) -> Data:
        drawn: Data = {}
        for kind in ("set", "collect", "result"):
            if self.often(0.4):
                drawn.update(self.simple(kind))
        if self.often(0.2):
            drawn["sink"] = self.sink()
        drawn.update(self.last(later, after_call))
        return drawn or {"set": {"ctx": {"seen": 1}}}

    def waiting_case(self, later: list[str]) -> list[Data]:
        out: Data = (
            {"next": {"to": [{"step": self.chance.choice(later)}]}}
            if later
            else {"result": {"from": "{{ 1 }}"}}
        )
        entries: list[Data] = [
            {"when": "{{ event.name == 'timer.fired' and event.data.timer_id == 'timeout' }}", "then": [out]},
            {"when": "{{ event.name == 'unasked' }}", "then": [{"set": {"ctx": {"told": True}}}, out]},
        ]
        if self.often(0.4):
            early = "{{ event.name == 'timer.fired' and event.data.timer_id == 'early' }}"
            entries.append({"when": early, "then": [{"set": {"ctx": {"early": True}}}]})
        return entries

    # --- v1 -----------------------------------------------------------------------------------------------

    def v1(self) -> Data:
        steps = self.chance.choice(
            [self.spread, self.spread, self.spread_with_body, self.nested, self.iterated]
        )()
        return {
            "apiVersion": "noetl.io/v1",
            "kind": "Playbook",
            "name": "drawn",
            "path": "simulation/drawn",
            "workload": self.workload(),
            "workflow": steps,
            "workbook": [self.v1_task("one"), self.v1_task("two")],
        }

    def items(self) -> str:
        return str(
            self.chance.choice(
                [
                    "{{ workload.numbers }}",
                    "{{ [1, 2, 3] }}",
                    "{{ range(20) | list }}",
                    "{{ 5 }}",
                    f"{{{{ ['b' * {BIG}, 2] }}}}",
                    "{{ 1 / 0 }}" if self.often(0.3) else "{{ [] }}",
                ]
            )
        )

    def spread(self) -> list[Data]:
        """One token for each element, through a step, to one that joins them."""
        loop: Data = {"in": self.items(), "iterator": "item"}
        joined = self.chance.choice(["by the loop", "by the step", "at the end"])
        if joined != "by the step":
            loop["join"] = "gather" if joined == "by the loop" else "end"
        given = "{{ 1 / 0 }}" if self.often(0.1) else "{{ item }}"
        many: Data = {"step": "many", "loop": loop, "next": [{"step": "work", "with": {"item": given}}]}
        if self.often(0.3):
            many["with"] = {"part": "{{ 1 / item }}" if self.often(0.2) else "{{ item }}", "fixed": 1}
        work: Data = {"step": "work", "call": {"task": "one", "with": {"v": "{{ item }}"}}}
        if joined == "at the end":
            work["next"] = self.v1_next("end")
            return [{"step": "start", "next": [{"step": "many"}]}, many, work, {"step": "end"}]
        work["next"] = self.v1_next("gather")
        gather = self.gathering("gather", "many" if joined == "by the step" else None)
        return [{"step": "start", "next": [{"step": "many"}]}, many, work, gather, {"step": "end"}]

    def gathering(self, name: str, of: str | None, then: str = "end") -> Data:
        """A step that joins a loop, or is named by it."""
        drawn: Data = {"step": name, "with": {"all": "{{ join_results }}"}, "call": {"task": "two"}}
        if of is not None:
            drawn["join"] = of
        return {**drawn, "next": [{"step": then}]}

    def spread_with_body(self) -> list[Data]:
        """The looping step itself calls a task for each element."""
        many: Data = {"step": "many", "loop": {"in": self.items(), "iterator": "item"}}
        many["call"] = {"task": "one", "with": {"v": "{{ item }}"}}
        if self.often(0.4):
            many["with"] = {"part": "{{ 1 / item }}" if self.often(0.3) else "{{ item }}"}
        many["next"] = self.v1_next("gather")
        return [
            {"step": "start", "next": [{"step": "many"}]},
            many,
            self.gathering("gather", "many"),
            {"step": "end"},
        ]

    def nested(self) -> list[Data]:
        """For each element a loop of its own, joined before the outer one is."""
        outer: Data = {"step": "outer", "loop": {"in": self.items(), "iterator": "item"}}
        outer["next"] = [{"step": "inner", "with": {"item": "{{ item }}"}}]
        inner: Data = {"step": "inner", "loop": {"in": "{{ [1, 2] }}", "iterator": "part"}}
        inner["next"] = [{"step": "work", "with": {"item": "{{ item }}"}}]
        work: Data = {"step": "work", "call": {"task": "one", "with": {"v": "{{ part }}"}}}
        work["next"] = [{"step": "gather_inner"}]
        return [
            {"step": "start", "next": [{"step": "outer"}]},
            outer,
            inner,
            work,
            self.gathering("gather_inner", "inner", "gather"),
            self.gathering("gather", "outer"),
            {"step": "end"},
        ]

    def iterated(self) -> list[Data]:
        """A step that iterates by itself, and one that joins it."""
        many: Data = {"step": "many", "type": "iterator", "in": self.items(), "iterator": "item"}
        many["task"] = {"task": "each", "type": "python", "code": "pass", "with": {"v": "{{ item }}"}}
        if self.often(0.5):
            many["mode"] = "sequential"
        many["next"] = [{"step": "gather"}]
        return [
            {"step": "start", "next": [{"step": "many"}]},
            many,
            self.gathering("gather", "many"),
            {"step": "end"},
        ]

    def v1_next(self, target: str) -> Any:
        if self.often(0.3):
            return [{"when": "{{ workload.flag }}", "then": [{"step": target}]}, {"else": [{"step": target}]}]
        return [{"step": target}]

    def v1_task(self, name: str) -> Data:
        drawn: Data = {"task": name, "type": "python", "code": "pass", "with": self.args()}
        if self.often(0.4):
            drawn["retry"] = self.chance.choice([1, 2])
        if self.often(0.3):
            drawn["on_error"] = self.chance.choice(["continue", "fail"])
        if self.often(0.2):
            drawn["when"] = self.chance.choice(["{{ false }}", "{{ workload.flag }}"])
        if self.often(0.3):
            inner = [self.v1_task(self.fresh("inner")) for _ in range(2)]
            drawn["run"] = inner
        return drawn
