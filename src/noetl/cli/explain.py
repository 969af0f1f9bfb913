"""`noetl explain`: says in plain words what a playbook will do."""

from __future__ import annotations

from noetl.cli.arguments import Parser
from noetl.cli.diagnostics import load_or_report
from noetl.cli.files import write_text
from noetl.playbook.explain import explain
from noetl.settings import Settings


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "explain",
        "Walks through a playbook in plain words. Exit codes: 0 explained, 1 invalid, 2 unreadable.",
        "noetl explain report.yaml",
    )
    parser.add_argument("file", metavar="FILE", help="a playbook, or - for stdin")
    options = parser.parse_args(arguments)
    loaded = load_or_report(options.file, settings)
    if loaded is None or loaded.playbook is None:
        return 1
    write_text(None, explain(loaded.playbook))
    return 0
