"""Secrets that are sent through the engine to be looked for afterwards, and the search for them.

A canary is found as it is, in every encoding that the engine promises to recognise, and in fragments: what
was cut before it was searched for leaves a piece behind, and a piece is a leak as well.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import string
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

ALPHABET = string.ascii_letters + string.digits
FRAGMENT = 9
"""Characters of a piece that is looked for; every piece of twice that length holds one."""
SIGNS = "@: /+"
"""What encoders of addresses, of forms and of JSON disagree about; together in every second canary."""
AWKWARD = ("+/==", "'\"", "\\n", " & ", "%41?", "é€", "$(x)`", "{{ }}", "<br>", ";--")


class Canaries(Mapping[str, str]):
    """Random secrets by name, made when they are first asked for."""

    def __init__(self) -> None:
        self._secrets: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        found = self._secrets.get(name)
        if found is None:
            found = self._secrets[name] = self._made(len(self._secrets))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._secrets))

    def __len__(self) -> int:
        return len(self._secrets)

    def long(self, name: str, length: int = 160) -> str:
        """A secret longer than what databases show of a value."""
        return self._secrets.setdefault(name, _letters(length))

    def lines(self, name: str) -> str:
        """A secret of several lines, as keys are."""
        return self._secrets.setdefault(name, "\n".join(_letters(48) for _ in range(3)))

    def number(self, name: str) -> int:
        """A secret that is a number, as credentials may hold it."""
        return int(self._secrets.setdefault(name, f"7{secrets.randbelow(10**17):017d}"))

    def signs(self, name: str) -> str:
        """A secret that addresses do not hold as it is."""
        return self._secrets.setdefault(name, f"{_letters(18)}{SIGNS}é=&$(){_letters(18)}")

    def _made(self, number: int) -> str:
        """Half of the secrets hold characters that encodings and quoting change."""
        middle = SIGNS + AWKWARD[number // 2 % len(AWKWARD)] if number % 2 else ""
        return f"{_letters(18)}{middle}{_letters(18)}"

    def found_in(self, content: bytes) -> list[str]:
        """The names of the canaries that a content holds, each with the form it was found in."""
        return [
            f"{name} ({form})"
            for name, secret in self._secrets.items()
            for form, looked_for in _forms(secret)
            if looked_for in content
        ]

    def found_in_files(self, *folders: Path) -> list[str]:
        """The same for every file below folders, with its path."""
        return [
            f"{path}: {each}"
            for path in self._suspicious(folders)
            for each in self.found_in(path.read_bytes())
        ]

    def _suspicious(self, folders: Iterable[Path]) -> list[Path]:
        """The files that hold any form of any canary: `grep` looks for all at once, and quickly."""
        forms = {form for secret in self._secrets.values() for _, form in _forms(secret)}
        with tempfile.NamedTemporaryFile() as listed:
            listed.write(b"\n".join(sorted(forms)))
            listed.flush()
            command = ["grep", "-rlaFs", "-f", listed.name, "--", *map(str, folders)]
            done = subprocess.run(command, stdout=subprocess.PIPE, env={"LC_ALL": "C", "PATH": os.defpath})
        return [Path(os.fsdecode(line)) for line in done.stdout.splitlines()]


def _letters(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def _forms(secret: str) -> Iterable[tuple[str, bytes]]:
    # Pieces that stand side by side, so that whatever is longer than two of them holds one.
    yield from (
        (f"piece {index}", secret[index : index + FRAGMENT].encode())
        for index in range(0, len(secret) - FRAGMENT + 1, FRAGMENT)
        if secret[index : index + FRAGMENT].isalnum()
    )
    data = secret.encode()
    # Of two pieces at least one is whole, wherever lines are broken.
    for shift in range(3):
        form = base64.b64encode(b"\0" * shift + data)[4 : (shift + len(data)) * 8 // 6 - 2]
        yield from ((f"base64 {shift}", form[index : index + 14]) for index in (0, len(form) - 14))
    yield "url", quote(secret, safe="").encode()
    yield "address", quote(secret, safe="@:+=&$()").encode()
    yield "form", quote_plus(secret).encode()
    yield "json", json.dumps(secret)[1:-1].encode()
    yield "json with slashes", json.dumps(secret)[1:-1].replace("/", "\\/").encode()
