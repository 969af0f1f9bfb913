"""The API described: an OpenAPI document made from the handlers, and a page that shows it without a network.

What is generated says nothing of errors in our form, and leaves fields that hold any JSON value without a
type; both are put right here, so that only `payload`, `result` and `ctx` are open.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec
from litestar import Litestar, Response, get
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec

from noetl import __version__
from noetl.client.wire import Problem
from noetl.server.policies import KNOWN, PUBLIC, policy_of
from noetl.server.problems import PROBLEM_TYPE

Data: TypeAlias = dict[str, Any]

OPEN_FIELDS: Final = frozenset({"payload", "result", "ctx"})
"""What holds users' own data, as they made it."""
ANY_VALUE: Final = "AnyValue"
ANY_REF: Final = {"$ref": f"#/components/schemas/{ANY_VALUE}"}
PROBLEM_REF: Final = {"$ref": "#/components/schemas/Problem"}
RAW_BODIES: Final = frozenset({("POST", "/api/commands/{command_id}/bodies")})
"""Routes that take bytes as they are."""
NAMES: Final = {
    400: "The request cannot be read.",
    401: "No token, or one that does not hold.",
    403: "The token's role does not allow it.",
    404: "There is no such thing.",
    409: "It cannot be done as things stand, or the lease is over.",
    413: "The body is too large.",
    422: "The request does not fit its schema, or makes no sense.",
    426: "Worker and server are too far apart in version.",
    429: "Too many requests; `Retry-After` says when to go on.",
    501: "This server was not set up for it.",
    503: "The server or its store is away for a moment.",
}


def description(handlers: Sequence[BaseRouteHandler]) -> Data:
    """The OpenAPI document of these handlers."""
    config = OpenAPIConfig(title="NoETL", version=__version__, use_handler_docstrings=True)
    made = Litestar(
        route_handlers=list(handlers),
        dependencies={name: Provide(_nothing(name), sync_to_thread=False) for name in ("parts", "caller")},
        openapi_config=config,
        logging_config=None,
    )
    # Through JSON, so that what is changed below is nobody else's.
    document: Data = msgspec.json.decode(msgspec.json.encode(made.openapi_schema.to_schema()))
    document["paths"] = {
        path: found for path, found in document["paths"].items() if not path.startswith("/schema")
    }
    schemas: Data = document.setdefault("components", {}).setdefault("schemas", {})
    _, problems = msgspec.json.schema_components([Problem], ref_template="#/components/schemas/{name}")
    for schema in list(schemas.values()):
        _close(schema)
    schemas |= {name: schema for name, schema in problems.items() if name not in schemas}
    schemas[ANY_VALUE] = _any_value()
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(operation, method.upper(), path)
    return document


def _nothing(name: str) -> Callable[[], str]:
    """Stands for a dependency: only its being there matters where nothing is called."""
    return lambda: name


def _any_value() -> Data:
    kinds: list[Data] = [{"type": kind} for kind in ("null", "boolean", "number", "string")]
    kinds.append({"type": "array", "items": ANY_REF})
    kinds.append({"type": "object", "additionalProperties": ANY_REF})
    return {"title": ANY_VALUE, "description": "Any JSON value.", "anyOf": kinds}


def _close(schema: Data) -> None:
    """Gives every part without a type the type it has: any JSON value."""
    for name, part in schema.get("properties", {}).items():
        if name not in OPEN_FIELDS:
            schema["properties"][name] = _closed(part)


def _closed(part: Any) -> Any:  # noqa: ANN401 - a schema
    if not isinstance(part, dict):
        return part
    typed = {"type", "$ref", "oneOf", "anyOf", "allOf", "enum", "const"} & part.keys()
    if not typed:
        return ANY_REF | {name: text for name, text in part.items() if name == "description"}
    closed = dict(part)
    if closed.get("type") == "object" and "properties" not in closed:
        inner = closed.get("additionalProperties")
        closed["additionalProperties"] = ANY_REF if inner in (None, True, {}) else _closed(inner)
    for group in ("oneOf", "anyOf", "allOf"):
        if group in closed:
            closed[group] = [_closed(each) for each in closed[group]]
    if "items" in closed:
        closed["items"] = _closed(closed["items"])
    return closed


def _complete(operation: Data, method: str, path: str) -> None:
    """Adds who may call it and how it can fail."""
    policy = policy_of(method, path)
    statuses = {400, 422, 503}
    if policy is not None and policy.permission != PUBLIC:
        statuses |= {401, 403, 429}
        operation["security"] = [{"token": []}]
        if policy.permission != KNOWN:
            operation["x-permission"] = policy.permission
        if policy.for_workers:
            statuses |= {409, 426}
    if "{" in path or method == "POST":
        statuses |= {404, 409}
    if method in ("POST", "PUT"):
        statuses.add(413)
    if (method, path) in RAW_BODIES:
        body = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": body}
    content = {PROBLEM_TYPE: {"schema": PROBLEM_REF}}
    responses: Data = operation.setdefault("responses", {})
    responses.pop("400", None)
    for status in sorted(statuses):
        responses.setdefault(str(status), {"description": NAMES[status], "content": content})
    responses["default"] = {"description": "Any other failure.", "content": content}
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _closed(parameter.get("schema", {}))
    for response in responses.values():
        for media in response.get("content", {}).values():
            media["schema"] = _closed(media.get("schema", {}))


def description_handlers(handlers: Sequence[BaseRouteHandler]) -> tuple[BaseRouteHandler, ...]:
    """The routes that show the description of these handlers, and of themselves."""

    @cache
    def document() -> Data:
        return description([*handlers, openapi, docs])

    @get(
        "/api/openapi.json",
        summary="This API as an OpenAPI document",
        responses={200: ResponseSpec(data_container=Any, media_type="application/json")},
    )
    async def openapi() -> Response[bytes]:
        return Response(msgspec.json.encode(document()), media_type="application/json")

    @get(
        "/api/docs",
        summary="This API as a page to read",
        responses={200: ResponseSpec(data_container=str, media_type="text/html")},
    )
    async def docs() -> Response[str]:
        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return Response(page(document()), media_type="text/html", headers=headers)

    return (openapi, docs)


# --- the page -------------------------------------------------------------------------------------------

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font:14px ui-monospace,monospace}h2{margin-top:2.5rem}"
    "details{border:1px solid #8884;border-radius:6px;padding:.5rem 1rem;margin:.5rem 0}"
    "summary{cursor:pointer}b{display:inline-block;min-width:4.5rem}pre{overflow:auto}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}"
)


def page(document: Data) -> str:
    """The document for people: routes by topic, each with its parameters and bodies."""
    by_topic: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        topic = path.removeprefix("/api/").split("/")[0].strip("/")
        for method, operation in operations.items():
            by_topic.setdefault(topic, []).append(_shown(method.upper(), path, operation))
    body = "".join(
        f"<h2>{html.escape(topic)}</h2>{''.join(routes)}" for topic, routes in sorted(by_topic.items())
    )
    schemas = "".join(
        f"<details id='{html.escape(name)}'><summary><code>{html.escape(name)}</code></summary>"
        f"<pre>{html.escape(_pretty(schema))}</pre></details>"
        for name, schema in sorted(document["components"]["schemas"].items())
    )
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>NoETL API</title>"
        f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style></head><body>"
        f"<h1>NoETL API {html.escape(document['info']['version'])}</h1>"
        f"<p>Every error is a problem document with a stable <code>code</code>. The same as JSON: "
        f"<a href='openapi.json'>openapi.json</a>.</p>{body}<h2>schemas</h2>{schemas}</body></html>"
    )


def _shown(method: str, path: str, operation: Data) -> str:
    told = {
        name: operation[name]
        for name in ("description", "x-permission", "parameters", "requestBody", "responses")
        if name in operation
    }
    return (
        f"<details><summary><b>{method}</b> <code>{html.escape(path)}</code> "
        f"{html.escape(operation.get('summary', ''))}</summary>"
        f"<pre>{html.escape(_pretty(told))}</pre></details>"
    )


def _pretty(data: object) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
