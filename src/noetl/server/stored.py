"""Result bodies over HTTP, and values with every stored part put back in its place."""

from __future__ import annotations

from typing import Annotated, Any, Final

from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import PathParameter

from noetl.records.result_ref import RESULT_REF
from noetl.server.parts import Given, Parts
from noetl.server.problems import UnknownResultError

SCHEME: Final = "noetl://"


async def whole(parts: Parts, value: Any) -> Any:  # noqa: ANN401 - plain data
    """The value with every reference in it replaced by what it stands for."""
    if isinstance(value, dict):
        if value.get("kind") == RESULT_REF and "ref" in value:
            return await whole(parts, await parts.control.stored_value(value))
        return {name: await whole(parts, item) for name, item in value.items()}
    if isinstance(value, list):
        return [await whole(parts, item) for item in value]
    return value


@get(
    "/api/results/{ref:path}",
    summary="The body of a stored result",
    responses={200: ResponseSpec(data_container=bytes, media_type="application/octet-stream")},
)
async def body(
    parts: Given, ref: Annotated[str, PathParameter(description="A reference without `noetl://`.")]
) -> Response[bytes]:
    row = await parts.store.body(SCHEME + ref.strip("/"))
    if row is None:
        raise UnknownResultError(f"there is no stored result {SCHEME}{ref.strip('/')[:200]}")
    return Response(row.body, media_type=row.media_type, headers={"ETag": f'"{row.checksum}"'})


HANDLERS: Final = (body,)
