"""Numbers in credentials are kept out of what is written as texts are."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.secrets.redaction import MASK, Redactor, SecretTooShortError

CREDENTIAL = {"api_key": 9182736455463, "pin": 1234567890123, "ratio": 0.123456, "port": 5432, "timeout": 30}


def redactor(*values: object) -> Redactor:
    made = Redactor()
    for value in values or ({"stored": CREDENTIAL},):
        made.register(value)
    return made


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (9182736455463, MASK),
        (
            {"a": [1234567890123, 1, None, True], "b": {"c": 0.123456}},
            {"a": [MASK, 1, None, True], "b": {"c": MASK}},
        ),
        ("the key 9182736455463, and 1234567890123.", f"the key {MASK}, and {MASK}."),
        ({"9182736455463": 1234567890124}, {MASK: 1234567890124}),
        ({"text": "pin%3D1234567890123", "float": 1234567890123.0}, {"text": f"pin%3D{MASK}", "float": MASK}),
        ([5432, 30, 123456, 0.5], [5432, 30, 123456, 0.5]),
    ],
)
def test_a_number_that_is_a_secret_is_masked_in_data_and_in_texts(value: Any, shown: Any) -> None:
    assert redactor().data(value) == shown


def test_a_text_of_digits_is_masked_where_code_made_a_number_of_it() -> None:
    made = redactor("1234567890123", "-7654321", "0000012")
    assert made.data([1234567890123, -7654321, 12, 1234567890123.0]) == [MASK, MASK, 12, MASK]
    assert made.outcome({"result": 1234567890123, "error": {"details": {"pin": -7654321}}}) == {
        "result": MASK,
        "error": {"details": {"pin": MASK}},
    }


def test_numbers_that_say_where_and_who_are_no_secrets() -> None:
    made = redactor({"port": 543210, "account": 123456789012, "user": 1000001, "token": "quiet-magpie"})
    made.register(123456789012, "account")
    assert made.data([543210, 123456789012, 1000001]) == [543210, 123456789012, 1000001]


def test_a_short_number_is_refused_only_where_a_secret_must_be() -> None:
    made = redactor({"timeout": 30, "pool": {"size": 5}, "verify": True, "ssl": False, "retries": [1, 2]})
    assert made.data([30, 5, True, False]) == [30, 5, True, False]
    with pytest.raises(SecretTooShortError, match=r"keychain\.db\.password"):
        made.register_keychain({"db": {"password": 1234, "token": "quiet-magpie"}})
    assert made.text("quiet-magpie") == MASK


def test_texts_that_stand_side_by_side_are_searched_one_by_one() -> None:
    made = redactor("quiet\0magpie", "other-secret")
    assert made.data(["quiet", "magpie", "a\0b", "other-secret"]) == ["quiet", "magpie", "a\0b", MASK]
    assert made.data({"other-": "secret", "k": "quiet\0magpie"}) == {"other-": "secret", "k": MASK}
