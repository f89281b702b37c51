"""Tests of plans against a model that steps through all times, and of properties of plans."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from duly import Trigger, cron, every, once, weekly
from duly.model.index_rows import IndexRow, policies_text, trigger_of, trigger_text
from duly.model.ledger import OccurrenceState
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.rules.planning import MAX_PLANNED, Plan, PlannedOccurrence, plan, plan_many, policies_of
from duly.triggers.instants import to_ms
from tests.property.strategies import USUAL

START = datetime(2026, 3, 26, tzinfo=UTC)
START_MS = to_ms(START)
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
PLANNED, MISSED = OccurrenceState.PLANNED, OccurrenceState.MISSED

TRIGGERS = [
    each.bind(f"key {number}", START)
    for number, each in enumerate(
        [
            cron("*/5 * * * *"),
            cron("*/20 * * * *", spread=4_000),
            cron("0 * * * *", tz="Europe/Berlin"),
            cron("30 2 * * *", tz="Europe/Berlin", gap="shift", fold="both"),
            cron("*/7 9-10 * * 1,5", start_at=START, end_at=START + timedelta(days=4)),
            every(minutes=7),
            every(seconds=50, end_at=START + timedelta(hours=7)),
            every(hours=26, spread=80_000),
            weekly({"thu": "09:00", "sun": ["02:30", "23:59"]}, tz="America/New_York"),
            once(START + timedelta(minutes=30)),
        ]
    )
]
MISFIRES = st.builds(
    Misfire,
    kind=st.sampled_from(["run_once", "skip", "catch_up"]),
    limit=st.integers(1, 30),
    max_age_ms=st.sampled_from([HOUR, DAY, 30 * DAY]),
    per_minute=st.sampled_from([1, 7, 60]),
)
POLICIES = st.builds(
    Policies, misfire=MISFIRES, grace_ms=st.sampled_from([0, 1, MINUTE, HOUR, 2 * DAY])
)


@st.composite
def rows(draw: st.DrawFn) -> IndexRow:
    """Draw a row with any trigger at one of its times, and any policies."""
    trigger = draw(st.sampled_from(TRIGGERS))
    nominal = trigger.next_after_ms(START_MS + draw(st.integers(0, 2 * DAY)))
    if nominal is None:
        nominal = trigger.next_after_ms(START_MS)
    assert nominal is not None
    return IndexRow(
        ScheduleId("sch_1"),
        "mail",
        "user:u",
        "n",
        trigger_text(trigger),
        nominal,
        nominal + trigger.offset_ms,
        policies=policies_text(draw(POLICIES)),
        runs_left=draw(st.none() | st.integers(1, 12)),
    )


LATER = st.integers(-HOUR, HOUR) | st.integers(0, 5 * DAY)
AHEAD = st.sampled_from([0, MINUTE, HOUR])


def times_of(row: IndexRow, end_ms: int) -> list[int]:
    """Return the nominal times from that of the row up to an instant, step by step."""
    trigger, times = trigger_of(row.trigger), [row.nominal_ms]
    while (found := trigger.next_after_ms(times[-1])) is not None and found <= end_ms:
        times.append(found)
    return [ms for ms in times if ms <= end_ms]


def offset_of(row: IndexRow) -> int:
    return row.run_at_ms - row.nominal_ms


def model(row: IndexRow, now_ms: int, until_ms: int) -> tuple[list[int], list[int]]:
    """Return the nominal times that are missed and those that run, computed naively."""
    policies, offset = policies_of(row.policies), offset_of(row)
    times = times_of(row, until_ms - offset)
    late = [ms for ms in times if ms + offset + policies.grace_ms < now_ms]
    misfire, left = policies.misfire, row.runs_left
    if misfire.kind == "skip":
        kept = []
    elif misfire.kind == "run_once":
        # An occurrence that is on time and due runs instead.
        kept = [] if any(ms + offset <= now_ms for ms in times[len(late) :]) else late[-1:]
    else:
        most = misfire.limit if left is None else min(left, misfire.limit)
        young = [ms for ms in late if ms + offset >= now_ms - misfire.max_age_ms]
        kept = young[-most:]
    on_time = times[len(late) :][:MAX_PLANNED]
    return [ms for ms in late if ms not in kept], (kept + on_time)[:left]


def advanced(row: IndexRow, made: Plan) -> IndexRow | None:
    """Return the row as advanced by its plan, or None if there is no next time."""
    if made.next_nominal_ms is None or made.next_run_at_ms is None:
        return None
    return replace(
        row,
        nominal_ms=made.next_nominal_ms,
        run_at_ms=made.next_run_at_ms,
        runs_left=made.runs_left,
    )


def runs(made: Plan) -> list[int]:
    return [each.nominal_ms for each in made.occurrences if each.state is PLANNED]


@given(rows(), LATER, AHEAD)
@USUAL
def test_a_plan_agrees_with_the_model(row: IndexRow, later: int, ahead: int) -> None:
    now_ms = row.run_at_ms + later
    missed, expected = model(row, now_ms, now_ms + ahead)
    made = plan(row, now_ms, now_ms + ahead, policies_of(row.policies))
    assert runs(made) == expected
    ranges = [each for each in made.occurrences if each.state is MISSED]
    shown = [(each.nominal_ms, each.until_ms, each.count) for each in ranges]
    assert shown == ([(missed[0], missed[-1], len(missed))] if missed else [])
    assert len(made.occurrences) == len(ranges) + len(expected)


@given(rows(), LATER, AHEAD)
@USUAL
def test_every_time_up_to_the_next_is_covered_once(row: IndexRow, later: int, ahead: int) -> None:
    now_ms = row.run_at_ms + later
    made = plan(row, now_ms, now_ms + ahead, policies_of(row.policies))
    last_ms = max((each.until_ms for each in made.occurrences), default=row.nominal_ms - 1)
    end_ms = last_ms if made.next_nominal_ms is None else made.next_nominal_ms - 1
    for ms in times_of(row, end_ms):
        covering = [each for each in made.occurrences if each.nominal_ms <= ms <= each.until_ms]
        assert len(covering) == 1
    assert sum(each.count for each in made.occurrences) == len(times_of(row, end_ms))
    # Ordered by time and without overlaps.
    for one, another in pairwise(made.occurrences):
        assert one.until_ms < another.nominal_ms


@given(rows(), LATER, AHEAD)
@USUAL
def test_nothing_is_early_and_nothing_goes_back(row: IndexRow, later: int, ahead: int) -> None:
    now_ms = row.run_at_ms + later
    until_ms = now_ms + ahead
    made = plan(row, now_ms, until_ms, policies_of(row.policies))
    for each in made.occurrences:
        assert each.run_at_ms >= each.nominal_ms + offset_of(row)
        if each.reason is None:
            assert each.run_at_ms == each.nominal_ms + offset_of(row) <= until_ms
    following = advanced(row, made)
    if following is not None:
        assert following.run_at_ms - following.nominal_ms == offset_of(row)
        assert following.nominal_ms >= row.nominal_ms
        assert (following.nominal_ms > row.nominal_ms) == bool(made.occurrences)
        assert following.run_at_ms > until_ms or len(runs(made)) >= MAX_PLANNED


@given(rows(), LATER, AHEAD)
@USUAL
def test_runs_are_charged_for_what_is_planned(row: IndexRow, later: int, ahead: int) -> None:
    now_ms = row.run_at_ms + later
    made = plan(row, now_ms, now_ms + ahead, policies_of(row.policies))
    if row.runs_left is None:
        assert made.runs_left is None
    else:
        assert made.runs_left == row.runs_left - len(runs(made)) >= 0
        if made.runs_left == 0:
            assert made.next_nominal_ms is None


@given(rows(), LATER, AHEAD)
@USUAL
def test_a_catch_up_keeps_its_limits(row: IndexRow, later: int, ahead: int) -> None:
    now_ms = row.run_at_ms + later
    misfire = policies_of(row.policies).misfire
    made = plan(row, now_ms, now_ms + ahead, policies_of(row.policies))
    late = [each for each in made.occurrences if each.reason and each.state is PLANNED]
    most = {"skip": 0, "run_once": 1, "catch_up": misfire.limit}[misfire.kind]
    assert len(late) <= most
    if misfire.kind == "catch_up":
        starts = [each.run_at_ms for each in late]
        for k, ms in enumerate(starts):
            assert sum(ms <= other < ms + MINUTE for other in starts) <= misfire.per_minute
            assert (k == 0) == (ms == now_ms)
        ages = [now_ms - each.nominal_ms - offset_of(row) for each in late]
        assert all(age <= misfire.max_age_ms for age in ages)


@given(rows(), st.lists(st.integers(1, 30_000), max_size=12), st.sampled_from([0, MINUTE, HOUR]))
@USUAL
def test_small_steps_make_what_one_step_makes(row: IndexRow, steps: list[int], ahead: int) -> None:
    """As long as the planner is on time, it does not matter how often it plans."""
    policies = Policies(grace_ms=MINUTE, misfire=policies_of(row.policies).misfire)
    now_ms = row.run_at_ms - ahead
    at_once = plan(row, now_ms, now_ms + sum(steps) + ahead, policies)
    current: IndexRow | None = row
    made: list[PlannedOccurrence] = []
    for step in (0, *steps):
        now_ms += step
        if current is None:
            break
        part = plan(current, now_ms, now_ms + ahead, policies)
        made += part.occurrences
        current = advanced(current, part)
    assert tuple(made) == at_once.occurrences
    assert current == advanced(row, at_once)


@given(rows(), LATER, AHEAD)
@USUAL
def test_a_plan_settles_its_window(row: IndexRow, later: int, ahead: int) -> None:
    """The catch-up limit applies to the whole outage: planning again adds nothing."""
    now_ms = row.run_at_ms + later
    policies = policies_of(row.policies)
    following: IndexRow | None = row
    rounds = 0
    while following is not None and following.run_at_ms <= now_ms + ahead:
        made = plan(following, now_ms, now_ms + ahead, policies)
        following = advanced(following, made)
        rounds += 1
    planned_at_most = len(times_of(row, now_ms + ahead - offset_of(row)))
    assert rounds <= 1 + planned_at_most // MAX_PLANNED


@given(st.lists(rows(), max_size=8), LATER, AHEAD)
@example([], 0, 0)
@USUAL
def test_many_rows_are_planned_as_one_by_one(many: list[IndexRow], later: int, ahead: int) -> None:
    now_ms = START_MS + 2 * DAY + later
    plans = plan_many(many, now_ms, now_ms + ahead)
    assert plans == [plan(row, now_ms, now_ms + ahead, policies_of(row.policies)) for row in many]


def test_the_samples_are_bound() -> None:
    assert all(isinstance(each, Trigger) and each.is_bound for each in TRIGGERS)
