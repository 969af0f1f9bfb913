"""Bodies in files, in a folder where code of the execution can write too and may mean harm."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from noetl.records.result_ref import ResultRef
from noetl.results.bodies import FileBodies, ResultDamagedError, ResultGoneError, ResultStoreError


def put(folder: Path, body: bytes = b"body") -> ResultRef:
    return asyncio.run(FileBodies(folder).put("7", body, media_type="text/plain", store=None))


def test_a_link_in_the_place_of_the_results_leads_nothing_outside(tmp_path: Path) -> None:
    outside, execution = tmp_path / "outside", tmp_path / "files" / "7"
    outside.mkdir()
    execution.mkdir(parents=True)
    (execution / "results").symlink_to(outside)
    with pytest.raises(ResultStoreError):
        put(tmp_path / "files")
    assert list(outside.iterdir()) == []


def test_a_file_in_the_place_of_the_results_is_kept_and_told_of(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "results").write_text("mine")
    with pytest.raises(ResultStoreError, match="`results` of the execution's folder"):
        put(tmp_path)
    assert (tmp_path / "7" / "results").read_text() == "mine"


def _replaced_by_link(place: Path, outside: Path) -> None:
    outside.write_bytes(b"body")
    place.unlink()
    place.symlink_to(outside)


def _replaced_by_pipe(place: Path, _outside: Path) -> None:
    place.unlink()
    os.mkfifo(place)


def _results_elsewhere(place: Path, outside: Path) -> None:
    place.parent.rename(outside)
    place.parent.symlink_to(outside)


def _grown(place: Path, _outside: Path) -> None:
    os.truncate(place, 1 << 40)


def _changed(place: Path, _outside: Path) -> None:
    place.write_bytes(b"ydob")


@pytest.mark.parametrize(
    "harm",
    [_replaced_by_link, _replaced_by_pipe, _results_elsewhere, _grown, _changed],
    ids=lambda f: f.__name__,
)
def test_only_the_body_that_was_stored_is_ever_read(
    tmp_path: Path, harm: Callable[[Path, Path], None]
) -> None:
    bodies = FileBodies(tmp_path / "files")
    ref = put(tmp_path / "files")
    assert asyncio.run(bodies.get(ref)) == b"body"
    harm(tmp_path / "files" / ref.key, tmp_path / "outside")

    async def streamed() -> None:
        async for _ in bodies.stream(ref):
            pass

    for reading in (bodies.get(ref), streamed()):
        with pytest.raises((ResultGoneError, ResultDamagedError)):
            asyncio.run(reading)


@pytest.mark.parametrize("key", ["../x", "7/../x", "/etc/passwd", "7//x", "", "7/results/\0"])
def test_a_key_that_leads_out_of_the_folder_is_gone(tmp_path: Path, key: str) -> None:
    (tmp_path / "x").write_bytes(b"body")
    put(tmp_path / "files")
    ref = ResultRef(ref="noetl://7/file/x", store="file", key=key, checksum="x", size=4)
    with pytest.raises(ResultGoneError):
        asyncio.run(FileBodies(tmp_path / "files").get(ref))


def test_forgetting_takes_the_bodies_and_nothing_that_links_lead_to(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("a")
    bodies = FileBodies(tmp_path / "files")
    put(tmp_path / "files")
    other = tmp_path / "files" / "8"
    other.mkdir()
    (other / "results").symlink_to(outside)
    deep = tmp_path / "files" / "7" / "results"
    (deep / "link").symlink_to(outside)
    for _ in range(60):
        deep = deep / ("d" * 60)
        deep.mkdir()
    asyncio.run(bodies.forget(["7", "8", "9"]))
    assert [each.name for each in (tmp_path / "files" / "7" / "results").iterdir()] == ["d" * 60]
    assert (outside / "kept").exists()


def test_an_execution_whose_bodies_are_forgotten_leaves_no_folder(tmp_path: Path) -> None:
    bodies = FileBodies(tmp_path)
    put(tmp_path)
    assert asyncio.run(bodies.executions()) == ["7"]
    asyncio.run(bodies.forget(["7"]))
    assert list(tmp_path.iterdir()) == []
