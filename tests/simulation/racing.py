"""Which drawn playbooks may come to different ends by their schedule alone, for all that can be seen of them.

A parallel iteration sees `ctx` as it was when its lease began, and what others wrote until then is left to
chance. So where the same step writes and reads it, no two runs need to agree. Who shows all of it shows what
other branches wrote, too.
"""

from __future__ import annotations

import re
from typing import Any


def reads_what_others_write(playbook: dict[str, Any]) -> bool:
    text = repr(playbook["workflow"])
    shows_all = "{{ ctx }}" in text and "set_ctx" in text
    return shows_all or any(_races(repr(step)) for step in playbook["workflow"])


def _races(step: str) -> bool:
    return "'parallel'" in step and "set_ctx" in step and re.search(r"(?<!set_)\bctx\b", step) is not None
