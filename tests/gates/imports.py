"""Which part of the package imports which, read from the syntax tree.

Imports are found wherever they stand: at the top, under `TYPE_CHECKING`, inside functions, and as literal
names given to `import_module`. The table of what is allowed is data (`Architecture`); this module holds no
opinion about it and imports nothing it judges.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.gates.source import parsed

PACKAGE = "noetl"
ENTRY_PART = "__main__"  # `python -m noetl`: the command line's other door


@dataclass(frozen=True)
class Architecture:
    rows: tuple[tuple[str, ...], ...]
    must_not_know: dict[str, frozenset[str]] = field(default_factory=dict)
    third_party: dict[str, frozenset[str]] = field(default_factory=dict)
    forbidden_stdlib: dict[str, frozenset[str]] = field(default_factory=dict)

    def row_of(self, part: str) -> int | None:
        return next((number for number, row in enumerate(self.rows) if part in row), None)


def imported_names(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and full name of each import; `package` is the folder that relative imports start from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (above, node.module)))
            if module == PACKAGE:  # `from noetl import template` names parts, not attributes
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module
        elif isinstance(node, ast.Call) and (name := name_given_to_import(node)):
            yield node.lineno, name


def name_given_to_import(call: ast.Call) -> str | None:
    """The literal module name in `import_module("…")` or `__import__("…")`."""
    match call:
        case ast.Call(
            func=ast.Attribute(attr=("import_module" | "__import__"))
            | ast.Name(id=("import_module" | "__import__")),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return name
    return None


def violations(source: Path, architecture: Architecture) -> list[str]:
    """One sentence for each module or import under `source`/noetl that breaks the table."""
    found = []
    for file in sorted((source / PACKAGE).rglob("*.py")):
        module = file.relative_to(source).with_suffix("").parts
        part = "" if module == (PACKAGE, "__init__") else module[1]
        where = file.relative_to(source).as_posix()
        if part not in ("", ENTRY_PART) and architecture.row_of(part) is None:
            found.append(f"{where}: `{part}` is not in the table of parts")
            continue
        tree = parsed(file.read_text("utf-8"), str(file))
        for line, name in imported_names(tree, module[:-1]):
            if problem := judge(part, name, architecture):
                found.append(f"{where}:{line}: {problem}")
    return found


def judge(part: str, module: str, architecture: Architecture) -> str | None:
    """What is wrong with `part` importing `module`; the package's own `__init__` is the nameless part."""
    top, _, rest = module.partition(".")
    if top == PACKAGE:
        return judge_own(part, rest.partition(".")[0], architecture)
    if top in sys.stdlib_module_names:
        return (
            f"`{part}` must not know `{top}`" if top in architecture.forbidden_stdlib.get(part, ()) else None
        )
    if top not in architecture.third_party.get(part, ()):
        return f"`{part or PACKAGE}` may not import the library `{top}`"
    return None


def judge_own(part: str, imported: str, architecture: Architecture) -> str | None:
    """The same for `imported`, a part of the package itself."""
    target = architecture.row_of(imported)
    if target is None:
        is_attribute = not imported or imported.startswith("__")
        return None if is_attribute else f"`{imported}` is not in the table of parts"
    if imported == part or (part == ENTRY_PART and imported == "cli"):
        return None
    own = architecture.row_of(part)
    if own is None:
        return f"`{part or PACKAGE}` may not import `{imported}`"
    if target == own:
        return f"`{part}` and `{imported}` stand in one row and may not import each other"
    if target > own:
        return f"`{part}` may not import `{imported}`, which stands below it"
    if imported in architecture.must_not_know.get(part, ()):
        return f"`{part}` must not know `{imported}`"
    return None
