"""What a failure of a bucket means, read from what the library says about it.

The library gives few classes of errors and long texts; in these stand the status and the error code of the
store's answer, which decide. The texts themselves are not passed on.
"""

from __future__ import annotations

import re
from typing import Any, Final

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from noetl.tools.call_failures import CallFailedError
from noetl.tools.object_gate import REFUSED

MISSING: Final = "object.missing"
DENIED: Final = "object.denied"
CONNECTION: Final = "object.connection"
UNAVAILABLE: Final = "object.unavailable"
ANSWER: Final = "object.refused"
ADDRESS: Final = "object.address_refused"
TLS: Final = "object.tls"
NO_BUCKET: Final = "NoSuchBucket"

_STATUS: Final = re.compile(r"\bStatus \{\s*status: (\d{3})\b")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,60})</Code>")
_OVERLOADED: Final = ("RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable")
_OUTDATED: Final = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
_BROKEN: Final = ("HttpError", "reqwest::Error", "hyper::Error", "hyper_util", "RetryError")


def bucket_failure(error: Exception, where: str) -> CallFailedError:
    """The failure that an error of the library is; `where` is the address of what was asked for."""
    text = str(error)
    status = int(found[1]) if (found := _STATUS.search(text)) else None
    code = found[1] if (found := _CODE.search(text)) else None
    if REFUSED in text or "TunnelUnsuccessful" in text or status == 407:
        return CallFailedError(
            ADDRESS,
            f"{where}: the store, or a redirect of it, leads to an address that tasks may not connect to",
        )
    details: dict[str, Any] = {
        name: value for name, value in (("status", status), ("code", code)) if value is not None
    }
    if status is not None:
        return _of_status(where, status, code, details)
    if isinstance(error, FileNotFoundError):
        return CallFailedError(MISSING, f"{where}: there is no such object", **details)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return CallFailedError(DENIED, f"{where}: a right is missing, or the login is refused", **details)
    return _of_text(where, text)


def _of_status(where: str, status: int, code: str | None, details: dict[str, Any]) -> CallFailedError:
    said = f"{where}: the store answered with status {status}" + (f" ({code})" if code else "")
    if code in _OUTDATED or status in (401, 403):
        return CallFailedError(DENIED, f"{said}: a right is missing, or the login is refused", **details)
    if code in _OVERLOADED or status in (408, 425, 429) or (status >= 500 and status not in (501, 505)):
        return CallFailedError(UNAVAILABLE, f"{said}: it cannot do this now", retryable=True, **details)
    if status == 404:
        what = "bucket" if code == NO_BUCKET else "object"
        return CallFailedError(MISSING, f"{where}: there is no such {what}", **details)
    return CallFailedError(ANSWER, said, **details)


def _of_text(where: str, text: str) -> CallFailedError:
    """Where no answer came, or none that can be read."""
    if "BareRedirect" in text:
        return CallFailedError(ANSWER, f"{where}: the bucket lies in another region: set `region`")
    if "TimedOut" in text or "kind: Timeout" in text:
        return CallFailedError("timeout", f"{where}: the store did not answer in time", retryable=True)
    if "InvalidCertificate" in text or "invalid peer certificate" in text:
        return CallFailedError(TLS, f"{where}: the store's certificate is not accepted")
    if any(word in text for word in _BROKEN):
        return CallFailedError(CONNECTION, f"{where}: there is no connection, or it broke", retryable=True)
    return CallFailedError(ANSWER, f"{where}: the answer of the store cannot be read")
