"""`secrets`: one secret, while the playbook runs; `secret_managers.py` fetches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth

if TYPE_CHECKING:
    from noetl.records.outcome import Outcome
    from noetl.records.protocols import ToolCall, ToolContext


class SecretsConfig(msgspec.Struct, frozen=True, kw_only=True):
    provider: Annotated[
        Literal["keychain", "vault", "google", "aws"],
        Meta(description="The secret manager, or the keychain and the stored credentials."),
    ]
    secret: Annotated[str, Meta(description="The name or path of the secret.")]
    version: Annotated[int | str | None, Meta(description="Its version; the latest by default.")] = None
    field: Annotated[
        str | None, Meta(description="One field of a secret that has several; all of them by default.")
    ] = None
    project: Annotated[str | None, Meta(description="Google: the project.")] = None
    region: Annotated[str | None, Meta(description="AWS: the region.")] = None
    address: Annotated[
        str | None,
        Meta(description="Vault: the address of the server. The others: one instead of the provider's own."),
    ] = None
    mount: Annotated[
        str | None, Meta(description="Vault: where the secrets engine is mounted, by default at `secret`.")
    ] = None
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="secrets",
    summary="Fetches a secret from a secret manager; its value never enters the log.",
    config=SecretsConfig,
)


async def run(call: ToolCall, context: ToolContext) -> Outcome:
    from noetl.tools.secret_managers import fetch_secret  # noqa: PLC0415 - imports the HTTP client

    return await fetch_secret(call, context)
