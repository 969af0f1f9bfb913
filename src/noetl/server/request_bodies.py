"""Request bodies are read strictly, straight into the struct of their handler.

JSON says what is a number and what is a text, so nothing is guessed: `"1"` is no number and 0 is not false.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from litestar import Request
from litestar.enums import RequestEncodingType

from noetl.client.wire import FieldProblem
from noetl.server.problems import MalformedError, MediaTypeError, RequestError

PLACE: Final = re.compile(r"^(?P<message>.*?) - at `\$\.?(?P<field>.*)`$", re.S)

_DECODERS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}


class StrictRequest(Request[Any, Any, Any]):
    async def json(self) -> Any:  # noqa: ANN401 - the struct that the handler takes
        # A page of another site can send texts anywhere without being asked, JSON it cannot.
        if self.content_type[0] != RequestEncodingType.JSON:
            raise MediaTypeError("the body of this request is JSON: send it as `application/json`")
        field = self.route_handler.parsed_data_field
        kind = Any if field is None else field.annotation
        decoder = _DECODERS.get(kind)
        if decoder is None:
            decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
        try:
            return decoder.decode(await self.body() or b"null")
        except msgspec.ValidationError as error:
            raise RequestError("the request does not fit its schema", errors=(_problem(error),)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedError(f"the body is no JSON: {error}") from error


def _problem(error: msgspec.ValidationError) -> FieldProblem:
    found = PLACE.match(str(error))
    if found is None:
        return FieldProblem(message=str(error), source="body")
    return FieldProblem(message=found["message"], field=found["field"], source="body")
