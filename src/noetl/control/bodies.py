"""Loads the values that references stand for, wherever they are kept."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from noetl.engine.bodies import MANIFEST, PARTS_STORE, is_ref
from noetl.engine.loops import LOG_STORE
from noetl.engine.state import Data
from noetl.errors import NoetlError
from noetl.records.result_ref import ref_from_data
from noetl.store.protocol import Store

MOST_ITERATIONS: Final = 10_000_000
"""A list that long is no loop of ours: the reference comes from elsewhere."""

LoadStored = Callable[[Data], Awaitable[Any]]


class StoredBodies:
    def __init__(self, store: Store, load_stored: LoadStored | None) -> None:
        """`load_stored` gives bodies that are kept outside the database."""
        self._store = store
        self._load_stored = load_stored

    async def load(self, ref: Data) -> Any:  # noqa: ANN401 - plain data
        """The value a reference stands for, checked against its checksum."""
        if not _is_whole(ref):
            raise NoetlError("this is no reference to a stored result")
        if ref["store"] == LOG_STORE:
            return await self._from_log(ref)
        if ref["store"] == PARTS_STORE:
            return await self._from_parts(ref["parts"])
        if ref["store"] == "database":
            row = await self._store.body(ref["key"])
            if row is None:
                raise NoetlError(f"the stored result {ref['ref']} is gone")
            if hashlib.sha256(row.body).hexdigest() != ref["checksum"]:
                raise NoetlError(f"the stored result {ref['ref']} does not have its checksum")
            body = msgspec.json.decode(row.body)
            return await self.without_references(body) if ref.get(MANIFEST) else body
        if self._load_stored is None:
            raise NoetlError(f"nothing here can load the stored result {ref['ref']}")
        return await self._load_stored(ref)

    async def _from_log(self, ref: Data) -> list[Any]:
        # A result taken over from an earlier execution lies in that one's log.
        execution_id = ref["ref"].removeprefix("noetl://").partition("/")[0]
        found = await self._store.iteration_results(execution_id, ref["key"])
        length = (ref.get("schema_hint") or {}).get("length")
        if not isinstance(length, int) or not 0 <= length <= MOST_ITERATIONS:
            raise NoetlError(f"{ref['ref']} is no reference to the results of a loop")
        results: list[Any] = [None] * length
        for index, result in found:
            if index >= length:
                raise NoetlError(f"{ref['ref']} is no reference to the results of that loop")
            results[index] = result if ref_from_data(result) is None else await self.load(result)
        return results

    async def without_references(self, values: Any) -> Any:  # noqa: ANN401 - plain data
        """A list or a mapping, with what its references, or the one that stands for it, stand for."""
        if is_ref(values):
            return await self.without_references(await self.load(values))
        if isinstance(values, list):
            return await self._from_parts(values)
        return {name: await self.load(part) if is_ref(part) else part for name, part in values.items()}

    async def _from_parts(self, parts: list[Any]) -> list[Any]:
        whole: list[Any] = []
        for part in parts:
            if not is_ref(part):
                whole.append(part)
            elif part.get("spread"):
                whole.extend(await self.load(part))
            else:
                whole.append(await self.load(part))
        return whole


def _is_whole(ref: Data) -> bool:
    if ref.get("store") == PARTS_STORE:
        return isinstance(ref.get("parts"), list)
    needed = ["ref", "store", "key", *(["checksum"] if ref.get("store") == "database" else [])]
    return all(isinstance(ref.get(name), str) for name in needed)
