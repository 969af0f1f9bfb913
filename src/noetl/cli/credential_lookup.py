"""Finds stored credentials for the keychain of a playbook that runs on a store.

Most playbooks name none, so what it takes to open one is imported when the first is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from noetl.cli.environment import variables
from noetl.errors import UsageError
from noetl.settings import Settings


def credential_lookup(
    url: str, settings: Settings
) -> Callable[[str], Coroutine[Any, Any, Mapping[str, Any]]]:
    """What gives the data of a credential in the store at `url`, with this machine's master keys."""

    async def lookup(name: str) -> Mapping[str, Any]:
        try:
            # An optional dependency, and a measured saving for playbooks that name no credential.
            from noetl.cli.credential_desk import stored_credentials  # noqa: PLC0415
            from noetl.cli.key_rings import found_keys  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            raise not_installed(missing) from missing
        keys = found_keys(settings, variables())
        async with stored_credentials(url, keys, create=False) as credentials:
            return await credentials.lookup(name)

    return lookup


def not_installed(missing: ModuleNotFoundError) -> UsageError:
    """What to say where a library that credentials need is missing; a bug of ours is raised as it is."""
    if missing.name is None or missing.name.startswith("noetl"):
        raise missing
    return UsageError(f"credentials need the library `{missing.name}`: pip install 'noetl[server]'")
