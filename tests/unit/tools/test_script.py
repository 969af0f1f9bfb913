"""The `script` kind: files of the execution's folder, and nothing else that a path can lead to."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from noetl.records.outcome import Outcome
from noetl.tools import script
from tests.unit.tools.local_context import LocalContext, call

PROGRAM = "import json, sys\nprint(json.dumps([sys.argv[1:], sys.stdin.read()]))\n"


def run(folder: Path, text: str | None, name: str = "job.py", args: Any = None, **config: Any) -> Outcome:
    async def scenario() -> Outcome:
        async with LocalContext(folder) as context:
            if text is not None:
                (context.folder / name).parent.mkdir(exist_ok=True)
                (context.folder / name).write_text(text)
            return await script.run(call("script", {"source": name} | config, args=args), context)

    return asyncio.run(scenario())


def failure(outcome: Outcome) -> tuple[str, bool, str]:
    assert outcome.error is not None, outcome
    assert outcome.groups == {"shell": {"exit_code": None}}
    return outcome.error.kind, outcome.error.retryable, outcome.error.message


def test_a_python_script_gets_its_arguments_and_the_args_of_the_task(tmp_path: Path) -> None:
    outcome = run(tmp_path, PROGRAM, arguments=["--n", 1, True, None, "a b"], args={"x": [1]})
    assert outcome.result == '[["--n", "1", "true", "a b"], "{\\"x\\":[1]}"]'
    assert outcome.groups == {"shell": {"exit_code": 0}}


def test_a_text_for_the_standard_input_stands_in_place_of_the_args(tmp_path: Path) -> None:
    assert run(tmp_path, PROGRAM, stdin="hello", args={"x": 1}).result == '[[], "hello"]'


def test_a_script_imports_what_lies_beside_it(tmp_path: Path) -> None:
    run(tmp_path, "word = 'beside'", name="jobs/other.py")
    assert run(tmp_path, "import other; print(other.word)", name="jobs/main.py").result == "beside"


def test_a_shell_script_is_run_by_the_shell_and_its_exit_code_shown(tmp_path: Path) -> None:
    outcome = run(tmp_path, 'echo "$1"; exit 4', name="job.sh", arguments=["hi"])
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.result) == ("shell.exit", "hi")
    assert outcome.groups == {"shell": {"exit_code": 4}}


def test_an_interpreter_can_be_named_with_its_options(tmp_path: Path) -> None:
    assert (
        run(tmp_path, "import sys; print(sys.flags.isolated)", interpreter=[sys.executable, "-I"]).result
        == "1"
    )
    assert run(tmp_path, "echo $0", name="plain", interpreter="sh").result.endswith("/plain")


@pytest.mark.parametrize("interpreter", ["no-such-program", None])
def test_a_script_without_an_interpreter_is_not_run(tmp_path: Path, interpreter: str | None) -> None:
    kind, retryable, _ = failure(run(tmp_path, "x", name="job.xyz", interpreter=interpreter))
    assert (kind, retryable) == ("script.start", False)


@pytest.mark.parametrize("name", ["../job.sh", "/bin/true", "link.sh", "sub/../../job.sh", "", "nothing.sh"])
def test_a_path_that_leads_elsewhere_or_nowhere_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "job.sh").write_text("echo outside")
    (tmp_path / "execution").mkdir()
    (tmp_path / "execution" / "link.sh").symlink_to(tmp_path / "job.sh")
    kind, retryable, message = failure(run(tmp_path, None, name=name))
    assert (kind, retryable) == ("script.start", False)
    assert message.startswith("`source`: ")


def test_a_script_runs_if_its_checksum_fits_and_not_otherwise(tmp_path: Path) -> None:
    good = hashlib.sha256(PROGRAM.encode()).hexdigest()
    assert run(tmp_path, PROGRAM, checksum=good).status == "ok"
    assert run(tmp_path, PROGRAM, checksum=f"sha256:{good.upper()}").status == "ok"
    assert failure(run(tmp_path, PROGRAM + "#", checksum=good))[:2] == ("script.checksum", False)


@pytest.mark.parametrize("source", ["s3://bucket/job.py", "http://127.0.0.1/job.py", "file:///job.py"])
def test_an_address_of_another_kind_is_refused(tmp_path: Path, source: str) -> None:
    assert failure(run(tmp_path, None, name=source))[:2] == ("script.start", False)


def test_a_script_that_cannot_be_fetched_is_retryable_where_the_connection_is(tmp_path: Path) -> None:
    assert failure(run(tmp_path, None, name="https://127.0.0.1:1/job.py"))[:2] == ("http.connect", True)
    refused = failure(run(tmp_path, None, name="https://169.254.169.254/job.py"))
    assert refused[:2] == ("http.address_refused", False)
