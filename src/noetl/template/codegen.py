"""Jinja's code generator, with every place where a value is read, computed or shown led through us.

The generated code asks the environment (see `sandbox.py`) for attributes, subscripts, comparisons and
concatenations, and reports what it writes, so that the budget and the rules for missing names hold in
statements just as they do in the fast path. It folds no constants: that would run filters unbounded.
"""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

from noetl.template.grammar import subscript_path

_SYMBOLS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "lteq": "<=",
    "gt": ">",
    "gteq": ">=",
    "in": "in",
    "notin": "not in",
}

TURNS_FILTER = " turns"


def path_of(node: nodes.Node) -> str:
    """How an expression is shown in messages about what it lacks; the fast path says the same."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        return f"{path_of(node.node)}.{node.attr}"
    if isinstance(node, nodes.Getitem):
        key = node.arg.value if isinstance(node.arg, nodes.Const) else None
        return subscript_path(path_of(node.node), key)
    if isinstance(node, nodes.Call):
        return path_of(node.node) + "()"
    if isinstance(node, nodes.Const):
        if node.value is None or isinstance(node.value, bool):
            return str(node.value).lower()
        return "text" if isinstance(node.value, str) else "number"
    if isinstance(node, nodes.List):
        return "list"
    return "mapping" if isinstance(node, nodes.Dict) else "(…)"


class BoundedCodeGenerator(CodeGenerator):
    # Set by `sandbox.generate` before a template is visited.
    secret_outputs: frozenset[int] = frozenset()

    # The node being called, while it is visited.
    _called: nodes.Node | None = None

    def write_commons(self) -> None:
        super().write_commons()
        self.writeline("undefined = context.undefined")
        self.writeline("cond_expr_undefined = context.nothing")

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:  # noqa: N802
        for child in node.nodes:
            self.start_write(frame, child)
            if isinstance(child, nodes.TemplateData):
                self.write(f"environment.passed(context, {child.data!r})")
            else:
                self.write(f"environment.shown(context, {id(child) in self.secret_outputs}, ")
                self.visit(child, frame)
                self.write(")")
            self.end_write(frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802
        node.iter = nodes.Filter(node.iter, TURNS_FILTER, [], [], None, None, lineno=node.iter.lineno)
        # The name is ours and no dependency of the template's own text.
        if TURNS_FILTER not in self.filters:
            self.filters[TURNS_FILTER] = f"environment.filters[{TURNS_FILTER!r}]"
        super().visit_For(node, frame)

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802
        # An infinite float has no literal.
        self.write(f"float({str(node.value)!r})" if isinstance(node.value, float) else repr(node.value))

    def visit_Call(self, node: nodes.Call, frame: Frame, forward_caller: bool = False) -> None:  # noqa: N802
        self._called = node.node
        super().visit_Call(node, frame, forward_caller=forward_caller)

    def visit_Getattr(self, node: nodes.Getattr, frame: Frame) -> None:  # noqa: N802
        read = "read_method" if node is self._called else "read_attribute"
        self.write(f"environment.{read}(context, ")
        self.visit(node.node, frame)
        self.write(f", {node.attr!r}, {path_of(node)!r})")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        self.write("environment.read_subscript(context, ")
        self.visit(node.node, frame)
        self.write(", ")
        self.visit(node.arg, frame)
        self.write(f", {path_of(node)!r})")

    def visit_Slice(self, node: nodes.Slice, frame: Frame) -> None:  # noqa: N802
        self.write("slice(")
        for part in (node.start, node.stop, node.step):
            if part is None:
                self.write("None, ")
            else:
                self.visit(part, frame)
                self.write(", ")
        self.write(")")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        self.write("environment.compare(context, ")
        self.visit(node.expr, frame)
        for operand in node.ops:
            # Later operands are computed only if the chain has held so far.
            self.write(f", ({_SYMBOLS[operand.op]!r}, lambda: ")
            self.visit(operand.expr, frame)
            self.write(")")
        self.write(")")

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.concatenate(context, ")
        self._visit_items(node.nodes, frame)
        self.write(")")

    def visit_Not(self, node: nodes.UnaryExpr, frame: Frame) -> None:  # noqa: N802
        if isinstance(node.node, nodes.Test):
            # What is missing passes neither a test nor its opposite.
            self.write("environment.failed(")
        else:
            self.write("(not ")
        self.visit(node.node, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802
        self.write("environment.built(context, ")
        self._visit_items(node.items, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
            return
        self.write("environment.built(context, tuple(")
        self._visit_items(node.items, frame)
        self.write("))")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self.write("environment.mapping(context, [")
        for pair in node.items:
            self.write("(")
            self.visit(pair.key, frame)
            self.write(", ")
            self.visit(pair.value, frame)
            self.write("), ")
        self.write("])")

    def _visit_items(self, items: Sequence[nodes.Node], frame: Frame) -> None:
        self.write("[")
        for item in items:
            self.visit(item, frame)
            self.write(", ")
        self.write("]")
