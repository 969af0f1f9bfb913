"""One call of the python tool: what its code finds defined, and what its answer means as an outcome.

The code's variables are `args`; names that it uses without defining them come from the context (step
args, then workload keys). What it prints is the task's log, and what it gives back must be plain data
(see `plain` for what is converted). Nothing of it ever runs in the worker's own process.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import time
from functools import lru_cache
from typing import Any, Final

import msgspec

from noetl.errors import NoetlError
from noetl.records.outcome import Outcome
from noetl.records.protocols import ToolCall, ToolContext
from noetl.tools.outcomes import failed, ok
from noetl.tools.processes.limits import LimitError, limits_from
from noetl.tools.processes.pool import CodePool
from noetl.tools.processes.requests import Failure, Program
from noetl.tools.processes.sandbox import sandbox_for
from noetl.tools.python import PythonConfig

POOL_KEY: Final = "python.pool"
_NEVER_FREE: Final = frozenset(dir(builtins)) | {"__name__", "__file__", "__builtins__", "__annotations__"}


async def run_python(call: ToolCall, context: ToolContext) -> Outcome:
    started = time.monotonic()
    try:
        config = msgspec.convert(call.config, PythonConfig)
        limits = limits_from(call.spec.get("resources"))
        sandbox = None
        if call.spec.get("isolation", "process") != "process":
            sandbox = await sandbox_for(call.spec, context.folder)
        variables = await _variables(call, config, context)
    except (msgspec.ValidationError, LimitError) as error:
        return failed(call, started, "spec.invalid", str(error), py=_group(None))
    except NoetlError as error:  # a credential or an isolation that is not to be had
        return failed(call, started, error.code, error.message, py=_group(None))
    file, first_line = context.source_line("code") or (f"<{call.step}: {call.task_label}>", 1)
    program = Program(config.code, file, first_line, tuple((config.libs or {}).items()))
    pool = await context.shared(POOL_KEY, _make_pool)
    answer = await pool.call(
        context.process_key, limits, program, context.folder, variables, context.log, sandbox
    )
    if answer.failure is None:
        return ok(call, started, answer.result, py=_group(None))
    return _failed(call, started, answer.failure)


async def _make_pool() -> CodePool:
    return CodePool()


def warm_pool(key: str) -> CodePool:
    """A pool whose first process is on its way, for code under that key without limits of its own."""
    pool = CodePool()
    pool.warm(key, limits_from(None))
    return pool


async def _variables(call: ToolCall, config: PythonConfig, context: ToolContext) -> dict[str, Any]:
    """What the code finds defined: its args, its credential as `auth`, and the names it leaves free."""
    args = call.args if call.args is not None else {}
    if not isinstance(args, dict) or not all(isinstance(name, str) for name in args):
        raise msgspec.ValidationError("`args` of python code must be a mapping of names to values")
    variables: dict[str, Any] = {}
    if config.auth:
        auth = config.auth
        variables["auth"] = dict(await context.credential(auth)) if isinstance(auth, str) else auth
    variables.update(args)
    for name in (*free_names(config.code), *needed_parameters(config.code)):
        if name not in variables and name not in (config.libs or ()):
            try:
                variables[name] = await context.free_name(name)
            except KeyError:  # then it is a NameError of the code, at the line that needs it
                continue
    return variables


@lru_cache(maxsize=512)
def free_names(code: str) -> tuple[str, ...]:
    """The names that code reads as globals and nowhere binds, builtins left out; none if it is no code."""
    try:
        module = symtable.symtable(code, "<code>", "exec")
    except (SyntaxError, ValueError, RecursionError):  # the process that compiles it says where and why
        return ()
    read: set[str] = set()
    bound: set[str] = set()
    tables = [module]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table is module or symbol.is_declared_global():
                if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
                    bound.add(symbol.get_name())
                if symbol.is_referenced():
                    read.add(symbol.get_name())
            elif symbol.is_global() and symbol.is_referenced():
                read.add(symbol.get_name())
    return tuple(sorted(read - bound - _NEVER_FREE))


@lru_cache(maxsize=512)
def needed_parameters(code: str) -> tuple[str, ...]:
    """What `main` must be given; none if there is no such function."""
    if "def main" not in code:
        return ()
    try:
        module = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):  # as above
        return ()
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "main":
            plain = node.args.args[: len(node.args.args) - len(node.args.defaults)]
            by_name = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            return tuple(each.arg for each in (*plain, *(arg for arg, value in by_name if value is None)))
    return ()


def _failed(call: ToolCall, started: float, failure: Failure) -> Outcome:
    details = {"traceback": failure.traceback} if failure.traceback else None
    return failed(
        call,
        started,
        failure.kind,
        failure.message,
        retryable=failure.retryable,
        details=details,
        py=_group(failure.exception_type),
    )


def _group(exception_type: str | None) -> dict[str, Any]:
    return {"exception_type": exception_type}
