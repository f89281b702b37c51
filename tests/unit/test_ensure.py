"""Tests of ensure(): repeated declarations of a schedule, from any number of processes."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.samples import NOW, next_times, run

from duly.errors import Conflict, InvalidInput
from duly.flows.collections import Ensured, ScheduleCollection, ScopedSchedules
from duly.model.schedules import Limits, Policies
from duly.model.scopes import SYSTEM, user, workspace
from duly.stores.memory import MemoryStore
from duly.testing import ManualClock
from duly.triggers import cron, every, once


@pytest.fixture
def mine(store: MemoryStore) -> ScopedSchedules:
    return ScheduleCollection(store, "mail").of(user("u_7"), by="start")


def ensure(scoped: ScopedSchedules, trigger: Any = None, **options: Any) -> Ensured:
    rule = every(minutes=10) if trigger is None else trigger
    return run(scoped.ensure("digest", rule, action="send", **options))


def test_created_then_unchanged(mine: ScopedSchedules, clock: ManualClock) -> None:
    made = ensure(mine, input={"to": "me"})
    assert (made.outcome, made.schedule.version) == ("created", 1)
    clock.advance(minutes=3)
    again = ensure(mine, input={"to": "me"})
    assert again == Ensured(made.schedule, "unchanged")
    assert [event.kind for event in run(mine.events("digest"))] == ["created"]
    assert run(mine.events("digest"))[0].by == "start"


def test_another_input_is_an_update_that_keeps_the_next_time(
    mine: ScopedSchedules, store: MemoryStore, clock: ManualClock
) -> None:
    ensure(mine, input={"to": "me"})
    clock.advance(minutes=3)
    changed = ensure(mine, input={"to": "you"})
    assert (changed.outcome, changed.schedule.definition.input) == ("updated", {"to": "you"})
    assert next_times(store) == {"digest": NOW + timedelta(minutes=10)}


def test_another_trigger_moves_the_next_time(
    mine: ScopedSchedules, store: MemoryStore, clock: ManualClock
) -> None:
    ensure(mine)
    clock.advance(minutes=3)
    assert ensure(mine, every(minutes=5)).outcome == "updated"
    assert next_times(store) == {"digest": NOW + timedelta(minutes=8)}


def test_omitted_options_return_to_their_defaults(mine: ScopedSchedules) -> None:
    ensure(mine, description="daily", policies=Policies(priority=3), max_runs=4)
    found = ensure(mine).schedule.definition
    assert (found.description, found.policies, found.max_runs) == ("", Policies(), None)


def test_a_pause_outlives_the_next_start(mine: ScopedSchedules) -> None:
    ensure(mine)
    run(mine.pause("digest", note="on holiday"))
    assert ensure(mine).outcome == "unchanged"
    found = ensure(mine, input=1).schedule
    assert (found.state, found.definition.note) == ("paused", "on holiday")
    assert ensure(mine, input=1, enabled=True).schedule.state == "active"


def test_an_interval_that_an_action_set_outlives_the_next_start(mine: ScopedSchedules) -> None:
    bounds = (60_000, 3_600_000)
    ensure(mine, interval_bounds_ms=bounds)
    run(mine.update("digest", trigger=every(minutes=20)))
    found = ensure(mine, interval_bounds_ms=bounds)
    assert (found.outcome, found.schedule.definition.trigger.words) == (
        "unchanged",
        "Every 20 minutes",
    )
    narrow = ensure(mine, interval_bounds_ms=(60_000, 900_000))
    assert narrow.schedule.definition.trigger.words == "Every 10 minutes"
    assert ensure(mine, interval_bounds_ms=None).schedule.definition.interval_bounds_ms is None


def test_other_options_change_beside_an_interval_set_by_an_action(
    mine: ScopedSchedules, store: MemoryStore, clock: ManualClock
) -> None:
    """The action sets the interval and its anchor; the code sets everything else."""
    bounds, end_at = (60_000, 3_600_000), NOW + timedelta(days=2)
    ensure(mine, interval_bounds_ms=bounds)
    clock.advance(minutes=10)
    run(mine.update("digest", trigger=every(minutes=20, start_at=NOW + timedelta(minutes=10))))
    clock.advance(minutes=3)
    for words in ({"end_at": end_at}, {"spread": 30}, {}):
        rule = every(minutes=10, **words)
        changed = ensure(mine, rule, interval_bounds_ms=bounds)
        trigger = changed.schedule.definition.trigger
        assert (changed.outcome, trigger.words) == ("updated", "Every 20 minutes")
        assert (trigger.end_at, trigger.limits.spread_ms) == (rule.end_at, rule.limits.spread_ms)
        assert trigger.start_at == NOW + timedelta(minutes=10)
        assert ensure(mine, rule, interval_bounds_ms=bounds).outcome == "unchanged"
    later = every(minutes=10, start_at=NOW + timedelta(days=1))
    assert ensure(mine, later, interval_bounds_ms=bounds).outcome == "updated"
    assert next_times(store) == {"digest": NOW + timedelta(days=1)}
    sooner = every(minutes=10, start_at=NOW + timedelta(hours=9))
    assert ensure(mine, sooner, interval_bounds_ms=bounds).outcome == "updated"
    assert next_times(store) == {"digest": NOW + timedelta(hours=9)}


def test_a_finished_schedule_stays_finished(mine: ScopedSchedules, clock: ManualClock) -> None:
    at = once(NOW + timedelta(hours=1))
    ensure(mine, at)
    clock.advance(hours=2)
    run(mine.collection.store.claim_due())
    found = ensure(mine, at)
    assert (found.outcome, found.schedule.state) == ("unchanged", "finished")


def test_two_concurrent_calls_create_one_schedule(store: MemoryStore) -> None:
    """The second call finds the schedule that the first one created after its read."""
    collection = ScheduleCollection(Racing(store), "mail")
    racing = collection.store
    assert isinstance(racing, Racing)

    async def other() -> None:
        racing.between = None
        await collection.of(SYSTEM).ensure("digest", "0 9 * * *", action="send", input=1)

    racing.between = other
    late = run(collection.of(SYSTEM).ensure("digest", "0 9 * * *", action="send", input=1))
    assert (late.outcome, late.schedule.version) == ("unchanged", 1)

    async def delete() -> None:
        racing.between = None
        await collection.of(SYSTEM).delete("digest")

    racing.between = delete
    again = run(collection.of(SYSTEM).ensure("digest", "0 9 * * *", action="send", input=2))
    assert (again.outcome, again.schedule.definition.input) == ("created", 2)


def test_endless_races_are_a_conflict(store: MemoryStore) -> None:
    collection = ScheduleCollection(Racing(store), "mail")
    racing = collection.store
    assert isinstance(racing, Racing)
    turns = iter(range(100))

    async def other() -> None:
        await (
            ScheduleCollection(store, "mail")
            .of(SYSTEM)
            .ensure("digest", "0 9 * * *", action="send", input=next(turns))
        )

    racing.between = other
    with pytest.raises(Conflict, match="changed 10 times"):
        run(collection.of(SYSTEM).ensure("digest", "0 9 * * *", action="send"))


class Racing(MemoryStore):
    """A store that calls `between` before every write."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store._clock)
        self._tables = store._tables
        self.between: Any = None

    async def put_schedules(self, writes: Any) -> Any:
        between = self.between
        if between is not None:
            await between()
        return await super().put_schedules(writes)


def test_eight_concurrent_calls_create_one_schedule(store: MemoryStore) -> None:
    scoped = ScheduleCollection(store, "mail").of(workspace("o_1"))

    async def all_at_once() -> list[Ensured]:
        asked = (scoped.ensure("digest", cron("0 9 * * *"), action="send") for _ in range(8))
        return await asyncio.gather(*asked)

    outcomes = [each.outcome for each in run(all_at_once())]
    assert sorted(outcomes) == ["created", *["unchanged"] * 7]


def test_refusals_name_their_reason(store: MemoryStore) -> None:
    scoped = ScheduleCollection(store, "mail", limits=Limits(schedules=1)).of(user("u_7"))
    ensure(scoped)
    with pytest.raises(Conflict, match="may have 1"):
        run(scoped.ensure("another", "0 9 * * *", action="send"))
    with pytest.raises(InvalidInput, match="did you mean 'policies'"):
        ensure(scoped, policy=Policies())
    with pytest.raises(InvalidInput, match="at least 1 min"):
        ensure(scoped, every(seconds=10))


def test_a_quarantined_schedule_is_rewritten(mine: ScopedSchedules, store: MemoryStore) -> None:
    made = ensure(mine).schedule
    key = ("schedules", "user:u_7", "mail/digest")
    stored = store._tables.documents[key]
    store._tables.documents[key] = replace(stored, state="quarantined", error="x")
    found = ensure(mine)
    assert (found.outcome, found.schedule.state, found.schedule.id) == (
        "updated",
        "active",
        made.id,
    )
