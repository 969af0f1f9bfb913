"""What a tool kind needs around it, with real files and no worker: for the tests of the tools."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from noetl.errors import NoetlError
from noetl.records.protocols import ChildEnd, ToolCall
from noetl.records.result_ref import ResultRef

Shared = TypeVar("Shared")


class FileResults:
    """Bodies as files, written piece by piece."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.media_types: list[str] = []
        self.largest_piece = 0

    async def put(
        self, execution_id: str, body: bytes | AsyncIterator[bytes], *, media_type: str, store: object
    ) -> ResultRef:
        self.media_types.append(media_type)
        digest, size = hashlib.sha256(), 0
        path = self._folder / f"body-{len(self.media_types)}"
        with path.open("wb") as file:
            async for piece in _pieces(body):
                self.largest_piece = max(self.largest_piece, len(piece))
                digest.update(piece)
                size += len(piece)
                file.write(piece)
        return ResultRef(
            ref=f"noetl://{execution_id}/{path.name}",
            store=str(store),
            key=str(path),
            checksum=digest.hexdigest(),
            size=size,
        )

    async def get(self, ref: ResultRef) -> bytes:
        return Path(ref.key).read_bytes()

    async def stream(self, ref: ResultRef) -> AsyncIterator[bytes]:
        yield await self.get(ref)


async def _pieces(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(body, bytes):
        yield body
    else:
        async for piece in body:
            yield piece


class LocalContext:
    """A context over a folder; used as `async with`, so that what was shared is closed."""

    process_key = "test"

    def __init__(self, folder: Path, *, credentials: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.folder = folder / "execution"
        self.folder.mkdir(exist_ok=True)
        stored = folder / "stored"
        stored.mkdir(exist_ok=True)
        self.results = FileResults(stored)
        self.began = time.time()
        self.made: dict[str, Any] = {}
        self.logged: list[tuple[str, str]] = []
        self.secrets: list[object] = []
        self.signals: dict[str, asyncio.Queue[Any]] = {}
        self._credentials = credentials or {}

    async def __aenter__(self) -> LocalContext:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self.made.values():
            if hasattr(each, "close"):
                await each.close()

    async def free_name(self, name: str) -> object:
        raise KeyError(name)

    def source_line(self, field: str) -> tuple[str, int] | None:
        return None

    async def credential(self, name: str) -> Mapping[str, Any]:
        if name not in self._credentials:
            raise NoetlError(f"there is no credential `{name}`")
        return self._credentials[name]

    async def shared(self, key: str, make: Callable[[], Awaitable[Shared]]) -> Shared:
        if key not in self.made:
            self.made[key] = await make()
        found: Shared = self.made[key]
        return found

    async def sleep_until(self, moment: float) -> None:
        while (left := moment - time.time()) > 0:
            await asyncio.sleep(left)

    async def wait_for_signal(self, name: str, question: str | None = None) -> Any:
        return await self.signals.setdefault(name, asyncio.Queue()).get()

    def add_secret(self, value: object) -> None:
        self.secrets.append(value)

    async def run_playbook(self, path: str, version: int | None, payload: dict[str, Any]) -> ChildEnd:
        raise AssertionError("the kinds tested with this context start no playbook")

    def log(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        self.logged.append((stream, text))

    @property
    def errors_logged(self) -> str:
        return "".join(text for stream, text in self.logged if stream == "stderr")


def call(
    kind: str, config: dict[str, Any], *, args: Any = None, spec: dict[str, Any] | None = None
) -> ToolCall:
    return ToolCall(
        kind=kind,
        config=config,
        args={} if args is None else args,
        spec=spec or {},
        execution_id="1",
        step="start",
        task_label="only",
        task_run_id="2",
        attempt=1,
        action_id="1/start/only/1",
    )
