"""What each role may do: one table, as data.

Whatever is not in it is refused. A route asks for exactly one permission; rights that depend on more than
the role (a worker and the commands it holds) are checked where that is known. Nothing here knows a route.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

Permission: TypeAlias = Literal[
    "executions:read",
    "executions:start",
    "executions:steer",
    "events:write",
    "results:read",
    "vars:read",
    "vars:write",
    "queue:read",
    "catalog:read",
    "catalog:write",
    "templates:render",
    "credentials:read",
    "credentials:write",
    "credentials:data",
    "runtime:read",
    "metrics:read",
    "sessions:manage",
    "tokens:manage",
    "work:claim",
    "work:report",
    "work:read",
    "work:register",
]
Role: TypeAlias = Literal["viewer", "operator", "author", "credential_admin", "admin", "worker"]

PERMISSIONS: Final[frozenset[Permission]] = frozenset(get_args(Permission))
ROLES: Final[tuple[Role, ...]] = get_args(Role)

_LOOKING: Final[frozenset[Permission]] = frozenset(
    {
        "executions:read",
        "results:read",
        "vars:read",
        "queue:read",
        "catalog:read",
        "runtime:read",
        "metrics:read",
    }
)
_OPERATING: Final[frozenset[Permission]] = _LOOKING | {
    "executions:start",
    "executions:steer",
    "events:write",
    "vars:write",
}

TABLE: Final[dict[Role, frozenset[Permission]]] = {
    "viewer": _LOOKING,
    "operator": _OPERATING,
    # An author's playbook runs code and may use every credential by name; reading one out is another matter.
    "author": _OPERATING | {"catalog:write", "templates:render", "credentials:read"},
    "credential_admin": frozenset({"credentials:read", "credentials:write", "credentials:data"}),
    "admin": PERMISSIONS,
    # `work:read` is what a leased command needs: its playbook, keychain, bodies, signals, children.
    "worker": frozenset({"work:claim", "work:report", "work:read", "work:register"}),
}
"""Every role and all it may do."""


def allows(role: str, permission: Permission) -> bool:
    """Whether a role may do something; an unknown role may do nothing."""
    return any(permission in allowed for known, allowed in TABLE.items() if known == role)
