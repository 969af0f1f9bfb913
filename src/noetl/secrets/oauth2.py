"""Asks a token endpoint for a token by client credentials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl.secrets.keychain import KeychainError

SECONDS: Final = 30.0
LASTS_BY_DEFAULT: Final = 300.0
"""What a token is taken to last whose endpoint does not say."""
FORM_FIELDS: Final = ("scope", "audience")


async def fetch_token(fields: Mapping[str, Any]) -> tuple[str, float]:
    """The token and the seconds it lasts; KeychainError where the endpoint gives none."""
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
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as session,
            session.post(endpoint, data=form, headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise KeychainError(f"the token endpoint answered with status {answer.status}")
            body = await answer.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        # The exception's own text may hold the address with its query.
        raise KeychainError(f"the token endpoint cannot be asked: {type(error).__name__}") from error
    token = body.get("access_token") if isinstance(body, dict) else None
    if not isinstance(token, str) or not token:
        raise KeychainError("the token endpoint answered without an `access_token`")
    lasts = body.get("expires_in", LASTS_BY_DEFAULT)
    return token, float(lasts) if isinstance(lasts, int | float) else LASTS_BY_DEFAULT
