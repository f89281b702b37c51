"""Tests of index rows: the first row, how rows advance, and isolation of bad rows."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly import Trigger, cron, every, once, weekly
from duly.errors import InvalidInput
from duly.model.index_rows import (
    MAX_MISSED,
    Advance,
    IndexRow,
    advance,
    index_row,
    trigger_of,
    trigger_text,
)
from duly.model.schedules import (
    Definition,
    Policies,
    Schedule,
    ScheduleId,
    bind,
    binding_key,
    state_of,
)
from duly.model.scopes import user
from duly.triggers.instants import END_MS, to_ms

NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)
NOW_MS = to_ms(NOW)
HOUR = 3_600_000
DAY = 24 * HOUR


def schedule(trigger: Trigger, **fields: Any) -> Schedule:
    scope = user("u")
    definition = bind(
        Definition(trigger, "send", **fields), binding_key("mail", scope, "n"), NOW_MS
    )
    return Schedule(
        ScheduleId("sch_1"), "mail", scope, "n", definition, state_of(definition), 1, NOW_MS, NOW_MS
    )


def row_of(trigger: Trigger, after_ms: int = NOW_MS, **fields: Any) -> IndexRow:
    row = index_row(schedule(trigger, **fields), after_ms)
    assert row is not None
    return row


# The first row of a schedule.


def test_the_row_of_a_schedule() -> None:
    trigger = cron("0 9 * * MON", tz="Europe/Berlin")
    policies = Policies(priority=3, overlap="allow")
    assert row_of(trigger, policies=policies, max_runs=4, hand_over="http") == IndexRow(
        schedule_id=ScheduleId("sch_1"),
        flow="mail",
        scope="user:u",
        name="n",
        trigger=trigger_text(trigger),
        nominal_ms=NOW_MS + 7 * DAY,
        run_at_ms=NOW_MS + 7 * DAY,
        zone="Europe/Berlin",
        hand_over="http",
        priority=3,
        policies='{"overlap":"allow","priority":3}',
        runs_left=4,
        trigger_version=1,
        version=1,
    )


def test_the_next_time_is_strictly_after() -> None:
    assert row_of(cron("0 7 * * *"), NOW_MS - 1).nominal_ms == NOW_MS
    assert row_of(cron("0 7 * * *"), NOW_MS).nominal_ms == NOW_MS + DAY


@pytest.mark.parametrize(
    "without",
    [
        schedule(cron("0 * * * *"), enabled=False),
        schedule(cron("0 * * * *"), hand_over="external"),
        replace(schedule(cron("0 * * * *")), state="quarantined"),
        replace(schedule(cron("0 * * * *")), state="finished"),
        schedule(once(NOW)),
        schedule(weekly({"mon": None})),
        schedule(cron("0 * * * *", end_at=NOW)),
    ],
)
def test_without_a_next_time_there_is_no_row(without: Schedule) -> None:
    assert index_row(without, NOW_MS) is None


def test_a_time_whose_run_time_is_in_the_future_is_next() -> None:
    spread = cron("0 7 * * *", spread=timedelta(hours=2))
    offset = row_of(spread).run_at_ms - row_of(spread).nominal_ms
    assert 0 < offset < 2 * HOUR
    assert row_of(spread, NOW_MS + offset - 1).nominal_ms == NOW_MS
    assert row_of(spread, NOW_MS + offset).nominal_ms == NOW_MS + DAY


def test_runs_left_may_be_given() -> None:
    row = index_row(schedule(every(hours=1), max_runs=9), NOW_MS, runs_left=2)
    assert row is not None
    assert row.runs_left == 2


SECONDS = NOW_MS // 1_000


@pytest.mark.parametrize(
    ("nominal_ms", "run_at_ms"),
    [
        (SECONDS, NOW_MS),
        (NOW_MS, SECONDS),
        (END_MS, NOW_MS),
        (NOW_MS, END_MS + 86_400_000),
        (float(NOW_MS), NOW_MS),
        (None, NOW_MS),
        (True, NOW_MS),
    ],
)
def test_times_not_in_milliseconds_are_refused(nominal_ms: Any, run_at_ms: Any) -> None:
    with pytest.raises(InvalidInput, match="not seconds"):
        IndexRow(ScheduleId("s"), "mail", "user:u", "n", "{}", nominal_ms, run_at_ms)


# How it advances: every hour, fired at NOW.

HOURLY = every(hours=1, start_at=NOW)
AT_NOW = row_of(HOURLY, NOW_MS - 1)
TABLE = [
    # now - fired, missed, next - fired
    (0, 0, HOUR),
    (HOUR - 1, 0, HOUR),
    (HOUR, 1, 2 * HOUR),
    (2 * HOUR - 1, 1, 2 * HOUR),
    (10 * HOUR, 10, 11 * HOUR),
    ((MAX_MISSED - 1) * HOUR, MAX_MISSED - 1, MAX_MISSED * HOUR),
    (MAX_MISSED * HOUR, MAX_MISSED, (MAX_MISSED + 1) * HOUR),
    (3 * MAX_MISSED * HOUR + 5, MAX_MISSED, (3 * MAX_MISSED + 1) * HOUR),
]


@pytest.mark.parametrize(("later", "missed", "following"), TABLE)
def test_a_row_advances_past_now_and_counts_missed_times(
    later: int, missed: int, following: int
) -> None:
    (move,) = advance([AT_NOW], NOW_MS + later)
    expected = NOW_MS + following
    assert move == Advance(AT_NOW.schedule_id, expected, expected, None, missed)


def test_a_claim_ahead_of_time_advances_by_one() -> None:
    (move,) = advance([AT_NOW], NOW_MS - HOUR)
    assert (move.nominal_ms, move.missed) == (NOW_MS + HOUR, 0)


def test_the_spread_does_not_change() -> None:
    row = row_of(every(hours=1, start_at=NOW, spread=600))
    offset = row.run_at_ms - row.nominal_ms
    (move,) = advance([row], row.run_at_ms + HOUR - 1)
    assert (move.nominal_ms, move.run_at_ms) == (row.nominal_ms + HOUR, row.run_at_ms + HOUR)
    assert (move.missed, offset > 0) == (0, True)
    (move,) = advance([row], row.run_at_ms + HOUR)
    assert (move.nominal_ms, move.missed) == (row.nominal_ms + 2 * HOUR, 1)


@pytest.mark.parametrize(
    ("runs_left", "is_finished", "left"),
    [(None, False, None), (3, False, 2), (2, False, 1), (1, True, 0), (0, True, -1)],
)
def test_runs_are_counted(runs_left: int | None, is_finished: bool, left: int | None) -> None:
    (move,) = advance([replace(AT_NOW, runs_left=runs_left)], NOW_MS)
    assert (move.nominal_ms is None, move.runs_left) == (is_finished, left)
    assert (move.run_at_ms is None) == is_finished


def test_the_last_time_ends_the_row() -> None:
    rows = [
        row_of(once(NOW), NOW_MS - 1),
        row_of(every(hours=1, start_at=NOW, end_at=NOW), NOW_MS - 1),
    ]
    for move in advance(rows, NOW_MS):
        assert (move.nominal_ms, move.run_at_ms, move.missed, move.error) == (None, None, 0, None)


def test_times_missed_up_to_the_end_are_counted() -> None:
    ending = every(hours=1, start_at=NOW, end_at=NOW + timedelta(hours=2))
    (move,) = advance([row_of(ending, NOW_MS - 1)], NOW_MS + DAY)
    assert (move.nominal_ms, move.missed) == (None, 2)


# Rows that cannot be evaluated.

BAD_TRIGGERS = [
    "",
    "{",
    "[]",
    "null",
    "* * *",
    "61 * * * *",
    '{"kind":"moon","v":1}',
    '{"kind":"cron","expression":"0 9 * * *","tz":"Mars/Olympus","v":1}',
    '{"kind":"cron","expression":5}',
    '{"kind":"every","interval_ms":3600000,"v":1}',
    '{"kind":"cron","expression":"H * * * *","v":1}',
    '{"kind":"every","hours":1,"v":99}',
    '{"kind":"weekly","days":{"mon":{}}}',
    "[" * 100_000,
]


@pytest.mark.parametrize("text", BAD_TRIGGERS, ids=lambda text: str(text)[:30])
def test_a_bad_row_is_quarantined_alone(text: str) -> None:
    bad = replace(AT_NOW, schedule_id=ScheduleId("sch_bad"), trigger=text)
    before, move, after = advance([AT_NOW, bad, AT_NOW], NOW_MS)
    assert before == after == advance([AT_NOW], NOW_MS)[0]
    assert move.error
    assert (move.schedule_id, move.nominal_ms, move.run_at_ms, move.missed) == (
        "sch_bad",
        None,
        None,
        0,
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["days", "mon", "tz", "spread", "start_at", "at", "seed", "gap", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)
OBJECTS = st.fixed_dictionaries(
    {"kind": st.sampled_from(["cron", "every", "weekly", "once"]) | JSON},
    optional={
        "v": st.just(1) | JSON,
        "expression": st.just("* * * * *") | JSON,
        "interval_ms": st.just(60_000) | JSON,
        "days": st.just({"mon": "09:00"}) | JSON,
        "at_ms": st.just(NOW_MS) | JSON,
        "start_at_ms": st.just(NOW_MS) | JSON,
        "end_at": JSON,
        "spread_ms": JSON,
        "seed": JSON,
        "tz": st.just("Europe/Berlin") | JSON,
        "gap": JSON,
        "fold": JSON,
        "seconds": JSON,
    },
)


@given(st.lists(OBJECTS.map(json.dumps) | st.text(), max_size=4))
def test_no_stored_text_stops_the_batch(texts: list[str]) -> None:
    rows = [replace(AT_NOW, trigger=text) for text in texts]
    for move, row in zip(advance(rows, NOW_MS + 1), rows, strict=True):
        assert move.schedule_id == row.schedule_id
        assert move.error is None or (move.nominal_ms is None and move.missed == 0)
        assert move.nominal_ms is None or move.nominal_ms > NOW_MS + 1


# Against a model that steps through all times.

TRIGGERS = st.sampled_from(
    [
        cron("*/5 * * * *"),
        cron("*/5 * * * *", spread=400),
        cron("0 9,17 * * *", tz="Europe/Berlin"),
        cron("30 2 * * *", tz="Europe/Berlin", gap="shift", fold="both"),
        cron("* * * * *", start_at=NOW, end_at=NOW + timedelta(hours=2)),
        every(minutes=7),
        every(hours=26, spread=3_600),
        weekly({"mon": "09:00", "sun": ["02:30", "23:59"]}, tz="America/New_York"),
        once(NOW + timedelta(minutes=30)),
    ]
)


def model(row: IndexRow, now_ms: int) -> tuple[int | None, int, int | None]:
    """Return the next nominal time, the number missed, and the runs left, step by step."""
    trigger, offset = trigger_of(row.trigger), row.run_at_ms - row.nominal_ms
    times: list[int] = []
    found = trigger.next_after_ms(row.nominal_ms)
    while found is not None and found + offset <= now_ms:
        times.append(found)
        found = trigger.next_after_ms(found)
    left = None if row.runs_left is None else row.runs_left - 1
    return (None if left == 0 else found), len(times), left


@given(
    st.lists(
        st.tuples(TRIGGERS, st.integers(0, 10 * DAY), st.none() | st.integers(1, 3)), max_size=8
    ),
    st.integers(0, 12 * DAY),
)
def test_a_batch_agrees_with_the_model(
    asked: list[tuple[Trigger, int, int | None]], later: int
) -> None:
    made = [index_row(schedule(t, max_runs=left), NOW_MS + ms) for t, ms, left in asked]
    rows = [row for row in made if row is not None]
    now_ms = NOW_MS + later
    for move, row in zip(advance(rows, now_ms), rows, strict=True):
        assert (move.nominal_ms, move.missed, move.runs_left) == model(row, now_ms)
        if move.nominal_ms is not None and move.run_at_ms is not None:
            assert move.run_at_ms - move.nominal_ms == row.run_at_ms - row.nominal_ms
            assert move.run_at_ms > now_ms
            assert move.nominal_ms > row.nominal_ms


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["{", "* * *", *(trigger_text(t) for t in (HOURLY, once(NOW)))]),
            st.integers(0, 3 * HOUR),
            st.none() | st.integers(1, 2),
        ),
        max_size=12,
    ),
    st.integers(0, 4 * HOUR),
)
def test_a_batch_answers_what_each_row_would_get_alone(
    asked: list[tuple[str, int, int | None]], later: int
) -> None:
    rows = [
        replace(
            AT_NOW,
            schedule_id=ScheduleId(f"sch_{i}"),
            trigger=text,
            nominal_ms=NOW_MS - early,
            run_at_ms=NOW_MS,
            runs_left=left,
        )
        for i, (text, early, left) in enumerate(asked)
    ]
    alone = [move for row in rows for move in advance([row], NOW_MS + later)]
    assert advance(rows, NOW_MS + later) == alone


@given(TRIGGERS, st.integers(0, 10 * DAY))
def test_rows_are_the_same_by_advance_and_from_the_schedule(trigger: Trigger, later: int) -> None:
    row = index_row(schedule(trigger), NOW_MS)
    if row is None:
        return
    now_ms = max(row.run_at_ms, NOW_MS + later)
    (move,) = advance([row], now_ms)
    fresh = index_row(schedule(trigger), now_ms)
    assert move.nominal_ms == (None if fresh is None else fresh.nominal_ms)
    assert move.run_at_ms == (None if fresh is None else fresh.run_at_ms)
