"""Tests of rows that cannot be planned: each is quarantined alone, and nothing is raised."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from duly import every
from duly.errors import InvalidInput
from duly.model.index_rows import IndexRow, policies_text, trigger_text
from duly.model.ledger import OccurrenceState
from duly.model.retries import RetryPolicy
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.rules.planning import PlannedOccurrence, plan, plan_many, policies_of
from duly.triggers.instants import END_MS, to_ms

NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)
NOW_MS = to_ms(NOW)
HOUR = 3_600_000
DAY = 24 * HOUR
HOURLY = trigger_text(every(hours=1, start_at=NOW))
GOOD = IndexRow(ScheduleId("sch_1"), "mail", "user:u", "n", HOURLY, NOW_MS, NOW_MS)


@pytest.mark.parametrize(
    "fields",
    [
        {"trigger": "61 * * * *"},
        {"trigger": '{"kind":"every","interval_ms":3600000,"v":1}'},
        {"trigger": "[" * 100_000},
        {"policies": "{"},
        {"policies": '{"misfire":{"kind":"sometimes"}}'},
        {"policies": '{"grace_ms":-1}'},
        {"policies": '{"moon":1}'},
        {"policies": "[" * 100_000},
    ],
    ids=lambda fields: str(fields)[:50],
)
@pytest.mark.parametrize(("later", "left"), [(0, None), (0, 3), (10 * HOUR, None)])
def test_a_bad_row_is_quarantined_alone(
    fields: dict[str, Any], later: int, left: int | None
) -> None:
    bad = replace(GOOD, schedule_id=ScheduleId("sch_bad"), runs_left=left, **fields)
    now_ms = NOW_MS + later
    before, made, after = plan_many([GOOD, bad, GOOD], now_ms, now_ms)
    assert before == after == plan(GOOD, now_ms, now_ms, Policies())
    assert made.error
    assert (made.next_nominal_ms, made.next_run_at_ms, made.runs_left) == (None, None, left)
    assert made.occurrences == (
        PlannedOccurrence(
            bad.schedule_id, NOW_MS, NOW_MS, 1, NOW_MS, OccurrenceState.QUARANTINED, made.error
        ),
    )


class Selected(NamedTuple):
    """A row as a claim selects it, without validation."""

    nominal_ms: int
    schedule_id: ScheduleId = ScheduleId("b")
    trigger: str = HOURLY
    policies: str = "{}"
    run_at_ms: int = NOW_MS
    runs_left: int | None = None


@pytest.mark.parametrize("nominal_ms", [-5, END_MS, END_MS + DAY])
def test_a_time_out_of_range_does_not_affect_the_batch(nominal_ms: int) -> None:
    first, made, last = plan_many([GOOD, Selected(nominal_ms), GOOD], NOW_MS, NOW_MS)
    assert first == last == plan(GOOD, NOW_MS, NOW_MS, Policies())
    assert made.error
    assert made.next_nominal_ms is None


def test_no_rows_no_plans() -> None:
    assert plan_many([], NOW_MS, NOW_MS) == []


@pytest.mark.parametrize(
    "policies",
    [
        Policies(),
        Policies(misfire=Misfire("skip")),
        Policies(misfire=Misfire("catch_up", limit=3), retry=RetryPolicy(attempts=2), priority=4),
    ],
)
def test_policies_survive_a_round_trip(policies: Policies) -> None:
    assert policies_of(policies_text(policies)) == policies


def test_policies_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(InvalidInput, match="policies cannot be read"):
        policies_of("none")
