"""`Template`: a piece of text from a playbook that may hold expressions.

Creating one costs nothing; it is parsed when it is first asked about or evaluated, and templates with
the same source share the parse. The fast path is tried first; Jinja is loaded only for what it refuses.
Every failure leaves here as one of the template errors, and no text is ever evaluated twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from noetl.errors import TemplateBudgetError, TemplateError, TemplateSyntaxError, TemplateValueError
from noetl.template.budget import Budget
from noetl.template.evaluation import Evaluation, whole_text
from noetl.template.grammar import compile_fast
from noetl.template.lookup import Read, Scope

if TYPE_CHECKING:
    from noetl.template.sandbox import JinjaProgram

MAX_SOURCE_BYTES = 64 * 1024
_MAX_SHOWN = 500

# What operators and filters raise for values they cannot work on. An exception that a view raises on
# purpose (a body that must be loaded first) is none of these and passes through.
_VALUE_FAILURES = (
    ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError,
)  # fmt: skip
_LIMIT_FAILURES = (RecursionError, MemoryError)

# A guard made of text and statements is false if all it says is one of these.
_FALSE_TEXTS = frozenset(("", "false", "none", "0"))


class Program(Protocol):
    """A parsed template, by either engine."""

    reads: tuple[Read, ...]
    sole: bool

    @property
    def value(self) -> Callable[[Evaluation], Any]:
        """The bare value of a sole expression, otherwise the rendered text."""

    def evaluate(self, run: Evaluation) -> object: ...


class Template:
    __slots__ = ("_guard", "_program", "at", "source")

    source: str
    at: Any
    _program: Program | None
    _guard: Program | None

    def __init__(self, source: str, at: object | None = None) -> None:
        keep = object.__setattr__
        keep(self, "source", source)
        keep(self, "at", at)
        keep(self, "_program", None)
        keep(self, "_guard", None)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a template is immutable; {name!r} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a template is immutable; {name!r} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return self.source == other.source if isinstance(other, Template) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.source)

    def __repr__(self) -> str:
        return f"Template({self.source!r})"

    def __reduce__(self) -> tuple[type[Template], tuple[str, object]]:
        return Template, (self.source, self.at)

    @property
    def sole(self) -> bool:
        """Is it exactly one `{{ expression }}`, so that `evaluate` gives the native value?"""
        return self._parsed().sole

    @property
    def reads(self) -> tuple[Read, ...]:
        """Every name it reads from the scope, in the order of the source."""
        return self._parsed().reads

    @property
    def reads_secret(self) -> bool:
        return any(read.path[0] == "keychain" for read in self.reads)

    def parse(self) -> None:
        """Raises TemplateSyntaxError if the source does not parse."""
        self._parsed()

    def evaluate(
        self,
        scope: Scope,
        *,
        budget: Budget | None = None,
        on_secret: Callable[[object], None] | None = None,
    ) -> object:
        """The native value of a sole expression, otherwise the rendered text; strict about names.

        `on_secret` is called with the value of each expression that reads the keychain.
        """
        return evaluate_program(self._parsed(), self.source, Evaluation(scope, True, budget, on_secret))

    def render(
        self,
        scope: Scope,
        on_output: Callable[[Evaluation, object], str],
        *,
        budget: Budget | None = None,
        on_secret: Callable[[object], None] | None = None,
    ) -> str:
        """The text, sole expression or not, with each expression's value as `on_output` writes it."""
        run = Evaluation(scope, True, budget, on_secret, on_output)
        return str(evaluate_program(self._parsed(), self.source, run))

    def test(self, scope: Scope, *, budget: Budget | None = None) -> bool:
        """Does the guard hold? What is undefined is false."""
        guard = self._guard
        if guard is None:
            guard = _program_of(self.source.strip())
            object.__setattr__(self, "_guard", guard)
        return guard_program(guard, self.source, Evaluation(scope, False, budget))

    def _parsed(self) -> Program:
        program = self._program
        if program is None:
            program = _program_of(self.source)
            object.__setattr__(self, "_program", program)
        return program


def evaluate_program(program: Program, source: str, run: Evaluation) -> object:
    try:
        result = program.evaluate(run)
        return whole_text(result) if type(result) is str and not result.isascii() else result
    except TemplateValueError as error:
        raise _value_error(source, error.message) from None
    except TemplateError:
        raise
    except _VALUE_FAILURES as error:
        raise _value_error(source, str(error)) from None
    except _LIMIT_FAILURES:
        raise TemplateBudgetError("the template nests or grows its values beyond all bounds") from None


def guard_program(program: Program, source: str, run: Evaluation) -> bool:
    try:
        value = program.value(run)
        if not program.sole:
            return value.strip().lower() not in _FALSE_TEXTS
        return bool(value)
    except TemplateValueError as error:
        raise _value_error(source, error.message) from None
    except TemplateError:
        raise
    except _VALUE_FAILURES as error:
        raise _value_error(source, str(error)) from None
    except _LIMIT_FAILURES:
        raise TemplateBudgetError("the template nests or grows its values beyond all bounds") from None


def _value_error(source: str, reason: str) -> TemplateValueError:
    return TemplateValueError(f"{reason}, in `{_shown(source)}`")


def _shown(source: str) -> str:
    text = source.strip()
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def _program_of(source: str) -> Program:
    found = _parse(source)
    if isinstance(found, TemplateSyntaxError):
        # Each time a new one: an exception that is raised again drags its earlier tracebacks along.
        raise TemplateSyntaxError(found.message, found.offset, found.word, found.known)
    return found


@lru_cache(maxsize=4096)
def _parse(source: str) -> Program | TemplateSyntaxError:
    """The parsed template, or what is wrong with it: a broken one is asked about several times too."""
    if len(source) > MAX_SOURCE_BYTES // 4 and len(source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
        return TemplateSyntaxError("the template is longer than 64 KiB", 0)
    try:
        return compile_fast(source) or _compile_jinja(source)
    except TemplateSyntaxError as error:
        return error.with_traceback(None)


@lru_cache(maxsize=512)
def _compile_jinja(source: str) -> JinjaProgram:
    # Loading Jinja takes longer than a small playbook takes to run, and most never need it.
    from noetl.template.sandbox import compile_jinja  # noqa: PLC0415

    return compile_jinja(source)


def is_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text
