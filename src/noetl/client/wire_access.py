"""What the HTTP API takes and answers about those who may call it: tokens, sessions, credentials."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from noetl.client.wire import Answer, Asked, Name
from noetl.registry.roles import Role


class TokenRequest(Asked, frozen=True, kw_only=True):
    name: Name
    role: Role
    lasts_seconds: Annotated[float, Meta(gt=0, le=3_155_760_000)] | None = None
    """None: until it is revoked."""
    pools: Annotated[tuple[Name, ...], Meta(max_length=50)] = ()
    """Of a worker's token: whose work may be taken with it; none named: any."""


class SessionToken(Asked, frozen=True, kw_only=True):
    token: Annotated[str, Meta(min_length=1, max_length=200)]


class Invalidated(Answer, frozen=True, kw_only=True):
    ended: bool
    """False: there was no such session."""


class CredentialView(Answer, frozen=True, kw_only=True):
    id: str
    name: str
    type: str
    version: int
    description: str = ""
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
    key_id: str = ""
    created_at: str = ""
    updated_at: str = ""
    data: dict[str, Any] | None = None
    """Only where it was asked for."""


class CredentialViews(Answer, frozen=True, kw_only=True):
    credentials: tuple[CredentialView, ...]
    after: str | None = None


class CredentialRequest(Asked, frozen=True, kw_only=True):
    name: Name
    type: Name
    data: dict[str, Any]
    description: str = ""
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)


class TokenView(Answer, frozen=True, kw_only=True):
    id: str
    name: str
    role: str
    created_at: str
    expires_at: str | None = None
    last_used_at: str | None = None
    revoked_at: str | None = None


class TokenViews(Answer, frozen=True, kw_only=True):
    tokens: tuple[TokenView, ...]


class IssuedTokenView(Answer, frozen=True, kw_only=True):
    text: str
    token: TokenView
