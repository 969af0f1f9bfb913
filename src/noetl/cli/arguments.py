"""The option parser of every verb: argparse, with our way of reporting mistakes."""

from __future__ import annotations

import argparse
from typing import NoReturn

from noetl.errors import UsageError


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Of a fixed width: to ask for the terminal's, argparse would import shutil for every verb (measured)."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` where argparse would print and exit."""

    def __init__(self, verb: str, description: str, example: str) -> None:
        super().__init__(
            prog=f"noetl {verb}",
            description=description,
            epilog=f"example:\n  {example}",
            formatter_class=Formatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_usage().rstrip()}\nhint: {self.prog} --help")


def count(written: str) -> int:
    """A whole number of at least 1, for `type=`."""
    if not (written.isascii() and written.isdigit() and 0 < int(written) < 2**31):
        raise argparse.ArgumentTypeError(f"`{written}` is no whole number above 0")
    return int(written)
