"""Tests of the forecast of fires per minute: exact counts, and estimates from samples."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from duly.model.index_rows import IndexRow, trigger_text
from duly.model.schedules import ScheduleId
from duly.model.summaries import MINUTE_MS, Upcoming
from duly.operate.forecast import DAY_MINUTES, Forecast, forecast
from duly.triggers import Trigger, cron, every, once
from duly.triggers.instants import to_ms

NOON = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)
NOW_MS = to_ms(NOON)
START_MS = NOW_MS - 30_000


def a_row(trigger: Trigger, number: int = 0, runs_left: int | None = None) -> IndexRow:
    bound = trigger.bind(f"key-{number}", NOON)
    nominal_ms = bound.next_after_ms(NOW_MS)
    assert nominal_ms is not None
    return IndexRow(
        ScheduleId(f"sch_{number}"),
        "flow",
        "system",
        f"n{number}",
        trigger_text(bound),
        nominal_ms,
        nominal_ms + bound.offset_ms,
        runs_left=runs_left,
    )


def of(rows: Sequence[IndexRow], stride: int = 1, length: int = DAY_MINUTES) -> Forecast:
    minutes: dict[int, int] = {}
    for row in rows:
        minute = row.run_at_ms // MINUTE_MS * MINUTE_MS
        minutes[minute] = minutes.get(minute, 0) + stride
    return forecast(Upcoming(NOW_MS, sorted(minutes.items()), rows), length)


def test_forecast_without_rows_is_empty() -> None:
    found = of([])
    assert (found.total, found.rows, found.peak, found.is_estimate) == (0, 0, (START_MS, 0), False)
    assert len(found.minutes) == DAY_MINUTES


def test_first_and_later_fires_are_counted() -> None:
    found = of([a_row(cron("0 * * * *"))])
    assert [i for i, fires in enumerate(found.minutes) if fires] == list(range(60, 1440, 60))
    assert set(found.minutes) == {0, 1}
    assert not found.is_estimate


def test_rows_of_one_rule_count_each() -> None:
    found = of([a_row(cron("15 13 * * *"), number) for number in range(5)])
    assert found.peak == (START_MS + 75 * MINUTE_MS, 5)
    assert found.total == 5


def test_runs_left_limit_the_forecast() -> None:
    assert of([a_row(cron("0 * * * *"), runs_left=3)]).total == 3
    assert of([a_row(cron("0 * * * *"), runs_left=1)]).total == 1
    assert of([a_row(once(datetime(2026, 3, 2, 18, tzinfo=UTC)))]).total == 1


def test_overdue_rows_fire_in_the_first_minute() -> None:
    late = (START_MS - 50 * MINUTE_MS, 4)
    found = forecast(Upcoming(NOW_MS, [late], []))
    assert found.minutes[0] == 4
    assert found.total == 4


def test_spread_moves_fires_and_drops_none() -> None:
    rows = [a_row(cron("0 14 * * *", spread=1800), number) for number in range(30)]
    found = of(rows)
    assert found.total == 30
    assert sum(found.minutes[119:150]) == 30


def test_a_sample_is_scaled_to_all_rows() -> None:
    found = of([a_row(cron("0 * * * *"))], stride=100)
    assert (found.is_estimate, found.is_sample) == (True, True)
    assert found.total == 23 * 100


def test_frequent_rules_among_others_are_exact() -> None:
    """The rule at minute 0 has fired already. Frequent rules use the budget left by rare ones."""
    rows = [a_row(cron(f"{number} * * * *"), number) for number in range(20)]
    found = of([*rows, a_row(cron("* * * * *"), 20)])
    assert (found.total, found.rows, found.is_estimate) == (20 * 24 - 1 + 1_439, 21, False)
    found = of([*rows, a_row(every(seconds=5, start_at=NOON), 20)])
    assert (found.total, found.is_estimate) == (20 * 24 - 1 + 12 * DAY_MINUTES - 7, False)


def test_very_frequent_rules_are_extrapolated() -> None:
    starts = [NOON + timedelta(seconds=number) for number in range(10)]
    found = of([a_row(every(seconds=10, start_at=at), i) for i, at in enumerate(starts)])
    assert (found.is_estimate, found.is_sample) == (True, False)
    exact = 10 * 6 * DAY_MINUTES
    assert abs(found.total - exact) < exact * 0.02
    assert 50 <= min(found.minutes[5:]) <= max(found.minutes[5:]) <= 70


def test_rules_of_newer_releases_fire_once() -> None:
    row = a_row(cron("0 * * * *"))
    newer = IndexRow(
        row.schedule_id, "flow", "system", "n", '{"kind":"tide"}', row.nominal_ms, row.run_at_ms
    )
    assert of([newer]).total == 1
