"""Secrets that were cut before anybody looked for them: in messages, in tails, between two pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.secrets.redaction import SHORTEST_PIECE, Redactor

SECRET = "Kx7/qWz+93bTn-Lm5RvYd0PsJc"
words = st.text("abc .\n", max_size=40)


def redactor() -> Redactor:
    made = Redactor()
    made.register(SECRET)
    return made


@given(words, st.integers(0, len(SECRET)), st.sampled_from(["", "…", "...", "..., null)"]))
def test_the_end_of_a_text_that_was_cut_shows_no_piece(before: str, cut: int, mark: str) -> None:
    shown = redactor().cut_text(before + SECRET[:cut] + mark)
    assert cut < SHORTEST_PIECE or SECRET[:SHORTEST_PIECE] not in shown
    assert shown.startswith(before) or before.endswith(".")


@given(words, st.integers(0, len(SECRET)), st.sampled_from(["", "…", "LINE 1: ..."]))
def test_the_beginning_of_a_text_that_was_cut_shows_no_piece(after: str, cut: int, mark: str) -> None:
    shown = redactor().cut_text(mark + SECRET[cut:] + after)
    assert len(SECRET) - cut < SHORTEST_PIECE or SECRET[-SHORTEST_PIECE:] not in shown


@pytest.mark.parametrize(
    "text", ["", "Kx7/qWz", "nothing here", "a Kx7/qWzz b", "the end of 5RvYd0PsJc is here"]
)
def test_a_text_with_no_piece_at_a_cut_stays_as_it_is(text: str) -> None:
    assert redactor().cut_text(text) == text


@given(words, words, st.lists(st.integers(0, 60), max_size=4))
def test_a_secret_is_found_wherever_its_text_is_divided(before: str, after: str, borders: list[int]) -> None:
    text = before + SECRET + after
    made, shown, held = redactor(), "", ""
    for first, last in zip([0, *sorted(borders)], [*sorted(borders), len(text)], strict=True):
        piece = made.text(held + text[first:last])
        end = made.unfinished(piece)
        shown, held = shown + piece[:end], piece[end:]
    shown += made.cut_text(held)
    assert SECRET[:SHORTEST_PIECE] not in shown
    assert shown.startswith(before)


def test_nothing_is_held_back_after_a_line_break() -> None:
    assert redactor().unfinished("Kx7\n") == 4
    assert redactor().unfinished("a line\nand Kx") == 11


def test_only_what_tells_of_an_error_is_taken_for_cut() -> None:
    piece = SECRET[:12]
    error = {"kind": "a", "message": f"it was {piece}…", "details": {"stderr": [SECRET[5:] + " said"]}}
    assert redactor().outcome({"result": {"a": piece}, "error": error}) == {
        "result": {"a": piece},
        "error": {"kind": "a", "message": "it was ***…", "details": {"stderr": ["*** said"]}},
    }
    assert redactor().outcome({"result": piece, "error": None}) == {"result": piece, "error": None}
