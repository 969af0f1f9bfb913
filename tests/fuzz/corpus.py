"""The documents the fuzzer starts from: every playbook in the repository.

A document is the bytes of a file, with its data where it can be read. The order is fixed, so that a seed
and an index always mean the same document. Nothing is mutated here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from noetl.playbook.load import load
from noetl.playbook.reader import plain, read
from noetl.tools.registry import builtin_kinds

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("examples", "tests/seeds", "src/noetl")
EXAMPLE = re.compile(r"^```yaml[ \w]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CASES = "tests/conformance/cases"


@dataclass(frozen=True)
class Document:
    origin: str
    data: bytes
    tree: dict[str, Any] | None
    valid: bool


@cache
def corpus() -> tuple[Document, ...]:
    found = {document.data: document for document in (*_cases(), *_playbooks(), *_examples())}
    return tuple(found.values())


@cache
def readable() -> tuple[Document, ...]:
    return tuple(document for document in corpus() if document.tree is not None)


@cache
def valid() -> tuple[Document, ...]:
    return tuple(document for document in readable() if document.valid)


def dump(tree: object, *, indent: int = 2, width: int = 100, flow: bool | None = False) -> bytes:
    text: str = yaml.dump(
        tree, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True,
        indent=indent, width=width, default_flow_style=flow,
    )  # fmt: skip
    # A lone surrogate cannot be written as UTF-8, and a file cannot hold one.
    return text.encode("utf-8", "replace")


def data_of(data: bytes) -> dict[str, Any] | None:
    """The data of a file as the language reads it: YAML 1.2, so that `on` is a key and not a truth."""
    root = read(data).root
    tree = None if root is None else plain(root)
    return tree if isinstance(tree, dict) else None


def _document(origin: str, data: bytes) -> Document:
    return Document(origin, data, data_of(data), load(data, builtin_kinds()).valid)


def _cases() -> Iterator[Document]:
    for path in sorted((ROOT / CASES).rglob("*.yaml")):
        case = data_of(path.read_bytes()) or {}
        origin = path.relative_to(ROOT).as_posix()
        if isinstance(case.get("text"), str):
            yield _document(origin, case["text"].encode())
        if isinstance(case.get("playbook"), dict):
            yield _document(origin, dump(case["playbook"]))
        for name, child in (case.get("playbooks") or {}).items():
            yield _document(f"{origin} {name}", dump(child))


def _playbooks() -> Iterator[Document]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            yield _document(path.relative_to(ROOT).as_posix(), path.read_bytes())


def _examples() -> Iterator[Document]:
    """The documentation has an example of every diagnostic."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for text in EXAMPLE.findall(path.read_text("utf-8")):
            yield _document(path.relative_to(ROOT).as_posix(), text.encode())
