"""Values that references stand for: found wherever they are kept, whole, and never another one."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from noetl.control.bodies import MOST_ITERATIONS, StoredBodies
from noetl.engine.bodies import MANIFEST, parted
from noetl.engine.limits import reference
from noetl.engine.loops import LOG_STORE
from noetl.engine.state import Data
from noetl.errors import NoetlError
from noetl.store.memory import MemoryStore
from noetl.store.protocol import BodyRow


class LogStore(MemoryStore):
    """A store whose loops gave these results."""

    def __init__(self, results: list[tuple[int, Any]] | None = None) -> None:
        super().__init__()
        self._results = results or []

    async def iteration_results(self, execution_id: str, step_run_id: str) -> list[tuple[int, Any]]:
        return self._results if (execution_id, step_run_id) == ("7", "7.1") else []


def kept(store: MemoryStore, value: Any, **about: Any) -> Data:
    """The reference to a value, which is in the store from now on."""
    ref, stored = reference("7", value, msgspec.json.encode(value))
    row = BodyRow(
        key=stored.key,
        execution_id="7",
        media_type="application/json",
        checksum=stored.checksum,
        body=stored.body,
    )
    asyncio.run(store.put_body(row))
    return {**ref, **about}


def loaded(store: MemoryStore, ref: Data) -> Any:
    return asyncio.run(StoredBodies(store, None).load(ref))


def in_log(length: object) -> Data:
    return {"store": LOG_STORE, "ref": "noetl://7/7.1", "key": "7.1", "schema_hint": {"length": length}}


def test_a_stored_list_is_put_together_from_its_parts_those_that_are_lists_themselves_spread_out() -> None:
    store = MemoryStore()
    many, one = kept(store, [1, 2], spread=True), kept(store, [3])
    assert loaded(store, kept(store, [many, one, 4], **{MANIFEST: True})) == [1, 2, [3], 4]
    assert loaded(store, parted([many, one, 4])) == [1, 2, [3], 4]


def test_a_stored_mapping_is_whole_also_where_its_values_are_stored() -> None:
    store = MemoryStore()
    values = {"a": kept(store, "large"), "b": 2}
    assert loaded(store, kept(store, values, **{MANIFEST: True})) == {"a": "large", "b": 2}
    assert asyncio.run(StoredBodies(store, None).without_references(kept(store, values))) == {
        "a": "large",
        "b": 2,
    }


def test_a_value_that_looks_like_a_reference_and_was_stored_as_it_is_stays_as_it_is() -> None:
    store = MemoryStore()
    value = {"a": kept(store, "large")}
    assert loaded(store, kept(store, value)) == value


def test_a_body_that_is_gone_or_is_another_one_is_not_given() -> None:
    store = MemoryStore()
    gone = reference("7", "gone", b'"gone"')[0]
    with pytest.raises(NoetlError, match="is gone"):
        loaded(store, gone)
    with pytest.raises(NoetlError, match="checksum"):
        loaded(store, kept(store, "large", checksum="0" * 64))


def test_a_body_kept_elsewhere_is_loaded_by_whoever_can() -> None:
    async def elsewhere(ref: Data) -> Any:
        return f"from {ref['key']}"

    ref: Data = {"store": "file", "ref": "noetl://7/x", "key": "7/x"}
    assert asyncio.run(StoredBodies(MemoryStore(), elsewhere).load(ref)) == "from 7/x"
    with pytest.raises(NoetlError, match="nothing here can load"):
        loaded(MemoryStore(), ref)


def test_the_results_of_a_loop_come_from_its_log_in_their_places() -> None:
    store = LogStore()
    store._results = [(3, kept(store, "large")), (0, "first"), (1, None)]
    assert loaded(store, in_log(4)) == ["first", None, None, "large"]
    assert loaded(LogStore(), in_log(0)) == []


@pytest.mark.parametrize("length", [3, -1, MOST_ITERATIONS + 1, "4", None])
def test_a_reference_to_a_log_that_does_not_fit_it_is_refused(length: object) -> None:
    with pytest.raises(NoetlError, match="is no reference"):
        loaded(LogStore([(3, "last")]), in_log(length))
