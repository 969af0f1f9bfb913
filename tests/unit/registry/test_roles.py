"""What each role may do, and above all what it may not."""

from __future__ import annotations

import pytest

from noetl.registry.roles import PERMISSIONS, ROLES, TABLE, Permission, Role, allows


def test_every_role_has_its_row_and_every_permission_somebody() -> None:
    assert set(TABLE) == set(ROLES)
    assert frozenset().union(*TABLE.values()) == PERMISSIONS


@pytest.mark.parametrize("permission", sorted(PERMISSIONS))
def test_an_unknown_role_may_do_nothing(permission: Permission) -> None:
    for stranger in ("", "root", "Admin", "viewer ", "*"):
        assert not allows(stranger, permission)


def test_an_unknown_permission_is_given_to_nobody() -> None:
    for role in ROLES:
        assert not allows(role, "everything")  # type: ignore[arg-type]


def test_a_viewer_changes_nothing() -> None:
    assert all(permission.endswith(":read") for permission in TABLE["viewer"])
    assert not allows("viewer", "credentials:read")


def test_only_authors_and_admins_bring_code_in() -> None:
    assert {role for role in ROLES if allows(role, "catalog:write")} == {"author", "admin"}


def test_secrets_are_read_out_only_by_those_who_keep_them() -> None:
    assert {role for role in ROLES if allows(role, "credentials:data")} == {"credential_admin", "admin"}
    assert {role for role in ROLES if allows(role, "tokens:manage")} == {"admin"}


def test_a_worker_works_and_nothing_else() -> None:
    assert all(permission.startswith("work:") for permission in TABLE["worker"])
    others: list[Role] = [role for role in ROLES if role not in ("worker", "admin")]
    assert not any(permission.startswith("work:") for role in others for permission in TABLE[role])


@pytest.mark.parametrize(
    ("less", "more"), [("viewer", "operator"), ("operator", "author"), ("author", "admin")]
)
def test_each_of_these_roles_includes_the_one_before(less: Role, more: Role) -> None:
    assert TABLE[less] < TABLE[more]
