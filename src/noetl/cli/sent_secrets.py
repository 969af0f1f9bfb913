"""The values that a command sends along when it asks a server to start an execution.

A playbook from a file runs as the caller means it: the variables its keychain names are read here, and those
that are set go along. A registered playbook is somebody's text on the server, which could name any variable
of the caller: of those only what `--send-env` says is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from noetl.engine.state import Data
from noetl.engine.workload import materialise
from noetl.errors import TemplateError, UsageError
from noetl.playbook.model import Playbook
from noetl.secrets.keychain import variables_named

OWN_VARIABLES: Final = "NOETL_"
"""What this command itself was told, its token among it, is sent by nobody's keychain."""


def secrets_to_send(
    names: Sequence[str], playbook: Playbook | None, payload: Data, environment: Mapping[str, str]
) -> dict[str, str]:
    """Values by variable: those of `names`, and those that the keychain of a file reads."""
    for name in names:
        if name not in environment:
            raise UsageError(f"--send-env {name}: the variable is not set")
    wanted = set(names)
    if playbook is not None and playbook.keychain:
        wanted |= {name for name in _read_by(playbook, payload) if not name.startswith(OWN_VARIABLES)}
    return {name: environment[name] for name in sorted(wanted) if name in environment}


def _read_by(playbook: Playbook, payload: Data) -> frozenset[str]:
    try:
        return variables_named(playbook.keychain, materialise(playbook.workload, payload, ""))
    except TemplateError:
        return frozenset()  # the server says what is wrong with the workload
