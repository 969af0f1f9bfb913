"""What an object's bytes are: data, text, or neither, by its media type and the ending of its name.

The decision is the one that `http` takes for the body of a response; a store that says nothing useful about
an object is helped by the object's name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, cast

from multidict import CIMultiDict, CIMultiDictProxy

from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.call_failures import CallFailedError
from noetl.tools.http_response import BodyError, BodyTooLargeError, Response, read_result
from noetl.tools.http_session import http_client
from noetl.tools.object_places import BYTES, Found, Pieces, type_by_ending

SAYS_NOTHING: Final = (BYTES, "binary/octet-stream", "")


async def value_of(found: Found, pieces: Pieces, where: str, call: ToolCall, context: ToolContext) -> object:
    """The object as a value, or the data of a reference to its stored body."""
    policy = (await http_client(context)).policy
    limit = policy.max_body_bytes
    too_large = CallFailedError(
        "object.too_large",
        f"{where} has more than {limit} bytes: give a `file` to write it to",
        limit=limit,
        size=found.size,
    )
    if found.size > limit:
        raise too_large
    try:
        return await read_result(cast(Response, _Body(found, pieces)), call, context, policy)
    except BodyTooLargeError:
        raise too_large from None
    except BodyError as mistake:
        failure = CallFailedError("object.content", f"{where}: {mistake}")
        failure.result = mistake.text
        raise failure from None


class _Body:
    """An object in the form of a response, as far as its body is read."""

    def __init__(self, found: Found, pieces: Pieces) -> None:
        self.headers = CIMultiDictProxy(_headers(found))
        self.content = self
        self._pieces = pieces

    def is_eof(self) -> bool:
        return False

    def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        return self._pieces


def _headers(found: Found) -> CIMultiDict[str]:
    declared = found.content_type or ""
    if found.is_encoded:
        declared = BYTES
    elif declared.partition(";")[0].strip().lower() in SAYS_NOTHING:
        declared = type_by_ending(found.name) or ""
    return CIMultiDict({"Content-Type": declared}) if declared else CIMultiDict()
