"""Properties of all triggers: order, gaps, bounds, binding, round trips."""

import json
import subprocess
import sys
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from duly import (
    InvalidInstant,
    InvalidTrigger,
    Trigger,
    cron,
    every,
    next_after_many,
    once,
    parse_trigger,
    weekly,
)
from tests.property import strategies
from tests.property.oracle import WEEKLY_KEYS, Clocks
from tests.property.strategies import FEW, SECOND, USUAL

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END = datetime(2200, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

# Bounds are stored instants: whole milliseconds, in 2000-2200.
CENTURY = datetime(2000, 1, 1, tzinfo=UTC)
BOUNDS = strategies.instants(first=CENTURY).map(
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
)
INSTANTS = strategies.instants()
KEYS = st.text(min_size=1, max_size=40)
SPREADS = st.integers(1, 86_400).map(lambda seconds: timedelta(seconds=seconds))


# Triggers of every kind.


Bounds = tuple[datetime | None, datetime | None]


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    first, last = sorted([draw(BOUNDS), draw(BOUNDS)])
    has_start, has_end = draw(st.booleans()), draw(st.booleans())
    return first if has_start else None, last if has_end else None


def bounded(text: str, clocks: Clocks, limits: Bounds) -> Trigger:
    """Return a bounded trigger, and skip the example if the expression never matches."""
    start_at, end_at = limits
    try:
        return cron(
            text,
            tz=clocks.tz,
            gap=clocks.gap,
            fold=clocks.fold,
            start_at=start_at,
            end_at=end_at,
        )
    except InvalidTrigger:
        reject()


@st.composite
def crons(draw: st.DrawFn) -> Trigger:
    text = strategies.expression(draw(st.randoms(use_true_random=False)))
    return bounded(text, draw(strategies.clocks()), draw(bounds()))


@st.composite
def weeklies(draw: st.DrawFn) -> Trigger:
    clocks = draw(strategies.clocks())
    start_at, end_at = draw(bounds())
    return weekly(
        draw(strategies.weekly_days()),
        tz=clocks.tz,
        gap=clocks.gap,
        fold=clocks.fold,
        start_at=start_at,
        end_at=end_at,
    )


@st.composite
def intervals(draw: st.DrawFn) -> Trigger:
    seconds, hours, days = (draw(st.integers(low, 100)) for low in (1, 0, 0))
    return every(seconds=seconds, hours=hours, days=days, start_at=draw(BOUNDS))


TRIGGERS: st.SearchStrategy[Trigger] = st.one_of(crons(), weeklies(), intervals(), BOUNDS.map(once))


# Order.


@USUAL
@given(trigger=TRIGGERS, instant=INSTANTS)
def test_answers_strictly_increase(trigger: Trigger, instant: datetime) -> None:
    found = list(islice(trigger.between(instant, instant + timedelta(days=4000)), 12))
    assert all(first < second for first, second in pairwise([instant, *found]))
    assert all(fire.tzinfo is UTC for fire in found)


@USUAL
@given(trigger=TRIGGERS, instant=INSTANTS, length=st.timedeltas(timedelta(0), timedelta(days=900)))
def test_between_is_repeated_next_after(
    trigger: Trigger, instant: datetime, length: timedelta
) -> None:
    end = instant + length
    after = trigger.next_after(instant)
    expected: list[datetime] = []
    while after and after <= end and len(expected) < 40:
        expected.append(after)
        after = trigger.next_after(after)
    assert list(islice(trigger.between(instant, end), 40)) == expected


@USUAL
@given(trigger=TRIGGERS, instant=INSTANTS, part=st.floats(0, 1))
def test_the_answer_is_the_same_until_it_comes(
    trigger: Trigger, instant: datetime, part: float
) -> None:
    """There is no fire between an instant and its answer, so any instant between gives the same."""
    fire = trigger.next_after(instant)
    assume(fire)
    assert fire
    following = trigger.next_after(fire)
    for middle in (instant + (fire - instant) * part, fire - MILLISECOND, fire - SECOND):
        if instant <= middle < fire:
            assert trigger.next_after(middle) == fire
    assert following is None or following > fire


@USUAL
@given(trigger=TRIGGERS, instant=INSTANTS)
def test_milliseconds_and_datetimes_agree(trigger: Trigger, instant: datetime) -> None:
    """Instants are rounded down to milliseconds, because every fire is a whole millisecond."""
    answer = trigger.next_after_ms((instant - EPOCH) // MILLISECOND)
    expected = None if answer is None else EPOCH + answer * MILLISECOND
    assert trigger.next_after(instant) == expected


@USUAL
@given(trigger=TRIGGERS, instant=INSTANTS, tz=st.sampled_from(strategies.ZONES))
def test_the_zone_of_the_question_does_not_matter(
    trigger: Trigger, instant: datetime, tz: str
) -> None:
    assert trigger.next_after(instant.astimezone(ZoneInfo(tz))) == trigger.next_after(instant)


@FEW
@given(trigger=TRIGGERS, instant=INSTANTS)
def test_naive_instants_are_refused(trigger: Trigger, instant: datetime) -> None:
    naive = instant.replace(tzinfo=None)
    with pytest.raises(InvalidInstant):
        trigger.next_after(naive)
    with pytest.raises(InvalidInstant):
        list(trigger.between(naive, instant))
    with pytest.raises(InvalidInstant):
        list(trigger.between(instant, naive))


@FEW
@given(
    trigger=TRIGGERS,
    instant=st.one_of(
        strategies.instants(EPOCH.replace(year=1900), EPOCH - SECOND),
        strategies.instants(END, END.replace(year=9000)),
    ),
)
def test_instants_outside_the_calendar_are_refused(trigger: Trigger, instant: datetime) -> None:
    with pytest.raises(InvalidInstant):
        trigger.next_after(instant)
    with pytest.raises(InvalidInstant):
        trigger.next_after_ms((instant - EPOCH) // MILLISECOND)


@USUAL
@given(trigger=TRIGGERS, instant=strategies.instants(END.replace(year=2190), END - SECOND))
def test_no_answer_lies_beyond_the_calendar(trigger: Trigger, instant: datetime) -> None:
    fires = list(islice(trigger.between(instant, END), 3))
    assert all(instant < fire < END for fire in fires)


@USUAL
@given(asked=st.lists(st.tuples(TRIGGERS, INSTANTS), max_size=12))
def test_bulk_answers_are_single_answers(asked: list[tuple[Trigger, datetime]]) -> None:
    triggers = [trigger for trigger, _ in asked]
    instants_ms = [(instant - EPOCH) // MILLISECOND for _, instant in asked]
    single = [trigger.next_after_ms(at) for trigger, at in zip(triggers, instants_ms, strict=True)]
    assert next_after_many(triggers, instants_ms) == single


# Values.


@USUAL
@given(trigger=TRIGGERS, key=KEYS, created_at=BOUNDS)
def test_round_trip_through_json(trigger: Trigger, key: str, created_at: datetime) -> None:
    for one in (trigger, trigger.bind(key, created_at)):
        stored = one.to_json()
        text = json.dumps(stored, allow_nan=False)
        for again in (parse_trigger(stored), parse_trigger(text), parse_trigger(json.loads(text))):
            assert again == one
            assert hash(again) == hash(one)
            assert type(again) is type(one)
            assert again.to_json() == stored


@USUAL
@given(spread=SPREADS, minute=st.sampled_from(["H", "H(3-9)", "5"]), key=KEYS, created_at=BOUNDS)
def test_round_trip_keeps_what_was_bound(
    spread: timedelta, minute: str, key: str, created_at: datetime
) -> None:
    loose = cron(f"{minute} 4 * * *", spread=spread)
    bound = loose.bind(key, created_at)
    again = parse_trigger(json.dumps(bound.to_json()))
    assert parse_trigger(loose.to_json()) == loose != bound
    assert (again, again.offset_ms) == (bound, bound.offset_ms)
    assert again.next_after(created_at) == bound.next_after(created_at)


@FEW
@given(trigger=TRIGGERS)
def test_triggers_are_immutable(trigger: Trigger) -> None:
    names = [field.name for field in fields(trigger)]  # type: ignore[arg-type]
    for name in [*names, "anything_else"]:
        with pytest.raises((AttributeError, TypeError)):
            setattr(trigger, name, None)
    assert not hasattr(trigger, "__dict__")


@FEW
@given(trigger=TRIGGERS, key=KEYS, created_at=BOUNDS)
def test_bind_returns_itself_when_there_is_nothing_to_bind(
    trigger: Trigger, key: str, created_at: datetime
) -> None:
    assert trigger.is_bound
    assert trigger.bind(key, created_at) is trigger
    assert trigger.offset_ms == 0


# Binding.

WITHOUT_TIME: list[Trigger] = [
    cron("H * * * *"),
    cron("5 H(0-7) * * *"),
    every(hours=1),
]
WITHOUT_OFFSET: list[Trigger] = [
    cron("5 4 * * *", spread=600),
    every(hours=1, start_at=CENTURY, spread=timedelta(minutes=5)),
    weekly({"mon": "09:00"}, spread=60),
    once(CENTURY, spread=60),
]


@pytest.mark.parametrize("trigger", WITHOUT_TIME, ids=repr)
def test_times_of_unbound_triggers_are_refused(trigger: Trigger) -> None:
    assert not trigger.is_bound
    with pytest.raises(InvalidTrigger, match="bind"):
        trigger.next_after(EPOCH)
    with pytest.raises(InvalidTrigger, match="bind"):
        trigger.next_after_ms(0)
    with pytest.raises(InvalidTrigger, match="bind"):
        list(trigger.between(EPOCH, EPOCH + SECOND))
    with pytest.raises(InvalidTrigger, match="bind"):
        next_after_many([trigger], [0])


@pytest.mark.parametrize("trigger", WITHOUT_OFFSET, ids=repr)
def test_run_times_of_unbound_triggers_are_refused(trigger: Trigger) -> None:
    assert not trigger.is_bound
    with pytest.raises(InvalidTrigger, match="bind"):
        trigger.run_at(CENTURY)
    with pytest.raises(InvalidTrigger, match="bind"):
        _ = trigger.offset_ms


@pytest.mark.parametrize("trigger", WITHOUT_TIME + WITHOUT_OFFSET, ids=repr)
@FEW
@given(key=KEYS, created_at=BOUNDS, instant=INSTANTS)
def test_binding_is_stable(
    trigger: Trigger, key: str, created_at: datetime, instant: datetime
) -> None:
    bound, again = trigger.bind(key, created_at), trigger.bind(key, created_at)
    assert bound == again
    assert bound.is_bound
    assert bound.bind(key + "other", created_at + SECOND) is bound
    assert bound.next_after(instant) == again.next_after(instant)


@USUAL
@given(spread=SPREADS, key=KEYS, instant=INSTANTS)
def test_spread_moves_the_run_time_only(spread: timedelta, key: str, instant: datetime) -> None:
    bound = cron("5 4 * * *", spread=spread).bind(key, CENTURY)
    nominal = bound.next_after(instant)
    assert 0 <= bound.offset_ms < spread // MILLISECOND
    assert nominal == cron("5 4 * * *").next_after(instant)
    assert nominal
    assert bound.run_at(nominal) - nominal == bound.offset_ms * MILLISECOND


def test_spread_uses_its_whole_width() -> None:
    rule = every(hours=1, spread=timedelta(minutes=10))
    offsets = [rule.bind(f"schedule-{count}", CENTURY).offset_ms for count in range(1000)]
    tenths = {offset // 60_000 for offset in offsets}
    assert tenths == set(range(10))
    assert len(set(offsets)) > 900


OFFSET_SCRIPT = """
from datetime import UTC, datetime
from duly import cron
at = datetime(2000, 1, 1, tzinfo=UTC)
for key in ("a", "reports/user:7/weekly", "\\u00fcber"):
    bound = cron("H H * * *", spread=3600).bind(key, at)
    print(bound.offset_ms, bound.next_after(at).isoformat())
"""


def test_binding_is_the_same_in_every_process() -> None:
    """Python's hash() differs between processes; the offset must not."""
    answers = {
        subprocess.run(
            [sys.executable, "-c", OFFSET_SCRIPT],
            env={"PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(answers) == 1
    here = []
    for key in ("a", "reports/user:7/weekly", "\u00fcber"):
        bound = cron("H H * * *", spread=3600).bind(key, CENTURY)
        fire = bound.next_after(CENTURY)
        assert fire
        here.append(f"{bound.offset_ms} {fire.isoformat()}\n")
    assert answers == {"".join(here)}


@USUAL
@given(key=KEYS, instant=INSTANTS, low=st.integers(0, 58), data=st.data())
def test_hash_falls_inside_its_range(
    key: str, instant: datetime, low: int, data: st.DataObject
) -> None:
    high = data.draw(st.integers(low + 1, 59))
    bound = cron(f"H({low}-{high}) H(0-7) * * *").bind(key, CENTURY)
    fires = list(islice(bound.between(instant, instant + timedelta(days=9)), 5))
    assert len({(fire.hour, fire.minute) for fire in fires}) == 1
    assert low <= fires[0].minute <= high
    assert 0 <= fires[0].hour <= 7


def test_hash_uses_its_whole_range() -> None:
    rule = cron("H(10-19) H * * *")
    fires = [rule.bind(f"key {count}", CENTURY).next_after(CENTURY) for count in range(1000)]
    assert {fire.minute for fire in fires if fire} == set(range(10, 20))
    assert {fire.hour for fire in fires if fire} == set(range(24))


# Bounds.


@USUAL
@given(case=strategies.cases(), skipped=st.integers(0, 4))
def test_start_and_end_are_inclusive(case: strategies.Case, skipped: int) -> None:
    instant = max(case.instant, CENTURY)
    free = bounded(case.expression, case.clocks, (None, None))
    fires = list(islice(free.between(instant, instant + timedelta(days=9000)), skipped + 3))
    assume(len(fires) == skipped + 3)
    first, last = fires[1], fires[-2]
    for start_at, end_at in ((first, last), (first - MILLISECOND, last + MILLISECOND)):
        limited = bounded(case.expression, case.clocks, (start_at, end_at))
        assert list(limited.between(instant - SECOND, fires[-1])) == fires[1:-1]
    for start_at, end_at in ((first + MILLISECOND, last), (first, last - MILLISECOND)):
        if start_at <= end_at:
            limited = bounded(case.expression, case.clocks, (start_at, end_at))
            kept = [fire for fire in fires if start_at <= fire <= end_at]
            assert list(limited.between(instant - SECOND, fires[-1])) == kept


@USUAL
@given(at=BOUNDS, instant=INSTANTS)
def test_once_fires_once(at: datetime, instant: datetime) -> None:
    rule = once(at)
    assert (rule.start_at, rule.end_at) == (at, at)
    assert rule.next_after(instant) == (at if instant < at else None)
    assert rule.next_after(at) is None


# Weekly.


@USUAL
@given(days=strategies.weekly_days(least_times=1), clocks=strategies.clocks(), data=st.data())
def test_a_week_with_a_time_answers_within_eight_days(
    days: dict[str, str | list[str] | None], clocks: Clocks, data: st.DataObject
) -> None:
    assume(clocks.gap != "skip")
    instant = data.draw(strategies.instants_near_changes(clocks.tz))
    rule = weekly(days, tz=clocks.tz, gap=clocks.gap, fold=clocks.fold)
    fire = rule.next_after(instant)
    assert fire
    assert fire - instant <= timedelta(days=8)


@FEW
@given(days=st.dictionaries(st.sampled_from(WEEKLY_KEYS), st.none()))
def test_a_week_without_times_has_no_answer(days: dict[str, None]) -> None:
    rule = weekly(days)
    assert rule.next_after(EPOCH) is None
    assert list(rule.between(EPOCH, EPOCH + timedelta(days=4000))) == []


# Every.


@USUAL
@given(anchor=BOUNDS, interval=st.integers(1, 10**7), instant=INSTANTS)
def test_every_keeps_to_its_anchor(anchor: datetime, interval: int, instant: datetime) -> None:
    rule = every(seconds=interval, start_at=anchor)
    fire = rule.next_after(instant)
    assert fire
    assert (fire - anchor) % timedelta(seconds=interval) == timedelta(0)
    if instant < anchor:
        assert fire == anchor
    else:
        assert timedelta(0) < fire - instant <= timedelta(seconds=interval)


@FEW
@given(created_at=BOUNDS, minutes=st.integers(1, 10_000))
def test_every_takes_a_missing_anchor_from_bind(created_at: datetime, minutes: int) -> None:
    bound = every(minutes=minutes).bind("key", created_at)
    assert bound.start_at is not None
    assert bound == every(minutes=minutes, start_at=bound.start_at)
    assert (bound.start_at - created_at) % timedelta(minutes=minutes) == timedelta(0)
