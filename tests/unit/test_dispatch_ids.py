"""Tests of ids in dispatch URLs: read from the raw path, decoded once, and encoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.dispatch.ids import DispatchId, read_id, unstored_id
from duly.errors import InvalidInput
from duly.model.scopes import SYSTEM, Scope, dispatch_id, user, workspace

NAMES = st.text(min_size=1, max_size=20)
SCOPES = st.one_of(
    st.just(SYSTEM), st.builds(Scope, st.sampled_from(["user", "workspace"]), st.just("u")), NAMES
)


def key_of(raw: str) -> tuple[Scope, str] | None:
    found = read_id(raw)
    assert found is not None
    return found.key


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        ("u_1/weekly-digest", (user("u_1"), "weekly-digest")),
        ("u_1/nested/key", (user("u_1"), "nested/key")),
        ("a%2Fb/c", (user("a/b"), "c")),
        ("a/b%2Fc", (user("a"), "b/c")),
        ("auth0%7Cabc/k", (user("auth0|abc"), "k")),
        ("auth0|abc/k", (user("auth0|abc"), "k")),
        ("ada%40example.org/100%25", (user("ada@example.org"), "100%")),
        ("ada@example.org/k", (user("ada@example.org"), "k")),
        ("J%C3%BCrgen/t%C3%A4glich", (user("Jürgen"), "täglich")),
        ("%2541/k", (user("%41"), "k")),
        ("system/nightly", (SYSTEM, "nightly")),
        ("workspace%3Aacme/k", (workspace("acme"), "k")),
        ("workspace:acme/k", (workspace("acme"), "k")),
        ("u/k%3F%23%26%3D%20%2B", (user("u"), "k?#&= +")),
        ("agent-followup:u_42:lead-456", None),
        ("x", None),
        ("/k", None),
        ("u/", None),
    ],
)
def test_an_id_is_decoded_once(raw: str, key: tuple[Scope, str] | None) -> None:
    assert key_of(raw) == key


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "u_1/a b",
        "u_1/k\u00e9",
        "u/%zz",
        "u/%4",
        "u/%FF",
        "u/%00",
        "u/a%0Ab",
        "u/..",
        "u/%ED%A0%80",
        "u/" + "k" * 129,
        "k" * 129,
        "u" * 1_024 + "/k",
        "workspace:/k",
    ],
)
def test_ids_that_can_name_nothing_are_refused(raw: str) -> None:
    assert read_id(raw) is None


def test_128_characters_are_a_name_and_129_are_not() -> None:
    assert key_of("u/" + "k" * 128) == (user("u"), "k" * 128)
    assert key_of("u/" + "%C3%A9" * 128) == (user("u"), "é" * 128)
    assert read_id("u/" + "%C3%A9" * 129) is None


@given(NAMES, NAMES)
def test_stored_ids_can_be_read_back(owner: str, name: str) -> None:
    try:
        scope = user(owner)
        raw = dispatch_id(scope, name)
    except InvalidInput:
        return
    assert key_of(raw) == (scope, name)


def test_all_spellings_of_an_id_have_one_identity() -> None:
    ways = ["u_1/k|1", "u_1/k%7C1", "%75_1/k%7c1"]
    found = [read_id(each) for each in ways]
    assert len({unstored_id("f", each) for each in found if each is not None}) == 1
    other = [DispatchId("", "a", "b/c"), DispatchId("", "a/b", "c"), DispatchId("", None, "a/b/c")]
    assert len({unstored_id("f", each) for each in other}) == 3
    assert unstored_id("f", other[0]) != unstored_id("g", other[0])
