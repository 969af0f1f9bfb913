"""The console script killed with SIGKILL at moments spread over its undisturbed duration.

A few here; `make durability` has hundreds. The seed is fixed, the moments still fall where the machine's load
lets them: whatever they hit must hold.
"""

from __future__ import annotations

from itertools import islice

import pytest

from tests.durability.campaign import Campaign, random_moments

MOST_TRIES = 5


@pytest.mark.parametrize(("name", "parts"), [*islice(random_moments(seed=3), 12)])
def test_a_killed_execution_is_resumed_and_ends_as_if_undisturbed(
    killing: Campaign, name: str, parts: list[float]
) -> None:
    for _ in range(MOST_TRIES):
        if killing.at_moments(name, parts):
            return
    pytest.fail("it always ended before it could be killed")
