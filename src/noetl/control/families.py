"""Which executions share values: those that call one another, and those that run an earlier one again."""

from __future__ import annotations

from typing import Any, Final

from noetl.engine.bodies import PARTS_STORE, is_ref
from noetl.errors import NoetlError
from noetl.store.protocol import Store

SCHEME: Final = "noetl://"
MOST_RELATED: Final = 500
"""Callers and earlier runs that are looked at; nobody has that many."""


class NotTheirsError(NoetlError):
    """A stored result that an execution has nothing to do with, or that is none."""

    code = "result.unknown"


def owners_of(ref: Any) -> set[str]:  # noqa: ANN401 - what somebody says is a reference
    """The executions whose values a reference stands for; NotTheirsError where it is none."""
    if not is_ref(ref) or not isinstance(ref["ref"], str):
        raise NotTheirsError("this is no reference to a stored result")
    if ref.get("store") == PARTS_STORE:
        parts = ref.get("parts")
        if not isinstance(parts, list):
            raise NotTheirsError("this is no reference to the parts of a result")
        return {owner for part in parts if is_ref(part) for owner in owners_of(part)}
    names = [ref["ref"], *(key for key in (ref.get("key"),) if str(key).startswith(SCHEME))]
    return {str(name).removeprefix(SCHEME).partition("/")[0] for name in names}


class Families:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def share(self, one: str, other: str) -> bool:
        """Whether values of the other execution may have come into the one."""
        theirs = {other, *await self._callers(other)}
        waiting, seen = [one], set[str]()
        while waiting and len(seen) < MOST_RELATED:
            execution_id = waiting.pop()
            if execution_id in theirs:
                return True
            seen.add(execution_id)
            waiting += [each for each in await self._before(execution_id) if each not in seen]
        return False

    async def _callers(self, execution_id: str) -> list[str]:
        found: list[str] = []
        while len(found) < MOST_RELATED:
            row = await self._store.execution(execution_id)
            if row is None or row.parent_execution_id is None:
                break
            execution_id = row.parent_execution_id
            found.append(execution_id)
        return found

    async def _before(self, execution_id: str) -> list[str]:
        """The execution that called one, and the one it runs again."""
        row = await self._store.execution(execution_id)
        if row is None:
            return []
        first = await self._store.events(execution_id, 0, limit=1)
        origin = first[0].payload.get("origin") if first else None
        return [each for each in (row.parent_execution_id, (origin or {}).get("execution_id")) if each]
