"""The gates on source text: each takes a file's text and says where it breaks a rule of the house.

They stand at the tail: the longest function, the longest file, the handler that swallows everything. Each is
a pure function from text to findings; which files it applies to is decided by `tests/test_gates.py`.
"""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
GRAB_BAGS = frozenset({"base", "common", "helper", "helpers", "manager", "service", "util", "utils"})
ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb"})
BROAD = frozenset({"BaseException", "Exception"})

# Split so that this file does not hold what it looks for.
MACHINE_PATH = re.compile(r"(?<![\w.}~-])/(?:" + "|".join(("work", "root", "home", "opt")) + r")/")
REGISTRY = re.compile(
    "|".join(("pypi" + r"\.org", "python" + "hosted", "npm" + r"js\.", "index" + "-url", "find" + "-links")),
    re.IGNORECASE,
)

Finding = tuple[int, str]  # line, what is wrong there


def parsed(text: str, name: str = "<unknown>") -> ast.Module:
    """The tree of a source text, without the garbage collector.

    Python 3.11 cannot build a second tree while it builds one, and a finaliser that reports a traceback does
    just that: it parses the lines it shows.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text, name)
    finally:
        if was_enabled:
            gc.enable()


def long_file(text: str) -> list[Finding]:
    lines = len(text.splitlines())
    return [(lines, f"{lines} lines, at most {MAX_FILE_LINES}")] if lines > MAX_FILE_LINES else []


def long_functions(text: str) -> list[Finding]:
    found = []
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                found.append((node.lineno, f"{node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}"))
    return found


def unexplained_broad_excepts(text: str) -> list[Finding]:
    """Handlers of everything whose line, or the line above, has no comment that says why."""
    lines = text.splitlines()
    found = []
    for node in ast.walk(parsed(text)):
        if is_broad_handler(node) or is_broad_suppress(node):
            assert isinstance(node, ast.ExceptHandler | ast.Call)
            if not (says_why(lines[node.lineno - 1]) or is_comment(lines, node.lineno - 1)):
                found.append((node.lineno, "a broad except without a comment that says why"))
    return found


def is_broad_handler(node: ast.AST) -> bool:
    return isinstance(node, ast.ExceptHandler) and (node.type is None or names_everything(node.type))


def is_broad_suppress(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")):
            return any(names_everything(argument) for argument in node.args)
    return False


def names_everything(kind: ast.expr) -> bool:
    match kind:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in BROAD
        case ast.Tuple(elts=kinds):
            return any(names_everything(each) for each in kinds)
    return False


def says_why(line: str) -> bool:
    """Whether the line has a comment of at least two words, not counting what is addressed to a linter."""
    _, _, comment = line.partition("#")
    comment = re.sub(
        r"(#\s*)?(noqa(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)?|type:\s*ignore(\[[\w-]+\])?)", "", comment
    )
    return len(re.findall(r"\w+", comment)) >= 2


def is_comment(lines: list[str], number: int) -> bool:
    """Whether line `number` (from 1) is a comment of its own that says something."""
    return number >= 1 and lines[number - 1].lstrip().startswith("#") and says_why(lines[number - 1])


def environment_reads(text: str) -> list[Finding]:
    found = []
    for node in ast.walk(parsed(text)):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in ENVIRONMENT:
                found.append((node.lineno, f"reads os.{name}"))
            case ast.ImportFrom(module="os", names=names):
                found += [(node.lineno, f"imports {each.name}") for each in names if each.name in ENVIRONMENT]
    return found


def star_imports(text: str) -> list[Finding]:
    return [
        (node.lineno, "a star import")
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]


def unexplained_local_imports(text: str) -> list[Finding]:
    """Imports inside functions without a comment on their line, or above the run of imports they stand in."""
    lines = text.splitlines()
    found = []
    imports = sorted(set(local_imports(parsed(text))))
    starts_by_end = {end: start for start, end in imports}
    for start, end in imports:
        first = start
        while first - 1 in starts_by_end:
            first = starts_by_end[first - 1]
        if not (any(says_why(line) for line in lines[start - 1 : end]) or is_comment(lines, first - 1)):
            found.append((start, "an import inside a function without a comment that says why"))
    return found


def local_imports(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last line of every import inside a function."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node.lineno, node.end_lineno or node.lineno


def grab_bag_name(path: str) -> list[Finding]:
    """Files and folders named for no idea of their own."""
    parts = PurePosixPath(path).with_suffix("").parts
    return [(1, f"`{part}` says nothing about what is in it") for part in parts if part in GRAB_BAGS]


def names_of_history(path: str, text: str) -> list[Finding]:
    """Names that tell how the code came about instead of what it is."""
    tree = parsed(text)
    defined = [(1, part) for part in PurePosixPath(path).with_suffix("").parts]
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                defined.append((node.lineno, name))
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                defined.append((node.lineno, name))
            case ast.Attribute(attr=name, ctx=ast.Store()):
                defined.append((node.lineno, name))
    return [(line, f"the name `{name}`") for line, name in sorted(set(defined)) if tells_history(name)]


def tells_history(name: str) -> bool:
    words = [word for word in name.lower().split("_") if word]
    if any(word in name.lower() for word in ("legacy", "refactored")):
        return True
    return len(words) > 1 and "new" in words  # the verb `new` alone is a command


def machine_paths(text: str) -> list[Finding]:
    return [(line, "a path of one machine") for line in lines_with(MACHINE_PATH, text)]


def registry_hosts(text: str) -> list[Finding]:
    return [(line, "a package registry's host") for line in lines_with(REGISTRY, text)]


def lines_with(pattern: re.Pattern[str], text: str) -> Iterator[int]:
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.search(line):
            yield number
