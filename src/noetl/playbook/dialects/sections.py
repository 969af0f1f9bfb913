"""The root of a playbook and its sections: metadata, keychain, executor, workload, and the entry step."""

from __future__ import annotations

from typing import Final, Literal

from noetl.playbook.dialects.lowering import Lowering, position
from noetl.playbook.dialects.specs import knobs
from noetl.playbook.fields import Fields, values
from noetl.playbook.findings import Place
from noetl.playbook.knobs import EXECUTOR_KNOBS, TASK_KNOBS
from noetl.playbook.model import Executor, KeychainEntry, Value
from noetl.playbook.reader import Mapping, Node, Scalar, Sequence

ROOT_KEYS: Final = frozenset(
    {"apiVersion", "kind", "metadata", "keychain", "executor", "workload", "workflow", "workbook"}
)
METADATA_KEYS: Final = frozenset({"name", "path", "description", "version", "labels", "tags", "owner"})
EXECUTOR_KEYS: Final = frozenset({"profile", "version", "spec"})
CREDENTIAL_WORDS: Final = frozenset({"credentials", "credential", "auth", "secrets", "keychain", "tokens"})
RUNTIME: Final = "noetl-runtime"
RUNTIME_MAJOR: Final = "2"

KEYCHAIN_FIELDS: Final[dict[str, frozenset[str]]] = {
    "env": frozenset({"var"}),
    "file": frozenset({"path"}),
    "credential": frozenset({"credential"}),
    "postgres_credential": frozenset({"credential"}),
    "bearer": frozenset({"var", "path", "credential", "token"}),
    "api_key": frozenset({"var", "path", "credential", "key", "header"}),
    "oauth2": frozenset(
        {"token_url", "client_id", "client_secret", "scope", "audience", "credential", "client_auth"}
    ),
    "secret_manager": frozenset(
        {"provider", "secret", "version", "field", "project", "region", "address", "mount"}
    ),
}
"""How each kind of keychain entry is located; without a locator the entry's name is used."""


def open_root(low: Lowering, root: Mapping) -> Fields:
    """The root's fields; `vars`, the likeliest mistake, gets its own words."""
    known = ROOT_KEYS
    if "vars" in root.entries:
        low.findings.report(
            "root.vars",
            root.entries["vars"].key,
            "`vars` is not a root section",
            "put inputs under `workload`",
        )
        known = known | {"vars"}
    fields = Fields(low.findings, root, "a playbook", known)
    fields.require("metadata", "workflow")
    return fields


class Metadata:
    """Name and path, and the rest as it was written."""

    __slots__ = ("name", "path", "rest")

    def __init__(self, name: str, path: str, rest: dict[str, Value]) -> None:
        self.name = name
        self.path = path
        self.rest = rest


def metadata(low: Lowering, root: Fields) -> Metadata:
    node = root.mapping("metadata")
    if node is None:
        return Metadata("", "", {})
    fields = Fields(low.findings, node, "metadata", METADATA_KEYS)
    fields.require("name")
    name = fields.name("name") or ""
    path = fields.name("path") or name
    rest = {key: fields.value(key) for key in node.entries if key in METADATA_KEYS - {"name", "path"}}
    return Metadata(name, path, rest)


def keychain(low: Lowering, root: Fields) -> tuple[KeychainEntry, ...]:
    node = None if _is_null(root.raw("keychain")) else root.sequence("keychain")
    if node is None:
        return ()
    entries: list[KeychainEntry] = []
    seen: dict[str, int] = {}
    for item in node.items:
        entry = _keychain_entry(low, item)
        if entry is None:
            continue
        if entry.name in seen:
            low.findings.report(
                "keychain.duplicate",
                entry.at,
                f"keychain entry `{entry.name}` is declared twice, first on line {seen[entry.name]}",
            )
        seen.setdefault(entry.name, entry.at.line)
        entries.append(entry)
    return tuple(entries)


def _keychain_entry(low: Lowering, item: Node) -> KeychainEntry | None:
    if not isinstance(item, Mapping):
        low.findings.report("value.type", item, "a keychain entry must be a mapping with `name` and `kind`")
        return None
    kind_node = item.get("kind")
    written = getattr(kind_node, "value", None)
    known = KEYCHAIN_FIELDS.get(written) if isinstance(written, str) else None
    every = frozenset[str]().union(*KEYCHAIN_FIELDS.values())
    fields = Fields(
        low.findings, item, "a keychain entry", {"name", "kind", "desc"} | (every if known is None else known)
    )
    fields.require("name", "kind")
    name = fields.name("name")
    kind = fields.choice("kind", KEYCHAIN_FIELDS)
    if name is None or kind is None:
        return None
    rest = {key: fields.value(key) for key in item.entries if key in every}
    return KeychainEntry(name=name, kind=kind, fields=rest, at=position(fields.place("name")))


def executor(low: Lowering, root: Fields) -> tuple[Executor, tuple[str, Place] | None]:
    """The executor, and the entry step it names with its position."""
    node = None if _is_null(root.raw("executor")) else root.mapping("executor")
    if node is None:
        return Executor(), None
    _refuse_credentials(low, node, CREDENTIAL_WORDS)
    fields = Fields(low.findings, node, "executor", EXECUTOR_KEYS, reported=CREDENTIAL_WORDS)
    profile: Literal["local", "distributed"] | None = fields.choice("profile", ("local", "distributed"))
    version = fields.text("version")
    _check_runtime(low, fields, version)
    spec = fields.mapping("spec")
    if spec is None:
        return Executor(profile=profile, version=version), None
    # The name of a tool kind is a group of that kind's knobs, `secrets` too.
    refused = CREDENTIAL_WORDS.difference(low.kinds)
    _refuse_credentials(low, spec, refused)
    inner = Fields(low.findings, spec, "executor.spec", spec.entries.keys())
    entry = inner.name("entry_step")
    # v2 always begins at `start`.
    own = {name: text for name, text in EXECUTOR_KNOBS.items() if not (low.v2 and name == "entry_step")}
    built = Executor(
        profile=profile,
        version=version,
        spec=knobs(low, inner, TASK_KNOBS, own, reported=refused),
        deadline=inner.duration("deadline"),
    )
    return built, None if entry is None else (entry, inner.place("entry_step"))


def _refuse_credentials(low: Lowering, node: Mapping, words: frozenset[str]) -> None:
    for name, entry in node.entries.items():
        if name in words:
            low.findings.report(
                "executor.credentials",
                entry.key,
                f"`{name}` does not belong under `executor`",
                "declare credentials in the root section `keychain`",
            )


def _is_null(node: Node | None) -> bool:
    """A section whose key is written and whose content is not."""
    return isinstance(node, Scalar) and node.value is None


def _check_runtime(low: Lowering, fields: Fields, version: str | None) -> None:
    if version is None:
        return
    name, _, number = version.partition("/")
    if name != RUNTIME or number.partition(".")[0] != RUNTIME_MAJOR:
        low.findings.report(
            "executor.version",
            fields.place("version"),
            f"this runtime is `{RUNTIME}/{RUNTIME_MAJOR}`, the playbook asks for `{version}`",
        )


def choose_entry(
    low: Lowering, root: Fields, names: list[str], wanted: tuple[str, Place] | None, *, first_will_do: bool
) -> str:
    """The step an execution starts with."""
    if wanted is not None:
        name, where = wanted
        if name not in names:
            meant = low.findings.guess(name, names)
            hint = f"did you mean `{meant}`?" if meant else None
            low.findings.report("step.unknown", where, f"`entry_step` names no step: `{name}`", hint)
        return name
    if "start" in names or not root.has("workflow"):
        return "start"
    if not names:
        written = root.raw("workflow")
        if _is_null(written) or (isinstance(written, Sequence) and not written.items):
            low.findings.report("workflow.empty", root.key("workflow"), "the workflow has no steps")
        return "start"
    if first_will_do:
        low.findings.report(
            "entry.first_step",
            root.key("workflow"),
            f"no step is named `start`, so the first one, `{names[0]}`, is the entry",
            "name a step `start`, or set `executor.spec.entry_step`",
        )
        return names[0]
    low.findings.report("entry.no_start", root.key("workflow"), "the workflow needs a step named `start`")
    return "start"


def workload(low: Lowering, root: Fields) -> dict[str, Value]:
    node = root.raw("workload")
    if node is None:
        return {}
    if isinstance(node, Mapping):
        return values(low.findings, node)
    if not _is_null(node):
        root.wrong_type("workload", "a mapping")
    return {}


def items(low: Lowering, root: Fields, name: str) -> list[Node]:
    """The entries of a root section that is a list."""
    node = root.raw(name)
    if node is None or _is_null(node):
        return []
    if isinstance(node, Sequence):
        return node.items
    root.wrong_type(name, "a list")
    return []
