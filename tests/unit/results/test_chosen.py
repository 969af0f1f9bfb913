"""What `spec.result.store` may say, and what a process that lacks a store answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from noetl.records.result_ref import ResultRef
from noetl.results import object_urls
from noetl.results.bodies import FileBodies, ResultGoneError, ResultStoreError
from noetl.results.chosen import ChosenBodies, place_of


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (None, "auto"),
        ("auto", "auto"),
        ("database", "database"),
        ("nats_object", "nats_object"),
        ("s3://bucket/some/prefix", "s3://bucket/some/prefix"),
        ({"kind": "s3", "bucket": "b", "prefix": "/p/q/"}, "s3://b/p/q"),
        ({"kind": "gs", "bucket": "b"}, "gs://b"),
        ({"kind": "file", "prefix": "/var/results"}, "file:///var/results"),
        ({"kind": "database"}, "database"),
    ],
)
def test_a_store_is_a_name_a_url_or_a_mapping(written: object, meant: str) -> None:
    assert place_of(written) == meant


@pytest.mark.parametrize("written", ["tape", "ftp://a/b", 7, {"bucket": "b"}, {"kind": "s3"}])
def test_what_names_no_store_is_refused(written: object) -> None:
    with pytest.raises(ResultStoreError):
        place_of(written)


def test_a_store_that_the_process_lacks_is_named_with_a_hint(tmp_path: Path) -> None:
    bodies = ChosenBodies({"file": FileBodies(tmp_path)})
    with pytest.raises(ResultStoreError, match="--nats"):
        asyncio.run(bodies.put("1", b"", media_type="text/plain", store="nats_object"))


def test_without_a_wish_the_first_store_is_used_and_a_reference_finds_its_own(tmp_path: Path) -> None:
    bodies = ChosenBodies({"file": FileBodies(tmp_path / "own")})

    async def scenario() -> None:
        ours = await bodies.put("1", b"ours", media_type="text/plain", store="auto")
        shared = await bodies.put("1", b"shared", media_type="text/plain", store=f"file://{tmp_path}/shared")
        assert (ours.store, shared.store) == ("file", "file")
        assert (await bodies.get(ours), await bodies.get(shared)) == (b"ours", b"shared")

    asyncio.run(scenario())


@pytest.mark.parametrize("key", ["file:///x", "file://host/a/results/b", "file:///tmp/../../etc/1/results"])
def test_a_reference_whose_key_leads_nowhere_is_gone(tmp_path: Path, key: str) -> None:
    ref = ResultRef(ref="noetl://1/file/x", store="file", key=key, checksum="x", size=0)
    with pytest.raises((ResultGoneError, ResultStoreError)):
        asyncio.run(ChosenBodies({"file": FileBodies(tmp_path)}).get(ref))


def test_a_bucket_that_cannot_be_reached_is_an_error_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing listens there, and nothing is tried twice.
    for name, value in {
        "AWS_ENDPOINT": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "r",
    }.items():
        monkeypatch.setenv(name, value)
    pytest.importorskip("obstore")
    monkeypatch.setattr(object_urls, "RETRY_SECONDS", 0.05)
    with pytest.raises(ResultStoreError, match="s3://bucket"):
        asyncio.run(ChosenBodies({}).put("1", b"x", media_type="text/plain", store="s3://bucket/p"))
