"""The reference of the API has every route, every code and every metric, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from noetl.registry.roles import ROLES
from noetl.server.metrics import Metrics
from noetl.server.policies import POLICIES
from noetl.server.problems import CODE_OF, STATUS_OF
from tests.unit.server.test_openapi import DOCUMENT

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "api.md").read_text("utf-8")


def test_every_route_has_its_row_and_no_other_has_one() -> None:
    rows = re.findall(r"^\| `([A-Z]+) (/\S+)` \| `(\S+)` \| (.+) \|$", PAGE, re.M)
    expected = {
        (method, path, policy.permission, DOCUMENT["paths"][path][method.lower()]["summary"])
        for (method, path), policy in POLICIES.items()
    }
    assert set(rows) == expected
    assert len(rows) == len(expected)


def test_every_code_has_its_row_with_its_status() -> None:
    rows = dict(re.findall(r"^\| `([a-z_]+(?:\.[a-z_]+)?)` \| (\d+) \|", PAGE, re.M))
    expected = {code: status for status, code in CODE_OF.items()} | STATUS_OF
    assert {code: int(status) for code, status in rows.items()} == expected


def test_every_metric_and_every_role_is_described() -> None:
    metrics = Metrics()
    names = {family.name for family in metrics.registry.collect()}
    described = {name.removesuffix("_total") for name in re.findall(r"^\| `(noetl_\w+)`", PAGE, re.M)}
    assert described == names
    assert [role for role in ROLES if f"| `{role}` |" not in PAGE] == []
