"""The description of the API is complete, closed and true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from noetl.server.api_description import OPEN_FIELDS, description, description_handlers, page
from noetl.server.app import handlers
from noetl.server.policies import POLICIES

DOCUMENT = description([*handlers(), *description_handlers(handlers())])


def open_parts(schema: Any, name: str, at: str) -> Iterator[str]:
    """Where a schema allows anything at all."""
    if not isinstance(schema, dict) or name in OPEN_FIELDS:
        return
    typed = {"type", "$ref", "oneOf", "anyOf", "allOf", "enum", "const"} & schema.keys()
    if not typed:
        yield at
    if schema.get("type") == "object" and not schema.get("properties"):
        if not schema.get("additionalProperties"):
            yield at
        else:
            yield from open_parts(schema["additionalProperties"], "", f"{at}/*")
    for field, part in schema.get("properties", {}).items():
        yield from open_parts(part, field, f"{at}/{field}")
    for group in ("oneOf", "anyOf", "allOf"):
        for part in schema.get(group, ()):
            yield from open_parts(part, name, at)
    if "items" in schema:
        yield from open_parts(schema["items"], name, f"{at}[]")


def schemas_of(operation: dict[str, Any]) -> Iterator[Any]:
    for parameter in operation.get("parameters", ()):
        yield parameter["schema"]
    contents = [operation.get("requestBody", {}), *operation["responses"].values()]
    for content in contents:
        for media in content.get("content", {}).values():
            yield media["schema"]


def test_no_object_is_open_but_users_own_data() -> None:
    found = [
        where
        for name, schema in DOCUMENT["components"]["schemas"].items()
        for where in open_parts(schema, "", name)
    ]
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items():
            for schema in schemas_of(operation):
                found += open_parts(schema, "", f"{method} {path}")
    assert found == []


def test_an_open_object_would_be_found() -> None:
    assert list(open_parts({"type": "object", "properties": {"a": {}}}, "", "X")) == ["X/a"]
    assert list(open_parts({"type": "object"}, "", "X")) == ["X"]
    assert list(open_parts({"type": "object", "properties": {"payload": {}}}, "", "X")) == []


def test_every_reference_leads_somewhere() -> None:
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}

    def references(part: Any) -> Iterator[str]:
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                yield part["$ref"]
            for inner in part.values():
                yield from references(inner)
        elif isinstance(part, list):
            for inner in part:
                yield from references(inner)

    assert set(references(DOCUMENT)) <= known


def test_every_route_with_a_policy_is_described_and_no_other() -> None:
    described = {
        (method.upper(), path) for path, operations in DOCUMENT["paths"].items() for method in operations
    }
    assert described == set(POLICIES)


def test_every_operation_has_a_summary_a_name_of_its_own_and_problems() -> None:
    names = []
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            names.append(operation["operationId"])
            assert operation["summary"]
            assert "application/problem+json" in operation["responses"]["default"]["content"]
    assert len(names) == len(set(names))


def test_the_page_needs_nothing_from_elsewhere() -> None:
    shown = page(DOCUMENT)
    assert "<script" not in shown
    assert "http://" not in shown
    assert "https://" not in shown
    for path in DOCUMENT["paths"]:
        assert path in shown
