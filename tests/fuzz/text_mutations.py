"""Mutations of a file's bytes and lines, which know nothing of what the text means."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from random import Random

from tests.fuzz.templates import any_template

Mutation = Callable[[Random, bytes, bytes], bytes]
"""From a document, and another to borrow from, to a changed document."""

PIECES = (
    b"\t", b"\n", b"\r\n", b"\r", b": ", b"- ", b"? ", b"{", b"}", b"[", b"]", b"#", b"&a ", b"*a", b"!!str ",
    b"!x ", b"|\n", b">-\n", b"|2\n", b"'", b'"', b"\\", b"---\n", b"...\n", b"%YAML 1.1\n", b"%TAG ! x:\n",
    b"<<: *a\n", b"\x00", b"\x85", b"\xc2\x85", b"\xe2\x80\xa8", b"\xff", b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
    b"{{ ", b" }}", b"{% ", b"1e999", b".nan", b"0x1F", b"1_000", b"~", b"null", b"9" * 5000, b"@", b"`",
)  # fmt: skip


def flip(rng: Random, data: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(data) or 1)
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :] if data else data


def delete(rng: Random, data: bytes, _: bytes) -> bytes:
    start, stop = _span(rng, data, 20)
    return data[:start] + data[stop:]


def duplicate(rng: Random, data: bytes, _: bytes) -> bytes:
    start, stop = _span(rng, data, 60)
    return data[:stop] + data[start:stop] + data[stop:]


def insert(rng: Random, data: bytes, _: bytes) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(PIECES) + data[at:]


def insert_template(rng: Random, data: bytes, _: bytes) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + any_template(rng).encode("utf-8", "replace") + data[at:]


def splice(rng: Random, data: bytes, other: bytes) -> bytes:
    start, stop = _span(rng, other, 200)
    at = rng.randint(0, len(data))
    return data[:at] + other[start:stop] + data[at:]


def truncate(rng: Random, data: bytes, _: bytes) -> bytes:
    return data[: rng.randint(0, len(data))]


def change_encoding(rng: Random, data: bytes, _: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    return rng.choice(
        (
            codecs.BOM_UTF8 + data,
            text.encode("utf-16"),
            text.encode("utf-32-be"),
            text.encode("latin-1", "replace"),
            text.replace("\n", "\r\n").encode(),
            text.replace("\n", "\r").encode(),
            text.replace(" ", "\u2028", 3).encode(),
        )
    )


def indent(rng: Random, data: bytes, _: bytes) -> bytes:
    lines = data.split(b"\n")
    start, stop = _few_lines(rng, lines)
    by = rng.choice((b" ", b"  ", b"    ", b"\t"))
    return b"\n".join(lines[:start] + [by + line for line in lines[start:stop]] + lines[stop:])


def dedent(rng: Random, data: bytes, _: bytes) -> bytes:
    lines = data.split(b"\n")
    start, stop = _few_lines(rng, lines)
    by = rng.randint(1, 4)
    moved = [line[by:] if line[:by].isspace() else line for line in lines[start:stop]]
    return b"\n".join(lines[:start] + moved + lines[stop:])


def swap_lines(rng: Random, data: bytes, _: bytes) -> bytes:
    lines = data.split(b"\n")
    first, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


def drop_lines(rng: Random, data: bytes, _: bytes) -> bytes:
    lines = data.split(b"\n")
    start, stop = _few_lines(rng, lines)
    return b"\n".join(lines[:start] + lines[stop:])


def repeat_lines(rng: Random, data: bytes, _: bytes) -> bytes:
    lines = data.split(b"\n")
    start, stop = _few_lines(rng, lines)
    return b"\n".join(lines[:stop] + lines[start:stop] * rng.randint(1, 5) + lines[stop:])


BYTES: tuple[Mutation, ...] = (
    flip, delete, duplicate, insert, insert_template, splice, truncate, change_encoding,
)  # fmt: skip
LINES: tuple[Mutation, ...] = (indent, dedent, swap_lines, drop_lines, repeat_lines)


def _span(rng: Random, data: bytes, longest: int) -> tuple[int, int]:
    start = rng.randint(0, len(data))
    return start, min(len(data), start + rng.randint(1, longest))


def _few_lines(rng: Random, lines: list[bytes]) -> tuple[int, int]:
    start = rng.randrange(len(lines))
    return start, min(len(lines), start + rng.randint(1, 4))
