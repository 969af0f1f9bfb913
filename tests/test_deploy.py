"""The files under `deploy/` pass the linter of whatever reads them, and say what NoETL understands."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest
import yaml

from noetl.cli import VERBS, main

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
NEWEST, OLDEST = "1.37", "1.30"
GRACE = re.compile(r"--grace (\d+)")


def documents() -> list[dict[str, Any]]:
    return [document for path in MANIFESTS for document in yaml.safe_load_all(path.read_text("utf-8"))]


def commands() -> list[list[str]]:
    """Every `noetl …` command line in the files, as words."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    found = [service["command"] for service in compose["services"].values() if "command" in service]
    found += [container["command"] for document in documents() for container in containers(document)]
    found += [
        shlex.split(line)
        for unit in UNITS
        for line in re.findall(r"^ExecStart\w*=(.*)", unit.read_text(), re.M)
    ]
    return [words[1:] for words in found if words[0].endswith("noetl")]


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    template = document.get("spec", {}).get("template", {}).get("spec", {})
    return [*template.get("initContainers", []), *template.get("containers", [])]


def test_the_compose_file_keeps_to_the_schema_of_compose() -> None:
    checked = subprocess.run(
        [
            sys.executable,
            "-m",
            "check_jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            DEPLOY / "compose.yaml",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.skipif(
    shutil.which("docker") is None
    or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,
    reason="docker compose is not installed",
)
def test_docker_compose_reads_the_compose_file() -> None:
    variables = {
        "NOETL_IMAGE": "noetl",
        "POSTGRES_PASSWORD": "a",
        "NATS_TOKEN": "b",
        "NATS_WORKER_TOKEN": "c",
        "PATH": "/usr/bin:/usr/local/bin",
    }
    checked = subprocess.run(
        ["docker", "compose", "-f", DEPLOY / "compose.yaml", "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        env=variables,
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_manifests_keep_to_the_schemas_of_kubernetes(version: str) -> None:
    found = documents()
    assert {document["kind"] for document in found} >= {"Deployment", "Service", "Job", "ConfigMap", "Secret"}
    for document in found:
        kubernetes_validate.validate(document, version, strict=True)


def test_servers_have_probes_and_containers_have_no_rights_they_do_not_need() -> None:
    deployments = [document for document in documents() if document["kind"] == "Deployment"]
    assert {each["metadata"]["name"] for each in deployments} == {"noetl-server", "noetl-worker"}
    for document in documents():
        for container in containers(document):
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert rights["readOnlyRootFilesystem"] is True
    (server,) = (
        container for each in deployments for container in containers(each) if container["name"] == "server"
    )
    assert server["readinessProbe"]["httpGet"]["path"] == "/api/ready"
    assert server["livenessProbe"]["httpGet"]["path"] == "/api/health"


def test_workers_are_not_told_where_the_database_is() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    assert "NOETL_STORE" not in compose["services"]["worker"]["environment"]
    secrets = {
        each["metadata"]["name"]: each["stringData"] for each in documents() if each["kind"] == "Secret"
    }
    assert "NOETL_STORE" in secrets["noetl-server"]
    assert "NOETL_STORE" not in secrets["noetl-worker"]
    (worker,) = (
        each
        for each in documents()
        if each["metadata"]["name"] == "noetl-worker" and each["kind"] == "Deployment"
    )
    assert "noetl-server" not in str(worker)


def test_workers_and_servers_have_different_logins_at_nats() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]
    secrets = {
        each["metadata"]["name"]: each["stringData"] for each in documents() if each["kind"] == "Secret"
    }
    for server, worker in [
        (services["server"]["environment"], services["worker"]["environment"]),
        (secrets["noetl-server"], secrets["noetl-worker"]),
    ]:
        assert server["NOETL_NATS"].startswith("nats://server:")
        assert worker["NOETL_NATS"].startswith("nats://worker:")
        assert server["NOETL_NATS"].split("@")[0][14:] != worker["NOETL_NATS"].split("@")[0][14:]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_every_line_of_the_units(tmp_path: Path) -> None:
    # The programs that a unit names must exist for systemd to be content.
    copies = []
    for unit in UNITS:
        copies.append(tmp_path / unit.name)
        copies[-1].write_text(
            unit.read_text("utf-8").replace("/usr/local/lib/noetl/bin/noetl", sys.executable), "utf-8"
        )
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--generators=no", *copies],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in (checked.stdout + checked.stderr).splitlines() if "noetl" in line]
    assert ours == []


@pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
def test_a_unit_is_started_again_and_hardened(unit: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(unit)
    service = parser["Service"]
    assert service["Restart"] == "always"
    assert service["NoNewPrivileges"] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert service["User"].startswith("noetl")


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_in_the_files_is_one_that_noetl_takes(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    verb, *rest = words
    assert verb in VERBS
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    action = rest[0]
    assert re.search(rf"[|{{ ]{action}[|}}\s]", shown), action
    assert [word for word in rest if word.startswith("--") and word not in shown] == []


def test_the_time_to_stop_is_longer_than_the_time_of_grace_of_workers() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["worker"]
    (worker,) = (
        each
        for each in documents()
        if each["metadata"]["name"] == "noetl-worker" and each["kind"] == "Deployment"
    )
    pod = worker["spec"]["template"]["spec"]
    unit = (DEPLOY / "systemd" / "noetl-worker@.service").read_text("utf-8")
    times = [
        (" ".join(compose["command"]), int(compose["stop_grace_period"].rstrip("s"))),
        (" ".join(pod["containers"][0]["command"]), pod["terminationGracePeriodSeconds"]),
        (unit, int(re.findall(r"^TimeoutStopSec=(\d+)", unit, re.M)[0])),
    ]
    for command, stop_seconds in times:
        assert int(GRACE.findall(command)[0]) + 10 <= stop_seconds
