"""Tests of refused cron expressions: the error names the field, the text and the position."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import DulyError, InvalidInput, InvalidTrigger, cron
from duly.triggers.fields import MAX_LENGTH

# Expression, field, text, position.
BAD = [
    ("60 * * * *", "minute", "60", 0),
    ("100 * * * *", "minute", "100", 0),
    ("007 * * * *", "minute", "007", 0),
    ("-1 * * * *", "minute", "", 0),
    ("+5 * * * *", "minute", "+5", 0),
    ("1.5 * * * *", "minute", "1.5", 0),
    ("0x1 * * * *", "minute", "0x1", 0),
    ("a * * * *", "minute", "a", 0),
    ("** * * * *", "minute", "**", 0),
    ("*5 * * * *", "minute", "*5", 0),
    ("*-5 * * * *", "minute", "*", 0),
    ("? * * * *", "minute", "?", 0),
    ("L * * * *", "minute", "L", 0),
    ("\0 * * * *", "minute", "\0", 0),
    # Ranges go up.
    ("10-5 * * * *", "minute", "10-5", 0),
    ("5-70 * * * *", "minute", "70", 2),
    ("5- * * * *", "minute", "", 2),
    ("1-2-3 * * * *", "minute", "2-3", 2),
    ("0 22-2 * * *", "hour", "22-2", 2),
    # Lists have no empty places.
    ("1,2,60 * * * *", "minute", "60", 4),
    ("1,,2 * * * *", "minute", "", 2),
    (",1 * * * *", "minute", "", 0),
    ("1, * * * *", "minute", "", 2),
    ("1;2 * * * *", "minute", "1;2", 0),
    # Steps are 1 up to the span of the field.
    ("*/0 * * * *", "minute", "0", 2),
    ("*/61 * * * *", "minute", "61", 2),
    ("*/ * * * *", "minute", "", 2),
    ("*/x * * * *", "minute", "x", 2),
    ("*/-5 * * * *", "minute", "-5", 2),
    ("1//2 * * * *", "minute", "/2", 2),
    ("1-5/0 * * * *", "minute", "0", 4),
    ("* */25 * * *", "hour", "25", 4),
    ("* * */32 * *", "day of month", "32", 6),
    ("* * * */13 *", "month", "13", 8),
    ("* * * * */8", "day of week", "8", 10),
    # Values of each field.
    ("* 24 * * *", "hour", "24", 2),
    ("* 9am * * *", "hour", "9am", 2),
    ("* * 0 * *", "day of month", "0", 4),
    ("* * 32 * *", "day of month", "32", 4),
    ("* * MON * *", "day of month", "MON", 4),
    ("* * * 0 *", "month", "0", 6),
    ("* * * 13 *", "month", "13", 6),
    ("* * * JANUARY *", "month", "JANUARY", 6),
    ("* * * JAN-FOO *", "month", "FOO", 10),
    ("* * * ? *", "month", "?", 6),
    ("* * * * 8", "day of week", "8", 8),
    ("* * * * MOM", "day of week", "MOM", 8),
    ("* * * * JAN", "day of week", "JAN", 8),
    ("* * * * MON,TEU", "day of week", "TEU", 12),
    ("* * * * FRI-MON", "day of week", "FRI-MON", 8),
    ("* * * * 6-1", "day of week", "6-1", 8),
    ("* * * * 7-5", "day of week", "7-5", 8),
    # Days that depend on the month.
    ("* * 32W * *", "day of month", "32", 4),
    ("* * 0W * *", "day of month", "0", 4),
    ("* * W * *", "day of month", "", 4),
    ("* * WL * *", "day of month", "WL", 4),
    ("* * 1-5W * *", "day of month", "1-5", 4),
    ("* * 15W/2 * *", "day of month", "15W", 4),
    ("* * L-3 * *", "day of month", "L", 4),
    ("* * L/2 * *", "day of month", "L", 4),
    ("* * 5L * *", "day of month", "5L", 4),
    ("* * 1#2 * *", "day of month", "1#2", 4),
    ("* * ?,1 * *", "day of month", "?", 4),
    ("* * 1,? * *", "day of month", "?", 6),
    ("* * ?/2 * *", "day of month", "?", 4),
    ("* * * * L", "day of week", "L", 8),
    ("* * * * LW", "day of week", "LW", 8),
    ("* * * * 8L", "day of week", "8", 8),
    ("* * * * 1#0", "day of week", "0", 10),
    ("* * * * 1#6", "day of week", "6", 10),
    ("* * * * 1#", "day of week", "", 10),
    ("* * * * #2", "day of week", "", 8),
    ("* * * * foo#2", "day of week", "foo", 8),
    ("* * * * 1#2/2", "day of week", "1#2", 8),
    # H
    ("HH * * * *", "minute", "HH", 0),
    ("H(5) * * * *", "minute", "H(5)", 0),
    ("H(30-10) * * * *", "minute", "H(30-10)", 0),
    ("H(0-60) * * * *", "minute", "60", 4),
    ("H-5 * * * *", "minute", "H-5", 0),
    ("H/0 * * * *", "minute", "0", 2),
    ("H(0-9)/11 * * * *", "minute", "H(0-9)", 0),
    ("* * H/29 * *", "day of month", "H", 4),
    ("* * * * H#2", "day of week", "H", 8),
    # Other alphabets, including characters that Python folds to ASCII.
    ("\u0665 * * * *", "minute", "\u0665", 0),
    ("\uff15 * * * *", "minute", "\uff15", 0),
    ("\u00b2 * * * *", "minute", "\u00b2", 0),
    ("* * * * \u017fun", "day of week", "\u017fun", 8),
    ("* * * * fr\u0131", "day of week", "fr\u0131", 8),
    ("* * * * \u00df#9", "day of week", "\u00df#9", 8),
    ("@wee\u212aly", "expression", "@wee\u212aly", 0),
    # Macros
    ("@reboot", "expression", "@reboot", 0),
    (" @every 5m", "expression", "@every", 1),
    ("@daily 5", "expression", "5", 7),
    ("@", "expression", "@", 0),
    # The number of fields
    ("", "expression", "", 0),
    ("   ", "expression", "", 3),
    ("5", "expression", "", 1),
    ("* *", "expression", "", 3),
    ("* * * *", "expression", "", 7),
    ("* * * * * *", "expression", "*", 10),
    ("*/10 * * * * *", "expression", "*", 13),
    ("* * * * * * 2026", "expression", "*", 10),
    ("0\u00a09 * * *", "expression", "", 9),
    ("0 9 * *\n*", "expression", "", 9),
    ("0 9 * * *\n", "day of week", "*\n", 8),
]


def ids(expression: object) -> str:
    return ascii(expression)[:80]


@pytest.mark.parametrize(("expression", "field", "text", "position"), BAD, ids=ids)
def test_errors_name_the_position(expression: str, field: str, text: str, position: int) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron(expression)
    error = caught.value
    assert (error.field, error.text, error.position) == (field, text, position)
    assert error.source == expression
    assert expression[position:].startswith(text)
    for part in (field, repr(text), f"position {position}", repr(expression), error.allowed):
        assert part in str(error)


SIX = [
    ("* * * * *", "expression", "", 9),
    ("* * * * * * *", "expression", "*", 12),
    ("60 * * * * *", "second", "60", 0),
    ("* 60 * * * *", "minute", "60", 2),
    ("* * * * * MOM", "day of week", "MOM", 10),
    ("0 0 0 31 2 *", "day of month", "31", 6),
]


@pytest.mark.parametrize(("expression", "field", "text", "position"), SIX)
def test_refused_with_seconds(expression: str, field: str, text: str, position: int) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron(expression, seconds=True)
    error = caught.value
    assert (error.field, error.text, error.position) == (field, text, position)


NEVER = [
    ("0 0 31 2 *", "31", 4),
    ("0 0 30 2 *", "30", 4),
    ("0  0 30-31 FEB *", "30-31", 5),
    ("0 0 31 4,6,9,11 *", "31", 4),
    ("0 0 30W 2 *", "30W", 4),
    ("0 0 30 2 */7", "30", 4),
    ("0 0 30 2 ?", "30", 4),
    ("0 0 */29 2 5#5", "*/29", 4),  # the 1st, and the only fifth Friday is a 29th
    ("0 0 29W 2 */7", "29W", 4),  # a weekday that is a Sunday
    ("0 0 H(29-31) 4 *", "H(29-31)", 4),
    ("0 0 31 H *", "31", 4),  # H may become February
    ("0 0 31 H(2-3) *", "31", 4),
    ("0 0 30 H(1-2) *", "30", 4),
]


@pytest.mark.parametrize(("expression", "text", "position"), NEVER)
def test_what_can_never_match_is_refused(expression: str, text: str, position: int) -> None:
    with pytest.raises(InvalidTrigger, match="in some year") as caught:
        cron(expression)
    error = caught.value
    assert (error.field, error.text, error.position) == ("day of month", text, position)


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 31 2/2,9 *",  # August has 31 days
        "0 0 29 2 *",
        "0 0 31 2 1",  # either: Mondays match
        "0 0 30 H(3-12) *",
        "0 0 H 2 *",
        "0 0 * 2 1#5",  # a leap year that begins on a Thursday
    ],
)
def test_rare_expressions_are_accepted(expression: str) -> None:
    for key in ("a", "b", "c"):
        bound = cron(expression).bind(key, created_at=datetime(2026, 1, 1, tzinfo=UTC))
        assert bound.next_after(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("*/10 * * * * *", "pass seconds=True"),
        ("* * * *", "minute, hour, day of month, month, day of week), found 4"),
        ("10-5 * * * *", "two ranges"),
        ("@reboot", "@reboot is not a time"),
        ("@reboot", "@daily"),
        ("60 * * * *", "0-59"),
        ("* * * FOO *", "JAN-DEC"),
        ("* * * * FOO", "SUN-SAT"),
        ("* * * * 1#6", "1#1 to 1#5"),
        ("* */25 * * *", "a step of 1-24"),
        ("* * ?,1 * *", "? stands alone"),
    ],
)
def test_the_remedy_is_named(expression: str, hint: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron(expression)
    assert hint in caught.value.allowed


@pytest.mark.parametrize(
    ("expression", "line"),
    [
        ("0 9 * * MOM", "        ^^^"),
        ("61 * * * *", "^^"),
        ("*/ * * * *", "  ^"),
        ("* * *", "     ^"),
    ],
)
def test_caret(expression: str, line: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron(expression)
    assert caught.value.caret() == f"{expression}\n{line}"


def test_no_caret_without_a_position() -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron("0 9 * * *", tz="Nowhere")
    assert caught.value.caret() is None
    assert "position" not in str(caught.value)


def test_one_root_for_all_errors() -> None:
    with pytest.raises(DulyError) as caught:
        cron("61 * * * *")
    assert isinstance(caught.value, InvalidInput)


def test_the_longest_expression() -> None:
    longest = ",".join(["10"] * 82) + ",0 9 * * *"
    assert len(longest) == MAX_LENGTH - 1
    assert cron(longest + " ").next_after(datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidTrigger, match="at most 256 characters") as caught:
        cron(longest + "  ")
    assert (caught.value.field, len(caught.value.text)) == ("expression", 60)


@pytest.mark.parametrize("expression", [None, 5, b"0 9 * * *", ["0 9 * * *"], True])
def test_an_expression_is_text(expression: Any) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron(expression)
    assert (caught.value.field, caught.value.text) == ("expression", repr(expression))


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001
LONG_AGO, TOO_FAR = datetime(1999, 12, 31, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
OPTIONS = [
    ("gap", "earlier", "next_valid, shift, skip"),
    ("gap", None, "next_valid, shift, skip"),
    ("gap", "first", "next_valid, shift, skip"),
    ("fold", "third", "first, second, both"),
    ("fold", ["first"], "first, second, both"),
    ("seconds", 1, "True or False"),
    ("seconds", "yes", "True or False"),
    ("start_at", NAIVE, "an aware datetime"),
    ("start_at", 1_767_225_600, "an aware datetime"),
    ("start_at", LONG_AGO, "2000 to 2199 (not seconds)"),
    ("start_at", TOO_FAR, "2000 to 2199 (not seconds)"),
    ("end_at", NAIVE, "an aware datetime"),
    ("end_at", LONG_AGO, "2000 to 2199 (not seconds)"),
    ("end_at", TOO_FAR, "2000 to 2199 (not seconds)"),
    ("spread", -1, "0 seconds to 1 day"),
    ("spread", 86_400.001, "0 seconds to 1 day"),
    ("spread", timedelta(seconds=-1), "0 seconds to 1 day"),
    ("spread", 2 * DAY, "0 seconds to 1 day"),
    ("spread", float("nan"), "0 seconds to 1 day"),
    ("spread", float("inf"), "0 seconds to 1 day"),
    pytest.param("spread", 10**400, "0 seconds to 1 day", id="huge"),
    ("spread", "60", "a timedelta or a number of seconds"),
    ("spread", True, "a timedelta or a number of seconds"),
]


@pytest.mark.parametrize(("option", "value", "allowed"), OPTIONS)
def test_wrong_options(option: str, value: Any, allowed: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron("0 9 * * *", **{option: value})
    assert caught.value.field == option
    assert allowed in caught.value.allowed


def test_an_end_before_the_start_is_refused() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidTrigger, match="a time at or after start_at") as caught:
        cron("0 9 * * *", start_at=now, end_at=now - timedelta(milliseconds=1))
    assert caught.value.field == "end_at"


def test_the_widest_options() -> None:
    latest = TOO_FAR - timedelta(milliseconds=1)
    trigger = cron("0 9 * * *", start_at=LONG_AGO + DAY, end_at=latest, spread=DAY)
    assert (trigger.start_at, trigger.end_at) == (LONG_AGO + DAY, latest)


@pytest.mark.parametrize(
    "tz",
    [
        *("localtime", "posixrules", "Factory", "posix/UTC", "right/UTC", "right/Europe/Berlin"),
        *("", " ", "Europe", "Europe/", "Mars/Olympus", "UTC+3", "Berlin", "CEST", "+01:00"),
        *("../UTC", "/etc/localtime", "./UTC", "tzdata.zi", "zone.tab", "UTC\0", "\ud800"),
        *("Europe/Berlin ", "X" * 65, "X" * 100_000),
    ],
    ids=ids,
)
def test_invalid_zones(tz: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron("0 9 * * *", tz=tz)
    assert (caught.value.field, caught.value.text) == (
        "tz",
        tz if len(tz) <= 60 else f"{tz[:57]}...",
    )
    assert "an IANA zone name such as Europe/Berlin" in caught.value.allowed


@pytest.mark.parametrize("tz", [None, 5, b"UTC", UTC])
def test_a_zone_is_text(tz: Any) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron("0 9 * * *", tz=tz)
    assert (caught.value.field, caught.value.text) == ("tz", repr(tz))


@pytest.mark.parametrize(
    ("tz", "meant"),
    [
        ("Europe/Berlim", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("America/NewYork", "America/New_York"),
        ("Asia/Tokio", "Asia/Tokyo"),
        ("utc", "UTC"),
        ("EUROPE/BERLIN", "Europe/Berlin"),
    ],
)
def test_similar_zone_names_are_suggested(tz: str, meant: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        cron("0 9 * * *", tz=tz)
    assert f"did you mean {meant}" in caught.value.allowed
