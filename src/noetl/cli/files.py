"""Reading playbooks from files, folders and standard input, and writing what verbs produce.

Whatever the operating system refuses becomes a `UsageError` with one sentence; nothing else is caught here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Final

import msgspec

from noetl.errors import UsageError
from noetl.playbook.load import Loaded, load
from noetl.playbook.reader import ReadLimits
from noetl.settings import Settings
from noetl.tools.registry import builtin_kinds

STDIN: Final = "-"
# Enough to tell the size of any file a person would call a playbook, and bounded for /dev/zero.
MOST_BYTES_READ: Final = 64 * 1024 * 1024
PLAYBOOK_ENDINGS: Final = (".yaml", ".yml")
_PLAYBOOK_KEY: Final = re.compile(
    rb"""^[ \t{,"']*(?:workflow["']?[ \t]*:"""
    rb"""|kind["']?[ \t]*:[ \t]*["']?Playbook\b"""
    rb"""|apiVersion["']?[ \t]*:[ \t]*["']?noetl\.io/)""",
    re.MULTILINE,
)


def shown_name(path: str) -> str:
    """A path as text that every stream can take, whatever bytes the file system holds."""
    return "<stdin>" if path == STDIN else path.encode("utf-8", "backslashreplace").decode()


def read_bytes(path: str, settings: Settings) -> bytes:
    most = max(MOST_BYTES_READ, settings.max_playbook_bytes + 1)
    try:
        if path == STDIN:
            return sys.stdin.buffer.read(most)
        with open(path, "rb") as file:
            return file.read(most)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise UsageError(f"cannot read {shown_name(path)}: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, IsADirectoryError):
        return "it is a folder"
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)


def load_bytes(data: bytes, settings: Settings) -> Loaded:
    limits = ReadLimits(
        max_bytes=settings.max_playbook_bytes,
        max_depth=settings.max_playbook_depth,
        max_nodes=settings.max_playbook_nodes,
    )
    return load(data, builtin_kinds(), limits)


def load_file(path: str, settings: Settings) -> Loaded:
    return load_bytes(read_bytes(path, settings), settings)


def playbooks_below(folder: str, settings: Settings) -> Iterator[str | UsageError]:
    """The playbooks in a folder, sorted, without hidden folders; an error for what cannot be read."""
    refused: list[UsageError] = []

    def refuse(error: OSError) -> None:
        refused.append(UsageError(f"cannot read {shown_name(str(error.filename))}: {_reason(error)}"))

    for where, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.lower().endswith(PLAYBOOK_ENDINGS):
                continue
            path = os.path.join(where, name)
            if os.path.exists(path) and not os.path.isfile(path):
                continue  # reading a pipe or a device would wait for its other end
            try:
                if looks_like_a_playbook(read_bytes(path, settings)):
                    yield path
            except UsageError as error:
                yield error
    yield from refused


def looks_like_a_playbook(data: bytes) -> bool:
    """Whether a YAML file, broken or not, is meant for us: it has a key that only playbooks have."""
    # A file in UTF-16 is ASCII with NULs in between; it gets its diagnostic, so it must be recognised.
    text = data.replace(b"\0", b"") if b"\0" in data[:64] else data
    return _PLAYBOOK_KEY.search(text) is not None


def write_text(path: str | None, text: str) -> None:
    """To a file as UTF-8, or to standard output."""
    if path is None or path == STDIN:
        sys.stdout.write(text)
        return
    try:
        with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {shown_name(path)}: {_reason(error)}") from error


def write_json(document: object) -> None:
    """One JSON document to standard output; JSON is UTF-8 whatever the terminal's encoding."""
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    sys.stdout.buffer.flush()
