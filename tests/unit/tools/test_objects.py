"""The kinds `object`, `s3` and `gcs`: what they take, and objects in the execution's folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from noetl.records.outcome import Outcome
from tests.unit.tools.local_context import LocalContext
from tests.unit.tools.s3_service import done, kind_of


def on_files(folder: Path, *steps: dict[str, Any]) -> list[Outcome]:
    """The outcomes of tasks of kind `object`, one after the other."""

    async def scenario() -> list[Outcome]:
        async with LocalContext(folder) as context:
            return [await done(context, "object", **step) for step in steps]

    return asyncio.run(scenario())


def test_a_value_comes_back_from_a_file_as_the_value_it_was(tmp_path: Path) -> None:
    put, back, text, head = on_files(
        tmp_path,
        {"operation": "put", "url": "file://reports/day.json", "body": {"rows": 12}},
        {"operation": "get", "url": "file://reports/day.json"},
        {"operation": "put", "url": "file://reports", "key": "note.txt", "body": "well"},
        {"operation": "head", "url": "file://reports/note.txt"},
    )
    assert put.result["url"] == "file://reports/day.json"
    assert put.result["size"] == put.groups["object"]["size"] == 11
    assert back.result == {"rows": 12}
    assert back.groups["object"] == {"size": 11, "etag": put.result["etag"], "truncated": None}
    assert text.result["size"] == 4
    assert head.result["name"] == "reports/note.txt"
    assert head.result["modified"].endswith("Z")
    assert (tmp_path / "execution" / "reports" / "note.txt").read_text() == "well"


def test_files_are_listed_by_how_their_names_begin(tmp_path: Path) -> None:
    names = ["reports/b.txt", "reports/a.txt", "reports/more/c.txt", "repair.txt", "other.txt"]
    puts: list[dict[str, Any]] = [
        {"operation": "put", "url": f"file://{name}", "body": "x"} for name in names
    ]
    lists: list[dict[str, Any]] = [
        {"operation": "list", "url": "file://reports/"},
        {"operation": "list", "url": "file://rep"},
        {"operation": "list", "url": "file://reports", "prefix": "more"},
        {"operation": "list", "url": f"file://{tmp_path.resolve()}/execution/reports", "limit": 2},
        {"operation": "list", "url": "file://nothing/here"},
    ]
    listed = on_files(tmp_path, *puts, *lists)[len(puts) :]
    assert [[each["name"] for each in outcome.result] for outcome in listed] == [
        ["reports/a.txt", "reports/b.txt", "reports/more/c.txt"],
        ["repair.txt", "reports/a.txt", "reports/b.txt", "reports/more/c.txt"],
        ["reports/more/c.txt"],
        ["reports/a.txt", "reports/b.txt"],
        [],
    ]
    assert [outcome.groups["object"]["truncated"] for outcome in listed] == [False] * 3 + [True, False]


def test_a_file_is_copied_and_deleted_and_deleting_it_again_is_no_failure(tmp_path: Path) -> None:
    outcomes = on_files(
        tmp_path,
        {"operation": "put", "url": "file://a.txt", "body": "x"},
        {"operation": "copy", "url": "file://a.txt", "to": "b/c.txt"},
        {"operation": "copy", "url": "file://b/c.txt", "to": "file://d.txt"},
        {"operation": "delete", "url": "file://a.txt"},
        {"operation": "delete", "url": "file://a.txt"},
        {"operation": "list", "url": "file://"},
    )
    assert [outcome.status for outcome in outcomes] == ["ok"] * 6
    assert outcomes[1].result["url"] == "file://b/c.txt"
    assert outcomes[3].result is None
    assert [each["name"] for each in outcomes[5].result] == ["b/c.txt", "d.txt"]


@pytest.mark.parametrize("operation", ["get", "put", "head", "list", "copy", "delete"])
def test_nothing_outside_the_execution_s_folder_is_touched(tmp_path: Path, operation: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("kept")
    (tmp_path / "execution").mkdir()
    (tmp_path / "execution" / "out").symlink_to(outside)
    more = {"put": {"body": "x"}, "copy": {"to": "mine.txt"}}.get(operation, {})
    urls = ("file:///etc/passwd", "file://../../etc/passwd", "file://out/secret", "file://a%2f..%2f../x")
    for outcome in on_files(tmp_path, *({"operation": operation, "url": url, **more} for url in urls)):
        assert kind_of(outcome) == ("config.invalid", False)
    assert (outside / "secret").read_text() == "kept"
    assert not (tmp_path / "execution" / "mine.txt").exists()


def test_a_link_inside_the_folder_that_leads_out_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("kept")
    (tmp_path / "execution").mkdir()
    (tmp_path / "execution" / "link").symlink_to(tmp_path / "secret")
    listed, copied = on_files(
        tmp_path,
        {"operation": "list", "url": "file://"},
        {"operation": "copy", "url": "file://link", "to": "mine.txt"},
    )
    assert listed.result == []
    assert kind_of(copied) == ("config.invalid", False)


def test_a_file_that_is_missing_or_is_a_folder_is_told(tmp_path: Path) -> None:
    outcomes = on_files(
        tmp_path,
        {"operation": "get", "url": "file://nothing.txt"},
        {"operation": "head", "url": "file://nothing.txt"},
        {"operation": "put", "url": "file://folder/x.txt", "body": "x"},
        {"operation": "put", "url": "file://folder", "body": "x"},
        {"operation": "put", "url": "file://y.txt", "file": "nothing.bin"},
        {"operation": "get", "url": "file://folder/x.txt", "file": "folder"},
    )
    assert kind_of(outcomes[0]) == kind_of(outcomes[1]) == ("object.missing", False)
    assert kind_of(outcomes[3]) == kind_of(outcomes[4]) == kind_of(outcomes[5]) == ("object.file", False)
    assert [each.name for each in (tmp_path / "execution").rglob("*") if each.is_file()] == ["x.txt"]


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"operation": "get", "url": "http://host/x"}, "`url`"),
        ({"operation": "get", "url": "reports/x"}, "`url`"),
        ({"operation": "get"}, "`url`"),
        ({"operation": "get", "url": "file://"}, "name is missing"),
        ({"operation": "put", "url": "file://x"}, "`body`"),
        ({"operation": "put", "url": "file://x", "body": "b", "file": "f"}, "not both"),
        ({"operation": "copy", "url": "file://x"}, "`to`"),
        ({"operation": "get", "url": "file://x", "limit": 3}, "`limit`"),
        ({"operation": "list", "url": "file://x", "limit": 0}, "`limit`"),
        ({"operation": "get", "url": "file://x\n"}, "control"),
        ({"operation": "get", "url": "s3://lake/a//b"}, "empty"),
        ({"operation": "get", "url": "s3://lake/../b"}, "`..`"),
        ({"operation": "get", "url": "s3://user@host/b"}, "bucket's name"),
        ({"operation": "get", "url": "s3://lake/b"}, "`auth` is missing"),
        ({"operation": "get", "url": "s3://lake/b", "auth": {"user": "x"}}, "`access_key_id`"),
        ({"operation": "get", "url": "gs://lake/b", "auth": {"user": "x"}}, "service account"),
        ({"operation": "get", "url": "gs://lake/b", "auth": "{no json"}, "not JSON"),
        (
            {
                "operation": "get",
                "url": "gs://lake/b",
                "auth": {"client_email": "a@b", "private_key": "bad-key", "endpoint": "http://127.0.0.1"},
            },
            "login",
        ),
        ({"operation": "get", "url": "s3://lake/b", "auth": {"endpoint": "ftp://x"}}, "`endpoint`"),
        ({"operation": "get", "url": "s3://lake/b", "auth": {"endpoint": "http://u:p@x"}}, "`auth`"),
        ({"operation": "get", "url": "s3://lake/b", "auth": {"region": "x/y"}}, "`region`"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_is_asked(
    tmp_path: Path, config: dict[str, Any], word: str
) -> None:
    (outcome,) = on_files(tmp_path, config)
    assert kind_of(outcome) == ("config.invalid", False)
    assert outcome.error is not None
    assert word in outcome.error.message


@pytest.mark.parametrize(
    ("kind", "config", "word"),
    [
        ("s3", {"url": "gs://lake/a"}, "`s3://…`"),
        ("s3", {"url": "file://a"}, "`s3://…`"),
        ("s3", {"key": "a"}, "`bucket`"),
        ("s3", {"url": "s3://lake/a", "bucket": "other"}, "two buckets"),
        ("s3", {"bucket": "la/ke", "key": "a"}, "bucket's name"),
        ("gcs", {"url": "s3://lake/a"}, "`gs://…`"),
        ("gcs", {"bucket": "lake", "key": "a", "auth": {}, "project": "a\nb"}, "`project`"),
    ],
)
def test_each_kind_takes_the_addresses_of_its_own_store(
    tmp_path: Path, kind: str, config: dict[str, Any], word: str
) -> None:
    async def scenario() -> Outcome:
        async with LocalContext(tmp_path) as context:
            return await done(context, kind, "get", **config)

    outcome = asyncio.run(scenario())
    assert kind_of(outcome) == ("config.invalid", False)
    assert outcome.error is not None
    assert word in outcome.error.message
