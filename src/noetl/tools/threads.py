"""Work of a library that blocks, in a thread of its own, that ends when its task is cancelled.

The thread can be confined to folders. A library that does not let itself be interrupted is left behind after
a while: a call's time limit holds whatever the library waits for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from noetl.tools.confinement import confine_this_thread

Result = TypeVar("Result")

_INTERRUPT_SECONDS: Final = 0.02
"""How often the work is told to stop: it may be between two statements when it is told."""
PATIENCE_SECONDS: Final = 3.0
"""How long work that is told to stop is waited for."""


async def in_thread(
    work: Callable[[], Result], interrupt: Callable[[], None], confined_to: Sequence[Path] | None = None
) -> Result:
    """What `work` gives; if the task is cancelled, `interrupt` is called until the work has ended.

    Work that is confined opens files in these folders alone, which have to exist.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if error is not None:
            done.set_exception(error)
            done.exception()  # a task that was cancelled meanwhile asks for the end alone
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def body() -> None:
        result, failure = None, None
        try:
            if confined_to is not None:
                confine_this_thread(*confined_to)
            result = work()
        except BaseException as error:  # noqa: BLE001 - carried over to the task that waits for it
            failure = error
        with suppress(RuntimeError):  # the loop is closed: the work was left behind, and nobody waits
            loop.call_soon_threadsafe(settle, result, failure)

    # A daemon: a library that does not let itself be interrupted must not keep the process alive.
    threading.Thread(target=body, name="noetl-sql", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        until = loop.time() + PATIENCE_SECONDS
        while not done.done() and loop.time() < until:
            interrupt()
            await asyncio.wait({done}, timeout=_INTERRUPT_SECONDS)
        raise


async def in_folder(folder: Path, work: Callable[[], Result]) -> Result:
    """What short work gives that opens, makes or renames files by their names, and only in that folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return await in_thread(work, let_it_end, confined_to=[folder])


def let_it_end() -> None:
    """It is short: it is waited for."""
