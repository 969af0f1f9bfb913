"""The `sandbox` isolation: code in namespaces of its own, made by bubblewrap.

A sandbox sees the system's programs and libraries and this Python, read-only, and its own folders, which
alone it can write to, but for a small `/dev/shm`. What a task puts into its environment is set inside, never
for bubblewrap itself, which runs outside. It sees no other process, no other execution's files and, unless
it asks for it, no network. All of it ends with the one process that was started, also what has left its
session. Where the machine cannot give this, the task is refused: a weaker isolation never stands in for it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl.errors import NoetlError
from noetl.tools.processes.folders import OwnFolder

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TRIAL_SECONDS: Final = 10.0
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
# Of /etc only what programs need to run, to find their libraries and to speak to others: the rest of it holds
# passwords and keys.
CONFIGURATION: Final = tuple(
    f"/etc/{name}"
    for name in (
        *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "os-release"),
        *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "resolv.conf", "services", "protocols"),
        *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust", "mime.types"),
    )
)
# Root writes here by who it is, with no capability left to lose, and what it writes holds for the machine.
KERNEL: Final = tuple(
    f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "pressure")
)
SHARED_MEMORY_BYTES: Final = 64 << 20
"""Of `/dev/shm`: it is memory, and no process's own."""
THIS_PYTHON: Final = tuple(dict.fromkeys((sys.base_prefix, sys.prefix, str(Path(__file__).parents[3]))))


class IsolationUnavailableError(NoetlError):
    """This machine cannot give the isolation that a task asks for."""

    code = "isolation.unavailable"


class SandboxOptionError(NoetlError):
    """A value under `spec.sandbox` that is none."""

    code = "spec.invalid"


class Sandbox(msgspec.Struct, frozen=True):
    """What one sandbox may reach: a folder, and the network or not."""

    folder: Path
    network: bool = False

    def wrapped(
        self,
        command: Sequence[str],
        temporary: Path,
        readable: Sequence[Path] = (),
        variables: int | None = None,
    ) -> list[str]:
        """The command inside the sandbox; `temporary` is a folder that is also its `/tmp`, `variables` the
        descriptor of a file with the environment (see `as_options`)."""
        argv = [
            *(_bubblewrap(), "--die-with-parent", "--cap-drop", "ALL"),
            *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
            *(() if self.network else ("--unshare-net",)),
            *(() if variables is None else ("--args", str(variables))),
            *("--proc", "/proc", "--dev", "/dev"),
            *(("--size", str(SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm") if _limits_memory() else ()),
            *("--remount-ro", "/dev", "--bind", str(temporary), "/tmp"),
        ]
        for path in KERNEL:
            argv += ["--ro-bind-try", path, path]
        for path in (*SYSTEM, *CONFIGURATION, *THIS_PYTHON):
            argv += ["--ro-bind-try", path, path]
        for folder in readable:
            argv += ["--ro-bind", str(folder), str(folder)]
        for folder in (self.folder, temporary):
            argv += ["--bind", str(folder), str(folder)]
        return [*argv, "--remount-ro", "/", "--", *command]


def as_options(variables: Mapping[str, str]) -> bytes:
    """An environment as bubblewrap reads it from a file, where no command line shows it."""
    words = [word for name, value in variables.items() for word in ("--setenv", name, value)]
    return b"".join(os.fsencode(word) + b"\0" for word in words)


async def sandbox_for(spec: Mapping[str, Any], folder: Path) -> Sandbox | None:
    """The sandbox that a task asks for, found to work; None for the isolation `process`."""
    wanted = spec.get("isolation", "process")
    if wanted == "process":
        return None
    if wanted != "sandbox":
        raise IsolationUnavailableError(
            f"the isolation `{wanted}` is not available for this tool; `process` and `sandbox` are"
        )
    options = spec.get("sandbox")
    options = {} if options is None else options
    if not isinstance(options, Mapping) or set(options) - {"network"}:
        raise SandboxOptionError("`spec.sandbox` takes `network` and nothing else")
    network = options.get("network", False)
    if not isinstance(network, bool):
        raise SandboxOptionError("`spec.sandbox.network` is neither true nor false")
    await asyncio.to_thread(_try_out, network)
    folder.mkdir(parents=True, exist_ok=True)
    return Sandbox(folder.absolute(), network)


@cache
def _bubblewrap() -> str:
    found = shutil.which("bwrap", path=PATH)
    if found is None:
        raise IsolationUnavailableError("the isolation `sandbox` needs bubblewrap (`bwrap`) to be installed")
    return found


@cache
def _limits_memory() -> bool:
    """Whether this bubblewrap can bound a file system in memory; an older one gives none to write to."""
    try:
        said = subprocess.run(
            [_bubblewrap(), "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_SECONDS,
            env={},
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--size" in said.stdout + said.stderr


@cache  # a failure is not kept: an operator may allow it meanwhile
def _try_out(network: bool) -> None:
    """Whether this user may make the namespaces, which a container or the system's settings can forbid."""
    with OwnFolder() as folder:
        command = Sandbox(folder, network).wrapped(["/bin/sh", "-c", ":"], folder)
        try:
            tried = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIAL_SECONDS, env={}
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise IsolationUnavailableError(f"bubblewrap cannot be run ({type(error).__name__})") from None
    if tried.returncode != 0:
        said = tried.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise IsolationUnavailableError(
            f"the isolation `sandbox` is not allowed here: {said or 'bubblewrap failed'}"
        )
