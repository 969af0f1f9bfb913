"""`noetl signal`: sends an execution an event from outside."""

from __future__ import annotations

import asyncio

import msgspec

from noetl.cli.arguments import Parser
from noetl.cli.payload import refuse_depth, too_deep
from noetl.cli.steering import steer
from noetl.cli.stores import add_store_options, place_of
from noetl.errors import UsageError
from noetl.settings import Settings


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "signal",
        "Sends a signal to an execution; it is kept until something waits for it.\n"
        "Exit codes: 0 sent, 2 there is no such execution, or it is over.",
        'noetl signal 412345678901234567 approved --data \'{"by": "ada"}\'',
    )
    parser.add_argument("id", metavar="ID", help="the execution")
    parser.add_argument("name", metavar="NAME", help="the signal's name")
    parser.add_argument("--data", metavar="JSON", help="what it carries (default: nothing)")
    add_store_options(parser)
    options = parser.parse_args(arguments)
    payload = {"name": options.name, "data": _data(options.data)}
    asyncio.run(steer(place_of(options, settings), "signal", options.id, payload))
    print(f"sent {options.name} to execution {options.id}")
    return 0


def _data(written: str | None) -> object:
    if written is None:
        return None
    try:
        found = msgspec.json.decode(written.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UsageError(f"--data is not JSON: {error}") from error
    except RecursionError:
        raise UsageError(too_deep("--data")) from None
    refuse_depth(found, "--data")
    return found
