"""The only reader of the environment: fills the settings of a process.

A variable that is set but cannot be used is a usage error that names it; an empty one counts as not set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from noetl.errors import UsageError
from noetl.settings import Settings

LIMITS: Final = {
    "NOETL_MAX_PLAYBOOK_BYTES": "max_playbook_bytes",
    "NOETL_MAX_PLAYBOOK_DEPTH": "max_playbook_depth",
    "NOETL_MAX_PLAYBOOK_NODES": "max_playbook_nodes",
    "NOETL_RETENTION_DAYS": "retention_days",
    "NOETL_STATEMENT_SECONDS": "statement_seconds",
}
"""The variable of each setting that is a limit."""
STORE: Final = "NOETL_STORE"
TEXTS: Final = {
    "NOETL_STATE": "state",
    "NOETL_SERVER": "server",
    "NOETL_TOKEN": "token",
    "NOETL_NATS": "nats",
    "NOETL_KEY_FILE": "key_file",
    "NOETL_KEYCHAIN_FOLDER": "keychain_folder",
    "NOETL_RESULT_STORES": "result_stores",
}
"""The variable of each setting that is a text."""
NETWORKS: Final = {
    "NOETL_ALLOW_ADDRESSES": "allow_addresses",
    "NOETL_DENY_ADDRESSES": "deny_addresses",
}
"""The variable of each setting that is a list of networks."""
INSECURE: Final = "NOETL_INSECURE"
YES: Final = ("1", "true", "yes")
NO: Final = ("0", "false", "no")

# A deeper document would need more of the C stack than the reader may count on.
LARGEST: Final = {
    "NOETL_MAX_PLAYBOOK_DEPTH": 1_000,
    "NOETL_RETENTION_DAYS": 36_500,
    "NOETL_STATEMENT_SECONDS": 3_600,
}
LARGEST_NUMBER: Final = 2**40


def settings_from_environment(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings; `environment` stands in for the real one in tests."""
    given = os.environ if environment is None else environment
    found: dict[str, Any] = {
        field: _limit(name, value) for name, field in LIMITS.items() if (value := given.get(name))
    }
    colour = False if given.get("NO_COLOR") else None
    found |= {field: value for name, field in TEXTS.items() if (value := given.get(name))}
    found |= {field: _networks(name, value) for name, field in NETWORKS.items() if (value := given.get(name))}
    settings = Settings(colour=colour, store=given.get(STORE) or Settings().store, insecure=_insecure(given))
    return settings._replace(**found)


def variables() -> Mapping[str, str]:
    """The variables a playbook's keychain may name."""
    return os.environ


def _insecure(given: Mapping[str, str]) -> bool | None:
    value = given.get(INSECURE, "").strip().lower()
    if value not in (*YES, *NO, ""):
        raise UsageError(f"{INSECURE} is yes or no, but it is {value!r}")
    return value in YES if value else None


def _networks(name: str, value: str) -> tuple[str, ...]:
    # Few set it, and every start of a command would pay for it.
    from ipaddress import ip_network  # noqa: PLC0415

    found = tuple(each.strip() for each in value.split(",") if each.strip())
    for each in found:
        try:
            ip_network(each, strict=False)
        except ValueError:
            raise UsageError(
                f"{name} is a list of networks such as 10.0.0.0/8,fd00::/8, but {each!r} is none"
            ) from None
    return found


def _limit(name: str, value: str) -> int:
    largest = LARGEST.get(name, LARGEST_NUMBER)
    text = value.strip().replace("_", "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    if not 1 <= number <= largest:
        raise UsageError(f"{name} must be a whole number from 1 to {largest}, but it is {value!r}")
    return number
