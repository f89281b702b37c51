"""Tests of dispatch authentication: bearer tokens, signatures, rotation, and weak secrets."""

import hmac
from base64 import b64encode

import pytest

from duly.dispatch.auth.secrets import Gatekeeper, Gateway
from duly.dispatch.auth.signing import SIGNATURE, TIMESTAMP, sign, signed_id
from duly.errors import InvalidInput
from duly.model.principals import Principal
from duly.settings import Settings

OLD, NEW = "old-secret-0123456789", "new-secret-0123456789"
KEY = "whsec_" + b64encode(b"k" * 24).decode()
OTHER_KEY = "whsec_" + b64encode(b"o" * 24).decode()
NOW_S = 1_790_000_000


def bearer(token: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"authorization": f"{scheme} {token}"}


@pytest.mark.parametrize(
    "secret", ["", "   ", "short", "x" * 15, "x" * 1_025, "whsec_", "whsec_!!"]
)
def test_a_weak_secret_is_refused(secret: str) -> None:
    with pytest.raises(InvalidInput):
        Gateway(secret)


def test_an_empty_secret_in_the_environment_is_refused_by_name() -> None:
    for text in ("", f"{OLD},", " "):
        with pytest.raises(InvalidInput, match="DULY_DISPATCH_SECRETS"):
            Settings.from_environment({"DULY_DISPATCH_SECRETS": text})
    found = Settings.from_environment({"DULY_DISPATCH_SECRETS": f"{OLD}, {NEW}"})
    assert found.dispatch_secrets == (OLD, NEW)
    assert OLD not in repr(found)
    assert OLD not in repr(Gateway(OLD))


def test_old_and_new_secret_are_valid_together_and_then_only_the_new() -> None:
    both, after = Gatekeeper([Gateway(OLD), Gateway(NEW)]), Gatekeeper([Gateway(NEW)])
    assert both.admit_bearer(bearer(OLD)) is not None
    assert both.admit_bearer(bearer(NEW)) is not None
    assert after.admit_bearer(bearer(OLD)) is None
    assert after.admit_bearer(bearer(NEW)) is not None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer(NEW + "x"),
        bearer(NEW[:-1]),
        bearer(NEW, "Basic"),
        {"authorization": NEW},
        {"x-authorization": f"Bearer {NEW}"},
        bearer("\udcff"),
    ],
)
def test_other_headers_are_refused(headers: dict[str, str]) -> None:
    assert Gatekeeper([Gateway(NEW)]).admit(headers, b"", NOW_S) is None


def test_scheme_is_read_in_any_case() -> None:
    assert Gatekeeper([Gateway(NEW)]).admit_bearer(bearer(NEW, "bearer")) is not None


def test_no_gateway_is_closed_even_for_an_empty_token() -> None:
    closed = Gatekeeper()
    assert closed.is_closed
    assert closed.admit(bearer(""), b"", NOW_S) is None
    assert closed.admit({}, b"", NOW_S) is None


def test_a_signing_secret_is_not_a_bearer_token() -> None:
    assert Gatekeeper([Gateway(KEY)]).admit(bearer(KEY), b"", NOW_S) is None


def test_a_gateway_may_carry_a_principal() -> None:
    admission = Gatekeeper([Gateway(NEW, Principal("u_7"))]).admit_bearer(bearer(NEW))
    assert admission is not None
    assert admission.principal == Principal("u_7")


def test_signature_agrees_with_the_standard() -> None:
    # From the example of the reference implementation.
    headers = sign(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        b'{"test": 2432232314}',
    )
    assert headers[SIGNATURE] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_signature_is_for_one_body_at_one_time() -> None:
    body = b'{"nominalFireTime": "2026-05-04T07:00:00Z"}'
    headers = sign(KEY, "m1", NOW_S, body)
    keeper = Gatekeeper([Gateway(OTHER_KEY), Gateway(KEY)])
    admission = keeper.admit(headers, body, NOW_S + 300)
    assert admission is not None
    assert admission.message_id == "m1"
    refused = [
        (headers, body + b" ", NOW_S),
        (headers, body, NOW_S + 301),
        (headers, body, NOW_S - 301),
        (headers | {"webhook-id": "m2"}, body, NOW_S),
        (headers | {TIMESTAMP: str(NOW_S + 1)}, body, NOW_S),
        (headers | {TIMESTAMP: "1_790_000_000"}, body, NOW_S),
        (headers | {TIMESTAMP: "9" * 5_000}, body, NOW_S),
        (headers | {SIGNATURE: headers[SIGNATURE].replace("v1,", "v2,")}, body, NOW_S),
        (headers | {SIGNATURE: ""}, body, NOW_S),
        ({name: text for name, text in headers.items() if name != "webhook-id"}, body, NOW_S),
    ]
    for given, sent, now_s in refused:
        assert keeper.admit(given, sent, now_s) is None


def test_one_of_several_signatures_suffices_of_the_first_sixteen() -> None:
    body = b"{}"
    good = sign(KEY, "m1", NOW_S, body)
    both = good | {SIGNATURE: f"v1,AAAA {good[SIGNATURE]}"}
    assert signed_id([KEY], both, body, NOW_S) == "m1"
    many = good | {SIGNATURE: "v1,AAAA " * 16 + good[SIGNATURE]}
    assert signed_id([KEY], many, body, NOW_S) is None


def test_every_secret_is_compared_even_after_a_match(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[bytes] = []

    def counted(given: bytes, digest: bytes) -> bool:
        compared.append(digest)
        return hmac.compare_digest(given, digest)

    monkeypatch.setattr("duly.dispatch.auth.secrets.compare_digest", counted)
    keeper = Gatekeeper([Gateway(OLD), Gateway(NEW)])
    for token in (OLD, NEW, "neither-of-the-two", ""):
        compared.clear()
        keeper.admit_bearer(bearer(token))
        assert len(compared) == 2
    assert {len(each) for each in compared} == {32}
