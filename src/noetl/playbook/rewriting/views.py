"""What the names of v1 and v2 are called where canonical YAML looks at the same thing.

A call's result is `outcome` in the rules of its task, the task's label in later tasks, and the
step's name at the step's boundary. Where a name shows something that cannot be seen from there, it
is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from noetl.playbook.rewriting.expressions import Chain, Names, Rename, Replacement, refused, to

RESULT_NAMES: Final = ("response", "result")
IN_BODY_TOO: Final = {
    "data": "outcome.result",
    "result": "outcome.result",
    "rows": "outcome.result",
    "status": "outcome.status",
}
"""Fields of a result's view, with what they show where the result has no such key."""
IN_RESPONSE_TOO: Final = IN_BODY_TOO | {
    "status_code": "outcome.http.status",
    "headers": "outcome.http.headers",
}
VIEW_ONLY: Final = frozenset({"meta", "results", "row_count", "error"})
PIPELINE_NAMES: Final = ("iter", "loop_index", "_prev", "_task", "_attempt", "_action_id", "outcome")

OK: Final = "outcome.status == 'ok'"
FAILED: Final = "outcome.status == 'error'"


def _of_outcome(chain: Chain) -> Replacement | None:
    if chain.defined is not None:
        return Replacement(f"({OK if chain.defined else FAILED})", test=True)
    if not chain.attributes:
        return Replacement("outcome.result")
    first = chain.attributes[0]
    fallback = (IN_RESPONSE_TOO if chain.name == "response" else IN_BODY_TOO).get(first)
    if fallback is not None:
        return Replacement(f"(outcome.result.{first} | default({fallback}))", 1)
    return None if first in VIEW_ONLY else Replacement("outcome.result")


def _this_of_outcome(chain: Chain) -> Replacement | None:
    if chain.attributes[:1] == ("data",):
        return Replacement("outcome.result", 1)
    return Replacement("outcome.status", 1) if chain.attributes[:1] == ("status",) else None


def _error_of_outcome(chain: Chain) -> Replacement | None:
    """After a failed call, where `error` is an object."""
    if chain.defined is not None:
        return Replacement(f"({FAILED if chain.defined else OK})", test=True)
    if not chain.attributes:
        return Replacement(f"({FAILED})") if chain.alone else None
    first = chain.attributes[0]
    if first == "status":
        return Replacement("outcome.http.status", 1)
    if first == "body":
        return Replacement("outcome.result", 1)
    return Replacement("outcome.error") if first in ("kind", "message", "retryable") else None


def in_rules(kept: Collection[str] = ()) -> Names:
    """Case guards and actions as the call's rules see them."""
    names: dict[str, Rename] = dict.fromkeys(RESULT_NAMES, _of_outcome)
    return names | {
        "this": _this_of_outcome,
        "error": _error_of_outcome,
        "event": refused,
        "ctx": iteration_values(kept),
    }


def in_repeats(max_attempts: object) -> Names:
    """The predicates of retry and poll."""
    names: dict[str, Rename] = dict.fromkeys(("result", "data", "response"), _of_repeated)
    return names | {
        "attempt": to("_attempt"),
        "max_attempts": to(str(max_attempts)) if isinstance(max_attempts, int) else refused,
        "status_code": to("outcome.http.status"),
        "success": to(f"({OK})"),
        "error": _error_of_repeated,
    }


def _of_repeated(chain: Chain) -> Replacement | None:
    return None if chain.defined is not None else _of_outcome(chain)


def _error_of_repeated(chain: Chain) -> Replacement | None:
    # Its status and body would be those of a good answer too; `status_code` and `result` say that.
    return None if chain.attributes[:1] in (("status",), ("body",)) else _error_of_outcome(chain)


def in_tasks(label: str, kept: Collection[str] = ()) -> Names:
    """Later tasks, which see the call by its label."""

    def result(chain: Chain) -> Replacement | None:
        if chain.defined is not None:
            return Replacement("true" if chain.defined else "false", test=True)
        hidden = chain.name == "response" and chain.attributes[:1] in (("status_code",), ("headers",))
        return None if hidden else Replacement(label)

    def this(chain: Chain) -> Replacement | None:
        return Replacement(label, 1) if chain.attributes[:1] == ("data",) else None

    names: dict[str, Rename] = dict.fromkeys(RESULT_NAMES, result)
    return names | {"this": this, "error": refused, "event": refused, "ctx": iteration_values(kept)}


def at_boundary(
    step: str,
    hidden: Collection[str],
    *,
    own_result: bool = True,
    is_list: bool = False,
    done: str = "step.done",
) -> Names:
    """Arcs, which see the call by the step's name.

    `hidden` are names that only the pipeline has; `own_result` says that the step's result is the
    call's. The result of a loop shows nothing of one call. `done` is the event of a good end.
    """

    def result(chain: Chain) -> Replacement | None:
        if chain.defined is not None and own_result and not is_list:
            return Replacement(f"event.name == '{done}'", test=True) if chain.defined else None
        envelope = chain.name == "response" and chain.attributes[:1] in (("status_code",), ("headers",))
        return None if is_list or not own_result or envelope else Replacement(step)

    def this(chain: Chain) -> Replacement | None:
        found = chain.attributes[:1] == ("data",) and own_result and not is_list
        return Replacement(step, 1) if found else None

    def error(chain: Chain) -> Replacement | None:
        shown = chain.attributes[:1] in (("kind",), ("message",), ("retryable",))
        return Replacement(f"{step}.error") if shown else None

    names: dict[str, Rename] = dict.fromkeys(RESULT_NAMES, result)
    names |= dict.fromkeys((*PIPELINE_NAMES, *hidden, "event"), refused)
    return names | {"this": this, "error": error, "ctx": _without(hidden)}


def iteration_values(kept: Collection[str]) -> Rename:
    """`ctx.x` is `iter.x` for what the step keeps for itself."""

    def rename(chain: Chain) -> Replacement | None:
        if not kept or (chain.attributes and chain.attributes[0] not in kept):
            return Replacement("ctx")
        return Replacement("iter") if chain.attributes else None

    return rename


def _without(hidden: Collection[str]) -> Rename:
    def rename(chain: Chain) -> Replacement | None:
        if not hidden or (chain.attributes and chain.attributes[0] not in hidden):
            return Replacement("ctx")
        return None

    return rename
