"""`noetl logs`: what the tasks of an execution printed."""

from __future__ import annotations

import asyncio
import sys

from noetl.cli.arguments import Parser
from noetl.cli.diagnostics import Paint, paint_for, visible
from noetl.cli.reading import find_execution, followed_log, log_pages
from noetl.cli.stores import AnyPlace, add_store_options, place_of
from noetl.records.event import Event
from noetl.settings import Settings


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "logs",
        "Shows what tasks printed, each line behind its step and task, as the tasks ended. Of a long output "
        "the last part is kept.\nExit codes: 0 shown, 2 there is no such execution.",
        "noetl logs 412345678901234567 -f",
    )
    parser.add_argument("id", metavar="ID", help="the execution")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the execution is over")
    add_store_options(parser)
    options = parser.parse_args(arguments)
    paint = paint_for(sys.stdout, settings)
    asyncio.run(_show(place_of(options, settings), options.id, paint, follow=options.follow))
    return 0


async def _show(place: AnyPlace, execution_id: str, paint: Paint, *, follow: bool) -> None:
    store = place.read()
    try:
        await find_execution(store, execution_id)
        pages = followed_log(store, execution_id) if follow else log_pages(store, execution_id)
        async for page in pages:
            for event in page:
                _print(event, paint)
            sys.stdout.flush()
    finally:
        await store.close()


def _print(event: Event, paint: Paint) -> None:
    text = event.payload.get("log")
    if event.event_type != "task.done" or not text:
        return
    where = f"{event.step}/{event.task_label}"
    if event.iteration is not None:
        where = f"{event.step}[{event.iteration}]/{event.task_label}"
    if (event.attempt or 1) > 1:
        where += f" attempt {event.attempt}"
    for line in str(text).splitlines():
        print(f"{paint('gutter', f'{visible(where)} |')} {visible(line)}")
