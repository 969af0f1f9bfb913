"""Addresses, answers and requests that mean harm: nothing reaches what is closed, and nothing grows large."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.abc import ResolveResult

from noetl.records.outcome import Outcome
from noetl.tools import http
from noetl.tools.addresses import AddressPolicy
from noetl.tools.http_session import HttpPolicy
from tests.e2e.console import Console
from tests.security.campaign import GO_ON
from tests.security.outside import Outside, outside_server
from tests.unit.tools.local_context import LocalContext, call

CLOSED = HttpPolicy(addresses=AddressPolicy(deny=("127.0.0.1/32", "::1/128")), max_body_bytes=64 << 20)
"""The stand-in for a metadata service listens at 127.0.0.1, which is closed; 127.0.0.2 is open."""
FORMS = [
    "127.0.0.1", "2130706433", "0177.0.0.1", "0x7f000001", "0x7f.0.0.1", "127.1", "017700000001",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:1]", "[::127.0.0.1]", "localhost",
    "127.0.0.1.", "①②⑦.⓪.⓪.①", "127。0。0。1", "127.0.0.1%00.example.com",
]  # fmt: skip


@pytest.fixture
def metadata() -> Iterator[Outside]:
    with outside_server() as server:
        yield server


@pytest.fixture
def stranger() -> Iterator[Outside]:
    """A server at an address that is open, which sends others wherever it likes."""
    with outside_server("127.0.0.2") as server:
        yield server


def fetched(folder: Path, policy: HttpPolicy, *configs: dict[str, Any]) -> list[Outcome]:
    async def scenario() -> list[Outcome]:
        async with LocalContext(folder) as context:
            context.made["http.policy"] = policy
            return [
                await http.run(call("http", config, spec={"timeout": {"total": 10}}), context)
                for config in configs
            ]

    return asyncio.run(scenario())


def kinds(outcomes: list[Outcome]) -> set[str]:
    return {"ok" if each.error is None else each.error.kind for each in outcomes}


REFUSALS = {"http.address_refused", "config.invalid", "http.connect", "http.protocol"}


@pytest.mark.parametrize("host", FORMS)
def test_no_spelling_of_a_closed_address_reaches_it(
    tmp_path: Path, metadata: Outside, stranger: Outside, host: str
) -> None:
    target = f"http://{host}:{metadata.port}/latest/meta-data"
    direct = {"url": target}
    redirected = {"url": f"{stranger.url}/redirect?{target}"}
    posted = {"url": target, "method": "POST", "body": "x" * 100_000}
    outcomes = fetched(tmp_path, CLOSED, direct, redirected, posted)
    assert kinds(outcomes) <= REFUSALS
    assert metadata.requests == []


def test_the_address_of_metadata_services_is_refused_without_any_setting(tmp_path: Path) -> None:
    hosts = ["169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "[::ffff:a9fe:a9fe]"]
    outcomes = fetched(tmp_path, HttpPolicy(), *({"url": f"http://{host}/latest"} for host in hosts))
    assert kinds(outcomes) <= {"http.address_refused", "config.invalid"}
    assert all(each.meta.duration_ms is not None and each.meta.duration_ms < 2000 for each in outcomes)


def test_a_name_that_is_rebound_between_two_looks_reaches_nothing_closed(
    tmp_path: Path, metadata: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def rebinding(
        self: object, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Open when it is judged, closed when it is used."""
        asked.append(host)
        address = "127.0.0.2" if len(asked) % 2 else "127.0.0.1"
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", rebinding)
    config = {"url": f"http://rebound.example.com:{metadata.port}/latest"}
    outcomes = fetched(tmp_path, CLOSED, *[config] * 6)
    assert kinds(outcomes) <= {"http.connect", "http.address_refused"}  # nobody listens at the open one
    assert metadata.requests == []
    assert asked


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("gzip/200000000", "http.too_large"),
        ("deflate/200000000", "http.too_large"),
        ("bomb/200000000", None),  # packed twice: whatever becomes of it, it does not become large
        ("deep/1000000", "http.protocol"),
        ("deep/15000000", "http.too_large"),
        ("headers/60000", "http.protocol"),
        ("brotli/10", "http.protocol"),
    ],
)
def test_an_answer_that_explodes_is_stopped_in_time_and_within_memory(
    tmp_path: Path, metadata: Outside, path: str, expected: str | None
) -> None:
    policy = HttpPolicy(max_body_bytes=64 << 20, max_decoded_bytes=16 << 20)
    tracemalloc.start()
    try:
        began = time.process_time()
        (outcome,) = fetched(tmp_path, policy, {"url": f"{metadata.url}/{path}"})
        taken, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if expected is not None:
        assert outcome.error is not None
        assert outcome.error.kind == expected, outcome.error
    assert taken < 8  # with every allocation traced
    assert peak < 120 << 20


INJECTIONS: list[Callable[[str], dict[str, Any]]] = [
    lambda text: {"headers": {"X-A": f"a{text}X-Evil: 1"}},
    lambda text: {"headers": {f"X-A: a{text}X-Evil": "1"}},
    lambda text: {"path": f"a HTTP/1.1{text}X-Evil: 1{text}"},
    lambda text: {"params": {"a": f"b{text}X-Evil: 1"}},
    lambda text: {"params": {f"b{text}X-Evil: 1": "a"}},
    lambda text: {"method": f"GET / HTTP/1.1{text}X-Evil: 1{text}"},
    lambda text: {"auth": {"token": f"t{text}X-Evil: 1"}},
    lambda text: {"auth": {"api_key": "k", "header": f"X-Key: 1{text}X-Evil"}},
    lambda text: {"auth": {"headers": {"X-A": f"a{text}X-Evil: 1"}}},
    lambda text: {"auth": {"username": f"a{text}X-Evil: 1", "password": "b"}},
    lambda text: {"method": "POST", "body": "b", "headers": {"Content-Type": f"text/plain{text}X-Evil: 1"}},
    lambda text: {
        "method": "POST",
        "form": {"a": "b"},
        "files": {"f": {"content": "c", "filename": f'x"{text}X-Evil: 1', "content_type": "text/plain"}},
    },
    lambda text: {
        "method": "POST",
        "files": {"f": {"content": "c", "filename": "x", "content_type": f"text/plain{text}X-Evil: 1"}},
    },
    lambda text: {"method": "POST", "form": {f'a"{text}X-Evil: 1': "b"}, "files": {"f": {"content": "c"}}},
]


@pytest.mark.parametrize("line_break", ["\r\n", "\n", "\r", "\u2028", "\x85", "\0"])
def test_no_field_of_a_request_becomes_a_header(tmp_path: Path, metadata: Outside, line_break: str) -> None:
    configs = []
    for made in INJECTIONS:
        config = made(line_break)
        configs.append({"url": f"{metadata.url}/echo/{config.pop('path', '')}", **config})
    for config, outcome in zip(configs, fetched(tmp_path, HttpPolicy(), *configs), strict=True):
        if outcome.error is None:
            assert "x-evil" not in {name.lower() for name in outcome.result["headers"]}, config
            lines = outcome.result["body"].replace("\r", "\n").split("\n")
            assert not [line for line in lines if line.lower().startswith("x-evil")], config
        else:
            assert outcome.error.kind in ("config.invalid", "http.status", "http.protocol"), (config, outcome)
    assert all("Evil" not in path or "%" in path for path in metadata.requests)


def test_what_looks_like_a_reference_to_a_stored_result_is_not_followed(
    tmp_path: Path, metadata: Outside
) -> None:
    """A stranger's answer must not decide what the engine loads, nor how much room it makes for it."""
    console = Console(tmp_path)
    forged = {
        "kind": "result_ref", "ref": "noetl://1/x", "store": "log", "key": "1.1", "checksum": "", "size": 1,
        "schema_hint": {"type": "list", "length": 10**12},
    }  # fmt: skip
    answers: list[Any] = [
        forged,
        [forged],
        {"a": {"b": forged}},
        {**forged, "store": "parts", "parts": [forged]},
    ]
    for index, answer in enumerate(answers):
        metadata.answers[f"/said/{index}"] = json.dumps(answer).encode()
    steps: list[dict[str, Any]] = [
        {
            "step": f"ask_{index}" if index else "start",
            "tool": [
                {"asked": {"kind": "http", "url": f"{metadata.url}/said/{index}", "spec": GO_ON}},
                {
                    "read": {
                        "kind": "python",
                        "args": {"it": "{{ asked }}"},
                        "code": "result = it is None",
                    }
                },
            ],
            "next": {"arcs": [{"step": f"ask_{index + 1}"}]},
        }
        for index in range(len(answers))
    ]
    steps.append({"step": f"ask_{len(answers)}", "tool": {"kind": "noop"}})
    playbook = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "asks"},
        "workflow": steps,
    }
    file = console.write("asks.yaml", json.dumps(playbook))
    done = console.finished("run", file, "-q", "--events", "events.jsonl")
    assert done.returncode == 0, done.stdout
    log = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    ends = [each["payload"]["outcome"]["error"]["kind"] for each in log if is_end_of(each, "asked")]
    assert ends == ["result.reference"] * len(answers)


def is_end_of(event: dict[str, Any], task: str) -> bool:
    return (event["event_type"], event["task_label"]) == ("task.done", task)


def test_an_operator_closes_networks_and_opens_parts_of_them(tmp_path: Path, metadata: Outside) -> None:
    console = Console(tmp_path)
    playbook = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "asks"},
        "workflow": [{"step": "start", "tool": {"kind": "http", "url": f"{metadata.url}/echo"}}],
    }
    file = console.write("asks.yaml", json.dumps(playbook))
    console.environment["NOETL_DENY_ADDRESSES"] = "127.0.0.0/8,::1/128"
    refused = json.loads(console.noetl("run", file, "--json", exit_code=1))
    assert refused["error"]["kind"] == "http.address_refused"
    assert metadata.requests == []
    console.environment["NOETL_ALLOW_ADDRESSES"] = "127.0.0.1/32"
    assert json.loads(console.noetl("run", file, "--json"))["status"] == "completed"
