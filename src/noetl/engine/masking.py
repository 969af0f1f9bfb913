"""Takes secrets out of the values that an event carries, and leaves alone what the engine goes by.

Arguments, patches, variables, results and messages come from templates, which may read the keychain; names
of steps, directives and ids do not, and a secret that happens to be such a word must not change the flow.
What is masked here is folded masked, so the state never holds more than the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from noetl.engine.bodies import is_ref
from noetl.engine.state import Data

Mask = Callable[[Any], Any]

MAPPINGS: Final = frozenset(
    {"args", "ctx", "overrides", "patch", "payload", "questions", "results", "set_ctx", "set_iter", "vars"}
    | {"workload"}
)
"""Parts of a payload whose keys are names and whose values are data."""
VALUES: Final = frozenset({"data", "details", "items", "log", "message", "reason", "result"})
SHOWN_CHARACTERS: Final = 60


def masked(payload: Data, mask: Mask) -> Data:
    """The payload of an event with its data masked."""
    return {name: _part(name, part, mask) for name, part in payload.items()}


def _part(name: str, part: Any, mask: Mask) -> Any:  # noqa: ANN401 - plain data
    if is_ref(part):
        return part
    if name in MAPPINGS and isinstance(part, dict):
        return {key: _part("data", value, mask) for key, value in part.items()}
    if name in VALUES or name in MAPPINGS:
        return mask(part)
    if name == "changes":
        return [_change(change, mask) for change in part]
    if isinstance(part, dict):
        return masked(part, mask)
    if isinstance(part, list):
        return [_part("", item, mask) for item in part]
    return part


def _change(change: list[Any], mask: Mask) -> list[Any]:
    """What `set` or `collect` did: the value stands last."""
    *names, value = change
    return [*names, _part("ctx", value, mask)]


def shown(value: Any) -> str:  # noqa: ANN401 - plain data
    """A value for a message. It is whole or left out: half a secret would not be known for one."""
    if value is None:
        return "null"
    if is_ref(value):
        return f"a value of {value['size']} bytes"
    text = str(value)
    return f"`{text}`" if len(text) <= SHOWN_CHARACTERS else f"a value of {len(text)} characters"
