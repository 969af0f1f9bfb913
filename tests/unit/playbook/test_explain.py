"""Playbooks told in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.playbook.explain import WIDTH, explain
from noetl.playbook.load import load
from noetl.playbook.model import Backoff, Retry
from noetl.playbook.narration import retry_sentence
from noetl.playbook.wording import duration_text, waits_text
from noetl.tools.registry import builtin_kinds
from tests.golden.compare import EXAMPLES, PLAYBOOKS, assert_golden

EXPLAINED = [*sorted(EXAMPLES.glob("*.yaml")), PLAYBOOKS / "v1_cities.yaml", PLAYBOOKS / "v2_order.yaml"]
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: told}\n"


def told(source: str | Path) -> str:
    data = source.read_bytes() if isinstance(source, Path) else source.encode()
    loaded = load(data, builtin_kinds())
    assert loaded.playbook is not None, loaded.diagnostics
    return explain(loaded.playbook)


def as_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("file", EXPLAINED, ids=lambda file: file.stem)
def test_a_playbook_is_explained_as_it_was_agreed(file: Path) -> None:
    assert_golden(f"explain/{file.stem}.txt", told(file))


@pytest.mark.parametrize("file", EXPLAINED, ids=lambda file: file.stem)
def test_an_explanation_fits_a_page(file: Path) -> None:
    assert all(len(line) <= WIDTH for line in told(file).splitlines() if " " in line.strip())


def test_each_secret_is_told_with_where_it_is_found() -> None:
    text = told(
        HEAD
        + "keychain:\n"
        + "  - {name: TOKEN, kind: env}\n"
        + "  - {name: key, kind: api_key, path: secret.txt}\n"
        + "  - {name: db, kind: postgres_credential, credential: pg_main}\n"
        + "  - {name: vault, kind: secret_manager, provider: vault, secret: app/x}\n"
        + "workflow:\n  - {step: start, tool: {kind: noop}}\n"
    )
    assert "TOKEN: the environment variable TOKEN" in text
    assert "key: an API key, from the file secret.txt" in text
    assert "db: the stored PostgreSQL credential pg_main" in text
    assert "vault: the secret app/x in vault" in text


def test_other_playbooks_and_stored_credentials_are_named_at_the_top() -> None:
    text = told(
        HEAD
        + "workflow:\n  - step: start\n    tool:\n"
        + "      - child: {kind: playbook, path: team/child}\n"
        + "      - rows: {kind: postgres, auth: pg_main, query: SELECT 1}\n"
    )
    assert "Other playbooks, which must be registered: `team/child`." in text
    assert "Stored credentials that its tools name: `pg_main`." in text


def test_admission_and_joins_are_told_before_the_work() -> None:
    text = as_one_line(told(EXAMPLES / "nightly_report.yaml"))
    assert "If `args.regions | length > 0`, it is let in." in text
    assert "Otherwise, the step is skipped and nothing follows from it." in text
    assert "It waits for every one of `credit`, `stock` and `customs` that can still arrive" in as_one_line(
        told(EXAMPLES / "fan_out_join.yaml")
    )


def test_a_step_that_nothing_leads_to_is_said_never_to_run() -> None:
    text = told(
        HEAD + "workflow:\n  - {step: start, tool: {kind: noop}}\n  - {step: lost, tool: {kind: noop}}\n"
    )
    assert "Nothing leads here, so it never runs." in text


def test_a_failure_that_is_ignored_is_told() -> None:
    text = told(HEAD + "workflow:\n  - {step: start, spec: {on_error: ignore}, tool: {kind: noop}}\n")
    assert "the failure is ignored" in as_one_line(text)


@pytest.mark.parametrize(
    ("backoff", "attempts", "words"),
    [
        (Backoff(kind="exponential", delay=1.0), 5, "waiting 1 s, 2 s, 4 s …"),
        (Backoff(kind="exponential", delay=1.0), 3, "waiting 1 s, 2 s"),
        (Backoff(kind="exponential", delay=0.25, max_delay=0.4), 4, "waiting 250 ms, 400 ms, at most 400 ms"),
        (Backoff(kind="linear", delay=60.0), 4, "waiting 1 min, 2 min, 3 min"),
        (Backoff(kind="none", delay=2.0), 9, "waiting 2 s before each"),
        (Backoff(kind="none", delay=2.0, jitter=True), 9, "waiting about 2 s before each"),
        (Backoff(), 3, "without waiting in between"),
    ],
)
def test_the_waits_between_attempts_are_told_as_they_will_be(
    backoff: Backoff, attempts: int, words: str
) -> None:
    assert waits_text(backoff, attempts) == words


def test_a_retry_names_its_causes() -> None:
    assert retry_sentence(Retry(on=(502, 503), max_attempts=2)).startswith(
        "On status 502, 503, it is tried again"
    )
    assert retry_sentence(Retry(scope="chain")).startswith("If it fails, the whole chain is run again")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 s"), (0.25, "250 ms"), (1.5, "1.5 s"), (59.0, "59 s"), (90.0, "1 min 30 s"), (86_400.0, "1 d")],
)
def test_durations_are_told_in_units_people_use(seconds: float, words: str) -> None:
    assert duration_text(seconds) == words
