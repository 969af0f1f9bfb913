"""`secrets`: one secret from a secret manager, while the playbook runs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth


class SecretsConfig(msgspec.Struct, frozen=True, kw_only=True):
    provider: Annotated[Literal["vault", "google", "aws"], Meta(description="The secret manager.")]
    secret: Annotated[str, Meta(description="The name or path of the secret.")]
    version: Annotated[int | str | None, Meta(description="Its version; the latest by default.")] = None
    field: Annotated[
        str | None, Meta(description="One field of a secret that has several; all of them by default.")
    ] = None
    project: Annotated[str | None, Meta(description="Google: the project.")] = None
    region: Annotated[str | None, Meta(description="AWS: the region.")] = None
    address: Annotated[str | None, Meta(description="Vault: the address of the server.")] = None
    mount: Annotated[str | None, Meta(description="Vault: where the secrets engine is mounted.")] = None
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="secrets",
    summary="Fetches a secret from a secret manager; its value never enters the log.",
    config=SecretsConfig,
)
