"""What a code process may use, read from `spec.resources`.

Only the keys named here are read: `resources` is layered over tools of many kinds, and a container has
others. A value that cannot be one is an error of the playbook, never silently no limit.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from noetl.errors import NoetlError

_UNITS: Final = {
    "": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9,
    "ki": 1 << 10, "kib": 1 << 10, "mi": 1 << 20, "mib": 1 << 20, "gi": 1 << 30, "gib": 1 << 30,
}  # fmt: skip
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


class LimitError(NoetlError):
    """A value under `spec.resources` that is no limit."""

    code = "spec.invalid"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Of one process; `cpu_seconds`, `output_bytes` and `result_bytes` count for each task anew."""

    memory: int | None = None
    """Bytes of address space."""
    cpu_seconds: float | None = None
    open_files: int | None = None
    file_bytes: int | None = None
    """The largest file it may write."""
    output_bytes: int = 1 << 20
    """How much of a task's output is kept as its log."""
    result_bytes: int = 256 << 20


def limits_from(resources: object) -> Limits:
    if resources is None:
        return DEFAULT_LIMITS
    if not isinstance(resources, Mapping):
        raise LimitError("`spec.resources` must be a mapping of limits")
    found: dict[str, Any] = {}
    for name in ("memory", "file_bytes", "output_bytes", "result_bytes"):
        if resources.get(name) is not None:
            found[name] = _size(name, resources[name])
    for name in ("cpu_seconds", "open_files"):
        if resources.get(name) is not None:
            found[name] = _number(name, resources[name])
    if "open_files" in found:
        found["open_files"] = int(found["open_files"])
    return Limits(**found)


def apply_limits(limits: Limits, pid: int) -> None:
    """Sets them on a process that was just started, from outside, so that it need not spend time on it."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: limits.memory,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
    }
    for kind, value in wanted.items():
        if value is not None:
            _soft, hard = resource.prlimit(pid, kind)
            ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(pid, kind, (ceiling, ceiling))


def ulimits(limits: Limits, *, with_cpu: bool) -> str:
    """The same as commands of a shell, for what is started through one."""
    cpu = least_cpu_seconds(limits.cpu_seconds) if with_cpu and limits.cpu_seconds is not None else None
    wanted = {
        "-c": 0,
        "-v": None if limits.memory is None else max(limits.memory // 1024, 1),
        # The signal of the lower limit says what happened; the higher one ends who does not listen.
        "-S -t": cpu,
        "-H -t": None if cpu is None else cpu + 1,
        "-n": limits.open_files,
        "-f": None if limits.file_bytes is None else max(limits.file_bytes // 512, 1),
    }
    return "".join(f"ulimit {flag} {value}; " for flag, value in wanted.items() if value is not None)


def least_cpu_seconds(seconds: float) -> int:
    """A limit on CPU time as systems know it: in whole seconds."""
    return max(int(seconds), 1)


def _size(name: str, value: object) -> int:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)) and match[2].lower() in _UNITS:
        return int(float(match[1]) * _UNITS[match[2].lower()])
    return int(_number(name, value))


def _number(name: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return value
    raise LimitError(f"`spec.resources.{name}` must be a number above 0, or a size like 512Mi: {value!r}")


DEFAULT_LIMITS: Final = Limits()
