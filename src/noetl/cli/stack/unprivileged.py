"""Starting programs that refuse to run as root, for a user who is root.

They run as an account that owns nothing, and may still search every folder (the capability that root has
anyway), because neither the data nor the programs need to lie where such an account could go.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys
from collections.abc import Callable
from typing import Final

ACCOUNTS: Final = ("postgres", "nobody")
KEEP_CAPABILITIES: Final = 8
AMBIENT: Final = 47
RAISE: Final = 2
CAPABILITY_VERSION: Final = 0x20080522
DAC_OVERRIDE: Final = 1


def account() -> pwd.struct_passwd | None:
    """Whom to start such programs as; None where nobody needs to change, or nobody is there."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def becoming(user: pwd.struct_passwd | None) -> Callable[[], None] | None:
    """What a child does before it becomes the program."""
    if user is None:
        return None
    # Loaded here, because a child between fork and exec should do as little as it can.
    library = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def become() -> None:
        if library is not None:
            library.prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
        if library is not None:
            # Where the system does not allow it, plain permissions hold, and the program says what it lacks.
            _keep_search(library)

    return become


def _keep_search(library: ctypes.CDLL) -> None:
    bit = 1 << DAC_OVERRIDE
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    # Effective, permitted and inheritable; the second three are of capabilities above 31.
    data = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    if library.capset(header, data) == 0:
        library.prctl(AMBIENT, RAISE, DAC_OVERRIDE, 0, 0)
