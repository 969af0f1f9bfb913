"""When two events under one key are the same event.

A worker repeats a report whose answer was lost, and a server an append. Such a repetition is decided anew,
so its events may have another id, place and time; what they say is the same. Stores share this rule, and
the error.
"""

from __future__ import annotations

import msgspec

from noetl.errors import NoetlError
from noetl.records.event import Event
from noetl.store.codec import decode_event, encode_event


class KeyReusedError(NoetlError):
    """A key stands in the log for something else than what is appended under it."""

    code = "store.key_reused"

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


def says_the_same(stored: bytes, repeated: Event) -> bool:
    """Whether an event that is to be appended repeats the one in the log, of which `stored` is the JSON."""
    return _what_it_says(decode_event(stored)) == _what_it_says(decode_event(encode_event(repeated)))


def _what_it_says(event: Event) -> Event:
    return msgspec.structs.replace(event, event_id="", seq=0, timestamp="")
