"""A few thousand mutated playbooks: `load` answers each with sound diagnostics, and soon.

`make fuzz` runs a hundred thousand with a new seed; here the seed is fixed, so that a failure is the same for
everybody. The fuzzer itself, and how to look at one document, is in `tests/fuzz/validate.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from noetl.playbook.codes import CODES
from tests.fuzz.corpus import ROOT
from tests.fuzz.validate import Tally, document, run_chunk

SEED = 20_260
PARTS = 8
IN_A_PART = 750
COMPARED = 150
LEAST_CODES = 0.6


@cache
def tally(part: int) -> Tally:
    return run_chunk(SEED, range(part * IN_A_PART, (part + 1) * IN_A_PART))


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_documents_get_sound_diagnostics_within_two_seconds(part: int) -> None:
    found = tally(part)
    broken = [
        f"python -m tests.fuzz.validate --seed {SEED} --only {index}: {problems[0]}"
        for index, problems in found.failures.items()
    ]
    assert broken == [], "\n".join(broken)
    # A machine that was busy gets a second chance.
    assert [index for index in found.slow if run_chunk(SEED, range(index, index + 1)).slow] == []


def test_half_of_the_documents_are_yaml_and_a_tenth_are_valid_playbooks() -> None:
    assert tally(0).documents == IN_A_PART
    assert list(tally(0).missed_shares()) == []


def test_documents_that_are_not_yaml_or_not_valid_are_missed() -> None:
    assert len(list(Tally(documents=100, parse=49, valid=9).missed_shares())) == 2
    assert len(list(Tally(documents=100, parse=50, valid=10).missed_shares())) == 0


def test_the_documents_reach_most_of_the_checks() -> None:
    assert len(tally(0).codes & CODES.keys()) >= LEAST_CODES * len(CODES)


def test_a_document_is_the_same_whenever_it_is_made() -> None:
    assert document(SEED, 17) == document(SEED, 17)
    assert document(SEED, 17) != document(SEED + 1, 17)


def test_diagnostics_do_not_depend_on_the_order_of_sets() -> None:
    script = (
        "from noetl.playbook.load import load\n"
        "from noetl.tools.registry import builtin_kinds\n"
        "from tests.fuzz.validate import document\n"
        f"for index in range({COMPARED}):\n"
        f"    print(index, load(document({SEED}, index)[1], builtin_kinds()).diagnostics)\n"
    )
    said = []
    for hash_seed in ("1", "2"):
        ran = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        said.append(ran.stdout.splitlines())
    assert len(said[0]) == COMPARED
    assert said[0] == said[1]
