"""The settings of a process as one frozen value, filled by `cli/` and passed down.

Plain data: nothing here reads the environment or a file.
"""

from __future__ import annotations

from typing import NamedTuple


class Settings(NamedTuple):
    """What an operator can set; every field has its entry in `docs/reference/settings.md`."""

    max_playbook_bytes: int = 1_048_576
    max_playbook_depth: int = 64
    max_playbook_nodes: int = 100_000
    colour: bool | None = None
    """None: colour on a terminal only."""
    store: str = "sqlite:///.noetl/store.db"
    """Where executions and the catalog are kept; a relative path is one from the current folder."""
    state: str = ".noetl"
    """The folder of what runs on this machine: records of processes, their logs, the data of `noetl up`."""
    server: str | None = None
    """The server that workers and commands speak to, or several of its replicas with commas between them."""
    token: str | None = None
    """What they show it."""
    nats: str | None = None
    """The NATS servers, with commas between them; None: workers are not woken, they ask."""
    key_file: str | None = None
    """The file of the master keys that credentials are encrypted with."""
    keychain_folder: str | None = None
    """The folder below which a server reads the files that keychains name; None: that of its own files."""
    retention_days: int | None = None
    """How many days a server keeps executions that are over; None: for ever."""
    result_stores: str | None = None
    """URLs of result stores, with commas between them, which a server clears together with executions."""
    allow_addresses: tuple[str, ...] = ()
    """Networks that tasks may connect to though they are refused by themselves, or by `deny_addresses`."""
    deny_addresses: tuple[str, ...] = ()
    """Networks that tasks may not connect to; of all that hold an address the narrowest decides."""
    statement_seconds: int = 20
    """How long a server waits for PostgreSQL to answer a statement before it gives the connection up."""
    insecure: bool | None = None
    """Together with `--insecure`: a server may listen beyond this machine without asking who calls."""
