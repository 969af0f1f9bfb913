"""The Jinja path: Jinja's parser and compiler inside our rules and budgets.

It is imported only when a template is outside the fast grammar, because loading Jinja and generating
code cost far more than evaluating. The sandbox never uses Python's attribute access on data: values,
operators, filters and tests are those of the fast path, and generated code reaches them through the
environment's methods below (see `codegen.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jinja2 import TemplateError as JinjaError
from jinja2 import TemplateSyntaxError as JinjaSyntaxError
from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator
from jinja2.environment import Template as JinjaTemplate
from jinja2.lexer import TokenStream
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, missing

from noetl.errors import TemplateBudgetError, TemplateSyntaxError, TemplateValueError
from noetl.template import closures, operators
from noetl.template.budget import MAX_INTEGER_BITS
from noetl.template.codegen import TURNS_FILTER, BoundedCodeGenerator
from noetl.template.evaluation import Evaluation
from noetl.template.filters import Filter, apply
from noetl.template.list_filters import ALL_FILTERS, ALL_TESTS, Group
from noetl.template.lookup import UNDEFINED, Missing, Read, attribute, called_attribute, subscript
from noetl.template.methods import Value
from noetl.template.positions import message_of, offset_stream
from noetl.template.reads import find_reads
from noetl.template.text_filters import TEXT_FILTERS

MAX_NESTING: Final = 40
MAX_TREE_DEPTH: Final = 100

_GLOBAL_NAMES: Final = frozenset(("range", "dict", "namespace"))
_REFUSED_STATEMENTS: Final[dict[type[nodes.Node], str]] = {
    nodes.Block: "block",
    nodes.Extends: "extends",
    nodes.Include: "include",
    nodes.Import: "import",
    nodes.FromImport: "from",
    nodes.ScopedEvalContextModifier: "autoescape",
}
_LOOP_FIELDS: Final = frozenset((
    "index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0",
    "previtem", "nextitem",
))  # fmt: skip
_LOOP_METHODS: Final = frozenset(("cycle", "changed"))
_TOO_DEEP: Final = f"the template is nested more than {MAX_NESTING} levels deep"

assert TEXT_FILTERS.keys() <= ALL_FILTERS.keys()


class Output(str):
    """Text that is the template's own, or that `on_output` has written."""

    __slots__ = ()


# Such text may hold values that never were an expression's: a filter's arguments, for one.
_UNWRITTEN: Final = (
    "a `filter` or `call` block or a recursive loop cannot write into this text; "
    "keep its text by `{% set %}` and write `{{ … | sql }}`"
)


class Function:
    """Something of the sandbox's own that a template may call."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Value]) -> None:
        self.function = function


def _range(run: Evaluation, *bounds: Value) -> range:
    if any(isinstance(bound, int) and bound.bit_length() > 63 for bound in bounds):
        raise TemplateBudgetError("the template makes a range of numbers that are too large")
    found = range(*bounds)
    # `len` itself fails on ranges that do not fit a machine word.
    if found and (found[-1] - found[0]) // found.step >= 1_000_000:
        raise TemplateBudgetError("the template makes a range of more than a million numbers")
    run.produce(8 * len(found))
    return found


def _dict(run: Evaluation, value: Value = (), **items: Value) -> dict[Value, Value]:
    pairs = (
        list(value.items()) if isinstance(value, dict) else [_pair(run, item) for item in run.turns(value)]
    )
    return run.mapping([*pairs, *items.items()])


def _pair(run: Evaluation, value: Value) -> tuple[Value, Value]:
    found = run.plain(value)
    if not isinstance(found, (list, tuple, str)) or len(found) != 2:
        raise TemplateValueError("a mapping is made of pairs")
    return found[0], found[1]


def _namespace(run: Evaluation, *args: Value, **items: Value) -> Namespace:
    return Namespace(_dict(run, *args, **items))


_GLOBALS: Final = {"range": Function(_range), "dict": Function(_dict), "namespace": Function(_namespace)}


class ScopeContext(Context):
    """Where generated code finds names; it also carries the evaluation."""

    run: Evaluation

    def resolve_or_missing(self, key: str) -> Value:
        if key in self.vars:
            return self.vars[key]
        value = self.run.resolve(key)
        return _GLOBALS.get(key, missing) if value is UNDEFINED else value

    def undefined(self, hint: str | None = None, *_: Value, name: str | None = None, **__: Value) -> Missing:
        return Missing(name or "value", self.run.strict, hint if name is None else None)

    def nothing(self, _hint: str) -> Value:
        return closures.nothing(self.run)


def _as_filter(function: Filter) -> Callable[..., Value]:
    @pass_context
    def run_filter(context: ScopeContext, value: Value, *args: Value, **kwargs: Value) -> Value:
        return apply(context.run, function, value, args, kwargs)

    return run_filter


def _as_test(function: Filter) -> Callable[..., Value]:
    @pass_context
    def run_test(context: ScopeContext, value: Value, *args: Value) -> Value:
        context.run.spend(1 + len(args))
        return function(context.run, value, *args)

    return run_test


@pass_context
def _turns(context: ScopeContext, value: Value) -> Value:
    return context.run.turns(value)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    code_generator_class: type[CodeGenerator] = BoundedCodeGenerator
    context_class = ScopeContext
    intercepted_binops = frozenset(operators.BINARY)
    intercepted_unops = frozenset("+-")

    def __init__(self) -> None:
        super().__init__(optimized=False, keep_trailing_newline=True, autoescape=False, cache_size=0)
        self.filters = {name: _as_filter(function) for name, function in ALL_FILTERS.items()}
        self.filters[TURNS_FILTER] = _turns
        self.tests = {name: _as_test(function) for name, function in ALL_TESTS.items()}
        self.globals = {}

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        return offset_stream(self.lexer, source)

    # Called by generated code.

    def call_binop(self, context: Value, operator: str, left: Value, right: Value) -> Value:
        context.run.spend(1)
        return operators.BINARY[operator](context.run, left, right)

    def call_unop(self, context: Value, operator: str, arg: Value) -> Value:
        context.run.spend(1)
        return (operators.negative if operator == "-" else operators.positive)(context.run, arg)

    def read_attribute(self, context: ScopeContext, value: Value, name: str, path: str) -> Value:
        context.run.spend(1)
        if isinstance(value, LoopContext):
            if name in _LOOP_FIELDS:
                return getattr(value, name)
        elif isinstance(value, Group):
            if name in Group._fields:
                return getattr(value, name)
        elif isinstance(value, Namespace) and not name.startswith("_"):
            try:
                return getattr(value, name)
            except AttributeError:
                return Missing(path, context.run.strict)
        return attribute(context.run, value, name, path)

    def read_method(self, context: ScopeContext, value: Value, name: str, path: str) -> Value:
        if isinstance(value, LoopContext) and name in _LOOP_METHODS:
            method = getattr(value, name)

            def call_method(run: Evaluation, *args: Value) -> Value:
                if name == "changed":
                    # It compares them with those before.
                    run.compared(args)
                return method(*args)

            return Function(call_method)
        if isinstance(value, (LoopContext, Group, Namespace)):
            return self.read_attribute(context, value, name, path)
        context.run.spend(1)
        return called_attribute(context.run, value, name, path)

    def read_subscript(self, context: ScopeContext, value: Value, key: Value, path: str) -> Value:
        context.run.spend(1)
        return subscript(context.run, value, key, path)

    def compare(self, context: ScopeContext, left: Value, *links: tuple[str, Callable[[], Value]]) -> Value:
        held: Value = True
        for symbol, operand in links:
            context.run.spend(1)
            right = operand()
            held = operators.COMPARISONS[symbol](context.run, left, right)
            if not held:
                return held
            left = right
        return held

    def concatenate(self, context: ScopeContext, values: list[Value]) -> Value:
        context.run.spend(1)
        return operators.concat(context.run, values)

    def failed(self, outcome: Value) -> bool:
        return False if isinstance(outcome, Missing) else not outcome

    def built(self, context: ScopeContext, value: Value) -> Value:
        return context.run.built(value)

    def mapping(self, context: ScopeContext, pairs: list[tuple[Value, Value]]) -> Value:
        return context.run.mapping(pairs)

    def passed(self, context: ScopeContext, text: str) -> str:
        context.run.produce(len(text))
        return text if context.run.on_output is None else Output(text)

    def shown(self, context: ScopeContext, secret: bool, value: Value) -> str:
        run = context.run
        # Asked once and called directly, because loops come here for every value they write.
        text = run.text(value) if run.on_output is None else Output(run.on_output(run, value))
        if secret:
            run.secret(value)
        return text

    def call(__self, __context: Value, __obj: Value, *args: Value, **kwargs: Value) -> Value:  # noqa: N805
        run: Evaluation = __context.run
        run.spend(1 + len(args) + len(kwargs))
        if not isinstance(__obj, (Macro, LoopContext)):
            kwargs.pop("_loop_vars", None)
            kwargs.pop("_block_vars", None)
            if isinstance(__obj, Function):
                for arg in (*args, *kwargs.values()):
                    if isinstance(arg, Missing):
                        return arg.used()
                return __obj.function(run, *map(run.plain, args), **kwargs)
            return operators.call(run, __obj, args, kwargs)
        run.enter_call()
        if isinstance(__obj, LoopContext):
            args = tuple(run.turns(arg) for arg in args)
        result = __context.call(__obj, *args, **kwargs)
        run.leave_call()
        run.produce(len(result))
        return result


class JinjaProgram:
    """A template compiled by Jinja."""

    __slots__ = ("_secret", "_template", "reads", "sole")

    def __init__(self, template: JinjaTemplate, reads: tuple[Read, ...], sole: bool, secret: bool) -> None:
        self._template = template
        self._secret = secret
        self.reads = reads
        self.sole = sole

    def evaluate(self, run: Evaluation) -> object:
        result = self.value(run)
        if self.sole and run.on_output is not None:
            if self._secret:
                run.secret(result)
            return run.shown(result)
        if self.sole:
            result = run.native(result)
            if self._secret:
                run.native_secret(result)
        return result

    def value(self, run: Evaluation) -> Value:
        context = ScopeContext(self._template.environment, {}, None, {})
        context.run = run
        texts = []
        try:
            texts = list(self._template.root_render_func(context))
        except JinjaError as error:
            raise TemplateValueError(error.message or "the template cannot be rendered") from None
        if run.on_output is not None and not all(type(text) is Output for text in texts):
            raise TemplateValueError(_UNWRITTEN)
        return context.vars[_RESULT] if self.sole else "".join(texts)


# A sole expression is compiled as an assignment to this name, so that its value is never made text.
_RESULT: Final = "sole_value_of_template"
_ENVIRONMENT: Final = BoundedEnvironment()


def compile_jinja(source: str) -> JinjaProgram:
    try:
        return _compile(source)
    except JinjaSyntaxError as error:
        raise TemplateSyntaxError(message_of(error), error.lineno) from None
    except (SyntaxError, RecursionError, MemoryError):
        # Python's own limits on the generated code, and the stack the parser needs.
        raise TemplateSyntaxError("the template is nested too deeply or repeats a name", 0) from None


def _compile(source: str) -> JinjaProgram:
    _check_nesting(source)
    tree = _ENVIRONMENT.parse(source)
    _check_tree(tree)
    reads = find_reads(tree.body, _GLOBAL_NAMES)
    outputs = [child for output in tree.find_all(nodes.Output) for child in output.nodes]
    expressions = [child for child in outputs if not isinstance(child, nodes.TemplateData)]
    statements = any(not isinstance(node, nodes.Output) for node in tree.body)
    secret = any(read.path[0] == "keychain" for read in reads)
    secret_outputs = frozenset(
        id(child) for child in expressions if secret and (statements or _reads_secret(child))
    )
    sole = (
        not statements and len(outputs) == 1 and len(expressions) == 1
        and source.startswith("{{") and source.endswith("}}")
    )  # fmt: skip
    if sole:
        target = nodes.Name(_RESULT, "store", lineno=0)
        tree.body = [nodes.Assign(target, expressions[0], lineno=0)]
    tree.set_environment(_ENVIRONMENT)
    generator = BoundedCodeGenerator(_ENVIRONMENT, None, None, optimized=False)
    generator.secret_outputs = secret_outputs
    generator.visit(tree)
    code = compile(generator.stream.getvalue(), "<template>", "exec")  # type: ignore[attr-defined]
    template = JinjaTemplate.from_code(_ENVIRONMENT, code, {}, None)
    return JinjaProgram(template, reads, sole, secret)


def _reads_secret(expression: nodes.Node) -> bool:
    return any(read.path[0] == "keychain" for read in find_reads([nodes.Output([expression])], _GLOBAL_NAMES))


def _check_nesting(source: str) -> None:
    """Judges brackets and blocks before the parser, which needs a dozen stack frames for each."""
    depth = blocks = 0
    previous = ""
    for token in offset_stream(_ENVIRONMENT.lexer, source):
        if token.type in ("lparen", "lbracket", "lbrace"):
            depth += 1
        elif token.type in ("rparen", "rbracket", "rbrace"):
            depth -= 1
        elif previous == "block_begin" and token.type == "name":
            blocks += _block_change(token.value)
        elif token.type in ("block_end", "variable_end"):
            depth = 0
        if depth + blocks > MAX_NESTING:
            raise TemplateSyntaxError(_TOO_DEEP, token.lineno)
        previous = token.type


def _block_change(word: str) -> int:
    if word.startswith("end"):
        return -1
    return 1 if word in ("for", "if", "macro", "call", "filter", "with", "set") else 0


def _check_tree(tree: nodes.Template) -> None:
    stack: list[tuple[nodes.Node, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_TREE_DEPTH:
            raise TemplateSyntaxError("the template's expressions are nested too deeply", node.lineno)
        number = node.value if isinstance(node, nodes.Const) else None
        if isinstance(number, int) and number.bit_length() > MAX_INTEGER_BITS:
            raise TemplateSyntaxError("a number has too many digits", node.lineno)
        refused = _REFUSED_STATEMENTS.get(type(node))
        if refused is not None:
            raise TemplateSyntaxError(f"the statement `{refused}` is not available in playbooks", node.lineno)
        if isinstance(node, nodes.Filter) and node.name not in ALL_FILTERS:
            message = f"there is no filter named `{node.name}`"
            raise TemplateSyntaxError(message, node.lineno, node.name, ALL_FILTERS)
        if isinstance(node, nodes.Test) and node.name not in ALL_TESTS:
            raise TemplateSyntaxError(
                f"there is no test named `{node.name}`", node.lineno, node.name, ALL_TESTS
            )
        stack.extend((child, depth + 1) for child in node.iter_child_nodes())
