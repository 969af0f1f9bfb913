"""The examples in versions 1 and 2 of the language, run by the real command against real databases and a
local service, give what the files beside them say."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from noetl.playbook.load import load
from noetl.playbook.migrate import migrate
from noetl.testing import play
from noetl.tools.registry import builtin_kinds
from tests.e2e.console import Console
from tests.e2e.generations import (
    EXAMPLES,
    GENERATIONS,
    PLAYBOOKS,
    demanded,
    expectation,
    happened,
    options,
    serving,
    stand_in,
)
from tests.postgres_server import postgres_server

RUNS = [
    pytest.param(playbook, run, id=f"{playbook}-{number}")
    for playbook in PLAYBOOKS
    for number, run in enumerate(expectation(playbook)["runs"], start=1)
]
APPROVAL = GENERATIONS / "v2" / "approval.yaml"
(APPROVED,) = expectation("v2/approval.yaml")["runs"]


def in_canonical_form(playbook: str) -> str | None:
    """The text that `noetl migrate` writes; None where something cannot be expressed."""
    kinds = builtin_kinds()
    return migrate(load((GENERATIONS / playbook).read_bytes(), kinds), kinds).text


@pytest.fixture(scope="session")
def shop_dsn() -> Iterator[str]:
    with postgres_server(durable=False) as server:
        yield server.get_uri()


@pytest.fixture
def service() -> Iterator[tuple[str, list[str]]]:
    with serving() as served:
        yield served


@pytest.fixture
def prepared(console: Console, request: pytest.FixtureRequest) -> Console:
    """A console with what the playbook needs: secrets, tables, registered children."""
    needs = expectation(request.node.callspec.params["playbook"])
    client_id, client_secret = stand_in().CLIENT
    console.environment |= {"AMADEUS_CLIENT_ID": client_id, "AMADEUS_CLIENT_SECRET": client_secret}
    if "postgres" in needs:
        console.environment["SHOP_DSN"] = request.getfixturevalue("shop_dsn")
        with psycopg.connect(console.environment["SHOP_DSN"], autocommit=True) as connection:
            connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            for statement in needs["postgres"]:
                connection.execute(statement)
    for child in needs.get("register", ()):
        console.noetl("register", str(EXAMPLES / child))
    return console


@pytest.mark.parametrize(("playbook", "run"), RUNS)
def test_an_example_gives_what_is_expected_of_it(
    prepared: Console, service: tuple[str, list[str]], playbook: str, run: dict[str, Any]
) -> None:
    url, asked = service
    command = ["run", str(GENERATIONS / playbook), *options(run, url), "--json"]
    if "signal" in run:
        exit_code, out, err = run_and_signal(prepared, command, run["signal"])
    else:
        done = prepared.finished(*command)
        exit_code, out, err = done.returncode, done.stdout, done.stderr
    assert out, err
    assert happened(run, exit_code, json.loads(out), asked) == demanded(run)


CANONICAL = {playbook: text for playbook in PLAYBOOKS if (text := in_canonical_form(playbook)) is not None}


@pytest.mark.parametrize(("playbook", "run"), [run for run in RUNS if run.values[0] in CANONICAL])
def test_an_example_that_migrates_gives_the_same_in_canonical_form(
    prepared: Console, service: tuple[str, list[str]], playbook: str, run: dict[str, Any]
) -> None:
    url, asked = service
    migrated = prepared.write("migrated.yaml", CANONICAL[playbook])
    done = prepared.finished("run", migrated, *options(run, url), "--json")
    assert done.stdout, done.stderr
    same = {name: value for name, value in run.items() if name not in ("vars", "steps")}
    assert happened(same, done.returncode, json.loads(done.stdout), asked) == demanded(same)


def run_and_signal(console: Console, command: list[str], sent: dict[str, Any]) -> tuple[int, str, str]:
    """Runs a playbook, and sends it a signal from another process when a step of it waits."""
    with console.followed(*command) as followed:
        execution_id = followed.wait_for("step.scheduled", step=sent["step"])["execution_id"]
        console.noetl("signal", execution_id, sent["name"], "--data", json.dumps(sent["data"]))
        return followed.ended()


def test_an_approval_that_comes_while_nothing_runs_is_found_after_the_restart(console: Console) -> None:
    sent = APPROVED["signal"]
    with console.followed("run", str(APPROVAL), "--json") as followed:
        execution_id = followed.wait_for("step.scheduled", step=sent["step"])["execution_id"]
        followed.send(signal.SIGKILL)
    console.noetl("signal", execution_id, sent["name"], "--data", json.dumps(sent["data"]))
    told = console.data("resume", execution_id)
    assert happened(APPROVED, 0, told, []) == demanded(APPROVED)


def test_other_news_does_not_approve_anything(console: Console) -> None:
    with console.followed("run", str(APPROVAL), "--json") as followed:
        execution_id = followed.wait_for("step.scheduled", step="wait_for_approval")["execution_id"]
        console.noetl(
            "signal", execution_id, "message.received", "--data", '{"type": "comment", "by": "bob"}'
        )
        followed.wait_for("signal.received")
        console.noetl(
            "signal", execution_id, "message.received", "--data", '{"type": "approval", "by": "ann"}'
        )
        _, out, _ = followed.ended()
    assert json.loads(out)["result"] == "ann approved 1200"


def test_an_approval_is_missed_after_a_day() -> None:
    run = play(APPROVAL, tools={"handle_timeout": "nobody"})
    assert (run.result, round(run.elapsed)) == ("nobody", 86_400)


def test_every_example_says_what_is_expected_of_it() -> None:
    told = {
        path.relative_to(GENERATIONS).with_suffix(".yaml").as_posix() for path in GENERATIONS.rglob("*.json")
    }
    assert told == set(PLAYBOOKS)
    for playbook in PLAYBOOKS:
        assert all({"exit", "status", "steps"} <= run.keys() for run in expectation(playbook)["runs"]), (
            playbook
        )
