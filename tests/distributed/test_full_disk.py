"""A disk without a byte to spare under PostgreSQL: requests are refused and say why, and no work is lost."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.outside import Outside
from tests.distributed.processes import Ledger, wait_until
from tests.distributed.services import Services
from tests.distributed.shapes import Under, register, undisturbed
from tests.distributed.small_disk import SmallDisk, may_mount
from tests.distributed.stack import stack_on

MIXED = ("chain", "parallel", "nested", "waiting", "parent")


@pytest.mark.skipif(not may_mount(Path("/mnt")), reason="no file systems can be mounted here")
def test_executions_outlive_a_disk_without_a_byte_to_spare(
    services: Services, ledger: Ledger, outside: Outside, session_folder: Path, tmp_path: Path
) -> None:
    disk = SmallDisk(services, session_folder / "small", ledger)
    try:
        with stack_on(disk, ledger, tmp_path) as stack:
            register(stack, *MIXED)
            expected = undisturbed(stack, outside, *MIXED)
            under = Under(stack, outside)
            for name in MIXED:
                under.begin(name)
            outside.wait_for_calls(10)
            disk.fill()
            refusals: list[dict[str, Any]] = []

            def is_refused() -> bool:
                body = {"path": "durability/chain", "payload": {"api": outside.url, "pad": "p" * 50_000}}
                try:
                    begun = stack.call("POST", "/api/executions", body)
                except urllib.error.HTTPError as error:
                    refusals.append({"status": error.code, **json.loads(error.read())})
                    return True
                under.names[begun["execution_id"]] = "chain"
                return False

            wait_until(is_refused, 30.0, "a full disk is noticed")
            disk.clear()
            under.send_signals()
            found = under.outcomes()
        chains = len(found["chain"])
        assert found == {name: [expected[name]] * (chains if name == "chain" else 1) for name in MIXED}
        assert [each["status"] for each in refusals] == [503]
        assert "disk" in refusals[0]["detail"], refusals
    finally:
        disk.stop()
