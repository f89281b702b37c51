"""Tests of scopes and names: those that could never be dispatched are refused."""

from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.errors import InvalidInput
from duly.model.scopes import (
    MAX_DISPATCH_ID,
    MAX_NAME,
    SYSTEM,
    Scope,
    check_flow,
    check_name,
    dispatch_id,
    user,
    workspace,
)

WORDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=60).filter(
    lambda text: text not in (".", "..")
)
SCOPES = st.one_of(
    st.just(SYSTEM), WORDS.map(user), WORDS.map(lambda name: Scope("workspace", name))
)


@given(SCOPES)
def test_a_scope_is_read_back_from_its_stored_form(scope: Scope) -> None:
    assert Scope.parse(str(scope)) == scope


def test_stored_forms() -> None:
    assert [str(each) for each in (SYSTEM, user("u_7"), workspace("w:1"))] == [
        "system",
        "user:u_7",
        "workspace:w:1",
    ]


@pytest.mark.parametrize(
    "text",
    ["", "user", "user:", "workspace:", "system:x", "nobody:1", "User:1", "user:.", "user:a\n"],
)
def test_invalid_scopes_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Scope.parse(text)


@given(SCOPES, WORDS, SCOPES, WORDS)
def test_dispatch_ids_are_unique(one: Scope, first: str, other: Scope, second: str) -> None:
    try:
        ids = (dispatch_id(one, first), dispatch_id(other, second))
    except InvalidInput:
        return
    assert (ids[0] == ids[1]) == ((one, first) == (other, second))
    owner, name = (unquote(part) for part in ids[0].split("/"))
    assert (owner, name) == (one.owner, first)


def test_dispatch_ids() -> None:
    assert dispatch_id(user("a@b.c|X"), "weekly digest/1") == "a%40b.c%7CX/weekly%20digest%2F1"
    assert dispatch_id(workspace("w"), "n") == "workspace%3Aw/n"
    assert dispatch_id(SYSTEM, "n") == "system/n"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "non-empty"),
        (".", "URL"),
        ("..", "URL"),
        ("a\nb", "control character"),
        ("a\0", "control character"),
        ("\x7f", "control character"),
        ("\ud800", "surrogate"),
        ("x" * (MAX_NAME + 1), "longer than 128"),
        (None, "text"),
        (7, "text"),
    ],
)
def test_a_name_that_could_not_be_dispatched_is_refused(name: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        check_name("name", name)
    with pytest.raises(InvalidInput, match=why):
        dispatch_id(SYSTEM, name)


def test_the_longest_name_is_allowed() -> None:
    assert check_name("name", "x" * MAX_NAME)
    assert check_name("name", "é" * MAX_NAME)


@pytest.mark.parametrize("owner", ["system", "workspace:x", "workspace:"])
def test_a_user_id_that_reads_as_another_scope_is_refused(owner: str) -> None:
    with pytest.raises(InvalidInput, match="another scope"):
        dispatch_id(user(owner), "n")


def test_a_stored_workspace_may_have_any_name() -> None:
    assert dispatch_id(Scope("workspace", "system"), "n") == "workspace%3Asystem/n"


def test_an_id_too_long_when_encoded_is_refused() -> None:
    name = "é" * MAX_NAME  # six characters each when encoded
    short = user("u" * (MAX_DISPATCH_ID - 1 - 6 * MAX_NAME))
    assert len(dispatch_id(short, name)) == MAX_DISPATCH_ID
    with pytest.raises(InvalidInput, match="1025 characters"):
        dispatch_id(user(short.id + "u"), name)


@pytest.mark.parametrize("owner", ["u" * 1_025, "é" * 200, "€" * 1_000])
def test_an_owner_too_long_for_any_dispatch_is_refused(owner: str) -> None:
    with pytest.raises(InvalidInput):
        user(owner)


@pytest.mark.parametrize("flow", ["a", "0", "order-mail_2", "a" * 64])
def test_flow_names(flow: str) -> None:
    assert check_flow(flow) == flow


@pytest.mark.parametrize("flow", ["", "A", "a/b", "-a", "a b", "a" * 65, "é", "a\n"])
def test_other_flow_names_are_refused(flow: str) -> None:
    with pytest.raises(InvalidInput, match="flow"):
        check_flow(flow)
