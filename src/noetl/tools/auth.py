"""The field `auth`, which every tool kind has in the same form."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

Auth: TypeAlias = Annotated[
    str | dict[str, Any] | None,
    msgspec.Meta(
        description=(
            "The credential to use: its name or that of a keychain entry, a `{{ keychain.x }}` value, "
            "or a mapping of fields; `{}` means none."
        )
    ),
]
