"""`noetl events`: the log of an execution, in its own words or those of older playbooks."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator

import msgspec

from noetl.cli.arguments import Parser
from noetl.cli.diagnostics import Paint, output_width, paint_for
from noetl.cli.reading import find_execution, followed_log, log_pages
from noetl.cli.stores import AnyPlace, add_store_options, place_of
from noetl.cli.tree import fitted
from noetl.cli.waiting import waits_text
from noetl.engine.state import Data, Waits
from noetl.records.event import Event
from noetl.records.vocabulary import canonical_words, v2_words
from noetl.settings import Settings

VOCABULARIES = ("canonical", "v2")
_STYLES = {"error": "error", "success": "good", "skipped": "gutter"}


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "events",
        "Shows the log of an execution, event by event.\nExit codes: 0 shown, 2 there is no such execution.",
        "noetl events 412345678901234567 --step fetch -f",
    )
    parser.add_argument("id", metavar="ID", help="the execution")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the execution is over")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document, a list; with -f, one event a line"
    )
    parser.add_argument("--type", metavar="TYPE", help="only events of this type, or of a group (`loop.`)")
    parser.add_argument("--step", metavar="STEP", help="only events of this step")
    parser.add_argument(
        "--vocabulary",
        choices=VOCABULARIES,
        help="the names of events (default: canonical, and v2 for v1 and v2 playbooks)",
    )
    add_store_options(parser)
    options = parser.parse_args(arguments)
    asyncio.run(_show(place_of(options, settings), options, paint_for(sys.stdout, settings)))
    return 0


async def _show(place: AnyPlace, options: argparse.Namespace, paint: Paint) -> None:
    store = place.read()
    try:
        row = await find_execution(store, options.id)
        words = options.vocabulary or ("canonical" if row.dialect == "canonical" else "v2")
        pages = followed_log(store, options.id) if options.follow else log_pages(store, options.id)
        write = (
            _JsonLines() if options.json and options.follow else _JsonList() if options.json else _Text(paint)
        )
        async for page in pages:
            for event in page:
                for shown in _worded(event, words):
                    if _wanted(shown, options):
                        write.event(shown)
            sys.stdout.flush()
        write.end()
    finally:
        await store.close()


def _worded(event: Event, words: str) -> Iterator[Data]:
    return iter(canonical_words(event) if words == "canonical" else v2_words(event))


def _wanted(event: Data, options: argparse.Namespace) -> bool:
    name: str = event["event_type"]
    if options.step is not None and event["step"] != options.step:
        return False
    if options.type is None:
        return True
    return name.startswith(options.type) if options.type.endswith(".") else name == options.type


class _JsonLines:
    def event(self, event: Data) -> None:
        sys.stdout.write(msgspec.json.encode(event).decode() + "\n")

    def end(self) -> None:
        pass


class _JsonList:
    """One list, written as it is read: a log may be longer than memory."""

    def __init__(self) -> None:
        self._begun = False

    def event(self, event: Data) -> None:
        sys.stdout.write((",\n " if self._begun else "[\n ") + msgspec.json.encode(event).decode())
        self._begun = True

    def end(self) -> None:
        sys.stdout.write("\n]\n" if self._begun else "[]\n")


class _Text:
    def __init__(self, paint: Paint) -> None:
        self._paint = paint
        self._width = output_width(sys.stdout)

    def event(self, event: Data) -> None:
        head = f"{event['seq']:>5}  {event['timestamp'][11:23]}  "
        name = f"{event['event_type']:<24}"
        rest = fitted(
            "  ".join(filter(None, (_where(event), _about(event)))), self._width - len(head) - len(name) - 1
        )
        style = _STYLES.get(event["status"])
        print(head + (self._paint(style, name) if style else name) + " " + rest)

    def end(self) -> None:
        pass


def _where(event: Data) -> str:
    where = event["step"] or ""
    if event["iteration"] is not None:
        where += f"[{event['iteration']}]"
    if event["task_label"]:
        where += f"/{event['task_label']}"
    return where + (f" attempt {event['attempt']}" if (event["attempt"] or 1) > 1 else "")


def _about(event: Data) -> str:
    """What the payload says, in a few words."""
    payload = event["payload"]
    error = payload.get("error") or (payload.get("outcome") or {}).get("error")
    if isinstance(error, dict):
        return f"{error.get('kind')}: {error.get('message')}"
    if "selected" in payload:
        return (
            "to " + ", ".join(str(entry.get("step")) for entry in payload["selected"])
            if payload["selected"]
            else ""
        )
    if "total" in payload:
        return f"{payload['total']} items"
    if payload.get("waits"):
        return waits_text(msgspec.convert(payload["waits"], Waits))
    outcome = payload.get("outcome")
    result = outcome.get("result") if isinstance(outcome, dict) else payload.get("result")
    return "" if result is None else msgspec.json.encode(result)[:200].decode("utf-8", "ignore")
