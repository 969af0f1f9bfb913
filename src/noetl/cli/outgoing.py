"""Where processes of this machine may connect to for playbooks, as its operator has set it.

Most playbooks connect to nothing before their first task, so whatever makes connections is imported when it
is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl.secrets.keychain import FetchToken
from noetl.secrets.oauth2 import fetch_token
from noetl.settings import Settings


def token_fetcher(settings: Settings) -> FetchToken:
    """Asks token endpoints at addresses that may be connected to: a playbook names them."""

    async def fetch(fields: Mapping[str, Any]) -> tuple[str, float]:
        from noetl.tools.addresses import AddressPolicy  # noqa: PLC0415 - see above
        from noetl.tools.http_session import judged_connector  # noqa: PLC0415 - see above

        policy = AddressPolicy(allow=settings.allow_addresses, deny=settings.deny_addresses)
        return await fetch_token(fields, judged_connector(policy))

    return fetch


def shared_policy(settings: Settings) -> dict[str, object]:
    """What the tools of a worker share of it; nothing where all is as by default."""
    if not settings.allow_addresses and not settings.deny_addresses:
        return {}
    from noetl.tools.addresses import POLICY_KEY, AddressPolicy  # noqa: PLC0415 - see above

    return {POLICY_KEY: AddressPolicy(allow=settings.allow_addresses, deny=settings.deny_addresses)}
