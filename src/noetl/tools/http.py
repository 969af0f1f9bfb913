"""`http`: one HTTP request.

The fields stand here; what needs the client library is imported when the first task runs
(`http_exchange.py`), so that checking a playbook does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the other side of an `https` connection is checked, and how this side shows who it is."""

    verify: Annotated[bool, Meta(description="Whether the server's certificate is checked.")] = True
    ca: Annotated[
        str | None,
        Meta(description="The certificates to trust instead of the system's: PEM text, or a file."),
    ] = None
    cert: Annotated[str | None, Meta(description="The client's certificate: PEM text, or a file.")] = None
    key: Annotated[str | None, Meta(description="The client's private key: PEM text, or a file.")] = None


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True):
    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"],
        Meta(description="The request's method."),
    ] = "GET"
    url: Annotated[str | None, Meta(description="The address: `http` or `https`.")] = None
    endpoint: Annotated[str | None, Meta(description="The same as `url`.")] = None
    headers: Annotated[dict[str, Any] | None, Meta(description="Headers by name.")] = None
    params: Annotated[
        dict[str, Any] | None,
        Meta(description="Query parameters; a list repeats its name, null leaves it out."),
    ] = None
    body: Annotated[Any, Meta(description="What is sent: a text as it is, any other value as JSON.")] = None
    payload: Annotated[Any, Meta(description="The same as `body`.")] = None
    json: Annotated[Any, Meta(description="The same as `body`.")] = None
    data: Annotated[Any, Meta(description="The same as `body`.")] = None
    form: Annotated[
        dict[str, Any] | None,
        Meta(description="Fields of a form; sent as multipart if there are `files`, else URL-encoded."),
    ] = None
    files: Annotated[
        dict[str, Any] | None,
        Meta(description="Files of a form by field: a path, or `{content, filename, content_type}`."),
    ] = None
    auth: Auth = None
    redirects: Annotated[
        bool | int, Meta(description="Whether redirects are followed, or how many at most; true means 10.")
    ] = True
    tls: Annotated[Tls | None, Meta(description="Certificates of an `https` connection.")] = None


DESCRIPTION = ToolDescription(
    kind="http",
    summary="Sends one HTTP request; the result is the decoded body of the response.",
    config=HttpConfig,
    one_of=(("url", "endpoint"),),
    synonyms={"endpoint": "url", "payload": "body", "json": "body", "data": "body"},
    outcome_group="http",
    outcome_fields=("status", "headers", "request_id"),
    default_spec={"http": {"timeout": {"connect": 10, "read": 60}}},
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    from noetl.tools.http_exchange import exchange  # noqa: PLC0415 - aiohttp takes a fifth of a second

    return await exchange(call, context)
