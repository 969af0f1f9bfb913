"""`container`: a program in a container, by docker, podman or Kubernetes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from noetl.records.tool import ToolDescription
from noetl.tools.auth import Auth


class ContainerConfig(msgspec.Struct, frozen=True, kw_only=True):
    image: Annotated[str, Meta(description="The image, best with its digest.")]
    runtime: Annotated[
        Literal["docker", "podman", "kubernetes"] | None,
        Meta(description="What runs the container; by default what the worker has."),
    ] = None
    entrypoint: Annotated[
        str | list[str] | None, Meta(description="The program, where it is another than the image's.")
    ] = None
    command: Annotated[str | list[str] | None, Meta(description="The arguments of the program.")] = None
    env: Annotated[dict[str, Any] | None, Meta(description="Environment variables by name.")] = None
    cwd: Annotated[str | None, Meta(description="The folder in the container to run in.")] = None
    mounts: Annotated[
        dict[str, str] | None,
        Meta(description="Folders of the container and what is seen there, under the execution's folder."),
    ] = None
    network: Annotated[bool, Meta(description="Whether the container can reach the network.")] = True
    pull: Annotated[Literal["missing", "always", "never"], Meta(description="When the image is fetched.")] = (
        "missing"
    )
    stdin: Annotated[str | None, Meta(description="Text for the standard input; not with Kubernetes.")] = None
    namespace: Annotated[str | None, Meta(description="Kubernetes: the namespace of the job.")] = None
    service_account: Annotated[str | None, Meta(description="Kubernetes: the account of the job.")] = None
    auth: Auth = None


DESCRIPTION = ToolDescription(
    kind="container",
    summary="Runs a program in a container; an exit code other than 0 is an error.",
    config=ContainerConfig,
    outcome_group="container",
    outcome_fields=("exit_code",),
)
