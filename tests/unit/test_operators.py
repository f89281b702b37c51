"""Tests of operators: settings, passwords, sessions, sign-in links and rate limits."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from duly.errors import InvalidInput
from duly.settings import Settings
from duly.testing import ManualClock
from duly.web.dashboard import csrf
from duly.web.dashboard.gate import own_path
from duly.web.operators.accounts import (
    Operator,
    find_operator,
    hash_password,
    is_loopback,
    parse_operators,
)
from duly.web.operators.auth import (
    DEVELOPER,
    FAILURES,
    MAX_IN_LINE,
    WINDOW_S,
    AuthOptions,
    OperatorAuth,
    Wait,
)
from duly.web.operators.sessions import Signer, begin_session, read_session

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
PASSWORD = "correct horse"  # noqa: S105
HASH = hash_password(PASSWORD, salt=b"the same always!")
ADA = Operator("ada", "operator", HASH)
SECRET = b"0123456789abcdef"


def an_auth(**options: object) -> tuple[OperatorAuth, ManualClock]:
    clock = ManualClock(NOON)
    known = AuthOptions((ADA,), SECRET)
    return OperatorAuth(replace(known, **options), clock=clock), clock  # type: ignore[arg-type]


def test_operators_are_read_from_the_settings() -> None:
    found = parse_operators(f"ada:operator:{HASH}, vic:viewer:{HASH},")
    assert [(each.name, each.role, each.may_act) for each in found] == [
        ("ada", "operator", True),
        ("vic", "viewer", False),
    ]
    assert parse_operators("") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ada", "name:role:hash"),
        ("ada:operator:", "name:role:hash"),
        (f"ada:root:{HASH}", "viewer or operator"),
        ("ada:operator:plain", "duly operator hash"),
        (f"ada:operator:{HASH[:-4]}", "duly operator hash"),
        (f"ada:operator:{HASH.replace('scrypt.15', 'scrypt.30')}", "duly operator hash"),
        (f"ada:operator:{HASH},ada:viewer:{HASH}", "twice"),
        (f":operator:{HASH}", "operator"),
    ],
)
def test_bad_operators_are_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_operators(text)


def test_hashes_differ_and_hold_no_separators() -> None:
    assert hash_password(PASSWORD) != HASH
    assert not set(":,$ ") & set(HASH)
    assert PASSWORD not in HASH
    with pytest.raises(InvalidInput):
        hash_password("short")


def test_only_the_right_password_finds_its_operator() -> None:
    linked = Operator("linked", "operator")
    assert find_operator((ADA, linked), "ada", PASSWORD) is ADA
    for name, password in (("ada", "wrong"), ("bob", PASSWORD), ("linked", ""), ("", "")):
        assert find_operator((ADA, linked), name, password) is None


@pytest.mark.parametrize(
    ("host", "is_one"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("[::1]", True),
        ("::1", True),
        ("0.0.0.0", False),  # noqa: S104
        ("10.0.0.1", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_loopback_addresses_are_recognized(host: str, is_one: bool) -> None:
    assert is_loopback(host) is is_one


def test_access_without_sign_in_is_for_this_machine_only() -> None:
    assert OperatorAuth(AuthOptions(development_host="127.0.0.1")).is_open
    with pytest.raises(InvalidInput, match="this machine only"):
        AuthOptions(development_host="0.0.0.0")  # noqa: S104
    assert not OperatorAuth().is_open


@pytest.mark.parametrize(
    "options", [{"secret": b"short"}, {"metrics_token": "short"}, {"session_s": 1}]
)
def test_weak_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        AuthOptions(**options)  # type: ignore[arg-type]


def test_options_keep_their_secrets() -> None:
    shown = repr(AuthOptions(secret=SECRET, metrics_token="scrape-scrape-scrape"))  # noqa: S106
    assert "scrape" not in shown
    assert "0123456789abcdef" not in shown


def test_options_come_from_the_environment() -> None:
    given = {
        "DULY_OPERATORS": f"ada:operator:{HASH}",
        "DULY_SESSION_SECRET": "a-secret-of-many-processes",
        "DULY_METRICS_TOKEN": "scrape-scrape-scrape",
    }
    options = AuthOptions.from_settings(Settings.from_environment(given))
    assert options.operators == (ADA,)
    assert options.secret == b"a-secret-of-many-processes"
    assert options.metrics_token == "scrape-scrape-scrape"  # noqa: S105
    assert HASH not in repr(Settings.from_environment(given))
    alone = AuthOptions.from_settings(Settings.from_environment({}))
    assert alone.operators == ()
    assert len(alone.secret) == 32


def test_sessions_end() -> None:
    auth, clock = an_auth(session_s=600)
    cookie = auth.begin(ADA)
    found = auth.read(cookie)
    assert found is not None
    assert found[1] is ADA
    clock.advance(seconds=599)
    assert auth.read(cookie) is not None
    clock.advance(seconds=1)
    assert auth.read(cookie) is None


def test_sessions_cannot_be_forged() -> None:
    auth, _ = an_auth()
    cookie = auth.begin(ADA)
    body, _, signature = cookie.rpartition(".")
    other = begin_session(Signer(b"another-secret-16"), ADA, 9_999_999_999)
    for forged in (
        "",
        ".",
        "a.b",
        body,
        f"{body}.",
        f"{body}x.{signature}",
        f"{body}.{signature[:-1]}0",
        other,
        "é.é",
        "x" * 5_000,
    ):
        assert forged == cookie or auth.read(forged) is None
    assert auth.read(None) is None


def test_signatures_have_a_purpose() -> None:
    signer = Signer(SECRET)
    sealed = signer.seal("note", ("ada", "nonce", 9_999_999_999, "proof"))
    assert read_session(signer, sealed, 0) is None


def test_sessions_end_with_the_password_the_role_and_the_operator() -> None:
    auth, _ = an_auth()
    cookie = auth.begin(ADA)
    changed = Operator("ada", "operator", hash_password("another one"))
    demoted = Operator("ada", "viewer", HASH)
    for operators in ((changed,), (demoted,), ()):
        later, _ = an_auth(operators=operators)
        assert later.read(cookie) is None


def test_developer_sessions_end_with_development() -> None:
    auth, _ = an_auth(development_host="127.0.0.1")
    cookie = auth.begin(DEVELOPER)
    assert auth.read(cookie) is not None
    strict, _ = an_auth()
    assert strict.read(cookie) is None


def test_link_signs_in_once_and_expires() -> None:
    auth, clock = an_auth(operators=())
    guest = Operator("demo", "operator")
    token = auth.make_link_token(guest)
    assert auth.use_link_token("wrong") is None
    assert auth.use_link_token(token) is guest
    assert auth.use_link_token(token) is None
    assert auth.read(auth.begin(guest)) is not None
    late = auth.make_link_token(guest)
    clock.advance(hours=1)
    assert auth.use_link_token(late) is None


def test_failed_sign_ins_cause_a_wait() -> None:
    async def check() -> None:
        auth, clock = an_auth()
        for _ in range(FAILURES):
            assert auth.wait_s("ada", "10.0.0.1") == 0
            assert await auth.sign_in("ada", "wrong", "10.0.0.1") is None
        assert auth.wait_s("ada", "10.0.0.2") == WINDOW_S
        assert auth.wait_s("bob", "10.0.0.1") == WINDOW_S
        assert auth.wait_s("bob", "10.0.0.2") == 0
        clock.advance(seconds=WINDOW_S)
        assert auth.wait_s("ada", "10.0.0.1") == 0
        assert await auth.sign_in("ada", PASSWORD, "10.0.0.1") is ADA

    asyncio.run(check())


def test_concurrent_failed_sign_ins_cause_a_wait() -> None:
    auth, clock = an_auth()

    async def guess() -> None:
        guesses = (auth.sign_in("ada", f"wrong-{n}", f"10.0.0.{n}") for n in range(15))
        answers = await asyncio.gather(*guesses)
        checked = [each for each in answers if each is None]
        # Another failed attempt may still be running.
        assert FAILURES <= len(checked) <= FAILURES + 1
        assert answers.count(Wait(WINDOW_S)) == 15 - len(checked)
        clock.advance(seconds=WINDOW_S)
        assert await auth.sign_in("ada", PASSWORD, "10.0.0.1") is ADA

    asyncio.run(guess())


def test_too_many_waiting_sign_ins_are_refused() -> None:
    auth, _ = an_auth()

    async def crowd() -> None:
        guesses = (auth.sign_in(f"n{n}", "wrong", f"10.0.0.{n}") for n in range(MAX_IN_LINE + 5))
        answers = await asyncio.gather(*guesses)
        assert answers == [None] * MAX_IN_LINE + [Wait(1)] * 5
        assert await auth.sign_in("ada", PASSWORD, "10.0.1.1") is ADA

    asyncio.run(crowd())


def test_forms_belong_to_a_session() -> None:
    auth, _ = an_auth()
    mine, theirs = (auth.read(auth.begin(ADA)) for _ in range(2))
    assert mine is not None
    assert theirs is not None
    token = csrf.token_of(auth.signer, mine[0])
    assert csrf.is_own(auth.signer, mine[0], token)
    for wrong in ("", "x", csrf.token_of(auth.signer, theirs[0])):
        assert not csrf.is_own(auth.signer, mine[0], wrong)


@pytest.mark.parametrize(
    ("headers", "is_same"),
    [
        ({}, True),
        ({"origin": "https://duly.example", "host": "duly.example"}, True),
        ({"origin": "https://evil.example", "host": "duly.example"}, False),
        ({"origin": "null", "host": "duly.example"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
    ],
)
def test_requests_from_other_sites_are_recognized(headers: dict[str, str], is_same: bool) -> None:
    assert csrf.is_same_origin(headers) is is_same


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/jobs?state=dead", "/jobs?state=dead"),
        (None, "/"),
        ("", "/"),
        ("https://evil.example/", "/"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("/a\nb", "/"),
        ("/sign-out", "/"),
    ],
)
def test_redirects_stay_on_this_site(text: str | None, path: str) -> None:
    assert own_path(text) == path
