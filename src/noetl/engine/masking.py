"""Takes secrets out of the values that an event carries, and leaves alone what the engine goes by.

Arguments, patches, variables, results and messages come from templates, which may read the keychain; names
of steps, directives and ids do not, and a secret that happens to be such a word must not change the flow.
Keys of what an execution was started with are data as well, unless they are names that templates go by.
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
FROM_OUTSIDE: Final = frozenset({"payload", "workload"})
"""Mappings whose keys whoever asks for an execution may choose freely."""
VALUES: Final = frozenset({"data", "details", "items", "log", "message", "reason", "result"})
SHOWN_CHARACTERS: Final = 60


def masked(payload: Data, mask: Mask) -> Data:
    """The payload of an event with its data masked."""
    return {name: _part(name, part, mask) for name, part in payload.items()}


def _part(name: str, part: Any, mask: Mask) -> Any:  # noqa: ANN401 - plain data
    if is_ref(part):
        return part
    if name in MAPPINGS and isinstance(part, dict):
        keys = [_key(key, mask) for key in part] if name in FROM_OUTSIDE else list(part)
        return dict(zip(keys, (_part("data", value, mask) for value in part.values()), strict=True))
    if name in VALUES or name in MAPPINGS:
        return mask(part)
    if name == "changes":
        return [_change(change, mask) for change in part]
    if isinstance(part, dict):
        return masked(part, mask)
    if isinstance(part, list):
        return [_part("", item, mask) for item in part]
    return part


def _key(key: str, mask: Mask) -> str:
    """A key without secrets; one that templates may go by stays.

    That is a name of letters alone (the user or the database of a credential may well be the same word), or
    a name of which a secret is only a part.
    """
    shown = str(mask(key))
    is_part = any(map(str.isalnum, shown))
    return key if key.isidentifier() and (is_part or key.replace("_", "").isalpha()) else shown


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
