"""Tests that the parser returns a trigger or raises InvalidTrigger for any input, in bounded time.

Time is counted in function calls rather than seconds, so that a busy machine does not matter.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duly import InvalidTrigger, Trigger, cron, every, once, parse_trigger, weekly
from tests.property import strategies
from tests.property.strategies import MANY, USUAL

CALLS_MAX = 20_000
# An unknown zone is compared with 600 names to suggest one.
CALLS_MAX_FOR_A_ZONE = 200_000
MESSAGE_CHARACTERS_MAX = 2_000
LONGEST = 100_000


# Counting.


class Calls:
    """Counts calls of functions, including built-in ones."""

    count = 0

    def note(self, _frame: FrameType, event: str, _arg: object) -> None:
        self.count += event in ("call", "c_call")


@contextmanager
def counted() -> Iterator[Calls]:
    calls, before = Calls(), sys.getprofile()
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


@pytest.fixture(autouse=True, scope="module")
def _zones_are_listed() -> None:
    """Load the list of zones, which is read from disk once per process, before any counting."""
    with pytest.raises(InvalidTrigger):
        cron("* * * * *", tz="Nowhere")


def check(parse: Callable[[Any], Trigger], given_input: object) -> None:
    """Assert that the input gives a working trigger or a clear error, after bounded work."""
    found, calls = counted_parse(parse, given_input)
    if calls >= CALLS_MAX:  # the first use of a zone in a process reads its rules from disk
        found, calls = counted_parse(parse, given_input)
    if isinstance(found, InvalidTrigger):
        assert calls < (CALLS_MAX_FOR_A_ZONE if found.field == "tz" else CALLS_MAX)
        check_error(found)
    else:
        assert calls < CALLS_MAX
        assert parse_trigger(found.to_json()) == found


def counted_parse(
    parse: Callable[[Any], Trigger], given_input: object
) -> tuple[Trigger | InvalidTrigger, int]:
    """Parse, and count the calls that it takes."""
    with counted() as calls:
        try:
            found: Trigger | InvalidTrigger = parse(given_input)
        except InvalidTrigger as error:
            found = error
    return found, calls.count


def check_error(error: InvalidTrigger) -> None:
    message = str(error)
    assert error.field
    assert error.field in message
    assert error.allowed
    assert error.allowed in message
    assert repr(error.text) in message
    assert len(message) < MESSAGE_CHARACTERS_MAX
    if error.position is not None:
        assert error.source is not None
        assert error.source[error.position : error.position + len(error.text)] == error.text


def test_the_counter_counts() -> None:
    before = sys.getprofile()
    with counted() as calls:
        for number in range(50):
            str(number).strip()
    assert 50 <= calls.count < 300
    assert sys.getprofile() is before


# Texts.

LETTERS = st.text(alphabet="0123456789*/-,?#LWH()@ \tJANSUMOdailyreb+._", max_size=40)
VALUES = ["*", "*/5", "0", "5", "59", "60", "1-5", "5-1", "1-5/2", "1/2", "MON", "JAN", "?"]
RULES = ["L", "LW", "15W", "5L", "1#2", "H", "H(0-29)", "H/5", "@daily", ",", "/", "-", "#"]
PIECES = st.sampled_from(VALUES + RULES)
TEXTS = st.one_of(
    st.text(max_size=60),
    LETTERS,
    st.lists(PIECES, min_size=3, max_size=7).map(" ".join),
    st.lists(st.lists(PIECES, min_size=1, max_size=4).map("".join), min_size=5, max_size=6).map(
        " ".join
    ),
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw a valid expression with a few characters replaced, removed or inserted."""
    text = strategies.expression(draw(st.randoms(use_true_random=False)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 2))
        text = text[:place] + draw(st.one_of(LETTERS, st.text(max_size=2))) + text[place + cut :]
    return text


@MANY
@given(text=st.one_of(TEXTS, mutated()), seconds=st.booleans())
@example(text="", seconds=False)
@example(text="\ud800 * * * *", seconds=False)
@example(text="* * * * *\x00", seconds=False)
@example(text="\u0663 * * * *", seconds=False)
@example(text="\u00b2 * * * *", seconds=False)
@example(text="1\u00a01 1 1 1", seconds=False)
def test_cron_takes_or_refuses_any_text(text: str, seconds: bool) -> None:
    check(lambda given_text: cron(given_text, seconds=seconds), text)


@MANY
@given(text=st.one_of(TEXTS, mutated()))
def test_parse_takes_or_refuses_any_text(text: str) -> None:
    check(parse_trigger, text)


@USUAL
@given(text=st.one_of(st.text(max_size=80), st.sampled_from(strategies.ZONES).map(str.lower)))
@example(text="Europe")
@example(text="../../etc/passwd")
@example(text="/etc/localtime")
@example(text="Europe/../Europe/Berlin")
@example(text="Europe/Berlin\x00")
@example(text="\ud800")
@example(text="A" * LONGEST)
def test_cron_takes_or_refuses_any_zone(text: str) -> None:
    check(lambda tz: cron("0 9 * * *", tz=tz), text)


REPEATED = ["1", "*", ",", "1,", "*/1,", "1-2,", "/", "-", "#", "H", "H(", "(", "[", "{", " ", "0 "]
LONG_TEXTS = [
    *(piece * (LONGEST // len(piece)) for piece in REPEATED),
    *(f"{piece * 20_000} * * * *" for piece in REPEATED),
    f"* * * * {'1#1,' * 20_000}1",
    f"* * {'15W,' * 20_000}1 * *",
    f"{'9' * LONGEST} * * * *",
    f"*/{'9' * 5_000} * * * *",
    f"H(0-{'9' * 5_000}) * * * *",
    "* " * 50_000,
    '{"v":' * 20_000,
    '{"v": ' + "1" * 10_000 + "}",
    '"' + "\\" * LONGEST,
    "[" * LONGEST + "]" * LONGEST,
    *('{"kind": ' + "[" * depth + "]" * depth + "}" for depth in (100, 500, 900, 990)),
]


@pytest.mark.parametrize("text", LONG_TEXTS, ids=lambda text: f"{text[:12]} x {len(text)}")
def test_long_texts_are_refused_at_once(text: str) -> None:
    """Long input needs no more calls than short input, and its message is no longer."""
    for parse in (parse_trigger, cron):
        with pytest.raises(InvalidTrigger):
            parse(text)
        check(parse, text)


# Objects.

NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([10**400, -(10**400), 2**63, 2**31, -1, 0, 1, True, False, 1e308, -0.0]),
)
LEAVES = st.one_of(
    st.none(),
    NUMBERS,
    st.text(max_size=20),
    st.sampled_from(["cron", "every", "weekly", "once", "UTC", "09:00", "* * * * *", "mon"]),
)
OBJECTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
STORED: list[dict[str, object]] = [
    trigger.to_json()
    for trigger in (
        cron("H 3 * * *", tz="Europe/Berlin", start_at=AT, end_at=AT, spread=60).bind("key", AT),
        cron("*/5 0 3 * * MON", seconds=True, gap="skip", fold="both"),
        every(hours=2, start_at=AT, spread=5),
        weekly({"mon": "09:00", "tue": None, "thu": ["09:00", "17:30"]}, tz="Asia/Tehran"),
        once(AT),
    )
]


@st.composite
def changed_objects(draw: st.DrawFn) -> dict[str, object]:
    """Draw a stored trigger with one or two entries replaced, removed or added."""
    stored = dict(draw(st.sampled_from(STORED)))
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.one_of(st.sampled_from(sorted(stored) or ["v"]), st.text(max_size=8)))
        if draw(st.integers(0, 3)):
            stored[name] = draw(OBJECTS)
        else:
            stored.pop(name, None)
    return stored


@MANY
@given(thing=st.one_of(changed_objects(), OBJECTS))
def test_parse_takes_or_refuses_any_object(thing: object) -> None:
    check(parse_trigger, thing)


@MANY
@given(thing=st.one_of(changed_objects(), OBJECTS))
def test_parse_takes_or_refuses_any_json(thing: object) -> None:
    """Python reads and writes NaN and Infinity in JSON, so both can occur."""
    check(parse_trigger, json.dumps(thing))


def nested(depth: int) -> object:
    thing: object = "deep"
    for _ in range(depth):
        thing = [thing]
    return thing


LARGE = {
    "text": "x" * LONGEST,
    "list": [0] * LONGEST,
    "table": {str(number): number for number in range(10_000)},
    "number": 10**4_000,
    "number too long to print": 10**5_000,
    "depth": nested(5_000),
}


@pytest.mark.parametrize("large", LARGE)
@pytest.mark.parametrize("stored", STORED, ids=lambda stored: str(stored["kind"]))
def test_large_values_in_every_entry(stored: dict[str, object], large: str) -> None:
    for name in stored:
        with pytest.raises(InvalidTrigger):
            parse_trigger(stored | {name: LARGE[large]})
        check(parse_trigger, stored | {name: LARGE[large]})


@pytest.mark.parametrize("thing", [b"* * * * *", object(), [], (), set(), 5, None, "{", "[]", "5"])
def test_other_types_are_refused(thing: Any) -> None:
    with pytest.raises(InvalidTrigger):
        parse_trigger(thing)


@USUAL
@given(days=OBJECTS)
def test_weekly_takes_or_refuses_anything(days: object) -> None:
    check(weekly, days)
