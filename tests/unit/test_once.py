"""Tests of `once`: one time, then finished."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly import InvalidInstant, InvalidTrigger, LocalOnce, Once, once, parse_trigger

EVE = datetime(2026, 12, 24, 17, tzinfo=UTC)
MS = timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (EVE - timedelta(days=365), EVE),
        (EVE - MS, EVE),
        (EVE, None),
        (EVE + MS, None),
        (EVE + timedelta(days=364, hours=23), None),  # it does not fire again a year later
    ],
)
def test_one_time(asked: datetime, expected: datetime | None) -> None:
    assert once(EVE).next_after(asked) == expected


def test_it_starts_and_ends_with_its_time() -> None:
    trigger = once(EVE)
    assert trigger.at == trigger.start_at == trigger.end_at == EVE
    assert trigger.is_bound
    assert trigger.bind("user:ada/gift", created_at=EVE) is trigger


def test_a_zone_is_only_a_way_to_write_the_instant() -> None:
    berlin = datetime(2026, 12, 24, 18, tzinfo=ZoneInfo("Europe/Berlin"))
    assert once(berlin) == once(EVE)
    assert once(berlin).tz == "UTC"
    assert once(berlin).next_after_ms(0) == 1_798_131_600_000


def test_between() -> None:
    assert list(once(EVE).between(EVE - MS, EVE)) == [EVE]
    assert list(once(EVE).between(EVE, EVE + MS)) == []


def test_a_spread_moves_the_run_and_not_the_time() -> None:
    trigger = once(EVE, spread=60).bind("user:ada/digest", created_at=EVE)
    assert trigger.next_after(EVE - MS) == EVE
    assert trigger.run_at(EVE) == EVE + timedelta(milliseconds=16_946)


@pytest.mark.parametrize(
    "at",
    [
        datetime(2026, 12, 24, 18),  # noqa: DTZ001
        datetime(1970, 1, 21, 11, tzinfo=UTC),  # 2026 in seconds, read as milliseconds
        datetime(1999, 12, 31, 23, 59, tzinfo=UTC),
        datetime(2200, 1, 1, tzinfo=UTC),
        1_798_131_600,
        "2026-12-24T18:00:00",
        "2026-12-24",
        "soon",
        None,
    ],
)
def test_refused(at: Any) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        once(at)
    assert caught.value.field == "at"


def test_refused_questions() -> None:
    for asked in (datetime(1969, 12, 31, tzinfo=UTC), datetime(2026, 1, 1)):  # noqa: DTZ001
        with pytest.raises(InvalidInstant):
            once(EVE).next_after(asked)


def test_equal_by_value_and_hashable() -> None:
    assert len({once(EVE), once(EVE + timedelta(microseconds=999))}) == 1
    assert once(EVE) != once(EVE + MS)


def test_text_with_an_offset_is_an_instant() -> None:
    assert once("2026-12-24T18:00:00+01:00") == once(EVE)


# A local time in a zone.

BERLIN = "Europe/Berlin"
GAP = "2026-03-29T02:30"
FOLD = "2026-10-25T02:30"


@pytest.mark.parametrize(
    "at",
    [
        "2026-12-24T18:00",
        "2026-12-24T18:00:00",
        "2026-12-24 18:00",
        datetime(2026, 12, 24, 18),  # noqa: DTZ001
    ],
)
def test_a_local_time_is_read_in_its_zone(at: Any) -> None:
    trigger = once(at, tz=BERLIN)
    assert (trigger.tz, trigger.at) == (BERLIN, EVE)
    assert trigger.next_after(EVE - MS) == EVE
    assert trigger.next_after(EVE) is None
    assert trigger.words == "Once, on Thursday 24 December 2026 at 18:00"
    assert trigger.explain(1, EVE - MS).heading == f"{trigger.words}, {BERLIN}"
    assert once("2026-12-24T18:00:05", tz=BERLIN).words.endswith("at 18:00:05")


@pytest.mark.parametrize(
    ("at", "rule", "expected"),
    [
        (GAP, {}, datetime(2026, 3, 29, 1, tzinfo=UTC)),
        (GAP, {"gap": "shift"}, datetime(2026, 3, 29, 1, 30, tzinfo=UTC)),
        (GAP, {"gap": "skip"}, None),
        (FOLD, {}, datetime(2026, 10, 25, 0, 30, tzinfo=UTC)),
        (FOLD, {"fold": "second"}, datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),
    ],
)
def test_clock_changes_of_a_local_time(at: str, rule: Any, expected: datetime | None) -> None:
    trigger = once(at, tz=BERLIN, **rule)
    assert trigger.at == expected
    assert list(trigger.between(datetime(2026, 1, 1, tzinfo=UTC), EVE)) == (
        [] if expected is None else [expected]
    )


def test_a_local_time_has_a_stored_form_of_its_own_version() -> None:
    trigger = once("2026-12-24T18:00", tz=BERLIN, gap="shift", fold="second", spread=5)
    assert trigger.to_json() == {
        "v": 2,
        "kind": "once",
        "at": "2026-12-24T18:00:00",
        "tz": BERLIN,
        "gap": "shift",
        "fold": "second",
        "spread_ms": 5_000,
    }
    assert parse_trigger(trigger.to_json()) == trigger
    assert once(EVE).to_json()["v"] == 1
    written = {"kind": "once", "at": "2026-12-24T18:00", "tz": BERLIN}
    assert parse_trigger(written) == once("2026-12-24T18:00", tz=BERLIN)


def test_utc_needs_no_local_time() -> None:
    assert once("2026-12-24T17:00", tz="UTC") == once(EVE)
    assert isinstance(once(EVE), Once)
    assert isinstance(once("2026-12-24T18:00", tz=BERLIN), LocalOnce)


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("at", {"at": "2026-12-24T18:00"}),
        ("at", {"at": "2026-12-24T18:00+01:00", "tz": BERLIN}),
        ("at", {"at": "2026-12-24", "tz": BERLIN}),
        ("at", {"at": "2026-12-24T18:00:00.5", "tz": BERLIN}),
        ("at", {"at": "1999-12-24T18:00", "tz": BERLIN}),
        ("at", {"at": 5, "tz": BERLIN}),
        ("tz", {"at": "2026-12-24T18:00", "tz": "Europe/Berln"}),
        ("fold", {"at": "2026-12-24T18:00", "tz": BERLIN, "fold": "both"}),
        ("gap", {"at": "2026-12-24T18:00", "tz": BERLIN, "gap": "never"}),
    ],
)
def test_refused_local_times(field: str, words: dict[str, Any]) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        once(**words)
    assert caught.value.field == field
    with pytest.raises(InvalidTrigger) as caught:
        parse_trigger({"kind": "once"} | words)
    assert caught.value.field == field
