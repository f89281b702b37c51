"""Tests of redaction: secret names, previews, and scrubbing of texts."""

import json
from time import perf_counter

import pytest

from duly.model.jobs import MAX_ERROR_CHARACTERS
from duly.operate.redaction.known_secrets import CUT, MAX_WORK, KnownSecrets
from duly.operate.redaction.secret_names import EVERY, MAX_NAME, is_secret, joined
from duly.operate.redaction.values import (
    MAX_DEPTH,
    REDACTED,
    is_masked,
    masked,
    preview,
    scrub,
    secret_values,
)

SECRET_NAMES = [
    "password",
    "PASSWORD",
    "passwords",
    "dbPassword",
    "db_password",
    "dbpassword",
    "db_pAsSwOrD",
    "password_hash",
    "passphrase",
    "pwd",
    "pass",
    "smtpPass",
    "secret",
    "clientSecret",
    "token",
    "accessToken2",
    "access_tokens",
    "accesstoken",
    "refresh.token",
    "oauth2Token",
    "authorization",
    "Proxy-Authorization",
    "auth",
    "cookie",
    "Set-Cookie",
    "cookies",
    "credentials",
    "bearer",
    "otp",
    "pin",
    "cvv",
    "api key",
    "apiKey",
    "APIKey",
    "API_KEYS",
    "apikey",
    "x-api-key",
    "aws_access_key_id",
    "private-key",
    "signingKey",
    "sessionId",
    "creditCardNumber",
    "card_number",
]
PLAIN_NAMES = [
    "monkey",
    "key",
    "keyboard",
    "primaryKey",
    "public_key",
    "tokenizer",
    "tokenization",
    "max_tokens",
    "maxTokens",
    "maxOutputTokens",
    "prompt_tokens",
    "token_count",
    "tokenType",
    "author",
    "authority",
    "authored_at",
    "secretary",
    "passenger",
    "passport",
    "compass",
    "bypass",
    "boarding_pass",
    "pinned",
    "shipping",
    "cookiecutter",
    "session",
    "ssn",
    "name",
    "",
    "пароход",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_secret_names(name: str) -> None:
    assert is_secret(name)
    assert preview(json.dumps({name: "hunter22"})) == json.dumps({name: REDACTED})


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_plain_names(name: str) -> None:
    assert not is_secret(name)
    text = json.dumps({name: "hunter22"}, ensure_ascii=False)
    assert preview(text) == text


@pytest.mark.parametrize(
    ("extra", "name", "expected"),
    [
        ("ssn", "ssn", True),
        ("ssn", "user_ssn", True),
        ("ssn", "userSsn", True),
        ("ssn", "SSN", True),
        ("ssn", "ssns", True),
        ("SSN", "ssn", True),
        ("ssn", "classname", False),
        ("dateOfBirth", "date_of_birth", True),
        ("dateofbirth", "user-date-of-birth", True),
        ("date_of_birth", "dateOfBirth", True),
        ("date_of_birth", "date", False),
        ("line2", "line2", True),
        ("line2", "line", False),
        ("2fa", "user_2fa", True),
        ("имя", "Имя", True),
        ("$$", "$$", True),
        ("a_b_c_d_e_f_g_h_i_j", "aBCDEFGHIJ", True),
    ],
)
def test_names_of_the_action(extra: str, name: str, expected: bool) -> None:
    assert is_secret(name, joined([extra])) is expected
    shown = preview(json.dumps({"deep": [{name: "078-05-1120"}]}), [extra])
    assert ("078-05-1120" in shown) is not expected


def test_a_single_name_is_not_read_as_a_list_of_letters() -> None:
    assert preview('{"ssn": 1, "s": 2}', "ssn") == '{"ssn": "[redacted]", "s": 2}'


@pytest.mark.parametrize("value", ["x", 5, 1.5, True, None, ["x"], {"a": {"b": "x"}}])
def test_the_value_is_redacted_whatever_its_type(value: object) -> None:
    assert json.loads(preview(json.dumps({"a": [{"token": value}]}))) == {
        "a": [{"token": REDACTED}]
    }


def test_a_secret_is_redacted_wherever_else_it_occurs() -> None:
    shown = preview('{"password": "hunter22", "command": "mysql -phunter22", "hunter22": [1]}')
    assert json.loads(shown) == {
        "password": REDACTED,
        "command": f"mysql -p{REDACTED}",
        REDACTED: [1],
    }


def test_short_values_are_not_looked_for_elsewhere() -> None:
    assert json.loads(preview('{"pin": "123", "total": 12345}')) == {
        "pin": REDACTED,
        "total": 12345,
    }


def test_json_inside_a_string_is_read() -> None:
    inner = json.dumps({"user": "ada", "password": "hunter22"})
    shown = json.loads(preview(json.dumps({"body": inner, "twice": json.dumps(inner)})))
    assert json.loads(shown["body"]) == {"user": "ada", "password": REDACTED}
    assert "hunter22" not in shown["twice"]


TEXTS = [
    ("Bearer abc", f"Bearer {REDACTED}"),
    ("password=abc", f"password={REDACTED}"),
    ("password=abc, user=ada", f"password={REDACTED}, user=ada"),
    ("?access_token=abc&page=2", f"?access_token={REDACTED}&page=2"),
    ("KeyError: api key: abc", f"KeyError: api key: {REDACTED}"),
    ("https://ada:pw@example.org/x", f"https://{REDACTED}@example.org/x"),
    ("https://ada:p@w@example.org", f"https://{REDACTED}@example.org"),
    ("https://ada:p/w@example.org", f"https://{REDACTED}@example.org"),
    ("http://localhost:8080/a@b", "http://localhost:8080/a@b"),
    ("Authorization: Digest abc def\nHost: x", f"Authorization: {REDACTED}\nHost: x"),
    ("Basic dXNlcjpwdw==", f"Basic {REDACTED}"),
    ("Basic training", "Basic training"),
    ("mysql --password abc -h x", f"mysql --password {REDACTED} -h x"),
    ("['--password', 'abc']", f"['--password', '{REDACTED}']"),
    ("Login(user='ada', password='a b', x=1)", f"Login(user='ada', password='{REDACTED}', x=1)"),
    ("{'password': b'a b', 'x': 1}", f"{{'password': b'{REDACTED}', 'x': 1}}"),
    ("{'password': ['a', 'b'], 'x': 1}", f"{{'password': {REDACTED}"),
    ("got eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", f"got {REDACTED}"),
    (
        "-----BEGIN PRIVATE KEY-----\nMII\n-----END",
        f"-----BEGIN PRIVATE KEY-----{REDACTED}-----END",
    ),
    ("nothing here: 12:30, a=b", "nothing here: 12:30, a=b"),
]


@pytest.mark.parametrize(("text", "expected"), TEXTS, ids=[text for text, _ in TEXTS])
def test_texts_that_carry_secrets(text: str, expected: str) -> None:
    assert scrub(text) == expected
    assert json.loads(preview(text)) == expected
    assert json.loads(preview(json.dumps({"note": text}))) == {"note": expected}


@pytest.mark.parametrize(("text", "_"), TEXTS, ids=[text for text, _ in TEXTS])
def test_scrubbing_twice_is_scrubbing_once(text: str, _: str) -> None:
    assert scrub(scrub(text)) == scrub(text)


def test_error_text_loses_the_values_of_the_input() -> None:
    given = '{"user": "ada", "password": "hun\\"ter\\n22", "card_number": 4111111111111111}'
    secrets = secret_values(given)
    assert secrets == {'hun"ter\n22', "4111111111111111"}
    for text in ('login hun"ter\n22 failed', repr({"x": 'hun"ter\n22'}), given, "hun%22ter%0A22"):
        assert "ter" not in scrub(text, secrets), text
    assert scrub("card 4111111111111111 refused for ada", secrets) == (
        f"card {REDACTED} refused for ada"
    )


def test_secret_values_come_from_names_addresses_and_strings_of_json() -> None:
    inner = json.dumps({"private_key": "MIIEvQ"})
    text = json.dumps(
        {
            "credentials": inner,
            "dsn": "postgresql://ada:hunter22@db/x",
            "ssn": "078-05-1120",
            "token": ["aaaa1", {"b": 22222}, True, None, "abc"],
        }
    )
    found = {inner, "MIIEvQ", "hunter22", "aaaa1", "22222"}
    assert secret_values(text) == found
    assert secret_values(text, ["ssn"]) == found | {"078-05-1120"}


def test_a_secret_cut_by_the_end_of_the_text_is_redacted() -> None:
    assert scrub("login with hunter", ["hunter2222"]) == f"login with {REDACTED}"
    assert scrub(f"login with hunter{CUT}", ["hunter2222"]) == f"login with {REDACTED}"


def test_overlapping_secrets_are_redacted_completely() -> None:
    assert scrub("abcdefgh", ["abcd", "cdefgh", "bcde"]) == REDACTED


def test_error_texts_are_cut() -> None:
    shown = scrub("x" * 5_000)
    assert len(shown) == MAX_ERROR_CHARACTERS
    assert shown.endswith(CUT)


def test_cutting_comes_after_scrubbing() -> None:
    assert "hunt" not in scrub("x" * 95 + "hunter22", ["hunter22"], limit=100)
    assert "ada:pw" not in scrub("x" * 90 + " https://ada:pw@example.org", limit=105)


def test_long_previews_are_cut_and_stay_json() -> None:
    rows = [{"id": number, "name": "x" * 30} for number in range(1_000)]
    shown = preview(json.dumps({"rows": rows, "last": 1}))
    assert len(shown) <= 2_000
    read = json.loads(shown)
    assert read["rows"][0] == rows[0]
    assert read["rows"][-1].endswith("more")
    assert read[CUT] == "1 more"
    assert len(preview(json.dumps("\\" * 5_000))) <= 2_000


@pytest.mark.parametrize("limit", [3, 10, 50])
def test_small_limits_are_kept(limit: int) -> None:
    shown = preview(json.dumps({"aaaaaaaaaaaa": ["bbbbbbbbbbbbbbbb"] * 20}), limit=limit)
    assert len(shown) <= limit
    json.loads(shown)


def test_deep_nesting_is_cut_off() -> None:
    text = '{"a":' * (MAX_DEPTH + 5) + '"x"' + "}" * (MAX_DEPTH + 5)
    assert json.loads(preview(text))
    assert CUT in preview(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, '"' + '\\"' * 50_000, "["])
def test_what_cannot_be_parsed_is_text(text: str) -> None:
    assert isinstance(json.loads(preview(text)), str)


def test_a_secret_too_deep_to_parse_is_redacted() -> None:
    text = '{"a":' * 300 + '{"password": "hunter22"}' + "}" * 300
    assert "hunter22" not in preview("[" * 2_000 + text, limit=10_000)


def test_odd_json_is_shown_as_json() -> None:
    shown = preview('{"a": NaN, "b": 1e999, "c": "\\ud800", "d": 1, "d": 2}')
    assert json.loads(shown) == {"a": "NaN", "b": "inf", "c": "?", "d": 2}
    assert "1111" not in preview('{"token": "1111", "token": "2222"}')


def test_a_name_too_long_to_read_is_secret() -> None:
    assert "hunter22" not in preview(json.dumps({"x" * (MAX_NAME + 1): "hunter22"}))


@pytest.mark.parametrize(
    "text",
    ["a" * 1_000_000, "=" * 300_000, "://a" * 100_000, "eyJ-" * 100_000, "password=" * 100_000],
)
def test_large_texts_cost_little(text: str) -> None:
    start = perf_counter()
    preview(text)
    preview(json.dumps({"a": text, "password": "hunter22"}))
    scrub(text, ["hunter22"])
    # Quadratic time would take minutes.
    assert perf_counter() - start < 20


def test_many_secrets_that_begin_alike_cost_a_lookup_each() -> None:
    secrets = [f"aaaa{n:04x}" for n in range(3_000)]
    text = "a" * 40_000 + "0bb7 aaaa0001"
    given = {"password": secrets, "text": text}
    shown = masked(given, secrets=secrets)
    assert shown == {"password": REDACTED, "text": f"{'a' * 39_996}{REDACTED} {REDACTED}"}
    previewed = preview(json.dumps(given))
    assert not [each for each in secrets if each in previewed]
    known = KnownSecrets(secrets)
    assert len(list(known.spans(text))) == 2
    assert known.work < 40 * len(text)


@pytest.mark.parametrize(
    "secrets",
    [
        ["a" * length + "b" for length in range(4, 700)],
        ["a" * 100_000 + "b"],
        ["a" * 100_000 + "b", "a" * 200_000],
    ],
)
def test_a_text_that_would_cost_too_much_is_hidden_whole(secrets: list[str]) -> None:
    known, text = KnownSecrets(secrets), "a" * 150_000 + " is said"
    assert (0, len(text)) in list(known.spans(text))
    assert known.work < 2 * MAX_WORK
    texts = [text, "aaaa", "what begins like none of them"]
    assert masked(texts, secrets=secrets) == [REDACTED, REDACTED, texts[2]]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            '{"to": "ada", "n": [1, {"x": true}], "none": null}',
            '{"to": "[redacted]", "n": "[redacted]", "none": "[redacted]"}',
        ),
        ('["ada", 5, null]', '["[redacted]", "[redacted]", null]'),
        ('"ada"', '"[redacted]"'),
        ("5", '"[redacted]"'),
        ("no JSON", '"[redacted]"'),
        ("null", "null"),
    ],
)
def test_every_value_can_be_hidden(text: str, shown: str) -> None:
    assert preview(text, [EVERY]) == shown
    assert preview(text, EVERY) == shown


def test_all_values_are_secret_when_all_are_hidden() -> None:
    found = secret_values('{"to": "ada@example.org", "n": [12345]}', [EVERY])
    assert scrub("12345 to ada@example.org", found) == f"{REDACTED} to {REDACTED}"


def test_masked_text_is_not_truncated() -> None:
    text = "x" * 50_000
    given = {"a": [{"token": {"b": 1}}, text], "pin": None, "n": 1.5, "said": "my hunter22!"}
    assert masked(given, secrets=["hunter22"]) == {
        "a": [{"token": REDACTED}, text],
        "pin": None,
        "n": 1.5,
        "said": f"my {REDACTED}!",
    }
    assert masked({"a": "b"}, [EVERY]) == {"a": REDACTED}
    assert is_masked({"a": [{"b": f"x{REDACTED}"}]})
    assert not is_masked({REDACTED: ["redacted", 5, None]})


def test_masked_text_may_be_nested_deeply() -> None:
    deep: object = "end"
    for _ in range(5_000):
        deep = [deep]
    shown = masked(deep)
    assert CUT in json.dumps(shown, ensure_ascii=False)
    assert not is_masked(deep)
