"""Variables of executions over HTTP, and templates rendered with what an execution has by now."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from litestar import delete, get, post, put
from litestar.params import JSONBody, PathParameter

from noetl.client.wire import Rendered, RenderRequest, Variable, VariableList, VariableValue
from noetl.control.variables import set_variable
from noetl.server.executions import ExecutionPath, found_row
from noetl.server.parts import ExecutionState, Given, Parts
from noetl.server.problems import UnknownVariableError
from noetl.server.stored import whole
from noetl.server.views import step_views
from noetl.template import Budget, Scope, Template, is_template

NamePath = Annotated[
    str, PathParameter(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,199}$", description="The name of a variable.")
]


async def _variables(parts: Parts, execution_id: str) -> dict[str, Any]:
    await found_row(parts, execution_id)
    state: ExecutionState = await parts.control.state(execution_id)
    return {name: value for name, value in state.vars.items() if value is not None}


@get("/api/vars/{execution_id:str}", summary="The variables of an execution")
async def listed(parts: Given, execution_id: ExecutionPath) -> VariableList:
    found = await _variables(parts, execution_id)
    return VariableList(
        execution_id=execution_id,
        variables=tuple(Variable(name=name, value=value) for name, value in found.items()),
    )


@get("/api/vars/{execution_id:str}/{name:str}", summary="A variable")
async def shown(parts: Given, execution_id: ExecutionPath, name: NamePath) -> Variable:
    found = await _variables(parts, execution_id)
    if name not in found:
        raise UnknownVariableError(f"execution {execution_id} has no variable `{name}`")
    return Variable(name=name, value=found[name])


@put("/api/vars/{execution_id:str}/{name:str}", summary="Set a variable")
async def written(
    parts: Given, execution_id: ExecutionPath, name: NamePath, data: JSONBody[VariableValue]
) -> Variable:
    """What is set here is an event of the log, as if a step had set it."""
    await found_row(parts, execution_id)
    await set_variable(parts.control, execution_id, name, data.value)
    return Variable(name=name, value=data.value)


@delete("/api/vars/{execution_id:str}/{name:str}", summary="Delete a variable", status_code=200)
async def deleted(parts: Given, execution_id: ExecutionPath, name: NamePath) -> Variable:
    """Templates read it as null from then on; the answer has what it was."""
    before = await shown.fn(parts, execution_id, name)
    await set_variable(parts.control, execution_id, name, None)
    assert isinstance(before, Variable)
    return before


@post("/api/context/render", summary="Render templates as an execution would", status_code=200)
async def render(parts: Given, data: JSONBody[RenderRequest]) -> Rendered:
    """Names: `workload`, `ctx`, `vars`, `execution_id`, steps by their names, and those of `payload`."""
    await found_row(parts, data.execution_id)
    state: ExecutionState = await parts.control.state(data.execution_id)
    steps = {each.name: await whole(parts, each.result) for each in step_views(state)}
    workload, ctx, variables = [
        await whole(parts, dict(each)) for each in (state.workload, state.ctx, state.vars)
    ]
    scope = Scope(
        {"workload": workload, "ctx": ctx, "vars": variables, "execution_id": state.execution_id},
        [data.payload, ctx, variables, steps, workload],
    )
    # A template may use its whole budget of work; others need the event loop meanwhile.
    result = await asyncio.to_thread(_rendered, data.template, scope, Budget())
    return Rendered(execution_id=data.execution_id, result=result)


def _rendered(value: Any, scope: Scope, budget: Budget) -> Any:  # noqa: ANN401 - plain data
    if isinstance(value, str):
        return Template(value).evaluate(scope, budget=budget) if is_template(value) else value
    if isinstance(value, dict):
        return {name: _rendered(item, scope, budget) for name, item in value.items()}
    if isinstance(value, list):
        return [_rendered(item, scope, budget) for item in value]
    return value


HANDLERS: Final = (listed, shown, written, deleted, render)
