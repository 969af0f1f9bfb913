"""The folder of a user's own settings, and files in it that nobody else may read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from noetl.errors import UsageError
from noetl.private_folders import make_private


def config_folder(environment: Mapping[str, str]) -> Path:
    """Where the user's contexts and keys lie."""
    given = environment.get("XDG_CONFIG_HOME")
    if given and os.path.isabs(given):
        return Path(given) / "noetl"
    home = environment.get("HOME")
    if not home:
        raise UsageError("HOME is not set, so there is no folder for contexts and keys: set XDG_CONFIG_HOME")
    return Path(home) / ".config" / "noetl"


def read_private(path: Path) -> bytes | None:
    """The content of a file; None where it is missing, UsageError where others can read it."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            if mode & 0o077:
                raise UsageError(
                    f"{path} holds secrets, and others can read it (mode {mode:04o}): `chmod 600 {path}`"
                )
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def write_private(path: Path, content: bytes) -> None:
    """Whole or not at all, and readable by its owner alone from the first byte on."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        make_private(path.parent)
        beside.unlink(missing_ok=True)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
