"""What one evaluation may cost: units of work and bytes of produced values.

A budget counts loop turns, operators, items and characters, never time, so that a template has the
same fate on every machine. Whoever produces something large asks here before producing it; nothing
in this file looks at a template or evaluates one.
"""

from __future__ import annotations

from noetl.errors import TemplateBudgetError

DEFAULT_WORK = 400_000
DEFAULT_BYTES = 8 * 1024 * 1024

# Python turns integers of more than 4 300 digits into text only on request, and slowly.
MAX_INTEGER_BITS = 14_000

# What a list or dict spends on one entry, in bytes.
ITEM_BYTES = 8

# Work done by one C-level pass over text or items is charged by the block of this many.
BLOCK = 64


class Budget:
    """Spent by evaluations: give several templates one budget and they stay within it together."""

    __slots__ = ("bytes", "work")

    def __init__(self, work: int = DEFAULT_WORK, bytes: int = DEFAULT_BYTES) -> None:  # noqa: A002
        self.work = work
        self.bytes = bytes

    def __repr__(self) -> str:
        return f"Budget(work={self.work}, bytes={self.bytes})"

    def spend(self, work: int) -> None:
        if work > self.work:
            raise TemplateBudgetError("the template does more work than its budget allows")
        self.work -= work

    def produce(self, size: int) -> None:
        """Call it with the size of a value before making it."""
        if size > self.bytes:
            raise TemplateBudgetError("the template produces more data than its budget allows")
        self.bytes -= size
        self.spend(size // BLOCK + 1)


def check_integer(bits: int) -> None:
    if bits > MAX_INTEGER_BITS:
        raise TemplateBudgetError("the template computes a number of more than about 4200 digits")
