"""Tests of principals: identity, scope, and the workspace of their jobs."""

import dataclasses

import pytest

from duly.errors import InvalidInput
from duly.model.principals import Principal, principal_of
from duly.model.scopes import SYSTEM, Scope, user, workspace


@pytest.mark.parametrize(
    ("principal", "scope", "counts"),
    [
        (Principal("u_7"), user("u_7"), "user:u_7"),
        (Principal("u_7", "o_1"), user("u_7"), "o_1"),
        (Principal(None, "o_1"), workspace("o_1"), "o_1"),
        (Principal(), SYSTEM, "system"),
    ],
)
def test_scope_and_workspace_of_a_principal(
    principal: Principal, scope: Scope, counts: str
) -> None:
    assert (principal.scope, principal.workspace) == (scope, counts)
    # A job stores scope and workspace, from which the principal is derived.
    assert principal_of(scope, counts) == principal
    assert principal_of(str(scope), counts) == principal
    assert principal.is_system == (scope == SYSTEM)


def test_a_scope_alone_names_no_workspace() -> None:
    assert principal_of(user("u_7")) == Principal("u_7")
    assert principal_of(workspace("o_1"), "elsewhere") == Principal(None, "o_1")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"user_id": ""}, "user id"),
        ({"user_id": "a\0b"}, "control character"),
        ({"org_id": ""}, "workspace id"),
        ({"roles": ["admin"]}, "tuple"),
        ({"roles": ("",)}, "role"),
    ],
)
def test_an_empty_principal_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Principal(**fields)  # type: ignore[arg-type]


def test_principals_are_values() -> None:
    assert Principal("u_7", roles=("admin",)) == Principal("u_7", None, ("admin",))
    assert len({Principal("u_7"), Principal("u_7"), Principal("u_8")}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Principal("u_7").user_id = "u_8"  # type: ignore[misc]
