"""Where this machine's master keys are: NOETL_KEYS, the file NOETL_KEY_FILE names, or the user's own file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from noetl.cli.private_files import config_folder
from noetl.errors import UsageError
from noetl.secrets.encryption import KeyRing, KeyRingError, MasterKey, ring_of
from noetl.secrets.key_file import add_key, read_key_file
from noetl.settings import Settings

KEYS: Final = "NOETL_KEYS"
FILE: Final = "keys"


def key_path(settings: Settings, environment: Mapping[str, str]) -> Path:
    return Path(settings.key_file) if settings.key_file else config_folder(environment) / FILE


def found_keys(settings: Settings, environment: Mapping[str, str]) -> KeyRing:
    """The key ring; KeyRingError says what is missing or wrong."""
    text = environment.get(KEYS)
    if not text:
        return read_key_file(key_path(settings, environment))
    try:
        return ring_of(text)
    except KeyRingError as wrong:
        raise KeyRingError(f"{KEYS}: {wrong.message}") from wrong


def with_key_added(settings: Settings, environment: Mapping[str, str]) -> tuple[KeyRing, Path]:
    """The ring with a new current key, and the file it was written to."""
    if environment.get(KEYS):
        raise UsageError(
            f"the keys come from {KEYS}, which a command cannot change: put the next key first there, and "
            "rotate without --add-key"
        )
    path = key_path(settings, environment)
    return add_key(path, MasterKey.random()), path
