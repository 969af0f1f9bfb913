"""Which executions a list is to have, and the query that finds them.

The text of a query is put together from the named pieces of a store's own file, by what is asked for, so that
each kind of list is found by an index, however many executions there are. Nothing here knows a database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.store.protocol import ListOrder

NARROWS: Final = ("status", "path", "parent", "since", "before")


def list_query(
    pieces: Mapping[str, str], wanted: Mapping[str, object], order: ListOrder, *, by_time: bool
) -> str:
    """The query of a list; `wanted` has None for what does not narrow it.

    `by_time`: from a moment on, so that it goes by when executions were asked for, not by when they came in.
    """
    past, direction = ("<", "DESC") if order == "newest" else (">", "ASC")
    way = "by_time" if by_time else "by_number"
    filters = []
    for name in NARROWS:
        if wanted[name] is not None:
            piece = pieces[f"listed_{name}_{way}" if name == "before" else f"listed_{name}"]
            filters.append(piece.replace("<past>", past))
    query = pieces[f"listed_{way}"].replace("<direction>", direction)
    return query.replace("<filters>", " AND ".join(filters) or "TRUE")
