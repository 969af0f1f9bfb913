"""Credentials, tokens and sessions over HTTP; the registry has their rules.

Secret values leave only by `include_data`, which needs a permission of its own, and by what is shown once
when a token or a session is made.
"""

from __future__ import annotations

from typing import Annotated, Final

from litestar import delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody, PathParameter, QueryParameter

from noetl.client.wire import Answer
from noetl.client.wire_access import Invalidated, SessionToken, TokenRequest
from noetl.registry.credentials import Credential, CredentialDraft, Credentials, Rotation
from noetl.registry.roles import allows
from noetl.registry.sessions import Login, Session, Sessions
from noetl.registry.tokens import IssuedToken, Token
from noetl.server.parts import Asking, Given, Parts
from noetl.server.problems import ForbiddenError, UnavailableError, UnknownSessionError

Identifier = Annotated[str, PathParameter(min_length=1, max_length=200, description="A name or an id.")]
Execution = Annotated[str | None, QueryParameter(pattern="^[0-9]{1,19}$")]


class CredentialPage(Answer, frozen=True, kw_only=True):
    credentials: tuple[Credential, ...]
    after: str | None = None
    """The name to page on from; None: this was the last page."""


class TokenList(Answer, frozen=True, kw_only=True):
    tokens: tuple[Token, ...]


class OpenedSession(Answer, frozen=True, kw_only=True):
    token: str
    session: Session


class SessionList(Answer, frozen=True, kw_only=True):
    sessions: tuple[Session, ...]


def _credentials(parts: Parts) -> Credentials:
    if parts.credentials is None:
        raise UnavailableError("this server has no master key, so it keeps no credentials")
    return parts.credentials


def _sessions(parts: Parts) -> Sessions:
    if parts.sessions is None:
        raise UnavailableError("this server keeps no sessions")
    return parts.sessions


# --- credentials ----------------------------------------------------------------------------------------


@post("/api/credentials", summary="Create a credential, or replace the one of that name", status_code=200)
async def set_credential(
    parts: Given,
    data: JSONBody[CredentialDraft],
    expected_version: Annotated[int | None, QueryParameter(ge=0, le=2_147_483_647)] = None,
) -> Credential:
    return await _credentials(parts).set(data, expected_version=expected_version)


@post(
    "/api/credentials/rotate",
    summary="Encrypt the keys of all credentials with the server's current master key",
    status_code=200,
)
async def rotate_credentials(parts: Given) -> Rotation:
    return await _credentials(parts).rotate()


@get("/api/credentials", summary="Credentials by name, without their data")
async def list_credentials(
    parts: Given,
    of_type: Annotated[str | None, QueryParameter(name="type", min_length=1, max_length=100)] = None,
    text: Annotated[str | None, QueryParameter(min_length=1, max_length=200)] = None,
    after: Annotated[str, QueryParameter(max_length=200, description="The name to page on from.")] = "",
    limit: Annotated[int, QueryParameter(ge=1, le=500)] = 100,
) -> CredentialPage:
    found = await _credentials(parts).list(of_type=of_type, text=text, after=after, limit=limit)
    return CredentialPage(credentials=tuple(found), after=found[-1].name if len(found) == limit else None)


@get("/api/credentials/{identifier:str}", summary="A credential, with its data if that is asked for")
async def show_credential(
    parts: Given,
    caller: Asking,
    identifier: Identifier,
    include_data: FromQuery[bool] = False,
    execution_id: Execution = None,
    parent_execution_id: Execution = None,
) -> Credential:
    if include_data and caller.is_checked and not allows(caller.role, "credentials:data"):
        raise ForbiddenError(f"a token with the role `{caller.role}` does not have `credentials:data`")
    return await _credentials(parts).get(
        identifier,
        include_data=include_data,
        execution_id=execution_id,
        parent_execution_id=parent_execution_id,
    )


@delete("/api/credentials/{identifier:str}", summary="Delete a credential", status_code=200)
async def delete_credential(parts: Given, identifier: Identifier) -> Credential:
    return await _credentials(parts).delete(identifier)


# --- tokens ---------------------------------------------------------------------------------------------


@post("/api/tokens", summary="Make a token; it is shown this once")
async def create_token(parts: Given, data: JSONBody[TokenRequest]) -> IssuedToken:
    return await parts.tokens.create(data.name, data.role, lasts_seconds=data.lasts_seconds, pools=data.pools)


@get("/api/tokens", summary="All tokens, without what opens anything")
async def list_tokens(parts: Given) -> TokenList:
    return TokenList(tokens=tuple(await parts.tokens.list()))


@delete("/api/tokens/{identifier:str}", summary="Revoke a token", status_code=200)
async def revoke_token(parts: Given, identifier: Identifier) -> Token:
    return await parts.tokens.revoke(identifier)


# --- sessions -------------------------------------------------------------------------------------------
# A session's token is a secret, so it travels in bodies: addresses are written to logs.


@post("/api/sessions", summary="Begin a session; its token is shown this once")
async def open_session(parts: Given, data: JSONBody[Login]) -> OpenedSession:
    token, session = await _sessions(parts).create(data)
    return OpenedSession(token=token, session=session)


@get("/api/sessions", summary="The sessions of a user")
async def list_sessions(
    parts: Given, user_id: Annotated[int, QueryParameter(ge=0, le=9_223_372_036_854_775_807)]
) -> SessionList:
    return SessionList(sessions=tuple(await _sessions(parts).of_user(user_id)))


@post("/api/sessions/validate", summary="Who a session is; its end moves on", status_code=200)
async def validate_session(parts: Given, data: JSONBody[SessionToken]) -> Session:
    held = await _sessions(parts).get(data.token)
    if held is None:
        raise UnknownSessionError("there is no such session, or it is over")
    return held.session


@post("/api/sessions/invalidate", summary="End a session", status_code=200)
async def invalidate_session(parts: Given, data: JSONBody[SessionToken]) -> Invalidated:
    return Invalidated(ended=await _sessions(parts).revoke(data.token))


@delete("/api/sessions/{user_id:int}/{session_id:int}", summary="End a session by its id", status_code=200)
async def end_session(parts: Given, user_id: FromPath[int], session_id: FromPath[int]) -> Invalidated:
    return Invalidated(ended=await _sessions(parts).revoke_session(user_id, session_id))


HANDLERS: Final = (
    set_credential,
    rotate_credentials,
    list_credentials,
    show_credential,
    delete_credential,
    create_token,
    list_tokens,
    revoke_token,
    open_session,
    list_sessions,
    validate_session,
    invalidate_session,
    end_session,
)
