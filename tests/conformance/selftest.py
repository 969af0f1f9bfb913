"""Tests of the runner: the matchers, the scripted HTTP server, and whole cases against a fake `noetl`."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

import yaml

from tests.conformance.matching import ABSENT, matches, mismatches
from tests.conformance.run import Options, find_cases, run_case, to_yaml
from tests.conformance.scripted_http import ScriptedServer

# Waits for a signal when the playbook says so, and reports what it was given.
FAKE_NOETL = r"""#!/bin/sh
command=$1; shift
case $command in
  register) echo "$1" >> ../registered; exit 0 ;;
  signal) echo "$1 $2 $4" > ../signalled; exit 0 ;;
  validate)
    echo '{"valid": false, "files": [{"file": "playbook.yaml", "dialect": "canonical", "diagnostics": [
      {"severity": "error", "code": "x1", "message": "no such key: `whn`", "line": 12, "column": 3,
       "hint": "did you mean `when`?"}]}]}'
    exit 1 ;;
esac
while [ $# -gt 0 ]; do
  case $1 in --events) events=$2 ;; --payload) payload=$2 ;; --store) store=${2#sqlite:///} ;; esac
  shift
done
emit() { echo "{\"execution_id\": \"7\", \"event_type\": \"$1\", \"step\": \"$2\"}" >> "$events"; }
emit workflow.started null
emit step.scheduled wait
if grep -q hang playbook.yaml; then sleep 30; fi
if grep -q approval playbook.yaml; then while [ ! -f ../signalled ]; do sleep 0.05; done; fi
emit workflow.finished null
echo "kept $TOKEN" > "$store"
echo "note on stderr" >&2
echo "{\"status\": \"completed\", \"workload\": $payload,"
echo "\"steps\": {\"a\": {\"status\": \"done\", \"runs\": 2}, \"b\": {\"status\": \"skipped\"}}}"
"""


class Matching(unittest.TestCase):
    def test_what_matches(self):
        for want, got in [
            ({"a": 1}, {"a": 1, "b": 2}),
            ([1, {"x": 1}], [1, {"x": 1, "y": 2}]),
            (1, 1.0),
            (None, None),
            ({}, {"a": 1}),
            ({"$len": 3}, [1, 2, 3]),
            ({"$len": 0}, {}),
            ({"$len": {"$gt": 1}}, "ab"),
            ({"$contains": "b"}, "abc"),
            ({"$contains": {"x": 1}}, [{"x": 1, "y": 2}]),
            ({"$type": "integer"}, 3),
            ({"$type": "boolean"}, True),
            ({"$type": "null"}, None),
            ({"$gt": 0}, 0.5),
            ({"$in": ["a", {"$len": 2}]}, "xy"),
            ({"$any": True}, None),
            ({"a": {"$absent": True}}, {}),
            ({"a": {"b": {"$absent": True}}}, {"a": {}}),
        ]:
            self.assertEqual([], mismatches(want, got), (want, got))

    def test_what_does_not_match(self):
        for want, got in [
            ({"a": 1}, {"b": 1}),
            ([1], [1, 2]),
            ([1, 2], [2, 1]),
            (True, 1),
            (1, True),
            ("1", 1),
            (0, None),
            ([], {}),
            ({"a": {}}, {}),
            ({"$len": 3}, 3),
            ({"$contains": "x"}, None),
            ({"$type": "number"}, True),
            ({"$gt": 0}, 0),
            ({"$gt": 0}, "1"),
            ({"$in": [1, 2]}, 3),
            ({"a": {"$any": True}}, {}),
            ({"a": {"$absent": True}}, {"a": None}),
        ]:
            self.assertFalse(matches(want, got), (want, got))

    def test_a_mismatch_says_where_what_was_expected_and_what_came(self):
        self.assertEqual(
            ['steps.a[1].x: expected 2, got "2"'],
            mismatches({"a": [1, {"x": 2}]}, {"a": [1, {"x": "2"}]}, "steps"),
        )
        self.assertEqual(["a: expected 1, got nothing"], mismatches({"a": 1}, {}))
        self.assertIn("nothing", repr(ABSENT))


class Http(unittest.TestCase):
    def setUp(self):
        self.server = ScriptedServer(
            [
                {
                    "path": "/a",
                    "query": {"page": 1},
                    "respond": [{"status": 500, "json": {"n": 1}}, {"json": {"n": 2}}],
                },
                {"path": "/a", "method": "POST", "respond": [{"text": "posted", "headers": {"X-A": "b"}}]},
                {"path": "/slow", "respond": [{"delay": 0.3, "json": []}]},
            ]
        )
        self.addCleanup(self.server.stop)

    def call(self, path, **kwargs):
        try:
            with urllib.request.urlopen(urllib.request.Request(self.server.url + path, **kwargs)) as got:
                return got.status, got.headers, got.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def test_responses_come_in_order_and_the_last_one_repeats(self):
        self.assertEqual(
            [(500, 1), (200, 2), (200, 2)],
            [
                (status, json.loads(body)["n"])
                for status, _, body in (self.call("/a?page=1&x=2") for _ in range(3))
            ],
        )

    def test_method_query_and_unknown_paths(self):
        status, headers, body = self.call("/a", data=b'{"k": 1}', method="POST", headers={"X-K": "v"})
        self.assertEqual((200, "b", "posted"), (status, headers["X-A"], body))
        self.assertEqual(404, self.call("/a?page=2")[0])
        want = {"path": "/a", "method": "POST", "json": {"k": 1}, "headers": {"x-k": "v"}, "query": {}}
        self.assertTrue(matches(want, self.server.requests[0]))

    def test_concurrency_is_counted_until_the_answer(self):
        threads = [threading.Thread(target=self.call, args=("/slow",)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(3, self.server.most)
        for _ in range(20):
            self.call("/a?page=1")
        self.assertEqual((3, 0, 23), (self.server.most, self.server.now, len(self.server.requests)))


class Cases(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        fake = self.folder / "noetl"
        fake.write_text(FAKE_NOETL)
        fake.chmod(0o755)
        self.options = Options([str(fake)])

    def problems(self, expect, **case):
        path = self.folder / "case.yaml"
        path.write_text(
            to_yaml(
                {"name": "n", "seed": "s", "playbook": {"metadata": {"name": "p"}}, "expect": expect, **case}
            )
        )
        return run_case(path, self.options)[0]

    def test_a_passing_case(self):
        self.assertEqual(
            [],
            self.problems(
                {
                    "exit": 0,
                    "status": "completed",
                    "steps": {"a": {"runs": 2}},
                    "absent_steps": ["b", "c"],
                    "http": {"/a": 0},
                    "workload": {"n": 3, "api_url": {"$contains": "http://127.0.0.1:"}},
                    "stderr_contains": ["note"],
                    "duration_under": 30,
                    "not_contains": ["unseen"],
                    "max_concurrent_http": 0,
                    "events": {
                        "count": {"workflow.started": 1, "step.done": 0},
                        "at_least": {"step.scheduled": 1},
                        "max_bytes": 200,
                        "order": ["workflow.started", {"step": "wait"}, "workflow.finished"],
                        "has": [{"step": "wait"}],
                        "none": [{"event_type": "step.failed"}],
                    },
                },
                payload={"n": 3},
                http=[{"path": "/a"}],
                files={"sub/child.yaml": {"a": 1}},
                register=["sub/child.yaml"],
                env={"TOKEN": "s3"},
            ),
        )

    def test_each_expectation_can_fail(self):
        for expect, word in [
            ({"exit": 3}, "exit: expected 3, got 0"),
            ({"status": "failed"}, 'status: expected "failed", got "completed"'),
            ({"result": 1}, "result: expected 1, got nothing"),
            ({"absent_steps": ["a"]}, "step a must not have run"),
            ({"http": {"/a": 1}}, "requests to /a: expected 1, got 0"),
            ({"requests": [{"path": "/a"}]}, "no request like"),
            ({"min_concurrent_http": 1}, "expected 1 at one time, got 0"),
            ({"stderr_contains": ["x y"]}, "stderr: expected"),
            ({"not_contains": ["s3cret"]}, '"s3cret" found in store.db'),
            ({"duration_under": 0}, "duration: expected under 0"),
            ({"events": {"count": {"workflow.started": 2}}}, "events workflow.started: expected 2, got 1"),
            ({"events": {"at_least": {"x": 1}}}, "events x: expected at least 1, got 0"),
            ({"typo": 1}, "unknown keys"),
            ({"events": {"order": ["workflow.finished", "workflow.started"]}}, "missing or out of order"),
            ({"events": {"has": [{"step": "x"}]}}, "none like"),
            ({"events": {"none": [{"step": "wait"}]}}, "expected none"),
            ({"events": {"max_bytes": 10}}, "expected at most 10"),
            ({"events": {"typo": 1}}, "unknown keys"),
        ]:
            problems = self.problems(expect, env={"TOKEN": "s3cret"}, http=[{"path": "/a"}])
            self.assertTrue(any(word in problem for problem in problems), (expect, problems))

    def test_validate(self):
        want = {
            "valid": False,
            "dialect": "canonical",
            "diagnostics": [{"severity": "error", "line": 12, "contains": ["whn", "did you mean `when`"]}],
        }
        self.assertEqual([], self.problems({"validate": want}))
        self.assertTrue(self.problems({"validate": {"valid": True}}))
        self.assertIn("no diagnostic like", self.problems({"validate": {"diagnostics": [{"line": 13}]}})[0])

    def test_validate_only_leaves_out_the_run(self):
        self.options.validate_only = True
        self.assertEqual(
            [], self.problems({"validate": {"valid": False}, "exit": 3, "status": "never checked"})
        )
        self.assertTrue(self.problems({"validate": {"valid": True}, "exit": 3}))
        self.assertEqual(["the case expects nothing of `noetl validate`"], self.problems({"exit": 0}))

    def test_signals_follow_their_event(self):
        sent = {"after_event": "step.scheduled", "step": "wait", "name": "go", "data": {"type": "approval"}}
        self.assertEqual([], self.problems({"status": "completed"}, signals=[sent], text="wait: approval\n"))
        late = self.problems({"status": "completed"}, signals=[{**sent, "step": "never"}])
        self.assertIn("the run ended before", late[0])

    def test_a_run_that_hangs_is_killed_with_its_children(self):
        self.options.timeout = 1.0
        begun = time.monotonic()
        self.assertIn("killed after 1 s", self.problems({"exit": 0}, text="hang: true\n"))
        self.assertLess(time.monotonic() - begun, 10)

    def test_with_a_server_there_is_no_store(self):
        self.options.extra = ["-q", "--server=http://127.0.0.1:1"]
        self.assertEqual("http://127.0.0.1:1", self.options.server)
        self.assertEqual([], self.problems({"status": "completed"}, env={"TOKEN": "x"}))

    def test_the_cases_themselves(self):
        cases = Path(__file__).resolve().parent / "cases"
        names = []
        for path in find_cases(cases, None):
            case = yaml.safe_load(path.read_text("utf-8"))
            names.append(case["name"])
            self.assertTrue(
                case["seed"] and case["expect"] and ("playbook" in case) != ("text" in case), path
            )
        self.assertEqual(len(names), len(set(names)), "two cases have one name")


def main() -> int:
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    return 0 if unittest.TextTestRunner().run(suite).wasSuccessful() else 1
