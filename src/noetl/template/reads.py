"""Which names a template reads from its scope, found in Jinja's syntax tree.

Names that the template itself binds (`for`, `set`, `macro`, `with`, `call`) are not reads where the
binding holds. The fast path collects its reads while parsing; this file serves the templates that
need Jinja, and gives the same answer for those that do not.
"""

from __future__ import annotations

from collections.abc import Iterable

from jinja2 import nodes

from noetl.template.lookup import Read

_GUARDING_TESTS = frozenset(("defined", "undefined"))
_GUARDING_FILTERS = frozenset(("default", "d"))
_MACRO_NAMES = frozenset(("varargs", "kwargs", "caller"))


def find_reads(body: Iterable[nodes.Node], known: frozenset[str]) -> tuple[Read, ...]:
    """`known` are the globals, which are no reads of the scope."""
    finder = _ReadFinder(known)
    finder.statements(body, set())
    return tuple(sorted(finder.found, key=lambda read: read.offset))


class _ReadFinder:
    def __init__(self, known: frozenset[str]) -> None:
        self._known = known
        self.found: list[Read] = []

    def statements(self, body: Iterable[nodes.Node], bound: set[str]) -> None:
        """`bound` grows as the statements bind names."""
        for statement in body:
            self._statement(statement, bound)

    def _statement(self, node: nodes.Node, bound: set[str]) -> None:
        if isinstance(node, nodes.For):
            self._for(node, bound)
        elif isinstance(node, (nodes.Macro, nodes.CallBlock)):
            self._macro(node, bound)
        elif isinstance(node, nodes.Assign):
            self._expression(node.node, bound, False)
            self._bind(node.target, bound)
        elif isinstance(node, nodes.AssignBlock):
            if node.filter is not None:
                self._expression(node.filter, bound, False)
            self.statements(node.body, set(bound))
            self._bind(node.target, bound)
        elif isinstance(node, nodes.With):
            for value in node.values:
                self._expression(value, bound, False)
            inner = set(bound)
            for target in node.targets:
                self._bind(target, inner)
            self.statements(node.body, inner)
        elif isinstance(node, nodes.If):
            self._if(node, bound)
        elif isinstance(node, (nodes.Scope, nodes.FilterBlock, nodes.ScopedEvalContextModifier)):
            if isinstance(node, nodes.FilterBlock):
                self._expression(node.filter, bound, False)
            self.statements(node.body, set(bound))
        else:
            for child in node.iter_child_nodes():
                if isinstance(child, nodes.Expr):
                    self._expression(child, bound, False)
                else:
                    self._statement(child, bound)

    def _for(self, node: nodes.For, bound: set[str]) -> None:
        self._expression(node.iter, bound, False)
        inner = set(bound)
        self._bind(node.target, inner)
        if node.test is not None:
            self._expression(node.test, inner, False)
        inner.add("loop")
        self.statements(node.body, inner)
        self.statements(node.else_, set(bound))

    def _if(self, node: nodes.If, bound: set[str]) -> None:
        """A name set in one branch only may still come from the scope after it."""
        self._expression(node.test, bound, False)
        branches = [set(bound)]
        self.statements(node.body, branches[0])
        for other in node.elif_:
            branches.append(set(bound))
            self._statement(other, branches[-1])
        branches.append(set(bound))
        self.statements(node.else_, branches[-1])
        bound |= set.intersection(*branches)

    def _macro(self, node: nodes.Macro | nodes.CallBlock, bound: set[str]) -> None:
        if isinstance(node, nodes.CallBlock):
            self._expression(node.call, bound, False)
        else:
            bound.add(node.name)
        for value in node.defaults:
            self._expression(value, bound, False)
        inner = bound | _MACRO_NAMES
        for argument in node.args:
            self._bind(argument, inner)
        self.statements(node.body, inner)

    def _bind(self, target: nodes.Node, bound: set[str]) -> None:
        if isinstance(target, nodes.Name):
            bound.add(target.name)
        elif isinstance(target, nodes.Tuple):
            for item in target.items:
                self._bind(item, bound)

    def _expression(self, node: nodes.Node, bound: set[str], guarded: bool) -> None:
        if isinstance(node, (nodes.Name, nodes.Getattr, nodes.Getitem)):
            self._path(node, bound, guarded)
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            # The method's name is no part of what is read.
            self._expression(node.node.node, bound, guarded)
            self._children(node, bound, guarded, skip=node.node)
        elif isinstance(node, (nodes.Filter, nodes.Test)):
            guarding = _GUARDING_FILTERS if isinstance(node, nodes.Filter) else _GUARDING_TESTS
            if node.node is not None:
                self._expression(node.node, bound, guarded or node.name in guarding)
            self._children(node, bound, guarded, skip=node.node)
        else:
            self._children(node, bound, guarded)

    def _children(
        self, node: nodes.Node, bound: set[str], guarded: bool, skip: nodes.Node | None = None
    ) -> None:
        for child in node.iter_child_nodes():
            if child is not skip:
                self._expression(child, bound, guarded)

    def _path(self, node: nodes.Node, bound: set[str], guarded: bool) -> None:
        keys: list[str] = []
        while True:
            if isinstance(node, nodes.Getattr):
                keys.append(node.attr)
                node = node.node
            elif isinstance(node, nodes.Getitem):
                if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
                    keys.append(node.arg.value)
                else:
                    # Only what stands before an index or a computed key is constant.
                    keys.clear()
                    self._expression(node.arg, bound, guarded)
                node = node.node
            else:
                break
        if not isinstance(node, nodes.Name):
            self._expression(node, bound, guarded)
        elif node.name not in bound and node.name not in self._known:
            self.found.append(Read((node.name, *reversed(keys)), node.lineno, guarded))
