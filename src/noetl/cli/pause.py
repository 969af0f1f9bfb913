"""`noetl pause`: keeps an execution from starting anything more."""

from __future__ import annotations

import asyncio

from noetl.cli.arguments import Parser
from noetl.cli.steering import steer
from noetl.cli.stores import add_store_options, place_of
from noetl.settings import Settings


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "pause",
        "Pauses an execution: tasks that run go on to their end, no further step or loop item is started.\n"
        "Exit codes: 0 paused, 2 there is no such execution, or it is over.",
        "noetl pause 412345678901234567",
    )
    parser.add_argument("id", metavar="ID", help="the execution")
    add_store_options(parser)
    options = parser.parse_args(arguments)
    place = place_of(options, settings)
    asyncio.run(steer(place, "pause", options.id, {}))
    print(f"paused execution {options.id}; go on with `{place.command('resume', options.id)}`")
    return 0
