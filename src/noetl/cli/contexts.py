"""Named servers with their tokens, in a file of the user's own; which of them commands go to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from noetl.cli.private_files import config_folder, read_private, write_private
from noetl.errors import UsageError
from noetl.settings import Settings

LOCAL: Final = "local"
"""The context without a server: commands use a store."""
FILE: Final = "contexts.json"


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a server is, and what to show it."""

    url: str
    token: str | None = None

    def __repr__(self) -> str:
        return f"Server({self.url})"


class Contexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    current: str = LOCAL
    servers: dict[str, Server] = {}


def contexts_path(environment: Mapping[str, str]) -> Path:
    return config_folder(environment) / FILE


def read_contexts(path: Path) -> Contexts:
    content = read_private(path)
    if content is None:
        return Contexts()
    try:
        found = msgspec.json.decode(content, type=Contexts)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UsageError(f"{path} cannot be understood: {error}. Correct it, or remove it.") from error
    return (
        found if found.current in (LOCAL, *found.servers) else msgspec.structs.replace(found, current=LOCAL)
    )


def write_contexts(path: Path, contexts: Contexts) -> None:
    write_private(path, msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n")


def server_url(written: str) -> str:
    """Addresses as they are kept, with commas between them where a server has several replicas."""
    return ",".join(_address(each.strip()) for each in written.split(","))


def _address(written: str) -> str:
    """Without a slash at its end; UsageError where it is none."""
    try:
        parts = urlsplit(written)
        _ = parts.port  # raises for one that is no number
    except ValueError:
        raise UsageError(f"`{written}` is no address of a server") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"`{written}` is no address of a server: write http://HOST:PORT or https://HOST")
    if parts.username or parts.password:
        raise UsageError("an address holds no login: give the token with --token")
    return written.rstrip("/")


def chosen_server(
    given: str | None, store: str | None, settings: Settings, environment: Mapping[str, str]
) -> Server | None:
    """The server a command goes to; None: it uses a store.

    `--server` is an address or the name of a context. Without it `--store` means a store, then the setting
    `server` counts, then the context in use. A token in the settings wins over the one of the context.
    """
    if given is None and store is not None:
        return None
    token = settings.token
    wanted = given or settings.server
    if not wanted and not environment.get("HOME") and not environment.get("XDG_CONFIG_HOME"):
        return None  # nobody whose contexts they could be
    contexts = read_contexts(contexts_path(environment))
    if not wanted:
        server = contexts.servers.get(contexts.current)
        return server if server is None or token is None else msgspec.structs.replace(server, token=token)
    if wanted in contexts.servers:
        server = contexts.servers[wanted]
        return server if token is None else msgspec.structs.replace(server, token=token)
    url = server_url(wanted)
    known = next((each.token for each in contexts.servers.values() if each.url == url), None)
    return Server(url=url, token=token or known)
