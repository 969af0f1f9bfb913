"""Reads the mappings of a playbook key by key and turns their values into model values.

`Fields` wraps one mapping: it reports every key that is not in its table, and each accessor checks
the type of what it returns, so that the dialects read like a list of what a mapping may hold.
An accessor that finds the wrong type reports it and gives None. No rule of the language lives here.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from itertools import islice
from typing import TypeVar

from noetl.playbook.findings import Findings, Place
from noetl.playbook.model import Count, Duration, Guard, Value
from noetl.playbook.reader import Mapping, Node, Scalar, Sequence
from noetl.records.durations import parse_duration
from noetl.template import Template

REPLACED = {
    "expr": "the only conditional keyword is `when`",
    "eval": "the only conditional keyword is `when`",
    "if": "the only conditional keyword is `when`",
    "condition": "the only conditional keyword is `when`",
    "next_mode": "routing mode is `next.spec.mode`",
}
"""Words of other languages that are refused wherever they are not data, with what to write."""

Word = TypeVar("Word", bound=str)

MOST_WORDS = 24
"""Words listed in a hint."""

NOUNS = {Scalar: "a single value", Mapping: "a mapping", Sequence: "a list"}


def is_templated(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


def quoted(words: Collection[str]) -> str:
    shown = ", ".join(f"`{word}`" for word in islice(words, MOST_WORDS))
    return shown if len(words) <= MOST_WORDS else f"{shown}, …"


class Fields:
    """One mapping of the document, with the keys it may have."""

    __slots__ = ("entries", "findings", "meant", "node", "what")

    def __init__(
        self,
        findings: Findings,
        node: Mapping,
        what: str,
        known: Collection[str],
        reported: Collection[str] = (),
    ) -> None:
        """`reported` are keys that are wrong here but have been reported in words of their own."""
        self.findings = findings
        self.node = node
        self.entries = node.entries
        self.what = what
        self.meant: set[str] = set()
        """Known keys that unknown ones were taken for: they are not missing too."""
        for name in self.entries:
            if name not in known and name not in reported:
                self.unknown(name, known)

    def unknown(self, name: str, known: Collection[str], code: str = "key.unknown") -> None:
        key = self.entries[name].key
        if name in REPLACED:
            self.findings.report(
                "key.replaced", key, f"`{name}` is not a key of the language", REPLACED[name]
            )
            return
        meant = self.findings.guess(name, known)
        if meant is not None:
            self.meant.add(meant)
        hint = f"did you mean `{meant}`?" if meant else f"known keys: {quoted(sorted(known))}"
        self.findings.report(code, key, f"unknown key `{name}` in {self.what}", hint)

    # --- where things stand -------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        return name in self.entries

    def key(self, name: str) -> Place:
        """The position of a key that is there, else of the mapping's first key."""
        entry = self.entries.get(name)
        return entry.key if entry is not None else self.first

    def place(self, name: str) -> Place:
        """The position of a value that is there, else of the mapping's first key."""
        entry = self.entries.get(name)
        return entry.value if entry is not None else self.first

    @property
    def first(self) -> Place:
        """Where something missing is reported."""
        for entry in self.entries.values():
            return entry.key
        return self.node

    def raw(self, name: str) -> Node | None:
        entry = self.entries.get(name)
        return None if entry is None else entry.value

    def require(self, *names: str) -> None:
        for name in names:
            if name not in self.entries and name not in self.meant:
                self.findings.report("key.missing", self.first, f"{self.what} needs `{name}`")

    # --- values by type -------------------------------------------------------------------------------

    def mapping(self, name: str) -> Mapping | None:
        node = self.raw(name)
        if node is None or isinstance(node, Mapping):
            return node
        self.wrong_type(name, "a mapping")
        return None

    def sequence(self, name: str) -> Sequence | None:
        node = self.raw(name)
        if node is None or isinstance(node, Sequence):
            return node
        self.wrong_type(name, "a list")
        return None

    def text(self, name: str) -> str | None:
        """A text that is not a template."""
        node = self.raw(name)
        if node is None:
            return None
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            self.wrong_type(name, "a text")
            return None
        if is_templated(node.value):
            self.findings.report(
                "value.template",
                node,
                f"`{name}` of {self.what} cannot be a template",
                "it is fixed before anything runs",
            )
            return None
        return node.value

    def name(self, name: str) -> str | None:
        """A text that names a thing: not empty."""
        found = self.text(name)
        if found is not None and not found.strip():
            self.findings.report("value.type", self.place(name), f"`{name}` of {self.what} is empty")
            return None
        return found

    def choice(self, name: str, options: Collection[Word]) -> Word | None:
        """One of the words in `options`."""
        node = self.raw(name)
        if node is None:
            return None
        found = node.value if isinstance(node, Scalar) else None
        for word in options:
            if word == found:
                return word
        meant = self.findings.guess(found, options) if isinstance(found, str) else None
        shown = f"`{found}`" if isinstance(node, Scalar) else NOUNS[type(node)]
        self.findings.report(
            "value.choice",
            node,
            f"`{name}` of {self.what} cannot be {shown}",
            f"did you mean `{meant}`?" if meant else f"one of {quoted(options)}",
        )
        return None

    def flag(self, name: str) -> bool | None:
        node = self.raw(name)
        if node is None:
            return None
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        self.wrong_type(name, "true or false")
        return None

    def number(self, name: str) -> float | None:
        node = self.raw(name)
        if node is None:
            return None
        if isinstance(node, Scalar) and type(node.value) in (int, float) and math.isfinite(node.value):  # type: ignore[arg-type]
            return node.value  # type: ignore[return-value]
        self.wrong_type(name, "a number")
        return None

    def count(self, name: str, least: int = 1) -> Count | None:
        """A whole number of at least `least`, or a template that will give one."""
        node = self.raw(name)
        if node is None:
            return None
        if isinstance(node, Scalar):
            found = node.value
            if type(found) is int and found >= least:
                return found
            if isinstance(found, str) and is_templated(found):
                return Template(found, node)
        self.wrong_type(name, f"a whole number of at least {least}")
        return None

    def duration(self, name: str) -> Duration | None:
        node = self.raw(name)
        if node is None:
            return None
        if isinstance(node, Scalar):
            if isinstance(node.value, str) and is_templated(node.value):
                return Template(node.value, node)
            seconds = parse_duration(node.value)
            if seconds is not None:
                return seconds
        self.findings.report(
            "value.duration",
            node,
            f"`{name}` of {self.what} is not a duration",
            "seconds as a number, or with a unit: `250ms`, `5s`, `2m`, `1h`, `1d`; at most 100 years",
        )
        return None

    def guard(self, name: str = "when") -> Guard | None:
        node = self.raw(name)
        return None if node is None else guard(self.findings, node, f"`{name}` of {self.what}")

    def value(self, name: str) -> Value:
        node = self.raw(name)
        return None if node is None else value(self.findings, node)

    def values(self, name: str) -> dict[str, Value]:
        """A mapping of data; empty where it is missing or null."""
        node = self.raw(name)
        if node is None or (isinstance(node, Scalar) and node.value is None):
            return {}
        if isinstance(node, Mapping):
            return values(self.findings, node)
        self.wrong_type(name, "a mapping")
        return {}

    def wrong_type(self, name: str, wanted: str) -> None:
        node = self.entries[name].value
        shown = f"`{node.value}`" if isinstance(node, Scalar) else NOUNS[type(node)]
        if isinstance(node, Scalar) and node.value is None:
            shown = "empty"
        if len(shown) > 60:
            shown = shown[:57] + "…`"
        self.findings.report(
            "value.type", node, f"`{name}` of {self.what} must be {wanted}, but it is {shown}"
        )


def guard(findings: Findings, node: Node, what: str) -> Guard | None:
    """A condition: one `{{ expression }}`, or a plain true or false."""
    if isinstance(node, Scalar):
        if isinstance(node.value, bool):
            return node.value
        if isinstance(node.value, str):
            if is_templated(node.value):
                return Template(node.value, node)
            findings.report(
                "when.plain_text",
                node,
                f"{what} is plain text, which would always be true",
                f"write `{{{{ {node.value.strip() or 'expression'} }}}}`",
            )
            return None
    findings.report("value.type", node, f"{what} must be one `{{{{ expression }}}}`")
    return None


def value(findings: Findings, node: Node) -> Value:
    """Plain data with its templated strings as `Template`."""
    if isinstance(node, Scalar):
        found = node.value
        if type(found) is str:
            if "{" in found and is_templated(found):
                return Template(found, node)
        elif type(found) is float and not math.isfinite(found):
            findings.report("value.number", node, "a number that is not finite cannot be used as data")
            return None
        return found
    if isinstance(node, Mapping):
        return values(findings, node)
    assert isinstance(node, Sequence)
    return [value(findings, item) for item in node.items]


def values(findings: Findings, node: Mapping) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, entry in node.entries.items():
        if "{" in name and is_templated(name):
            findings.report(
                "value.template", entry.key, "a key of data cannot be a template", "keys are never rendered"
            )
        found[name] = value(findings, entry.value)
    return found
