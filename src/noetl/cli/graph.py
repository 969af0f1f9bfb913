"""`noetl graph`: draws a playbook."""

from __future__ import annotations

from importlib import import_module

from noetl.cli.arguments import Parser
from noetl.cli.diagnostics import load_or_report
from noetl.cli.files import write_text
from noetl.playbook.graph import graph_of
from noetl.settings import Settings

FORMATS = ("text", "mermaid", "dot", "svg")
"""Each is the module of that name in `playbook/drawing`, with a function of that name."""


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "graph",
        "Draws the steps of a playbook and the ways between them.\n"
        "Exit codes: 0 drawn, 1 invalid, 2 unreadable.",
        "noetl graph --format svg -o report.svg report.yaml",
    )
    parser.add_argument("file", metavar="FILE", help="a playbook, or - for stdin")
    parser.add_argument("--format", choices=FORMATS, default="text", help="what to draw (default: text)")
    parser.add_argument("-o", "--output", metavar="OUT", help="write to this file instead of standard output")
    options = parser.parse_args(arguments)
    loaded = load_or_report(options.file, settings)
    if loaded is None or loaded.playbook is None:
        return 1
    drawing = import_module(f"noetl.playbook.drawing.{options.format}")
    write_text(options.output, getattr(drawing, options.format)(graph_of(loaded.playbook)))
    return 0
