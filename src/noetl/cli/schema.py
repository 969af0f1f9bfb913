"""`noetl schema`: prints the JSON Schema of the canonical language, for editors."""

from __future__ import annotations

import msgspec

from noetl.cli.arguments import Parser
from noetl.cli.files import write_text
from noetl.playbook.schema import json_schema
from noetl.settings import Settings
from noetl.tools.registry import builtin_kinds


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "schema",
        "Prints the JSON Schema of canonical playbooks, with which editors complete and check them.",
        "noetl schema -o playbook.schema.json",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to this file instead of standard output"
    )
    options = parser.parse_args(arguments)
    document = msgspec.json.format(msgspec.json.encode(json_schema(builtin_kinds())), indent=2)
    write_text(options.output, document.decode() + "\n")
    return 0
