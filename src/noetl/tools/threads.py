"""Work of a library that blocks, in a thread of its own, that ends when its task is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, TypeVar

Result = TypeVar("Result")

_INTERRUPT_SECONDS: Final = 0.02
"""How often the work is told to stop: it may be between two statements when it is told."""


async def in_thread(work: Callable[[], Result], interrupt: Callable[[], None]) -> Result:
    """What `work` gives; if the task is cancelled, `interrupt` is called until the work has ended."""
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
            result = work()
        except BaseException as error:  # noqa: BLE001 - carried over to the task that waits for it
            failure = error
        loop.call_soon_threadsafe(settle, result, failure)

    # A daemon: a library that does not let itself be interrupted must not keep the process alive.
    threading.Thread(target=body, name="noetl-sql", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        while not done.done():
            interrupt()
            await asyncio.wait({done}, timeout=_INTERRUPT_SECONDS)
        done.exception()
        raise
