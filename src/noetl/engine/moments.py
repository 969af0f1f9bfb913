"""What templates see of a call after it was made: in retries, polls, cases, sinks and variables."""

from __future__ import annotations

from typing import Any, Final

from noetl.engine.bodies import Bodies, ResultView, is_ref
from noetl.engine.state import Data
from noetl.template import UNDEFINED, Scope, View

AFTER_CALL: Final = frozenset({"call.done", "call.error"})


class ErrorView(View):
    """An error: its fields by name, and its message as text."""

    __slots__ = ("_fields",)

    def __init__(self, error: Data, outcome: Data) -> None:
        http = outcome.get("http") or {}
        status = http.get("status")
        self._fields = {
            **error,
            "status": status,
            "status_code": status,
            "headers": http.get("headers"),
            "body": outcome.get("result"),
        }

    def lookup(self, name: str) -> object:
        return self._fields.get(name, UNDEFINED)

    def plain(self) -> object:
        return self._fields

    def operand(self) -> object:
        return str(self)

    def __str__(self) -> str:
        return str(self._fields["message"])


def envelope(outcome: Data) -> Data:
    """What is known about an answer besides its body."""
    http = outcome.get("http") or {}
    about: Data = {"status": outcome["status"], "error": outcome.get("error"), "meta": outcome.get("meta")}
    if http:
        about |= {"status_code": http.get("status"), "headers": http.get("headers")}
    return about


def result_names(outcome: Data, bodies: Bodies) -> Data:
    """After a good call `response`, `result`, `data` and `this`; after a failed one only `error`."""
    if outcome["status"] == "error":
        return {"error": ErrorView(outcome["error"] or {"kind": "", "message": ""}, outcome)}
    return value_names(outcome["result"], envelope(outcome), bodies)


def value_names(result: Any, about: Data, bodies: Bodies) -> Data:  # noqa: ANN401 - plain data
    view = ResultView(result, about, bodies)
    body = ResultView(result, {}, bodies) if is_ref(result) else result
    this: Data = {**about, "data": body}
    this.setdefault("error", None)
    return {"response": view, "result": view, "data": view, "this": this}


def moment_data(event: str, outcome: Data | None, bodies: Bodies) -> Data:
    """What `event.data` shows at a moment of the step itself: after a call, what came of it."""
    if outcome is None or event not in AFTER_CALL:
        return {}
    names = result_names(outcome, bodies)
    shown: Data = {name: names[name] for name in ("response", "error") if name in names}
    return {**shown, "meta": outcome.get("meta")}


def repeat_names(outcome: Data, attempt: int, most: int, bodies: Bodies) -> Data:
    """What the predicates of a retry or a poll can ask about the last attempt."""
    names: Data = {
        **value_names(outcome["result"], envelope(outcome), bodies),
        "attempt": attempt,
        "max_attempts": most,
        "status_code": (outcome.get("http") or {}).get("status"),
        "success": outcome["status"] != "error",
    }
    if outcome["status"] == "error":
        names["error"] = ErrorView(outcome["error"] or {"kind": "", "message": ""}, outcome)
    return names


def with_names(scope: Scope, names: Data) -> Scope:
    """A scope with more of the language's own names in it."""
    return Scope({**scope.reserved, **names}, scope.layers)
