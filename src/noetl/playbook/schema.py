"""The JSON Schema of a canonical playbook, for editors and for whoever writes playbooks by program.

It says what can be said of a file's shape: keys, types, choices, the fields of each tool kind. What
needs more than shape (unknown steps, jumps to nowhere, templates) is found by `check` alone, so a file
that fits the schema may still be refused. The order of everything in it is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from noetl.playbook.dialects.sections import EXECUTOR_KEYS, KEYCHAIN_FIELDS, METADATA_KEYS, ROOT_KEYS
from noetl.playbook.knobs import EXECUTOR_KNOBS, TASK_KNOBS
from noetl.playbook.schema_shapes import (
    VALUES,
    Schema,
    choice,
    closed,
    listing,
    opened,
    ref,
    templated,
    text,
)
from noetl.playbook.schema_steps import step_definitions
from noetl.playbook.schema_tasks import TASK_KNOB_SHAPES, task_definitions
from noetl.records.tool import ToolDescription

SCHEMA_ID: Final = "https://noetl.io/schema/playbook-v2.json"

EXECUTOR_KNOB_SHAPES: Final[dict[str, Schema]] = {
    "entry_step": {"type": "string", "minLength": 1},
    "deadline": ref("duration"),
}

KEYCHAIN_MEANINGS: Final = {
    "env": "The value of an environment variable.",
    "file": "The text of a file.",
    "credential": "A stored credential; its fields are read as `keychain.<name>.<field>`.",
    "postgres_credential": "A stored credential for PostgreSQL.",
    "bearer": "A bearer token.",
    "api_key": "An API key.",
    "oauth2": "A token by OAuth 2 client credentials, kept until it expires.",
    "secret_manager": "A secret of Vault, Google or AWS.",
}

KEYCHAIN_FIELD_MEANINGS: Final = {
    "var": "The environment variable; by default the entry's name.",
    "path": "The file.",
    "credential": "The stored credential; by default the entry's name.",
    "token": "The token itself, from another entry or the workload.",
    "key": "The key itself, from another entry or the workload.",
    "header": "The header that carries the key.",
    "token_url": "Where tokens are asked for.",
    "client_id": "The client's id.",
    "client_secret": "The client's secret.",
    "client_auth": "How the client shows its secret: in a header or in the body.",
    "scope": "The scopes to ask for.",
    "audience": "The audience to ask for.",
    "provider": "The secret manager: `vault`, `google` or `aws`.",
    "secret": "The secret's name or path; by default the entry's name.",
    "version": "The secret's version; the latest by default.",
    "field": "One field of a secret that has several.",
    "project": "Google: the project.",
    "region": "AWS: the region.",
    "address": "Vault: the address of the server.",
    "mount": "Vault: where the secrets engine is mounted.",
}


def json_schema(kinds: Mapping[str, ToolDescription]) -> Schema:
    """The schema of playbooks that may use these tool kinds."""
    root = closed(
        "A workflow: what it needs, what it works on, and its steps.",
        ROOT_KEYS,
        _root_shapes(),
        required=("metadata", "workflow"),
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "NoETL playbook",
        **root,
        "$defs": {
            **VALUES,
            "metadata": _metadata(),
            "keychain_entry": _keychain_entry(),
            "executor": _executor(kinds),
            **step_definitions(kinds),
            **task_definitions(kinds),
        },
    }


def _root_shapes() -> dict[str, Schema]:
    return {
        "apiVersion": {"description": "The version of the language.", "const": "noetl.io/v2"},
        "kind": {"description": "What the file is.", "const": "Playbook"},
        "metadata": ref("metadata"),
        "keychain": listing("The secrets the playbook needs, and where they are.", ref("keychain_entry")),
        "executor": ref("executor"),
        "workload": {
            "description": "The data it works on; the payload of a request is merged over it.",
            "type": ["object", "null"],
        },
        "workflow": listing("The steps.", ref("step"), minItems=1),
        "workbook": {
            "description": "Tasks with a name, for use in several steps.",
            "type": ["array", "null"],
            "items": ref("workbook_entry"),
        },
    }


def _metadata() -> Schema:
    return closed(
        "What the playbook is called, and what people want to know of it.",
        METADATA_KEYS,
        {
            "name": text("The playbook's name."),
            "path": text("Its path in the catalog; by default the name."),
            "description": {"description": "What it is for."},
            "version": {"description": "The author's own version."},
            "labels": {"description": "Labels to find it by."},
            "tags": {"description": "Tags to find it by."},
            "owner": {"description": "Who answers for it."},
        },
        required=("name",),
    )


def _keychain_entry() -> Schema:
    """One form for each kind, because each kind has its own keys."""
    if KEYCHAIN_MEANINGS.keys() != KEYCHAIN_FIELDS.keys():
        raise ValueError("the kinds of keychain entries are not those of the language")
    forms = []
    for kind, meaning in KEYCHAIN_MEANINGS.items():
        fields = [name for name in KEYCHAIN_FIELD_MEANINGS if name in KEYCHAIN_FIELDS[kind]]
        shapes: dict[str, Schema] = {
            "name": text("The name that templates read it by: `keychain.<name>`."),
            "kind": {"description": "How it is found.", "const": kind},
            "desc": text("What it is for."),
            **{name: _keychain_field(name) for name in fields},
        }
        known = KEYCHAIN_FIELDS[kind] | {"name", "kind", "desc"}
        forms.append(closed(meaning, known, shapes, required=("name", "kind")))
    return {"description": "A secret the playbook needs, and how it is found.", "anyOf": forms}


def _keychain_field(name: str) -> Schema:
    meaning = KEYCHAIN_FIELD_MEANINGS[name]
    if name == "version":
        return templated({"description": meaning, "type": ["string", "integer"]})
    if name == "scope":
        return templated({"description": meaning, "anyOf": [{"type": "string"}, {"type": "array"}]})
    return {"description": meaning, "type": "string"}


def _executor(kinds: Mapping[str, ToolDescription]) -> Schema:
    return closed(
        "Where the playbook is to run, and defaults for all its tasks.",
        EXECUTOR_KEYS,
        {
            "profile": choice(
                "Whether loops run in one worker or across the pool.", ("local", "distributed")
            ),
            "version": text("The runtime the playbook was written for, such as `noetl-runtime/2`."),
            "spec": opened(
                "Knobs of the execution, and defaults for all tasks.",
                {**EXECUTOR_KNOBS, **TASK_KNOBS},
                {**TASK_KNOB_SHAPES, **EXECUTOR_KNOB_SHAPES},
                kinds,
            ),
        },
    )
