"""Stored bodies as values: data, text, and an error for what is neither."""

from __future__ import annotations

import pytest

from noetl.records.result_ref import ResultRef
from noetl.results.bodies import ResultBinaryError, decoded

BINARY = bytes(range(256)) * 8


def reference(store: str, key: str) -> ResultRef:
    return ResultRef(
        ref="noetl://1/x",
        store=store,
        key=key,
        checksum="c",
        size=len(BINARY),
        schema_hint={"media_type": "image/png"},
    )


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": [1]}', {"a": [1]}),
        (b"a,b\n", "a,b\n"),
        ("grün".encode(), "grün"),
        (b"[" * 3000, "[" * 3000),
        (b"\x00\x01", "\x00\x01"),
    ],
)
def test_a_body_is_data_where_it_is_json_and_text_where_it_is_text(body: bytes, value: object) -> None:
    assert decoded(body) == value


@pytest.mark.parametrize("body", [BINARY, b'{"a": "\xff"}', "grün".encode("latin-1")])
def test_a_body_that_is_neither_is_refused_and_never_altered(body: bytes) -> None:
    with pytest.raises(
        ResultBinaryError, match=rf"{len(body):,} bytes.* neither text nor JSON.*\.stored_path"
    ):
        decoded(body)


@pytest.mark.parametrize(
    ("store", "key", "remedy"),
    [
        ("file", "1/results/c", "`.stored_path` of the result is its path"),
        ("nats_object", "1/c", "`spec.result.store: file`"),
        ("s3", "s3://bucket/1/c", "where it lies: s3://bucket/1/c"),
    ],
)
def test_the_refusal_says_what_the_body_is_and_what_to_do(store: str, key: str, remedy: str) -> None:
    with pytest.raises(ResultBinaryError) as refused:
        decoded(BINARY, reference(store, key))
    assert "2,048 bytes of image/png" in refused.value.message
    assert remedy in refused.value.message
