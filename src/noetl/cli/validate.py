"""`noetl validate`: checks playbooks and reports what is wrong with them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from noetl.cli.arguments import Parser
from noetl.cli.diagnostics import Paint, Report, counted, paint_for
from noetl.cli.files import load_file, playbooks_below, shown_name, write_json
from noetl.errors import UsageError
from noetl.playbook.diagnostics import Diagnostic
from noetl.playbook.wording import plural
from noetl.settings import Settings


class Checked(NamedTuple):
    """What came of a file, without its model; `problem` says why it could not be read at all."""

    name: str
    valid: bool = False
    dialect: str | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    text: str = ""
    problem: str = ""

    def passes(self, *, strict: bool) -> bool:
        return self.valid and not (strict and self.diagnostics)


def run(arguments: list[str], settings: Settings) -> int:
    parser = Parser(
        "validate",
        "Checks playbooks of every dialect without running anything.\n"
        "Exit codes: 0 valid, 1 invalid, 2 unreadable.",
        "noetl validate --strict playbooks/",
    )
    parser.add_argument(
        "paths", nargs="+", metavar="FILE|DIR", help="a playbook, a folder of them, or - for stdin"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    parser.add_argument("--strict", action="store_true", help="take warnings for errors")
    parser.add_argument("--no-color", action="store_true", help="no colours, even on a terminal")
    options = parser.parse_args(arguments)
    checked: list[Checked] = []
    paint = paint_for(sys.stdout, settings, no_color=options.no_color)
    for found in _checked(options.paths, settings):
        checked.append(found._replace(text=""))
        if found.problem:
            sys.stdout.flush()
            print(f"noetl validate: {found.problem}", file=sys.stderr)
        elif not options.json:
            _show(found, options.strict, paint)
    if options.json:
        _print_json(checked, options.strict)
    else:
        _summarise(checked, paint)
    if any(found.problem for found in checked):
        return 2
    return 0 if all(found.passes(strict=options.strict) for found in checked) else 1


def _checked(paths: list[str], settings: Settings) -> Iterator[Checked]:
    """Each file once, in the order of the arguments."""
    seen: set[str] = set()
    for path, problem in _files(paths, settings):
        if path in seen and problem is None:
            continue
        seen.add(path)
        name = shown_name(path)
        try:
            if problem is not None:
                raise problem
            loaded = load_file(path, settings)
        except UsageError as error:
            yield Checked(name, problem=error.message)
        else:
            yield Checked(name, loaded.valid, loaded.dialect, loaded.diagnostics, loaded.text)


def _files(paths: list[str], settings: Settings) -> Iterator[tuple[str, UsageError | None]]:
    for path in paths:
        if not os.path.isdir(path):
            yield path, None
            continue
        empty = True
        for found in playbooks_below(path, settings):
            empty = False
            if isinstance(found, UsageError):
                yield path, found
            else:
                yield found, None
        if empty:
            yield path, UsageError(f"there is no playbook in {shown_name(path)}")


def _show(found: Checked, strict: bool, paint: Paint) -> None:
    Report(sys.stdout, paint).file(found.name, found.text, found.diagnostics)
    if found.passes(strict=strict):
        print(f"{found.name}: {paint('good', 'valid')} ({found.dialect})")


def _summarise(checked: list[Checked], paint: Paint) -> None:
    read = [found for found in checked if not found.problem]
    diagnostics = [diagnostic for found in read for diagnostic in found.diagnostics]
    if diagnostics:
        touched = sum(bool(found.diagnostics) for found in read)
        files = plural(len(checked), "file")
        where = files if touched == len(checked) else f"{touched} of {files}"
        worst = "error" if any(found.severity == "error" for found in diagnostics) else "warning"
        print(paint(worst, f"{counted(diagnostics)} in {where}"))
    elif len(read) > 1:
        print(paint("good", f"{plural(len(read), 'file')}, all valid"))


def _print_json(checked: list[Checked], strict: bool) -> None:
    files = [_file_as_json(found) for found in checked]
    write_json({"valid": all(found.passes(strict=strict) for found in checked), "files": files})


def _file_as_json(found: Checked) -> dict[str, Any]:
    diagnostics = found.diagnostics
    if found.problem:
        unreadable = Diagnostic(
            severity="error", code="file.unreadable", message=found.problem, line=1, column=1
        )
        diagnostics = (unreadable,)
    return {"file": found.name, "dialect": found.dialect, "diagnostics": diagnostics}
