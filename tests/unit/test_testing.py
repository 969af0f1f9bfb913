"""The helpers for tests of playbooks, and every example on their page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from noetl.errors import NoetlError
from noetl.testing import FakeClock, StalledError, after, fails, play, replies

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "test-playbooks.md"
BLOCK = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<text>.*?)^```$", re.M | re.S)
ONE_CALL = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: p}
workflow: [{step: start, tool: {kind: http, method: GET, url: "http://nowhere.example/{{ workload.id }}"}}]
"""


def test_the_examples_on_the_page_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    passed = []
    for block in BLOCK.finditer(PAGE.read_text("utf-8")):
        language, *file = block["info"].split()
        if file:
            (tmp_path / file[0]).write_text(block["text"])
        elif language == "python":
            names: dict[str, object] = {}
            exec(compile(block["text"], str(PAGE), "exec"), names)
            for name, test in names.items():
                if name.startswith("test_") and callable(test):
                    test()
                    passed.append(name)
    assert len(passed) == 4


def test_a_tool_without_a_script_is_not_called() -> None:
    run = play(ONE_CALL, {"id": 1})
    assert run.error is not None
    assert run.error["kind"] == "test.unscripted"
    assert "start/" in run.error["message"]


def test_a_script_can_be_a_function_of_the_call() -> None:
    run = play(ONE_CALL, {"id": 7}, tools={"http": lambda call: call.config["url"][-1]})
    assert run.result == "7"


def test_a_script_can_be_an_asynchronous_function() -> None:
    async def answer(call: object) -> object:
        return after(4, replies("later"))

    run = play(ONE_CALL, {"id": 7}, tools={"start": answer})
    assert (run.result, run.elapsed) == ("later", 4)


def test_a_failure_carries_what_the_kind_says_of_it() -> None:
    gone = fails("http.status", "gone", result="body", http={"status": 404})
    run = play(ONE_CALL, {"id": 7}, tools={"http": gone})
    outcome = run.named("task.done")[0].payload["outcome"]
    assert (outcome["http"], outcome["result"]) == ({"status": 404}, "body")


def test_a_playbook_that_is_not_valid_is_refused_with_its_lines() -> None:
    with pytest.raises(NoetlError, match="line 1"):
        play("workflow: [")


def test_an_execution_that_can_never_go_on_is_told_apart_from_a_slow_one() -> None:
    waiting = ONE_CALL.replace("kind: http, method: GET, url: ", "kind: wait, signal: ")
    with pytest.raises(StalledError):
        play(waiting, {"id": 1}, clock=FakeClock(patience=0.01))


def test_replies_need_an_answer() -> None:
    with pytest.raises(ValueError, match="at least one"):
        replies()
