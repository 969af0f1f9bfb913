"""One campaign for all tests of a process: the undisturbed executions are run once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.durability.campaign import Campaign, campaign


@pytest.fixture(scope="session")
def killing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    with campaign(tmp_path_factory.mktemp("durability")) as found:
        yield found
