"""Every error as an RFC 9457 problem document with a stable code.

The table says which of our exceptions is which status; what is not in it is a fault of the server, told
without its inner words and written to the log with them.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from noetl.client.wire import FieldProblem, Problem
from noetl.errors import NoetlError
from noetl.playbook.diagnostics import Diagnostic

PROBLEM_TYPE: Final = "application/problem+json"
EVERY_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""What every answer has, good or bad."""
REQUEST_ID: Final = "noetl.request_id"
"""The key of the request's id in its scope."""

STATUS_OF: Final[dict[str, int]] = {
    "request.malformed": 400,
    "auth.missing": 401,
    "auth.invalid": 401,
    "auth.forbidden": 403,
    "credential.unknown": 404,
    "execution.unknown": 404,
    "playbook.unknown": 404,
    "playbook.too_deep": 409,
    "result.unknown": 404,
    "session.unknown": 404,
    "step.unknown": 404,
    "token.unknown": 404,
    "variable.unknown": 404,
    "credential.conflict": 409,
    "execution.over": 409,
    "execution.unfinished": 409,
    "lease.lost": 409,
    "retry.impossible": 409,
    "session.conflict": 409,
    "store.fenced": 409,
    "store.key_reused": 409,
    "execution.key_reused": 409,
    "result.damaged": 410,
    "result.gone": 410,
    "request.media_type": 415,
    "playbook.invalid": 422,
    "request.invalid": 422,
    "result.binary": 422,
    "result.reference": 422,
    "usage": 422,
    "worker.protocol": 426,
    "rate.exceeded": 429,
    "server.unavailable": 501,
    "nats.down": 503,
    "store.conflict": 503,
    "store.error": 503,
}
"""By code; see `INVALID` for families of them."""
INVALID: Final = frozenset(
    {"template", "keychain", "credential", "token", "session", "runtime", "secret", "execution"}
)
"""What else begins with one of these is a request that makes no sense."""

CODE_OF: Final[dict[int, str]] = {
    400: "request.malformed",
    401: "auth.missing",
    403: "auth.forbidden",
    404: "route.unknown",
    405: "method.unknown",
    408: "request.slow",
    413: "request.too_large",
    415: "request.media_type",
    422: "request.invalid",
    426: "worker.protocol",
    429: "rate.exceeded",
    431: "request.head_too_large",
    500: "server.fault",
}
"""The code of what the HTTP layer itself refuses."""

_log = structlog.get_logger("noetl.server")


class RequestError(NoetlError):
    """A request that the server refuses itself; every kind has its code."""

    code = "request.invalid"

    def __init__(
        self,
        message: str,
        *,
        headers: dict[str, str] | None = None,
        errors: tuple[FieldProblem, ...] = (),
        diagnostics: tuple[Diagnostic, ...] = (),
    ) -> None:
        super().__init__(message)
        self.headers = headers or {}
        self.errors = errors
        self.diagnostics = diagnostics


class MalformedError(RequestError):
    code = "request.malformed"


class MediaTypeError(RequestError):
    code = "request.media_type"


class MissingTokenError(RequestError):
    code = "auth.missing"


class InvalidTokenError(RequestError):
    code = "auth.invalid"


class ForbiddenError(RequestError):
    code = "auth.forbidden"


class RateExceededError(RequestError):
    code = "rate.exceeded"


class ProtocolError(RequestError):
    code = "worker.protocol"


class InvalidSourceError(RequestError):
    code = "playbook.invalid"


class UnknownPlaybookError(RequestError):
    code = "playbook.unknown"


class UnknownExecutionError(RequestError):
    code = "execution.unknown"


class UnknownStepError(RequestError):
    code = "step.unknown"


class UnfinishedError(RequestError):
    code = "execution.unfinished"


class UnknownVariableError(RequestError):
    code = "variable.unknown"


class UnknownResultError(RequestError):
    code = "result.unknown"


class UnknownSessionError(RequestError):
    code = "session.unknown"


class UnavailableError(RequestError):
    """A part of the API that this server was not set up for."""

    code = "server.unavailable"


def status_of(code: str) -> int:
    found = STATUS_OF.get(code)
    if found is not None:
        return found
    return 422 if code.partition(".")[0] in INVALID else 500


def problem_response(
    request: Request[Any, Any, Any], problem: Problem, headers: dict[str, str] | None = None
) -> Response[bytes]:
    instance = request.scope.get(REQUEST_ID)
    told = msgspec.structs.replace(problem, instance=None if instance is None else str(instance))
    return Response(
        msgspec.json.encode(told),
        status_code=problem.status,
        media_type=PROBLEM_TYPE,
        headers={**(headers or {}), **EVERY_HEADERS},
    )


def _of_ours(request: Request[Any, Any, Any], error: NoetlError) -> Response[bytes]:
    return problem_response(request, *_ours(error))


def _ours(error: NoetlError) -> tuple[Problem, dict[str, str]]:
    status = status_of(error.code)
    detail = error.message
    if status == 500:
        _log.error("request failed", code=error.code, error=error.message, exc_info=error)
        detail = "the server failed; its log says more"
    headers = dict(error.headers) if isinstance(error, RequestError) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 503:
        headers["Retry-After"] = "1"
    problem = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        code=error.code,
        detail=detail,
        errors=error.errors if isinstance(error, RequestError) else (),
        diagnostics=error.diagnostics if isinstance(error, RequestError) else (),
    )
    return problem, headers


def _of_http(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """What routing and parsing refuse. A request that parses and does not fit its schema is 422."""
    status = error.status_code
    found: list[Any] = error.extra if isinstance(error.extra, list) else []
    errors = tuple(
        FieldProblem(
            message=str(each.get("message", "")),
            field=each.get("key"),
            source=str(each.get("source") or "body"),
        )
        for each in found
        if isinstance(each, dict)
    )
    if status == 400 and errors:
        status = 422
    if status >= 500:
        _log.error("request failed", error=error.detail, exc_info=error)
    known = HTTPStatus(status) if status in HTTPStatus._value2member_map_ else HTTPStatus.BAD_REQUEST
    detail = "the request does not fit its schema" if errors else error.detail
    problem = Problem(
        title=known.phrase,
        status=status,
        code=CODE_OF.get(status, "request.malformed"),
        detail=detail if status < 500 else None,
        errors=errors,
    )
    return problem_response(request, problem, dict(error.headers or {}))


def _of_anything(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    return problem_response(request, _fault(error))


def _fault(error: Exception) -> Problem:
    _log.error("request failed", exc_info=error)
    return Problem(
        title="Internal Server Error",
        status=500,
        code="server.fault",
        detail="the server failed; its log says more",
    )


def told_of(error: Exception, request_id: object) -> tuple[Problem, dict[str, str]]:
    """The problem document of an error, and the headers that go with it."""
    problem, headers = _ours(error) if isinstance(error, NoetlError) else (_fault(error), {})
    instance = None if request_id is None else str(request_id)
    return msgspec.structs.replace(problem, instance=instance), headers


HANDLERS: Final[ExceptionHandlersMap] = {
    NoetlError: _of_ours,
    HTTPException: _of_http,
    Exception: _of_anything,
}
