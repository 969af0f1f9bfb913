"""What templates see of a call after it was made, whatever came of it."""

from __future__ import annotations

from typing import Any

from noetl.engine.bodies import NO_BODIES
from noetl.engine.moments import envelope, moment_data, repeat_names, result_names
from noetl.template import Scope, Template

FINE: dict[str, Any] = {"status": "ok", "result": {"n": 1}, "error": None, "meta": {"attempt": 1}}
REFUSED: dict[str, Any] = {
    "status": "error",
    "result": {"why": "busy"},
    "error": {"kind": "http.status", "message": "503 from there", "retryable": True},
    "meta": {"attempt": 2},
    "http": {"status": 503, "headers": {"retry-after": "7"}},
}


def asked(expression: str, names: dict[str, Any]) -> Any:
    return Template(f"{{{{ {expression} }}}}").evaluate(Scope(names))


def test_after_a_good_call_its_answer_has_four_names_and_there_is_no_error() -> None:
    names = result_names(FINE, NO_BODIES)
    assert set(names) == {"response", "result", "data", "this"}
    for name in ("response", "result", "data", "this.data"):
        assert asked(f"{name}.n", names) == 1
    assert asked("this.status", names) == "ok"
    assert asked("this.meta.attempt", names) == 1
    assert names["this"]["error"] is None


def test_after_a_failed_call_there_is_its_error_and_nothing_else() -> None:
    names = result_names(REFUSED, NO_BODIES)
    assert set(names) == {"error"}
    assert asked("error.kind", names) == "http.status"
    assert asked("error.status", names) == asked("error.status_code", names) == 503
    assert asked("error.headers['retry-after']", names) == "7"
    assert asked("error.body.why", names) == "busy"
    assert asked("error ~ '!'", names) == "503 from there!"
    assert asked("'from' in error", names) is True


def test_an_error_that_says_nothing_can_still_be_asked() -> None:
    names = result_names({"status": "error", "result": None, "error": None}, NO_BODIES)
    assert asked("error.kind", names) == ""
    assert asked("error.message", names) == ""


def test_an_envelope_has_the_status_of_an_http_answer_and_of_no_other() -> None:
    assert envelope(FINE) == {"status": "ok", "error": None, "meta": {"attempt": 1}}
    about = envelope(REFUSED)
    assert (about["status_code"], about["headers"]) == (503, {"retry-after": "7"})


def test_the_data_of_a_moment_is_what_came_of_the_call_before_it() -> None:
    assert moment_data("step.enter", FINE, NO_BODIES) == {}
    assert moment_data("step.exit", FINE, NO_BODIES) == {}
    assert moment_data("call.done", None, NO_BODIES) == {}
    shown = moment_data("call.done", FINE, NO_BODIES)
    assert set(shown) == {"response", "meta"}
    assert shown["meta"] == {"attempt": 1}
    assert set(moment_data("call.error", REFUSED, NO_BODIES)) == {"error", "meta"}


def test_a_repetition_is_asked_about_the_answer_and_how_often_it_was_tried() -> None:
    names = repeat_names(FINE, 2, 5, NO_BODIES)
    assert (names["attempt"], names["max_attempts"], names["success"], names["status_code"]) == (
        2,
        5,
        True,
        None,
    )
    assert "error" not in names
    assert asked("response.n", names) == 1
    names = repeat_names(REFUSED, 2, 5, NO_BODIES)
    assert (names["success"], names["status_code"]) == (False, 503)
    assert asked("error.message", names) == "503 from there"
    assert asked("this.error.kind", names) == "http.status"
