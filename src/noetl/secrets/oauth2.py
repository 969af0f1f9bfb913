"""Asks a token endpoint for a token by client credentials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from noetl.errors import NoetlError
from noetl.secrets.keychain import KeychainError

if TYPE_CHECKING:
    import aiohttp

SECONDS: Final = 30.0
MOST_BYTES: Final = 1 << 20
LASTS_BY_DEFAULT: Final = 300.0
"""What a token is taken to last whose endpoint does not say."""
FORM_FIELDS: Final = ("scope", "audience")


async def fetch_token(fields: Mapping[str, Any], connector: aiohttp.BaseConnector) -> tuple[str, float]:
    """The token and the seconds it lasts; KeychainError where the endpoint gives none.

    `connector` says where connections may go, and is closed.
    """
    # Only playbooks with such an entry need an HTTP client before their first step.
    import aiohttp  # noqa: PLC0415 - loading it takes longer than most start-ups

    form = {"grant_type": "client_credentials"}
    form |= {name: str(fields[name]) for name in FORM_FIELDS if fields.get(name)}
    identity = (str(fields["client_id"]), str(fields["client_secret"]))
    in_body = fields.get("client_auth") == "body"
    if in_body:
        form |= {"client_id": identity[0], "client_secret": identity[1]}
    headers = {} if in_body else {"Authorization": aiohttp.encode_basic_auth(*identity)}
    endpoint = str(fields["token_url"])
    try:
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=SECONDS),
            ) as session,
            session.post(endpoint, data=form, headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise KeychainError(f"the token endpoint answered with status {answer.status}")
            body = json.loads(await _limited(answer))
    except KeychainError:
        raise
    except NoetlError as error:  # of the connector
        raise KeychainError(f"the token endpoint cannot be asked: {error.message}") from error
    except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError) as error:
        # The exception's own text may hold the address with its query.
        raise KeychainError(f"the token endpoint cannot be asked: {type(error).__name__}") from error
    token = body.get("access_token") if isinstance(body, dict) else None
    if not isinstance(token, str) or not token:
        raise KeychainError("the token endpoint answered without an `access_token`")
    lasts = body.get("expires_in", LASTS_BY_DEFAULT)
    return token, float(lasts) if isinstance(lasts, int | float) else LASTS_BY_DEFAULT


async def _limited(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > MOST_BYTES:
            raise KeychainError(f"the token endpoint answered with more than {MOST_BYTES} bytes")
    return bytes(body)
