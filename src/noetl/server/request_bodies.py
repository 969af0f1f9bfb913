"""Request bodies are read strictly, straight into the struct of their handler.

JSON says what is a number and what is a text, so nothing is guessed: `"1"` is no number and 0 is not false.
A key that stands twice is refused where people write the body: others may have read the first one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final

import msgspec
from litestar import Request
from litestar.enums import RequestEncodingType
from litestar.exceptions import InternalServerException

from noetl.client.wire import FieldProblem
from noetl.server.policies import Policy, policy_of
from noetl.server.problems import MalformedError, MediaTypeError, RequestError

PLACE: Final = re.compile(r"^(?P<message>.*?) - at `\$\.?(?P<field>.*)`$", re.S)

MOST_DEPTH: Final = 200
STRINGS: Final = re.compile(rb'"(?:[^"\\]+|\\.)*"')
OPENING: Final = b"[{"
NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))

_DECODERS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}


class StrictRequest(Request[Any, Any, Any]):
    async def body(self) -> bytes:
        try:
            return await super().body()
        except InternalServerException as gone:  # the library's word for a caller that hung up
            raise MalformedError("the body has not arrived whole") from gone

    async def json(self) -> Any:  # noqa: ANN401 - the struct that the handler takes
        # A page of another site can send texts anywhere without being asked, JSON it cannot.
        if self.content_type[0] != RequestEncodingType.JSON:
            raise MediaTypeError("the body of this request is JSON: send it as `application/json`")
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise MediaTypeError("the body of this request is sent as it is: without `Content-Encoding`")
        field = self.route_handler.parsed_data_field
        kind = Any if field is None else field.annotation
        decoder = _DECODERS.get(kind)
        if decoder is None:
            decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
        template = str(self.scope.get("path_template", self.scope["path"]))
        return read_strictly(decoder, await self.body(), policy_of(self.scope["method"], template))


def read_strictly(decoder: msgspec.json.Decoder[Any], body: bytes, policy: Policy | None) -> Any:  # noqa: ANN401
    """What the decoder makes of it; RequestError where it does not fit, MalformedError if it is no JSON."""
    # The bodies of workers are large, and written by one program.
    is_of_a_worker = policy is not None and policy.for_workers
    try:
        found = decoder.decode(body or b"null")
        if not is_of_a_worker:
            _check_depth(body)
            json.loads(body or b"null", object_pairs_hook=_unique)
    except msgspec.ValidationError as error:
        raise RequestError("the request does not fit its schema", errors=(_problem(error),)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"the body is no JSON: {error}") from error
    return found


def _check_depth(body: bytes) -> None:
    """Whatever handles the data later may go down into it by calling itself."""
    if body.count(b"[") + body.count(b"{") <= MOST_DEPTH:
        return
    depth = 0
    for mark in STRINGS.sub(b"", body).translate(None, NO_BRACKETS):
        depth += 1 if mark in OPENING else -1
        if depth > MOST_DEPTH:
            raise MalformedError(f"the body is nested more than {MOST_DEPTH} levels deep")


def _unique(pairs: list[tuple[str, object]]) -> None:
    """Keeps nothing: what the body says has been read already."""
    if len(pairs) > 1 and len({key for key, _ in pairs}) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise MalformedError(f"the key `{twice[:60]}` stands twice in one object")


def _problem(error: msgspec.ValidationError) -> FieldProblem:
    found = PLACE.match(str(error))
    if found is None:
        return FieldProblem(message=str(error), source="body")
    return FieldProblem(message=found["message"], field=found["field"], source="body")
