"""Keeps web pages from using a server that asks nobody for a token.

Such a server listens on this machine only, but a browser on it runs what any site sends: a page may send
requests anywhere, and a name of its own may lead to 127.0.0.1. So the request must be meant for a name of
this machine, and must not come from a page of another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from noetl.server.options import ServerOptions, is_loopback
from noetl.server.problems import ForbiddenError

SAME = frozenset({"same-origin", "none"})


def check_browser(headers: Mapping[str, str], options: ServerOptions) -> None:
    """ForbiddenError for a request that a page of another site may have sent."""
    host = headers.get("host", "")
    if is_loopback(options.host) and not is_loopback(_name(f"//{host}")):
        raise ForbiddenError(
            f"this server is not known as `{host[:100]}`: ask it by a name of its own machine"
        )
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        raise ForbiddenError("a page of another site may not use this server")
    if headers.get("sec-fetch-site", "none") not in SAME:
        raise ForbiddenError("a page of another site may not use this server")


def _name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
