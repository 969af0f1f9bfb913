"""Who may call what: one table from route to permission. What is not in it nobody may call.

Which role has which permission is the registry's to say. A route without a row here is refused to
everybody, and fails a test.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from noetl.registry.roles import Permission

Openness: TypeAlias = Literal["public", "known"]
PUBLIC: Final[Openness] = "public"
"""Asked without a token: what a load balancer needs to know."""
KNOWN: Final[Openness] = "known"
"""Asked with any token."""


class Policy(NamedTuple):
    permission: Permission | Openness
    for_workers: bool = False
    """Counted against the rate of workers, not that of people."""


def _worker(permission: Permission) -> Policy:
    return Policy(permission, for_workers=True)


POLICIES: Final[dict[tuple[str, str], Policy]] = {
    ("GET", "/api/health"): Policy(PUBLIC),
    ("GET", "/api/ready"): Policy(PUBLIC),
    ("GET", "/metrics"): Policy("metrics:read"),
    ("GET", "/api/openapi.json"): Policy(KNOWN),
    ("GET", "/api/docs"): Policy(KNOWN),
    ("POST", "/api/catalog"): Policy("catalog:write"),
    ("GET", "/api/catalog"): Policy("catalog:read"),
    ("GET", "/api/catalog/entry"): Policy("catalog:read"),
    ("GET", "/api/catalog/versions"): Policy("catalog:read"),
    ("GET", "/api/catalog/sources/{digest}"): _worker("work:read"),
    ("POST", "/api/executions"): Policy("executions:start"),
    ("GET", "/api/executions"): Policy("executions:read"),
    ("GET", "/api/executions/{execution_id}"): Policy("executions:read"),
    ("GET", "/api/executions/{execution_id}/events"): Policy("executions:read"),
    ("GET", "/api/executions/{execution_id}/steps"): Policy("executions:read"),
    ("GET", "/api/executions/{execution_id}/result"): Policy("results:read"),
    ("GET", "/api/executions/{execution_id}/graph"): Policy("executions:read"),
    ("POST", "/api/executions/{execution_id}/cancel"): Policy("executions:steer"),
    ("POST", "/api/executions/{execution_id}/pause"): Policy("executions:steer"),
    ("POST", "/api/executions/{execution_id}/resume"): Policy("executions:steer"),
    ("POST", "/api/executions/{execution_id}/retry"): Policy("executions:start"),
    ("POST", "/api/executions/{execution_id}/signal"): Policy("events:write"),
    ("POST", "/api/events"): Policy("events:write"),
    ("POST", "/api/events/batch"): _worker("work:report"),
    ("GET", "/api/commands"): Policy("queue:read"),
    ("POST", "/api/commands/claim"): _worker("work:claim"),
    ("POST", "/api/commands/heartbeat"): _worker("work:report"),
    ("POST", "/api/commands/{command_id}/keychain"): _worker("work:read"),
    ("POST", "/api/commands/{command_id}/loop"): _worker("work:read"),
    ("POST", "/api/commands/{command_id}/heard"): _worker("work:read"),
    ("POST", "/api/commands/{command_id}/signal"): _worker("work:read"),
    ("POST", "/api/commands/{command_id}/child"): _worker("work:read"),
    ("POST", "/api/commands/{command_id}/child/stop"): _worker("work:read"),
    ("POST", "/api/commands/{command_id}/bodies"): _worker("work:report"),
    ("POST", "/api/commands/{command_id}/bodies/load"): _worker("work:read"),
    ("GET", "/api/vars/{execution_id}"): Policy("vars:read"),
    ("GET", "/api/vars/{execution_id}/{name}"): Policy("vars:read"),
    ("PUT", "/api/vars/{execution_id}/{name}"): Policy("vars:write"),
    ("DELETE", "/api/vars/{execution_id}/{name}"): Policy("vars:write"),
    ("POST", "/api/context/render"): Policy("templates:render"),
    ("GET", "/api/results/{ref}"): Policy("results:read"),
    ("POST", "/api/credentials"): Policy("credentials:write"),
    ("POST", "/api/credentials/rotate"): Policy("credentials:write"),
    ("GET", "/api/credentials"): Policy("credentials:read"),
    ("GET", "/api/credentials/{identifier}"): Policy("credentials:read"),
    ("DELETE", "/api/credentials/{identifier}"): Policy("credentials:write"),
    ("GET", "/api/runtime"): Policy("runtime:read"),
    ("POST", "/api/runtime"): _worker("work:register"),
    ("POST", "/api/runtime/heartbeat"): _worker("work:register"),
    ("DELETE", "/api/runtime/{kind}/{name}"): _worker("work:register"),
    ("POST", "/api/sessions"): Policy("sessions:manage"),
    ("GET", "/api/sessions"): Policy("sessions:manage"),
    ("POST", "/api/sessions/validate"): Policy("sessions:manage"),
    ("POST", "/api/sessions/invalidate"): Policy("sessions:manage"),
    ("DELETE", "/api/sessions/{user_id}/{session_id}"): Policy("sessions:manage"),
    ("POST", "/api/tokens"): Policy("tokens:manage"),
    ("GET", "/api/tokens"): Policy("tokens:manage"),
    ("DELETE", "/api/tokens/{identifier}"): Policy("tokens:manage"),
}
"""By method and the template of the path, its parameters as `{name}`."""


def policy_of(method: str, template: str) -> Policy | None:
    """The row of a route; HEAD and OPTIONS are not offered."""
    return POLICIES.get((method, template))
