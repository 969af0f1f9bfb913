"""`noetl cancel`: ends an execution, whoever runs it."""

from __future__ import annotations

import asyncio

from noetl.cli.arguments import Parser
from noetl.cli.steering import steer
from noetl.cli.stores import add_store_options, place_of
from noetl.settings import Settings


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "cancel",
        "Ends an execution: what is running is stopped, nothing more is started.\n"
        "Exit codes: 0 cancelled, 2 there is no such execution, or it is over.",
        'noetl cancel 412345678901234567 --reason "wrong day"',
    )
    parser.add_argument("id", metavar="ID", help="the execution")
    parser.add_argument("--reason", metavar="TEXT", help="why; it is kept in the log")
    add_store_options(parser)
    options = parser.parse_args(arguments)
    payload = {} if options.reason is None else {"reason": options.reason}
    asyncio.run(steer(place_of(options, settings), "cancel", options.id, payload))
    print(f"cancelled execution {options.id}")
    return 0
