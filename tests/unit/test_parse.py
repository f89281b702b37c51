"""Tests of JSON forms of triggers: round trips, accepted input forms, and refusals."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import (
    Cron,
    Every,
    InvalidInput,
    InvalidTrigger,
    Once,
    Trigger,
    UnknownTrigger,
    Weekly,
    cron,
    every,
    once,
    parse_trigger,
    weekly,
)

START, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
START_MS, END_MS = 1_767_225_600_000, 1_798_761_600_000
SEED = "fbe4921c82eca76d"  # the first 16 digits of sha256("user:ada/digest")
KEY = "user:ada/digest"

WRITTEN: list[tuple[Trigger, dict[str, Any]]] = [
    (cron("0 9 * * MON"), {"kind": "cron", "expression": "0 9 * * MON", "tz": "UTC"}),
    (
        cron("@daily", tz="Asia/Tokyo", gap="shift", fold="both"),
        {
            "kind": "cron",
            "expression": "@daily",
            "tz": "Asia/Tokyo",
            "gap": "shift",
            "fold": "both",
        },
    ),
    (
        cron("0 0 9 * * *", seconds=True, start_at=START, end_at=END),
        {
            "kind": "cron",
            "expression": "0 0 9 * * *",
            "seconds": True,
            "tz": "UTC",
            "start_at_ms": START_MS,
            "end_at_ms": END_MS,
        },
    ),
    (
        cron("H * * * *", spread=60).bind(KEY, START),
        {
            "kind": "cron",
            "expression": "H * * * *",
            "tz": "UTC",
            "spread_ms": 60_000,
            "seed": SEED,
        },
    ),
    (every(minutes=15), {"kind": "every", "interval_ms": 900_000}),
    (
        every(minutes=15, spread=timedelta(seconds=1)).bind(KEY, START),
        {
            "kind": "every",
            "interval_ms": 900_000,
            "start_at_ms": START_MS,
            "spread_ms": 1000,
            "seed": SEED,
        },
    ),
    (
        weekly({"thu": ["17:30", "09:00"], "mon": "09:00", "tue": None}, tz="Asia/Tokyo"),
        {
            "kind": "weekly",
            "days": {"mon": ["09:00"], "thu": ["09:00", "17:30"]},
            "tz": "Asia/Tokyo",
        },
    ),
    (weekly({}), {"kind": "weekly", "days": {}, "tz": "UTC"}),
    (once(START), {"kind": "once", "at_ms": START_MS}),
    (
        once(START, spread=60).bind(KEY, START),
        {"kind": "once", "at_ms": START_MS, "spread_ms": 60_000, "seed": SEED},
    ),
]


@pytest.mark.parametrize(("trigger", "expected"), WRITTEN)
def test_written_and_read_back(trigger: Trigger, expected: dict[str, Any]) -> None:
    written = trigger.to_json()
    assert written == {"v": 1, **expected}
    text = json.dumps(written)
    for form in (written, text, f"\n {text}", json.loads(text)):
        found = parse_trigger(form)
        assert found == trigger
        assert type(found) is type(trigger)
        assert hash(found) == hash(trigger)
    assert parse_trigger(written).to_json() == written


@pytest.mark.parametrize(("trigger", "written"), WRITTEN)
def test_reading_does_not_change_the_object(trigger: Trigger, written: dict[str, Any]) -> None:
    given = json.loads(json.dumps(written))
    parse_trigger(given)
    assert given == json.loads(json.dumps(written))


def test_a_bound_trigger_stays_bound() -> None:
    bound = cron("H H * * *", spread=60).bind(KEY, START)
    again = parse_trigger(json.dumps(bound.to_json()))
    assert again.is_bound
    assert (
        again.next_after(START)
        == bound.next_after(START)
        == datetime(2026, 1, 1, 2, 43, tzinfo=UTC)
    )
    assert again.offset_ms == bound.offset_ms == 16_946


AS_PEOPLE_WRITE: list[tuple[object, Trigger]] = [
    ("0 9 * * MON", cron("0 9 * * MON")),
    ("@daily", cron("@daily")),
    ({"kind": "cron", "expression": "@daily"}, cron("@daily")),
    (
        {
            "kind": "cron",
            "expression": "@daily",
            "start_at": "2026-01-01T01:00:00+01:00",
            "end_at": "2027-01-01T00:00:00Z",
        },
        cron("@daily", start_at=START, end_at=END),
    ),
    ({"kind": "cron", "expression": "@daily", "spread": 1.5}, cron("@daily", spread=1.5)),
    ({"kind": "every", "minutes": 15}, every(minutes=15)),
    ({"kind": "every", "hours": 1, "minutes": 30}, every(minutes=90)),
    ({"kind": "every", "days": 1, "start_at": "2026-01-01T00:00Z"}, every(days=1, start_at=START)),
    ({"kind": "weekly", "days": {"mon": "09:00"}}, weekly({"mon": "09:00"})),
    ({"kind": "once", "at": "2025-12-31T19:00:00-05:00"}, once(START)),
    ({"kind": "once", "at": "2026-01-01T00:00:00Z", "spread": 60}, once(START, spread=60)),
]


@pytest.mark.parametrize(("form", "expected"), AS_PEOPLE_WRITE)
def test_accepted_input_forms(form: object, expected: Trigger) -> None:
    assert parse_trigger(form) == expected


def test_one_call_for_all_kinds() -> None:
    """Each kind is selected by the field `kind` and gives the next time after an instant."""
    found = {
        Cron: parse_trigger({"kind": "cron", "expression": "0 9 * * *"}),
        Every: parse_trigger({"kind": "every", "hours": 9, "start_at": "2026-01-01T00:00Z"}),
        Weekly: parse_trigger({"kind": "weekly", "days": {"thu": "09:00"}}),
        Once: parse_trigger({"kind": "once", "at": "2026-01-01T09:00Z"}),
    }
    for kind, trigger in found.items():
        assert type(trigger) is kind
        assert trigger.next_after(START) == START + timedelta(hours=9)


CRON: dict[Any, Any] = {"kind": "cron", "expression": "@daily"}
EVERY = {"kind": "every", "minutes": 15}
ONCE = {"kind": "once", "at": "2026-12-24T18:00:00+01:00"}
WEEKLY = {"kind": "weekly", "days": {"mon": "09:00"}}
BAD: list[tuple[object, str, str]] = [
    # Unknown fields and fields of another kind are never ignored.
    ({**CRON, "tmezone": "Asia/Tokyo"}, "field", "tmezone"),
    ({**CRON, "minutes": 15}, "field", "minutes"),
    ({**CRON, "interval_ms": 900_000}, "field", "interval_ms"),
    ({**CRON, "enabled": False}, "field", "enabled"),
    ({**EVERY, "expression": "@daily"}, "field", "expression"),
    ({**EVERY, "tz": "UTC"}, "field", "tz"),
    ({**WEEKLY, "expression": "@daily"}, "field", "expression"),
    ({**WEEKLY, "enabled": False}, "field", "enabled"),
    ({**ONCE, "tz": "UTC"}, "at", "2026-12-24T18:00:00+01:00"),
    ({**CRON, 7: 1}, "field", "7"),
    # What is missing
    ({"kind": "cron"}, "expression", "None"),
    ({"kind": "every"}, "interval", "None"),
    ({"kind": "weekly"}, "days", "None"),
    ({"kind": "once"}, "at", ""),
    # Two ways at once
    ({**EVERY, "interval_ms": 900_000}, "interval", "900000"),
    ({**ONCE, "at_ms": START_MS}, "at", "2026-12-24T18:00:00+01:00"),
    ({**CRON, "start_at": "2026-01-01T00:00Z", "start_at_ms": 1}, "start_at", "2026-01-01T00:00Z"),
    ({**CRON, "spread": 1, "spread_ms": 1000}, "spread", "1"),
    ({**ONCE, "start_at": "2026-01-01T00:00:00Z"}, "at", ONCE["at"]),
    ({**ONCE, "end_at_ms": END_MS}, "at", ONCE["at"]),
    # Seconds where milliseconds belong, and the reverse
    ({"kind": "once", "at_ms": 1_798_131_600}, "at", "1798131600"),
    ({"kind": "once", "at_ms": 1_798_131_600_000_000}, "at", "1798131600000000"),
    ({"kind": "once", "at_ms": 1_798_131_600_000.0}, "at", "1798131600000.0"),
    ({"kind": "once", "at_ms": True}, "at", "True"),
    ({**CRON, "start_at_ms": 1_767_225_600}, "start_at", "1767225600"),
    # Instants without an offset, or not ISO-8601
    ({"kind": "once", "at": "2026-12-24T18:00:00"}, "at", "2026-12-24T18:00:00"),
    ({"kind": "once", "at": "tomorrow"}, "at", "tomorrow"),
    ({"kind": "once", "at": 1_798_131_600_000}, "at", "1798131600000"),
    ({**CRON, "end_at": "2026-13-01T00:00Z"}, "end_at", "2026-13-01T00:00Z"),
    # Values
    ({**CRON, "expression": "61 * * * *"}, "minute", "61"),
    ({**CRON, "expression": 5}, "expression", "5"),
    ({**CRON, "tz": "Europe/Berlim"}, "tz", "Europe/Berlim"),
    ({**CRON, "tz": None}, "tz", "None"),
    ({**CRON, "gap": "x"}, "gap", "x"),
    ({**CRON, "fold": 1}, "fold", "1"),
    ({**CRON, "seconds": 1}, "seconds", "1"),
    ({**CRON, "spread": -1}, "spread", "-1 s"),
    ({**CRON, "spread_ms": 0.5}, "spread", "0.5"),
    ({**CRON, "spread_ms": 86_400_001}, "spread", "1 d 1 ms"),
    ({**CRON, "seed": "x"}, "seed", "x"),
    ({**CRON, "seed": SEED.upper()}, "seed", SEED.upper()),
    ({**CRON, "start_at_ms": END_MS, "end_at_ms": START_MS}, "end_at", str(START)),
    ({**EVERY, "minutes": "15"}, "minutes", "15"),
    ({"kind": "every", "interval_ms": 999}, "interval", "999 ms"),
    ({**WEEKLY, "days": {"mon": "9:00"}}, "mon", "9:00"),
    # Not a trigger at all
    (None, "trigger", "None"),
    (5, "trigger", "5"),
    ([CRON], "trigger", repr([CRON])),
    (b"@daily", "trigger", "b'@daily'"),
    ("[]", "expression", ""),
]


@pytest.mark.parametrize(("form", "field", "text"), BAD)
def test_refused(form: object, field: str, text: str) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        parse_trigger(form)
    assert (caught.value.field, caught.value.text) == (field, text)
    assert not isinstance(caught.value, UnknownTrigger)


def test_known_fields_are_named() -> None:
    with pytest.raises(InvalidTrigger) as caught:
        parse_trigger({**WEEKLY, "enabled": False})
    assert "of weekly: days, end_at, end_at_ms, fold, gap, kind" in caught.value.allowed


@pytest.mark.parametrize(
    ("form", "field", "text"),
    [
        ({**CRON, "v": 3}, "v", "3"),
        ({**CRON, "v": 0}, "v", "0"),
        ({**CRON, "v": "1"}, "v", "1"),
        ({**CRON, "v": None}, "v", "None"),
        ({**CRON, "v": True}, "v", "True"),
        ({"v": 3, "kind": "lunar", "phase": "full"}, "v", "3"),
        ({"kind": "lunar"}, "kind", "lunar"),
        ({"v": 1, "kind": "Cron", "expression": "@daily"}, "kind", "Cron"),
        ({"v": 1}, "kind", "None"),
        ({"kind": ["cron"]}, "kind", "['cron']"),
        ("{}", "kind", "None"),
    ],
)
def test_later_versions_and_unknown_kinds_are_refused(form: object, field: str, text: str) -> None:
    with pytest.raises(UnknownTrigger) as caught:
        parse_trigger(form)
    assert (caught.value.field, caught.value.text) == (field, text)


@pytest.mark.parametrize(
    ("text", "position", "found"),
    [
        ("{", 1, ""),
        ('{"kind": cron}', 9, "c"),
        ('{"kind": "cron",}', 15, ","),
        ('{"kind": "weekly", "days": [1, ]}', 29, ","),
        ("{'kind': 'cron'}", 1, "'"),
        ('{"kind": "cron"} x', 17, "x"),
    ],
)
def test_bad_json_names_the_place(text: str, position: int, found: str) -> None:
    with pytest.raises(InvalidTrigger, match="JSON") as caught:
        parse_trigger(text)
    error = caught.value
    assert (error.field, error.position, error.source) == ("trigger", position, text)
    assert (error.text or "").startswith(found)


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "cron", "x": ' + "[" * 60_000,
        '{"kind": "once", "at_ms": ' + "9" * 5000 + "}",
        '{"kind": "cron", "expression": "' + "0" * 65_536 + '"}',
        '{"kind": "cron", "expression": "@daily", "spread": ' + "9" * 400 + "}",
        '{"kind": "every", "seconds": NaN}',
        '{"kind": "every", "seconds": Infinity}',
        '{"kind": "every", "seconds": ' + "9" * 400 + "}",
    ],
    ids=["deep", "digits", "long", "spread", "nan", "infinity", "seconds"],
)
def test_hostile_json_is_refused_like_any_other(text: str) -> None:
    with pytest.raises(InvalidTrigger):
        parse_trigger(text)


TOKYO = [
    {**CRON, "tz": "Asia/Tokyo"},
    {**WEEKLY, "tz": "Asia/Tokyo"},
    {**CRON, "tz": "Etc/UTC"},
    json.dumps({**CRON, "tz": "Europe/Berlin"}),
]


@pytest.mark.parametrize("form", TOKYO)
def test_zones_other_than_utc_can_be_refused(form: object) -> None:
    assert parse_trigger(form).tz != "UTC"
    with pytest.raises(InvalidTrigger, match="UTC only") as caught:
        parse_trigger(form, zones="utc")
    assert caught.value.field == "tz"


@pytest.mark.parametrize("form", ["@daily", CRON, {**CRON, "tz": "UTC"}, EVERY, WEEKLY, ONCE])
def test_utc_is_always_allowed(form: object) -> None:
    assert parse_trigger(form, zones="utc") == parse_trigger(form)


def test_errors_are_invalid_input() -> None:
    assert issubclass(UnknownTrigger, InvalidTrigger)
    assert issubclass(InvalidTrigger, InvalidInput)
