"""The knobs that stand under `spec`, scope by scope.

Task knobs are layered (executor, step, loop, task; the inner wins), so they are known at each of
these places; the others belong to their scope. One table serves the checks, the JSON Schema and
the reference, so each knob has its sentence here.
"""

from __future__ import annotations

from typing import Final

TASK_KNOBS: Final[dict[str, str]] = {
    "timeout": "How long one execution of a task may take; the error kind is `timeout`.",
    "result": "Where results go: `inline_max_bytes`, `store`, `select`.",
    "isolation": "How code tools are contained: `process`, `sandbox` or `container`.",
    "on_lease_loss": "`retry` (default) runs a task again whose worker was lost, `fail` never does.",
    "ok_status": "HTTP status codes that count as success.",
    "pool": "The worker pool that runs it.",
    "resources": "Memory, CPU and other limits of code tools.",
    "sandbox": "Options of the `sandbox` isolation.",
    "tracing": "Hints for traces.",
    "telemetry": "Hints for metrics.",
    "async": "A hint that changes no result.",
}

EXECUTOR_KNOBS: Final[dict[str, str]] = {
    "entry_step": "The step the execution starts with (default: `start`).",
    "deadline": "How long the whole execution may take.",
}

STEP_KNOBS: Final[dict[str, str]] = {
    "deadline": "How long the step run may take.",
    "policy": "`admit`: the rules that decide whether a token may enter.",
    "join": "Where tokens wait for each other: `of` and `mode`.",
    "limits": "`task_runs`: how many tasks one pipeline may run (default 10 000).",
    "on_error": "`fail` (default); `ignore`: the step is done with the result null; `retry`.",
}

CASE_KNOBS: Final[dict[str, str]] = {
    "case_mode": "`exclusive` (default): the first matching entry; `inclusive`: all of them.",
    "eval_mode": "`on_entry` (default), or `on_event`: the step stays open and sees every event.",
    "branch_order": "`source` (default) or `priority`: the order in which entries are tried.",
    "next_policy": "What `next` ends: `end_step` (default), `break_chain` or `defer`.",
    "timers": "Names and durations of timers that an `on_event` step starts.",
}

LOOP_KNOBS: Final[dict[str, str]] = {
    "mode": "`sequential` (default) or `parallel`.",
    "max_in_flight": "How many iterations run at once (default 16).",
    "batch_size": "Iterations for each command.",
    "on_error": "`fail` (default): the first failed iteration fails the loop; `continue`.",
    "policy": "`exec`: `local` (one worker takes the loop) or `distributed`.",
    "reduce": "How parallel writes to a ctx key are combined: sum, min, max, append, extend, union, last.",
    "checkpoint": "`items`, `ms`: how many finished iterations may go unrecorded, and for how long.",
}

NEXT_KNOBS: Final[dict[str, str]] = {
    "mode": "`exclusive` (default): the first arc whose guard holds; `inclusive`: all of them.",
    "policy": "Reserved.",
}

ARC_KNOBS: Final[dict[str, str]] = {
    "carry": "`false`: the token takes only this arc's `args` along, not those it already has.",
}

NOT_INHERITED: Final = frozenset(
    {"deadline", "policy", "join", "limits", "entry_step", "mode", "max_in_flight", "reduce", "on_error"}
    | {"batch_size", "checkpoint"}
    | set(CASE_KNOBS)
)
