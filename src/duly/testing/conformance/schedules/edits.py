"""Edits of schedules: which ones move the index row, and the events they record."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from duly.errors import InvalidInput
from duly.model.plans import PlanRequest
from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import Definition, Limits, Policies, Schedule, ScheduleId
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claimed, claims
from duly.testing.conformance.samples import (
    DAILY,
    HOUR_MS,
    HOURLY,
    MINUTE_MS,
    START_MS,
    a_definition,
    a_key,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import cron, every, once


async def last_event(store: Store, schedule_id: str = "id-a") -> ScheduleEvent:
    """Return the newest event of a schedule."""
    return (await store.schedule_events(ScheduleId(schedule_id)))[-1]


class EditCases(StoreConformance):
    """Cases for put_schedules() of existing schedules."""

    @case
    async def test_same_definition_writes_nothing(self, store: Store, clock: ManualClock) -> None:
        definition = a_definition(input={"deep": [1, {"x": None}]})
        (first,) = await put(store, a_write(definition=definition))
        clock.advance(minutes=1)
        (second,) = await put(store, a_write(id="ignored", definition=definition))
        assert second == replace(first, created=False)
        assert await only_row(store) == first.row
        assert len(await store.schedule_events(first.schedule.id)) == 1

    @case
    async def test_same_interval_keeps_its_anchor(self, store: Store, clock: ManualClock) -> None:
        definition = a_definition(every(minutes=90))
        (first,) = await put(store, a_write(definition=definition))
        clock.advance(minutes=7)
        (second,) = await put(store, a_write(definition=definition))
        assert second == replace(first, created=False)
        described = msgspec.structs.replace(definition, description="words")
        (third,) = await put(store, a_write(definition=described))
        assert third.schedule.definition.trigger.start_at == START
        assert third.row is not None
        assert third.row.nominal_ms == START_MS + 90 * MINUTE_MS

    @case
    async def test_words_leave_the_hand_alone(self, store: Store, clock: ManualClock) -> None:
        """An edit that does not change the timing keeps the row's time, even an overdue one."""
        await put(store, a_write(definition=a_definition(max_runs=5, hand_over="http")))
        clock.advance(hours=1)
        await store.claim_due()
        before = await only_row(store)
        clock.advance(hours=3)
        definition = a_definition(
            description="new",
            input=2,
            policies=Policies(priority=8),
            max_runs=5,
            hand_over="http",
        )
        (answer,) = await put(store, a_write(definition=definition, by="bob"))
        assert (answer.schedule.version, answer.schedule.updated_at_ms) == (
            2,
            START_MS + 4 * HOUR_MS,
        )
        assert answer.schedule.created_at_ms == START_MS
        row = await only_row(store)
        assert row == answer.row
        assert (row.nominal_ms, row.run_at_ms, row.runs_left) == (
            before.nominal_ms,
            before.run_at_ms,
            4,
        )
        assert (row.priority, row.policies) == (8, '{"priority":8}')
        assert row.version == before.version + 1
        assert [each.nominal_ms for each in await store.claim_due()] == [before.nominal_ms]
        assert await last_event(store) == ScheduleEvent(
            ScheduleId("id-a"), "changed", START_MS + 4 * HOUR_MS, "bob"
        )

    @case
    async def test_words_leave_a_due_one_time_alone(self, store: Store, clock: ManualClock) -> None:
        trigger = once(START + timedelta(hours=1))
        await put(store, a_write(definition=a_definition(trigger, hand_over="http")))
        clock.advance(hours=2)
        changed = a_definition(trigger, policies=Policies(priority=3), hand_over="http")
        (answer,) = await put(store, a_write(definition=changed))
        assert answer.schedule.state == "active"
        assert (await only_row(store)).priority == 3
        assert len(await store.claim_due()) == 1

    @case
    async def test_new_trigger_moves_the_hand(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        before = await only_row(store)
        clock.advance(minutes=10)
        trigger = cron("30 * * * *")
        (answer,) = await put(store, a_write(definition=a_definition(trigger)))
        row = await only_row(store)
        assert row == answer.row
        assert row.nominal_ms == START_MS + 30 * MINUTE_MS
        assert (row.schedule_id, row.version) == ("id-a", before.version + 1)
        event = await last_event(store)
        assert (event.kind, event.detail) == ("changed", {"trigger": HOURLY.to_json()})

    @case
    async def test_new_trigger_counts_from_now(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        clock.advance(hours=5)
        (answer,) = await put(store, a_write(definition=a_definition(cron("30 * * * *"))))
        assert answer.row is not None
        assert answer.row.nominal_ms == START_MS + 5 * HOUR_MS + 30 * MINUTE_MS

    @case
    async def test_edit_to_a_past_once_is_refused(self, store: Store) -> None:
        (before,) = await put(store, a_write())
        past = a_definition(once(START - timedelta(hours=1)))
        with pytest.raises(InvalidInput, match=r"at is 2026-.* in the past"):
            await store.put_schedules([a_write(definition=past)])
        assert await store.get_schedule(a_key()) == before.schedule
        assert await store.list_rows() == [before.row]

    @case
    async def test_edit_to_a_once_within_its_grace_runs(self, store: Store) -> None:
        await put(store, a_write())
        recent = a_definition(once(START - timedelta(seconds=59)))
        (answer,) = await put(store, a_write(definition=recent))
        assert (answer.schedule.state, answer.row) == ("finished", None)
        (planned,) = await store.list_occurrences(answer.schedule.id)
        assert (planned.nominal_ms, planned.state) == (START_MS - 59_000, "planned")
        assert await claimed(store) == [planned.job_id]

    @case
    async def test_a_once_that_passed_may_be_resumed(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Resuming a once whose time passed in the pause finishes it and is not refused."""
        trigger = once(START + timedelta(hours=1))
        await put(store, a_write(definition=a_definition(trigger, enabled=False)))
        clock.advance(hours=2)
        noted = a_definition(trigger, enabled=False, note="too late")
        (answer,) = await put(store, a_write(definition=noted))
        assert answer.schedule.state == "paused"
        (answer,) = await put(store, a_write(definition=a_definition(trigger)))
        assert (answer.schedule.state, answer.row) == ("finished", None)

    @case
    async def test_pause_takes_the_row_and_keeps_the_schedule(self, store: Store) -> None:
        await put(store, a_write())
        paused = a_definition(enabled=False, note="on holiday")
        (answer,) = await put(store, a_write(definition=paused, by="bob"))
        assert (answer.schedule.state, answer.row) == ("paused", None)
        assert await store.list_rows() == []
        assert await store.get_schedule(a_key()) == answer.schedule
        assert await last_event(store) == ScheduleEvent(
            ScheduleId("id-a"), "paused", START_MS, "bob", {"note": "on holiday"}
        )

    @case
    async def test_pause_without_a_note_says_nothing_more(self, store: Store) -> None:
        await put(store, a_write())
        await put(store, a_write(definition=a_definition(enabled=False)))
        assert (await last_event(store)).detail == {}

    @case
    async def test_resume_brings_the_row_back_after_now(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        await put(store, a_write(definition=a_definition(enabled=False)))
        clock.advance(hours=7)
        (answer,) = await put(store, a_write())
        assert answer.schedule.state == "active"
        assert (await only_row(store)).nominal_ms == START_MS + 8 * HOUR_MS
        event = await last_event(store)
        assert (event.kind, event.detail) == ("resumed", {})

    @case
    async def test_edit_while_paused_stays_paused(self, store: Store) -> None:
        await put(store, a_write(definition=a_definition(enabled=False)))
        changed = a_definition(DAILY, enabled=False)
        (answer,) = await put(store, a_write(definition=changed))
        assert (answer.schedule.state, answer.row) == ("paused", None)
        event = await last_event(store)
        assert (event.kind, event.detail) == ("changed", {"trigger": HOURLY.to_json()})

    @case
    async def test_handing_over_outside_takes_the_row(self, store: Store) -> None:
        await put(store, a_write())
        (answer,) = await put(store, a_write(definition=a_definition(hand_over="external")))
        assert (answer.schedule.state, answer.row) == ("active", None)
        assert await store.list_rows() == []
        (answer,) = await put(store, a_write(definition=a_definition(hand_over="http")))
        assert answer.schedule.state == "active"
        assert (await only_row(store)).hand_over == "http"

    @case
    async def test_finished_by_a_claim(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(once(START + timedelta(hours=1)))))
        clock.advance(hours=1)
        assert len(await store.claim_due()) == 1
        schedule = await store.get_schedule(a_key())
        assert schedule is not None
        assert (schedule.state, schedule.error) == ("finished", None)
        event = await last_event(store)
        assert (event.kind, event.by) == ("finished", "system")
        assert (await store.index_health()).active == 0

    @case
    async def test_words_leave_finished_finished(self, store: Store, clock: ManualClock) -> None:
        trigger = once(START + timedelta(hours=1))
        await put(store, a_write(definition=a_definition(trigger)))
        clock.advance(hours=1)
        await store.claim_due()
        (answer,) = await put(store, a_write(definition=a_definition(trigger, note="x")))
        assert (answer.schedule.state, answer.row) == ("finished", None)

    @case
    async def test_last_run_finishes(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(max_runs=2)))
        for _ in range(2):
            clock.advance(hours=1)
            assert len(await store.claim_due()) == 1
        schedule = await store.get_schedule(a_key())
        assert schedule is not None
        assert schedule.state == "finished"
        assert await store.list_rows() == []

    @case
    async def test_runs_that_were_are_kept_in_mind(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(max_runs=5)))
        for _ in range(2):
            clock.advance(hours=1)
            await store.claim_due()
        (answer,) = await put(store, a_write(definition=a_definition(max_runs=10)))
        assert answer.row is not None
        assert answer.row.runs_left == 8
        (answer,) = await put(store, a_write(definition=a_definition(max_runs=2)))
        assert (answer.schedule.state, answer.row) == ("finished", None)
        (answer,) = await put(store, a_write(definition=a_definition()))
        assert answer.row is not None
        assert answer.row.runs_left is None
        (answer,) = await put(store, a_write(definition=a_definition(max_runs=3)))
        assert answer.row is not None
        assert answer.row.runs_left == 3

    @case
    async def test_quarantine_reaches_the_schedule(self, store: Store, clock: ManualClock) -> None:
        (answer,) = await put(store, a_write())
        assert answer.row is not None
        await store.upsert(replace(answer.row, trigger="nonsense"))
        clock.advance(hours=1)
        assert await store.claim_due() == []
        schedule = await store.get_schedule(a_key())
        assert schedule is not None
        assert schedule.state == "quarantined"
        assert schedule.error
        event = await last_event(store)
        assert (event.kind, event.by) == ("quarantined", "system")
        health = await store.index_health()
        assert (health.active, health.quarantined, health.is_healthy) == (0, 1, False)

    @case
    async def test_quarantine_ends_with_any_write(self, store: Store, clock: ManualClock) -> None:
        (answer,) = await put(store, a_write())
        assert answer.row is not None
        await store.upsert(replace(answer.row, trigger="nonsense"))
        clock.advance(hours=1)
        await store.claim_due()
        (again,) = await put(store, a_write())
        assert (again.schedule.state, again.schedule.error) == ("active", None)
        assert again.schedule.version == 2
        row = await only_row(store)
        assert row == again.row
        assert row.nominal_ms == START_MS + 2 * HOUR_MS
        assert await store.list_quarantined() == []
        assert (await last_event(store)).kind == "changed"

    @case
    @pytest.mark.parametrize("other", [True, 1.0, [1]], ids=["true", "1.0", "list"])
    async def test_input_is_another_when_its_json_is(
        self, store: Store, clock: ManualClock, other: object
    ) -> None:
        """Inputs 1, 1.0 and true differ, though equal in Python; planned runs are replaced."""
        await put(store, a_write(definition=a_definition(input={"n": 1})))
        clock.advance(minutes=59, seconds=30)
        await store.plan_occurrences(PlanRequest(look_ahead_ms=MINUTE_MS))
        (answer,) = await put(store, a_write(definition=a_definition(input={"n": other})))
        assert answer.schedule.version == 2
        stored = await store.get_schedule(a_key())
        assert stored is not None
        assert repr(stored.definition.input) == repr({"n": other})
        clock.advance(seconds=30)
        (job,) = (await claims(store)).jobs
        assert msgspec.json.decode(job.input) == {"n": other}
        assert job.input == msgspec.json.encode({"n": other}).decode()

    @case
    async def test_invalid_edit_changes_nothing(self, store: Store) -> None:
        (before,) = await put(store, a_write())
        with pytest.raises(InvalidInput):
            await store.put_schedules([a_write(definition=a_definition(every(seconds=1)))])
        assert await store.get_schedule(a_key()) == before.schedule
        assert await only_row(store) == before.row

    @case
    async def test_tighter_limits_let_an_owner_pause_and_annotate(self, store: Store) -> None:
        """Tighter limits allow to pause and annotate a schedule; they apply when it resumes."""
        often = every(minutes=5)
        await put(store, a_write(definition=a_definition(often)))
        tight = Limits(shortest_interval_ms=10 * MINUTE_MS)

        async def write(definition: Definition) -> Schedule:
            (answer,) = await put(store, replace(a_write(definition=definition), limits=tight))
            return answer.schedule

        await write(a_definition(often, description="words", note="for ada"))
        await write(a_definition(often, policies=Policies(priority=2)))
        with pytest.raises(InvalidInput, match="must be at least 10 min"):
            await write(a_definition(often, input="new"))
        with pytest.raises(InvalidInput, match="must be at least 10 min"):
            await write(a_definition(every(minutes=6)))
        paused = await write(a_definition(often, enabled=False))
        assert (paused.state, paused.version) == ("paused", 4)
        assert (await write(a_definition(often, enabled=False, note="why"))).version == 5
        with pytest.raises(InvalidInput, match="must be at least 10 min"):
            await write(a_definition(often))
        assert (await write(a_definition(HOURLY))).state == "active"
