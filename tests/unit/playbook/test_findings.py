"""What is collected about a file stays readable and bounded, whatever the file holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noetl.playbook.diagnostics import Position
from noetl.playbook.findings import LONGEST_TEXT, MOST_COMPARISONS, Findings, one_line

HERE = Position(1, 1)


@given(st.text(max_size=2 * LONGEST_TEXT))
def test_a_message_is_one_printable_line_of_bounded_length(text: str) -> None:
    shown = one_line(text)
    assert shown.isprintable()
    assert len(shown) <= LONGEST_TEXT


def test_a_short_message_is_left_as_it_is() -> None:
    assert one_line("there is no step `é`") == "there is no step `é`"


def test_line_breaks_and_control_characters_of_names_do_not_reach_the_terminal() -> None:
    findings = Findings()
    findings.report("step.unknown", HERE, "there is no step `a\n  b\x1b[31m`", "did you mean `a\rb`?")
    (found,) = findings.sorted()
    assert found.message == "there is no step `a b\N{REPLACEMENT CHARACTER}[31m`"
    assert found.hint == "did you mean `a b`?"


def test_a_guess_is_the_same_whatever_the_order_of_a_set() -> None:
    words = {"cart", "card", "care", "carp", "cars"}
    assert Findings().guess("carx", words) == Findings().guess("carx", sorted(words)) == "card"


def test_guesses_end_when_a_file_has_asked_too_often() -> None:
    findings = Findings()
    names = [f"step_{number}" for number in range(MOST_COMPARISONS // 2)]
    assert findings.guess("stap_1", names) == "step_1"
    assert findings.guess("stap_2", names) == "step_2"
    assert findings.guess("stap_3", names) is None


def test_findings_are_in_the_order_of_the_file_and_each_stands_once() -> None:
    findings = Findings()
    for line in (3, 1, 3):
        findings.report("step.unknown", Position(line, 1), "there is no step `a`")
    assert [found.line for found in findings.sorted()] == [1, 3]
