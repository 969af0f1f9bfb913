"""Checks a lowered playbook: references, pipelines, tool fields, templates and the names they read.

Everything here works on the model and knows no dialect. It reports and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping as Table

from noetl.playbook.check.cases import check_cases
from noetl.playbook.check.flow import Flow, check_flow
from noetl.playbook.check.pipelines import check_pipelines
from noetl.playbook.check.secrets import check_secrets
from noetl.playbook.check.templates import check_templates
from noetl.playbook.findings import Findings
from noetl.playbook.model import Playbook
from noetl.records.tool import ToolDescription

__all__ = ["check"]


def check(playbook: Playbook, kinds: Table[str, ToolDescription], findings: Findings) -> None:
    flow = Flow(playbook)
    check_flow(playbook, flow, findings)
    check_pipelines(playbook, kinds, findings)
    check_cases(playbook, findings)
    check_templates(playbook, flow, kinds, findings)
    check_secrets(playbook, findings)
