"""The small changes that can be made in a source: which there are, and what it is like after one.

A change is one comparison, condition, `and`, number, text, answer or statement that is another. Only what
functions do is changed: annotations, assertions, defaults, and what a module does when it is imported are
left alone, and no change moves a line, so that a function can be changed where it is in use.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from tests.gates.source import parsed

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
NEGATED_BY_COMPARISON = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Change(NamedTuple):
    """A piece of a source that is replaced by another."""

    line: int
    column: int
    before: str
    after: str
    function: str = ""
    """Which function it is in, as Python names it."""
    lines: tuple[int, int] = (0, 0)
    """The statement it is in; of a compound one what stands before its body."""

    def applied(self, source: str) -> str:
        lines = source.encode().splitlines(keepends=True)
        start = sum(map(len, lines[: self.line - 1])) + self.column
        whole, before = b"".join(lines), self.before.encode()
        assert whole[start : start + len(before)] == before
        missing = self.before.count("\n") - self.after.count("\n")
        after = self.after.encode() + b"\n" * missing
        return (whole[:start] + after + whole[start + len(before) :]).decode()

    def __str__(self) -> str:
        return f"{self.line}:{self.column + 1}: `{on_one_line(self.before)}` to `{on_one_line(self.after)}`"


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def changes(source: str) -> Iterator[Change]:
    """Every change that can be made in the functions of a source."""
    text = _Text(source)
    for function, name in _functions(parsed(source), ""):
        for statement in _statements(function.body):
            lines = _lines_of(statement)
            for change in (*_of_statement(text, statement), *_of_expressions(text, statement)):
                yield change._replace(function=name, lines=lines)


class _Text:
    """A source, and the pieces of it that nodes stand for."""

    def __init__(self, source: str) -> None:
        self.lines = source.encode().splitlines()

    def of(self, node: ast.expr | ast.stmt) -> str:
        # `ast.get_source_segment` splits the whole source each time.
        assert node.end_lineno is not None
        lines = self.lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode()

    def instead(self, node: ast.expr | ast.stmt, after: str) -> Change:
        return Change(node.lineno, node.col_offset, self.of(node), after)

    def between(self, left: ast.expr, right: ast.expr, before: str, after: str) -> Iterator[Change]:
        """The change of the operator that stands between two expressions of one line."""
        if left.end_lineno != right.lineno or left.end_col_offset is None:
            return
        line = self.lines[right.lineno - 1]
        place = line.find(f" {before} ".encode(), left.end_col_offset, right.col_offset)
        if place >= 0:
            yield Change(right.lineno, place + 1, before, after)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[Function, str]]:
    """The outermost functions and methods; what is inside them belongs to them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield child, prefix + child.name
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from _functions(child, prefix)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, field, []))
        for part in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
            yield from _statements(part.body)


def _lines_of(statement: ast.stmt) -> tuple[int, int]:
    inner = getattr(statement, "body", None) or getattr(statement, "cases", None)
    if isinstance(statement, ast.Match) or not inner:  # guards of a match stand all over it
        return statement.lineno, statement.end_lineno or statement.lineno
    return statement.lineno, max(statement.lineno, inner[0].lineno - 1)


def _of_statement(text: _Text, statement: ast.stmt) -> Iterator[Change]:
    match statement:
        case ast.Return(value=ast.Constant(value=bool() as value) as given):
            yield text.instead(given, str(not value))
        case ast.Return(value=ast.expr() as given) if text.of(given) != "None":
            yield text.instead(given, "None")
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete():
            yield text.instead(statement, "pass")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield text.instead(statement, "pass")
        case ast.Raise(exc=ast.expr()):
            yield text.instead(statement, "pass")
        case ast.Continue():
            yield text.instead(statement, "break")
        case ast.Break():
            yield text.instead(statement, "continue")
        case ast.If():
            yield from _negated(text, statement.test)
        case ast.Match():
            for case in statement.cases:
                if case.guard is not None:
                    yield from _negated(text, case.guard)


def _of_expressions(text: _Text, statement: ast.stmt) -> Iterator[Change]:
    for node in _expressions(statement):
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield from text.between(left, right, *COMPARISONS[type(operator)])
                for side in (left, right):
                    if isinstance(side, ast.Constant) and isinstance(side.value, str):
                        yield text.instead(side, repr(side.value + "-"))
            case ast.BoolOp(op=operator, values=[left, right, *_]):
                words = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
                yield from text.between(left, right, *words)
            case ast.BinOp(op=ast.Add() | ast.Sub() as operator, left=left, right=right):
                if _is_number(left) or _is_number(right):
                    signs = ("+", "-") if isinstance(operator, ast.Add) else ("-", "+")
                    yield from text.between(left, right, *signs)
            case ast.Constant(value=bool() as value):
                if not (isinstance(statement, ast.Return) and node is statement.value):
                    yield text.instead(node, str(not value))
            case ast.Constant(value=int() as number):
                yield text.instead(node, str(number + 1))
            case ast.IfExp(test=test):
                yield from _negated(text, test)
            case ast.comprehension(ifs=conditions):
                for condition in conditions:
                    yield from _negated(text, condition)


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """What a statement says itself, without the statements in it."""
    if isinstance(node, ast.Assert):
        return
    for field, value in ast.iter_fields(node):
        if field == "annotation":
            continue
        for child in value if isinstance(value, list) else [value]:
            match child:
                case ast.stmt() | ast.arguments() | ast.JoinedStr() | ast.ExceptHandler():
                    continue
                case ast.match_case(guard=guard):  # patterns are left alone
                    if guard is not None:
                        yield guard
                        yield from _expressions(guard)
                case ast.AST():
                    yield child
                    yield from _expressions(child)


def _negated(text: _Text, condition: ast.expr) -> Iterator[Change]:
    match condition:
        case ast.Compare(ops=[operator]) if isinstance(operator, NEGATED_BY_COMPARISON):
            return  # the other comparison is a change already
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield text.instead(condition, f"({text.of(operand)})")
        case _:
            yield text.instead(condition, f"(not ({text.of(condition)}))")


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)
