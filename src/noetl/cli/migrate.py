"""`noetl migrate`: rewrites a v1 or v2 playbook in the canonical form.

Nothing is written unless all of the playbook could be expressed: a file that silently does less than
the one it came from is worse than none.
"""

from __future__ import annotations

import sys

from noetl.cli.arguments import Parser
from noetl.cli.diagnostics import Report, load_or_report, paint_for
from noetl.cli.files import shown_name, write_text
from noetl.playbook.load import Loaded
from noetl.playbook.migrate import migrate
from noetl.playbook.wording import plural
from noetl.settings import Settings
from noetl.tools.registry import builtin_kinds


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "migrate",
        "Rewrites a v1 or v2 playbook as canonical YAML that behaves the same, and reports what "
        "canonical YAML cannot say.\n"
        "Exit codes: 0 migrated, 1 invalid or not expressible (with --check: not canonical), 2 unreadable.",
        "noetl migrate old.yaml -o report.yaml",
    )
    parser.add_argument("file", metavar="FILE", help="a playbook, or - for stdin")
    parser.add_argument("-o", "--output", metavar="OUT", help="write to this file instead of standard output")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the file is not canonical"
    )
    options = parser.parse_args(arguments)
    loaded = load_or_report(options.file, settings)
    if loaded is None:
        return 1
    name = shown_name(options.file)
    if loaded.dialect == "canonical":
        print(f"{name} is canonical already", file=sys.stderr)
        if not options.check:
            write_text(options.output, loaded.text)
        return 0
    return _migrate(loaded, name, options.output, check=options.check, settings=settings)


def _migrate(loaded: Loaded, name: str, output: str | None, *, check: bool, settings: Settings) -> int:
    migration = migrate(loaded, builtin_kinds())
    if migration.text is None:
        Report(sys.stderr, paint_for(sys.stderr, settings)).file(name, loaded.text, migration.inexpressible)
        shown = plural(len(migration.inexpressible), "construct")
        print(f"{name}: {shown} cannot be expressed in canonical YAML; nothing was written", file=sys.stderr)
        return 1
    if check:
        print(f"{name} is {loaded.dialect}; `noetl migrate {name}` would rewrite it", file=sys.stderr)
        return 1
    write_text(output, migration.text)
    return 0
