"""A tool context for tests of code tools: names and places are given, logs are kept, nothing is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from noetl.records.protocols import ResultBodies, ToolCall, ToolContext

Shared = TypeVar("Shared")


class CodeContext:
    def __init__(self, folder: Path, *, names: Mapping[str, object] | None = None) -> None:
        self._folder = folder
        self.names = names or {}
        self.source: tuple[str, int] | None = None
        self.credentials: dict[str, dict[str, Any]] = {}
        self.logged: list[tuple[str, str]] = []
        self.shared_things: dict[str, Any] = {}

    @property
    def results(self) -> ResultBodies:
        raise AssertionError("code tools store nothing themselves")

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def began(self) -> float:
        return 0.0

    @property
    def process_key(self) -> str:
        return "playbook"

    async def free_name(self, name: str) -> object:
        return self.names[name]

    def source_line(self, field: str) -> tuple[str, int] | None:
        assert field == "code"
        return self.source

    async def credential(self, name: str) -> Mapping[str, Any]:
        return self.credentials[name]

    async def shared(self, key: str, make: Callable[[], Awaitable[Shared]]) -> Shared:
        if key not in self.shared_things:
            self.shared_things[key] = await make()
        return cast("Shared", self.shared_things[key])

    def log(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        self.logged.append((stream, text))

    def text_of(self, stream: str) -> str:
        return "".join(text for each, text in self.logged if each == stream)

    def for_tools(self) -> ToolContext:
        """Itself; code tools use no more of a context than it has."""
        return cast("ToolContext", self)

    async def aclose(self) -> None:
        for thing in self.shared_things.values():
            await thing.aclose()


def python_call(
    code: str, args: object = None, *, spec: dict[str, Any] | None = None, **config: object
) -> ToolCall:
    return ToolCall(
        kind="python",
        config={"code": code, **config},
        args=args,
        spec=spec or {},
        execution_id="1",
        step="start",
        task_label="task_1",
        task_run_id="2",
        attempt=1,
        action_id="a",
    )
