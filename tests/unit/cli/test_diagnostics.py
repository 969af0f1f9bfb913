"""Source lines with a caret, whatever characters they hold."""

from __future__ import annotations

import io
from time import process_time

import pytest

from noetl.cli.diagnostics import MOST_SHOWN, Paint, Report, excerpt, paint_for
from noetl.playbook.diagnostics import Diagnostic
from noetl.settings import Settings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def reported(text: str, *, line: int = 1, column: int, message: str = "wrong", paint: bool = False) -> str:
    stream = io.StringIO()
    found = Diagnostic(severity="error", code="a.b", message=message, line=line, column=column, hint=None)
    Report(stream, Paint(paint)).file("f.yaml", text, (found,))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("line", "column", "shown", "cells_before"),
    [
        ("abc", 2, "abc", 1),
        ("abc", 4, "abc", 3),
        ("abc", 99, "abc", 3),
        ("\tab", 2, "    ab", 4),
        ("a\tb", 3, "a   b", 4),
        ("東京 x", 4, "東京 x", 5),
        ("e\u0301x", 3, "e\u0301x", 1),
        ("é: x", 4, "é: x", 3),
        ("a\x1b[31mb", 7, "a\\x1b[31mb", 9),
        ("a\u202eb", 3, "a\\u202eb", 7),
        ("", 1, "", 0),
    ],
)
def test_the_caret_stands_under_the_character_that_is_meant(
    line: str, column: int, shown: str, cells_before: int
) -> None:
    assert excerpt(line, column, 80) == (shown, cells_before)


@pytest.mark.parametrize("column", [1, 2, 40, 100, 199, 200, 201])
def test_a_long_line_is_shown_around_its_caret(column: int) -> None:
    line = "".join(chr(ord("a") + number % 26) for number in range(200))
    shown, before = excerpt(line, column, 40)
    assert len(shown) <= 40
    assert before < 40
    if column <= 200:
        assert shown[before] == line[column - 1]
    assert shown.startswith("…") == (not shown.startswith(line[:5]))


def test_a_long_line_of_wide_characters_keeps_to_the_width() -> None:
    shown, before = excerpt("東" * 100, 50, 40)
    assert sum(2 if character == "東" else 1 for character in shown) <= 40
    assert (before - 1) % 2 == 0


def test_lines_end_where_an_editor_ends_them() -> None:
    text = "one\r\ntwo\x0bstill two\u2028and still\rthree\n"
    assert "   2 | two\\x0bstill two\\u2028and still\n" in reported(text, line=2, column=1)
    assert "   3 | three\n" in reported(text, line=3, column=1)


def test_a_file_without_text_has_no_excerpt() -> None:
    assert reported("", column=1) == "f.yaml:1:1: error[a.b]: wrong\n"


def test_control_characters_in_a_message_are_shown_not_sent() -> None:
    assert "\x1b" not in reported("a", column=1, message="unknown key `\x1b[2J`")


def test_colours_are_for_terminals_only() -> None:
    assert "\x1b[1;31m" in reported("a", column=1, paint=True)
    assert paint_for(Terminal(), Settings()).enabled
    assert not paint_for(io.StringIO(), Settings()).enabled
    assert not paint_for(Terminal(), Settings(), no_color=True).enabled
    assert not paint_for(Terminal(), Settings(colour=False)).enabled


def test_thousands_of_diagnostics_on_one_line_are_told_at_once() -> None:
    line = "a: {" + "key: 1, " * 20_000
    found = tuple(
        Diagnostic(severity="error", code="a.b", message="wrong", line=1, column=8 * index + 5, hint=None)
        for index in range(5000)
    )
    stream, started = io.StringIO(), process_time()
    Report(stream, Paint(False)).file("f.yaml", line, found)
    assert process_time() - started < 0.5
    written = stream.getvalue()
    assert written.count("error[a.b]") == MOST_SHOWN
    assert written.endswith("f.yaml: … and 4900 more\n")
    assert all(len(each) <= 100 for each in written.splitlines())


def test_where_not_all_are_told_errors_come_before_warnings_and_all_stay_in_order() -> None:
    found = tuple(
        Diagnostic(
            severity="error" if line > 500 else "warning",
            code="a.b",
            message=f"at {line}",
            line=line,
            column=1,
            hint=None,
        )
        for line in range(1, 521)
    )
    stream = io.StringIO()
    Report(stream, Paint(False)).file("f.yaml", "", found)
    told = [each.partition(" at ")[2] for each in stream.getvalue().splitlines()]
    assert told[:-1] == [*map(str, range(1, 81)), *map(str, range(501, 521))]


def test_characters_that_take_no_room_are_not_all_measured() -> None:
    shown, before = excerpt("a" + "\u0301" * 100_000 + "b", 50_000, 40)
    assert (shown[0], shown[-1], before) == ("…", "…", 1)
    assert len(shown) < 1000
