"""Properties of redaction: no planted secret is shown, and any text is accepted."""

import json
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from duly.operate.redaction.values import preview, scrub, secret_values

SECRET = "5e3ret-W0rth-H1ding"  # noqa: S105
WORDS = ["password", "secret", "token", "authorization", "cookie", "credentials", "bearer"]
PAIRS = [("api", "key"), ("access", "key"), ("private", "keys"), ("session", "id")]
INNOCENT = ["monkey", "keyboard", "tokenizer", "author", "secretary", "key", "passenger"]
AROUND = ["user", "db", "x", "2", "my"]

numbers = st.integers() | st.floats()
scalars = st.none() | st.booleans() | numbers | st.text(max_size=20)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=12,
)


@st.composite
def names_of(draw: st.DrawFn, kernels: st.SearchStrategy[list[str]]) -> str:
    """Draw a name that contains the words, in one of the common spellings."""
    before = draw(st.lists(st.sampled_from(AROUND), max_size=2))
    after = draw(st.lists(st.sampled_from(AROUND), max_size=2))
    words = [*before, *draw(kernels), *after]
    style = draw(st.sampled_from(["_", "-", ".", " ", "camel", "Pascal", "SCREAMING"]))
    if style in ("camel", "Pascal"):
        first = words[0].title() if style == "Pascal" else words[0]
        return first + "".join(word.title() for word in words[1:])
    return "_".join(words).upper() if style == "SCREAMING" else style.join(words)


secret_names = names_of(st.sampled_from([[word] for word in WORDS] + [list(p) for p in PAIRS]))
innocent_names = names_of(st.sampled_from([[word] for word in INNOCENT]))


@st.composite
def planted(draw: st.DrawFn, names: st.SearchStrategy[str]) -> object:
    """Draw a value that contains the secret under one of the names."""
    value: Any = draw(
        st.sampled_from([SECRET, [SECRET], {"inner": SECRET}, f"before {SECRET} after"])
    )
    value = {draw(names): value}
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["list", "object", "text"]))
        if kind == "list":
            value = [*draw(st.lists(json_values, max_size=2)), value]
        elif kind == "object":
            value = {
                **draw(st.dictionaries(st.text(max_size=8), json_values, max_size=2)),
                "v": value,
            }
        else:
            value = json.dumps(value)
    return value


@given(planted(secret_names), st.integers(10, 3_000))
def test_a_planted_secret_is_never_shown(value: object, limit: int) -> None:
    shown = preview(json.dumps(value), limit=limit)
    assert SECRET not in shown
    assert len(shown) <= limit


@given(planted(names_of(st.just(["ssn"]))))
def test_a_secret_of_the_action_is_never_shown(value: object) -> None:
    text = json.dumps(value)
    assert SECRET not in preview(text, ["ssn"])
    assert SECRET not in scrub(text, secret_values(text, ["ssn"]), limit=100_000)


@given(planted(secret_names), st.text(max_size=30), st.text(max_size=30))
def test_a_known_secret_is_scrubbed_from_any_text(value: object, before: str, after: str) -> None:
    secrets = secret_values(json.dumps(value))
    assert SECRET not in scrub(f"{before}{SECRET}{after}", [*secrets, SECRET])
    assert any(SECRET in each for each in secrets)


@given(innocent_names, st.text(alphabet="abcdefgh ", max_size=20))
def test_innocent_names_are_never_redacted(name: str, value: str) -> None:
    assume(not any(word in value for word in WORDS))
    assert json.loads(preview(json.dumps({name: value}))) == {name: value}


@given(st.text(), st.lists(st.text(), max_size=3))
@example("[" * 5_000, [])
@example('"\\ud800"', ["\ud800\ud800\ud800\ud800"])
@example("1" * 5_000, [])
@example("\ud800", [])
def test_any_text_has_a_preview(text: str, extra: list[str]) -> None:
    json.loads(preview(text, extra, secrets=extra))
    scrub(text, extra)
    secret_values(text, extra)


@given(json_values)
def test_any_value_has_a_preview(value: object) -> None:
    shown = preview(json.dumps(value))
    json.loads(shown, parse_constant=_refuse)
    shown.encode()


def _refuse(constant: str) -> object:
    raise AssertionError(f"{constant} is not JSON")
