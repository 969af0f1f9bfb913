"""Variables of an execution that are set from outside, as events of its log like those a step sets."""

from __future__ import annotations

from typing import Any

from noetl.control.plane import ControlPlane
from noetl.engine.bodies import refuse_references
from noetl.engine.turn import Turn
from noetl.errors import NoetlError


class ExecutionOverError(NoetlError):
    """Nothing can be changed in an execution that is over."""

    code = "execution.over"


async def set_variable(control: ControlPlane, execution_id: str, name: str, value: Any) -> None:  # noqa: ANN401
    """Sets a variable; one that is set to null counts as not there."""

    def act(turn: Turn) -> bool:
        if turn.state.is_over:
            return False
        turn.playbook_event("vars.set", vars={name: value})
        return True

    refuse_references(value, "the variable")
    live = await control.with_secrets_known(execution_id)
    if not (await live.change(act, fresh=True)).given:
        raise ExecutionOverError(f"execution {execution_id} is over: its variables stay as they are")
