"""From the bytes of a file to a checked playbook: read, detect, lower, check.

This is the only way in. It never raises for bad input: what is wrong is in the diagnostics, and
`playbook` is None as soon as one of them is an error.
"""

from __future__ import annotations

from collections.abc import Mapping as Table

import msgspec

from noetl.playbook.check import check
from noetl.playbook.diagnostics import Diagnostic
from noetl.playbook.dialects import canonical, v1, v2
from noetl.playbook.dialects.detect import Dialect, detect
from noetl.playbook.dialects.lowering import Lowering
from noetl.playbook.findings import Findings
from noetl.playbook.model import Playbook
from noetl.playbook.reader import DEFAULT_LIMITS, ReadLimits, read
from noetl.records.tool import ToolDescription

FRONT_ENDS = {"v1": v1.lower, "v2": v2.lower, "canonical": canonical.lower}


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A file as far as it could be understood."""

    playbook: Playbook | None
    dialect: Dialect | None
    diagnostics: tuple[Diagnostic, ...]
    text: str = ""
    comments: str = ""
    """The comment block at the top of the file."""

    @property
    def valid(self) -> bool:
        return self.playbook is not None


def load(data: bytes, kinds: Table[str, ToolDescription], limits: ReadLimits = DEFAULT_LIMITS) -> Loaded:
    document = read(data, limits)
    findings = Findings()
    findings.add(document.diagnostics)
    if document.root is None:
        return Loaded(playbook=None, dialect=None, diagnostics=findings.sorted(), text=document.text)
    dialect = detect(document.root, findings)
    low = Lowering(findings, kinds, v2=dialect == "v2")
    playbook = FRONT_ENDS[dialect](low, document.root)
    check(playbook, kinds, findings)
    return Loaded(
        playbook=None if findings.has_errors else playbook,
        dialect=dialect,
        diagnostics=findings.sorted(),
        text=document.text,
        comments=document.comments,
    )
