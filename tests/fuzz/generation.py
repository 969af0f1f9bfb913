"""Documents made up from nothing: valid playbooks of each dialect, and files of hostile size or shape."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.fuzz.corpus import dump

GUARDS = (
    "{{ workload.limit > 3 }}",
    "{{ event.name == 'step.failed' }}",
    "{{ ctx.seen is defined and ctx.seen }}",
    "{{ args.page | default(0) < 10 }}",
    True,
)
RULE_GUARDS = ("{{ outcome.status == 'error' }}", "{{ outcome.result is none }}", "{{ _attempt > 2 }}", False)


# --- valid playbooks ------------------------------------------------------------------------------------


def generate(rng: Random) -> dict[str, Any]:
    return rng.choice((_canonical, _canonical, _v2, _v1))(rng)


def _root(rng: Random, steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": f"made_{rng.randint(0, 999)}", "path": "fuzz/made"},
        "workload": {
            "limit": rng.randint(0, 9),
            "items": list(range(rng.randint(0, 5))),
            "flag": rng.random() < 0.5,
        },
        "workflow": steps,
    }


def _names(rng: Random) -> list[str]:
    return ["start", *(f"step_{number}" for number in range(1, rng.randint(1, 8)))]


def _tool(rng: Random) -> dict[str, Any]:
    return rng.choice(
        (
            {"kind": "noop"},
            {"kind": "python", "code": "result = len(items)", "args": {"items": "{{ workload['items'] }}"}},
            {"kind": "http", "method": "GET", "url": "https://example.test/{{ workload.limit }}"},
            {"kind": "postgres", "auth": "db", "command": "SELECT 1 WHERE 1 = {{ workload.limit }}"},
            {"kind": "shell", "cmds": ["echo {{ workload.limit }}"]},
        )
    ).copy()


def _canonical(rng: Random) -> dict[str, Any]:
    names = _names(rng)
    steps = []
    for number, name in enumerate(names):
        step: dict[str, Any] = {"step": name}
        if rng.random() < 0.3:
            step["loop"] = {
                "in": "{{ workload['items'] }}",
                "iterator": "item",
                "spec": {"mode": rng.choice(("sequential", "parallel")), "max_in_flight": rng.randint(1, 9)},
            }
        step["tool"] = [{f"do_{label}": _ruled(rng)} for label in range(rng.randint(1, 3))]
        if rng.random() < 0.3:
            rules = [
                {"when": rng.choice(GUARDS), "then": {"allow": True}},
                {"else": {"then": {"allow": False}}},
            ]
            step["spec"] = {"policy": {"admit": {"rules": rules}}, "timeout": "30s"}
        arcs: list[dict[str, Any]] = [
            {"step": target} for target in names[number + 1 : number + 1 + rng.randint(0, 2)]
        ]
        for arc in arcs:
            if rng.random() < 0.6:
                arc["when"] = rng.choice(GUARDS)
        if arcs:
            step["next"] = {"spec": {"mode": rng.choice(("exclusive", "inclusive"))}, "arcs": arcs}
        steps.append(step)
    return _root(rng, steps)


def _ruled(rng: Random) -> dict[str, Any]:
    tool = _tool(rng)
    if rng.random() < 0.5:
        retry = {"do": "retry", "attempts": rng.randint(1, 5), "backoff": "exponential", "delay": "2s"}
        tool["spec"] = {
            "policy": {
                "rules": [
                    {"when": rng.choice(RULE_GUARDS), "then": retry},
                    {"else": {"then": {"do": "continue", "set_ctx": {"seen": "{{ outcome.result }}"}}}},
                ]
            }
        }
    return tool


def _v2(rng: Random) -> dict[str, Any]:
    names = _names(rng)
    steps = []
    for number, name in enumerate(names):
        step: dict[str, Any] = {"step": name, "tool": _tool(rng)}
        following = names[number + 1 : number + 2] or ["end"]
        if rng.random() < 0.5:
            step["case"] = [
                {
                    "when": "{{ event.name == 'call.error' }}",
                    "then": {"retry": {"max_attempts": rng.randint(1, 5)}},
                },
                {"when": "{{ response.ok }}", "then": [{"next": [{"step": following[0]}]}]},
            ]
        if rng.random() < 0.3:
            step["vars"] = {"total": "{{ result }}"}
        if rng.random() < 0.3:
            step["retry"] = {"max_attempts": 3, "initial_delay": 1}
        step["next"] = [{"step": following[0], "args": {"page": number}}]
        steps.append(step)
    return _root(rng, steps)


def _v1(rng: Random) -> dict[str, Any]:
    names = _names(rng)
    steps: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        following = [{"step": target} for target in names[number + 1 : number + 2]] or [{"step": "end"}]
        way = {"when": "{{ workload.flag }}", "then": following}
        steps.append(
            {
                "step": name,
                "call": {"task": "count", "with": {"n": rng.randint(0, 9)}},
                "next": rng.choice(([way, {"else": [{"step": "end"}]}], following)),
            }
        )
    steps.append({"step": "end"})
    return {
        "apiVersion": "noetl.io/v1",
        "kind": "Playbook",
        "name": "made",
        "path": "fuzz/made",
        "workload": {"flag": True},
        "workbook": [{"task": "count", "type": "python", "code": "def main(n):\n    return n + 1\n"}],
        "workflow": steps,
    }


# --- hostile files ---------------------------------------------------------------------------------------


def hostile(rng: Random) -> bytes:
    return rng.choice(HOSTILE)(rng)


def _scaled(rng: Random, most: int) -> int:
    """Mostly small, now and then as large as it gets."""
    return rng.randint(1, most) if rng.random() < 0.05 else rng.randint(1, max(1, most // 100))


def _deep(rng: Random) -> bytes:
    times = _scaled(rng, 20_000)
    head = b"workload: " if rng.random() < 0.7 else b""
    return head + rng.choice(
        (
            b"[" * times + b"]" * times,
            b"{a: " * times + b"}" * times,
            b"- " * times + b"a",
            b"? " * times + b"a",
            b"[" * times,
            b"\n".join(b" " * level + b"a:" for level in range(min(times, 1000))),
        )
    )


def _alias_bomb(rng: Random) -> bytes:
    lines = ["workload:", "  a0: &a0 [x, x, x, x]"]
    for level in range(1, rng.randint(2, 40)):
        lines.append(f"  a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * rng.randint(1, 9))}]")
    return "\n".join(lines).encode()


def _merges(rng: Random) -> bytes:
    times = _scaled(rng, 3000)
    lines = ["workload:", "  a0: &a0 {x: 1}"]
    lines += [f"  a{level}: &a{level} {{<<: *a{level - 1}, k{level}: 1}}" for level in range(1, times)]
    return "\n".join(lines).encode()


def _wide(rng: Random) -> bytes:
    times = _scaled(rng, 30_000)
    line = rng.choice(("k{0}: 1", "? k{0}", "'k{0}': {{}}", "workflo{0}: [a, b]", "k: {0}"))
    return "\n".join(line.format(number) for number in range(times)).encode()


def _directives(rng: Random) -> bytes:
    return b"".join(b"%%TAG !%d! x:\n" % number for number in range(_scaled(rng, 3000))) + b"--- {}\n"


def _long_scalar(rng: Random) -> bytes:
    times = _scaled(rng, rng.choice((60_000, 60_000, 450_000)))
    text = rng.choice(("x", "{{", "{{ a }}", "{% if a %}", "a b\n\n  ", "'", '\\"', "# ", "{{ a.b | c }}"))
    body = (text * (times // len(text) + 1))[:times]
    return dump(
        {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": body}, "workload": {"a": body}}
    )


def _playbook(sections: dict[str, Any]) -> bytes:
    return dump({"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "many"}, **sections})


def _many_steps(rng: Random, make: Callable[[int], dict[str, Any]], most: int) -> bytes:
    steps = [{"step": "start", "tool": {"kind": "noop"}}]
    steps += [make(number) for number in range(_scaled(rng, most))]
    return _playbook({"workflow": steps})


def _unknown_targets(rng: Random) -> bytes:
    return _many_steps(
        rng, lambda n: {"step": f"one_step_{n}", "next": {"arcs": [{"step": f"stepp_{n}_of"}]}}, 9000
    )


def _unknown_names(rng: Random) -> bytes:
    return _many_steps(
        rng,
        lambda n: {
            "step": f"step_{n}",
            "tool": {"kind": "noop", "args": {"x": f"{{{{ stap_{n} + step_{n + 1} }}}}"}},
        },
        8000,
    )


def _unknown_keys(rng: Random) -> bytes:
    return _many_steps(
        rng, lambda n: {"step": f"s{n}", f"tol{n}": 1, "tool": {"kind": "http", f"urll{n}": "x"}}, 8000
    )


def _many_joins(rng: Random) -> bytes:
    return _many_steps(
        rng,
        lambda n: {
            "step": f"s{n}",
            "spec": {"join": {"of": [f"s{n - 1}"]}},
            "next": {"arcs": [{"step": f"s{n + 1}"}]},
        },
        5000,
    )


def _tangle(rng: Random) -> bytes:
    """Steps that lead backwards and everywhere, so that the order of running is hard to find."""
    return _many_steps(
        rng,
        lambda n: {
            "step": f"s{n}",
            "tool": {"kind": "noop", "args": {"x": f"{{{{ s{n * 7 % 997} }}}}"}},
            "next": {"arcs": [{"step": f"s{n * k % 9973}"} for k in (3, 5, 11)] + [{"step": f"s{n - 1}"}]},
        },
        3000,
    )


def _many_args(rng: Random) -> bytes:
    """Each way passes an arg of its own, and each may reach every step."""
    return _many_steps(
        rng,
        lambda n: {
            "step": f"s{n}",
            "tool": {"kind": "noop", "args": {"x": f"{{{{ args.a{n} }}}}"}},
            "next": {"arcs": [{"step": f"s{n + 1}", "args": {f"a{n}": n}}]},
        },
        4000,
    )


def _many_jumps(rng: Random) -> bytes:
    """One pipeline with as many labels as jumps that miss them."""
    tasks = [
        {
            f"task_{n}": {
                "kind": "noop",
                "spec": {"policy": {"rules": [{"else": {"then": {"do": "jump", "to": f"tosk{n}"}}}]}},
            }
        }
        for n in range(_scaled(rng, 4500))
    ]
    return _playbook({"workflow": [{"step": "start", "tool": tasks}]})


def _many_reads(rng: Random) -> bytes:
    """One long template that is wrong in every expression."""
    times = _scaled(rng, 5000)
    text = "".join(f"{{{{ a{n} }}}} " for n in range(times))
    forms = (
        text,
        text.replace("}} ", "| default(1) }} "),
        text.replace(" }}", ".b is defined }}") + text,
        text + "{% if x %}",
    )
    return _playbook({"workload": {f"w{n}": rng.choice(forms) + str(n) for n in range(rng.randint(1, 8))},
                      "workflow": [{"step": "start", "tool": {"kind": "noop"}}]})  # fmt: skip


def _long_name(rng: Random) -> bytes:
    """A step whose name is most of the file, with many mistakes that name it."""
    step: dict[str, Any] = {"step": "n" * _scaled(rng, 300_000), "tool": {"kind": "noop"}}
    step.update({f"key{number}": 1 for number in range(_scaled(rng, 20_000))})
    return _playbook({"workflow": [step]})


def _many_loops(rng: Random) -> bytes:
    """v1 loops, each with a join, in one long chain."""
    steps: list[dict[str, Any]] = [{"step": "start", "next": "l0"}]
    for number in range(_scaled(rng, 3000)):
        loop = {"in": [1, 2], "iterator": f"i{number}"}
        steps.append({"step": f"l{number}", "loop": loop, "next": f"j{number}"})
        steps.append({"step": f"j{number}", "join": f"l{number}", "next": f"l{number + 1}"})
    return dump(
        {"apiVersion": "noetl.io/v1", "kind": "Playbook", "name": "l", "path": "l", "workflow": steps}
    )


def _workload_chain(rng: Random) -> bytes:
    times = _scaled(rng, 10_000)
    workload = {f"v{number}": f"{{{{ workload.v{number + 1} }}}}" for number in range(times)}
    if rng.random() < 0.5:
        workload[f"v{times}"] = "{{ workload.v0 }}"
    return _playbook({"workload": workload, "workflow": [{"step": "start", "tool": {"kind": "noop"}}]})


def _workbook_calls(rng: Random) -> bytes:
    """Workbook tasks that call one another in a long row."""
    times = _scaled(rng, 5000)
    entries = [
        {"name": f"w{number}", "tool": {"kind": "workbook", "name": f"w{number + 1}"}}
        for number in range(times)
    ]
    call = {"kind": "workbook", "name": "w0"}
    return _playbook({"workbook": entries, "workflow": [{"step": "start", "tool": call}]})


def _noise(rng: Random) -> bytes:
    return rng.randbytes(_scaled(rng, 100_000))


HOSTILE: tuple[Callable[[Random], bytes], ...] = (
    _deep, _alias_bomb, _merges, _wide, _directives, _long_scalar, _unknown_targets, _unknown_names,
    _unknown_keys, _many_joins, _tangle, _many_args, _many_jumps, _many_reads, _long_name, _many_loops,
    _workload_chain, _workbook_calls, _noise,
)  # fmt: skip
