"""Creating, refusing, listing and deleting schedules."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from duly.errors import InvalidInput
from duly.model.documents import ABSENT, Refused
from duly.model.index_rows import index_row, policies_text, trigger_text
from duly.model.schedule_writes import ScheduleEvent, ScheduleKey, ScheduleWritten
from duly.model.schedules import Definition, Limits, Policies, Schedule, ScheduleId
from duly.model.scopes import Scope
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claimed
from duly.testing.conformance.samples import (
    DAILY,
    FLOW,
    HOUR_MS,
    HOURLY,
    SCOPE,
    START_MS,
    a_definition,
    a_key,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import cron, every, once, weekly
from duly.triggers.instants import to_ms

HOUR = timedelta(hours=1)


async def kinds(store: Store, schedule_id: str) -> list[str]:
    """Return the kinds of a schedule's events."""
    events = await store.schedule_events(ScheduleId(schedule_id))
    return [event.kind for event in events]


class WriteCases(StoreConformance):
    """Cases for put_schedules() of new schedules, for reads, and for delete_schedule()."""

    @case
    async def test_create_makes_schedule_row_and_event(self, store: Store) -> None:
        policies = Policies(priority=5, grace_ms=1)
        definition = a_definition(input={"to": "ada"}, policies=policies, max_runs=9)
        (answer,) = await put(store, a_write(definition=definition))
        schedule = Schedule(
            ScheduleId("id-a"),
            FLOW,
            Scope.parse(SCOPE),
            "a",
            definition,
            "active",
            1,
            START_MS,
            START_MS,
            runs_had=0,
        )
        row = await only_row(store)
        assert answer == ScheduleWritten(schedule, row, created=True)
        assert row == index_row(schedule, START_MS)
        assert (row.nominal_ms, row.version) == (START_MS + HOUR_MS, 1)
        assert (row.priority, row.policies, row.runs_left) == (5, policies_text(policies), 9)
        assert await store.get_schedule(a_key()) == schedule
        assert await store.schedule_events(schedule.id) == [
            ScheduleEvent(schedule.id, "created", START_MS, "ada")
        ]

    @case
    async def test_schedules_are_documents(self, store: Store) -> None:
        (answer,) = await put(store, a_write(definition=a_definition(DAILY)))
        document = await store.get_document("schedules", SCOPE, f"{FLOW}/a")
        assert document is not None
        assert (document.id, document.version) == ("id-a", 1)
        assert Definition.parse(document.body) == answer.schedule.definition
        assert await store.list_documents("schedules", SCOPE) == [document]
        assert await store.count_documents("schedules", SCOPE) == 1

    @case
    async def test_triggers_are_stored_bound(self, store: Store, clock: ManualClock) -> None:
        (interval, hashed) = await put(
            store,
            a_write("a", a_definition(every(hours=2))),
            a_write("b", a_definition(cron("H H * * *", spread=60))),
        )
        assert interval.schedule.definition.trigger.start_at == START
        assert hashed.schedule.definition.trigger.is_bound
        for answer in (interval, hashed):
            assert answer.row is not None
            assert answer.row.trigger == trigger_text(answer.schedule.definition.trigger)
        clock.advance(hours=2)
        assert [each.name for each in await store.claim_due()][-1:] == ["a"]

    @case
    async def test_next_time_lies_after_now(self, store: Store) -> None:
        (answer,) = await put(store, a_write(definition=a_definition(HOURLY)))
        assert answer.row is not None
        assert answer.row.nominal_ms == START_MS + HOUR_MS
        at = START + timedelta(milliseconds=1)
        definition = a_definition(once(at), hand_over="http")
        (answer,) = await put(store, a_write("b", definition))
        assert answer.row is not None
        assert answer.row.nominal_ms == START_MS + 1

    @case
    async def test_a_once_beyond_its_grace_is_refused(self, store: Store) -> None:
        at = START - timedelta(milliseconds=60_001)
        for hand_over in ("jobs", "http", "external"):
            past = a_definition(once(at), hand_over=hand_over)
            with pytest.raises(InvalidInput, match=r"at is 2026-.* in the past.*1 min.*later"):
                await store.put_schedules([a_write(definition=past)])
        paused = a_definition(once(at), enabled=False)
        with pytest.raises(InvalidInput, match="in the past"):
            await store.put_schedules([a_write(definition=paused)])
        assert await store.get_schedule(a_key()) is None
        code = a_definition(once(at), origin="static")
        (answer,) = await put(store, a_write(definition=code))
        assert (answer.schedule.state, answer.row) == ("finished", None)

    @case
    async def test_a_once_within_its_grace_runs(self, store: Store) -> None:
        at = START - timedelta(seconds=60)
        (answer,) = await put(store, a_write(definition=a_definition(once(at))))
        assert (answer.schedule.state, answer.row) == ("finished", None)
        (planned,) = await store.list_occurrences(answer.schedule.id)
        assert (planned.nominal_ms, planned.state) == (START_MS - 60_000, "planned")
        assert await claimed(store) == [planned.job_id]
        policies = Policies(grace_ms=7_200_000)
        posted = a_definition(once(START - HOUR), policies=policies, hand_over="http")
        (answer,) = await put(store, a_write("b", posted))
        assert answer.schedule.state == "active"
        assert answer.row is not None
        assert answer.row.nominal_ms == START_MS - HOUR_MS
        assert (await store.reconcile()).removed == 0
        assert [each.name for each in await store.claim_due()] == ["b"]

    @case
    async def test_a_local_once_is_left_to_releases_that_know_it(self, store: Store) -> None:
        trigger = once("2026-12-24T18:00", tz="Europe/Berlin")
        (answer,) = await put(store, a_write(definition=a_definition(trigger)))
        assert answer.row is not None
        assert answer.row.nominal_ms == to_ms(datetime(2026, 12, 24, 17, tzinfo=UTC))
        assert (answer.row.zone, answer.row.trigger_version) == ("Europe/Berlin", 2)
        assert (await store.list_rows()) == [answer.row]
        found = await store.get_schedule(a_key())
        assert found is not None
        assert found.definition.trigger == trigger

    @case
    async def test_a_once_whose_local_time_is_skipped_is_refused(self, store: Store) -> None:
        lost = once("2027-03-28T02:30", tz="Europe/Berlin", gap="skip")
        with pytest.raises(InvalidInput, match=r"2027-03-28T02:30:00.*Europe/Berlin.*gap"):
            await store.put_schedules([a_write(definition=a_definition(lost))])

    @case
    async def test_next_run_time_lies_after_now(self, store: Store) -> None:
        """A nominal time in the past counts while its run time is still to come."""
        trigger = cron("0 * * * *", spread=3000)
        (answer,) = await put(store, a_write(definition=a_definition(trigger)))
        assert answer.row is not None
        assert answer.row.nominal_ms == START_MS
        assert START_MS < answer.row.run_at_ms < START_MS + HOUR_MS

    @case
    async def test_never_due_is_finished_not_wrong(self, store: Store) -> None:
        days_off = weekly({"mon": None})
        (answer,) = await put(store, a_write(definition=a_definition(days_off)))
        assert (answer.schedule.state, answer.row) == ("finished", None)
        assert await store.get_schedule(a_key()) == answer.schedule
        assert (await store.index_health()).is_healthy

    @case
    async def test_disabled_has_no_row(self, store: Store) -> None:
        (answer,) = await put(store, a_write(definition=a_definition(enabled=False)))
        assert (answer.schedule.state, answer.row) == ("paused", None)
        assert await store.list_rows() == []
        assert await kinds(store, "id-a") == ["created"]

    @case
    async def test_external_has_no_row(self, store: Store) -> None:
        (answer,) = await put(store, a_write(definition=a_definition(hand_over="external")))
        assert (answer.schedule.state, answer.row) == ("active", None)
        assert await store.list_rows() == []

    @case
    async def test_one_row_per_active_schedule(self, store: Store) -> None:
        """The index is sparse: three schedules, one of them disabled, have two rows."""
        off = a_definition(enabled=False)
        await put(store, a_write("a"), a_write("b", off), a_write("c"))
        assert [row.name for row in await store.list_rows()] == ["a", "c"]

    @case
    async def test_index_holds_the_active_few(self, store: Store) -> None:
        off = a_definition(enabled=False)
        names = [f"{number:04}" for number in range(1_000)]
        few = names[::100]
        await put(store, *(a_write(name, a_definition() if name in few else off) for name in names))
        assert await store.count_documents("schedules", SCOPE) == len(names)
        assert [row.name for row in await store.list_rows(limit=1_000)] == few
        health = await store.index_health()
        assert (health.active, health.rows) == (len(few), len(few))

    @case
    async def test_same_name_in_another_flow_or_scope_is_another(self, store: Store) -> None:
        other = ScheduleKey("invoices", SCOPE, "a")
        bob = ScheduleKey(FLOW, "user:bob", "a")
        system = ScheduleKey(FLOW, "system", "a")
        await put(
            store,
            a_write(),
            *(a_write(key=key, id=f"{key.flow} {key.scope}") for key in (other, bob, system)),
        )
        assert len(await store.list_rows()) == 4
        for key in (a_key(), other, bob, system):
            schedule = await store.get_schedule(key)
            assert schedule is not None
            assert (schedule.flow, str(schedule.scope)) == (key.flow, key.scope)

    @case
    async def test_versions_are_compared(self, store: Store) -> None:
        assert await store.put_schedules([a_write(expected_version=1)]) == [Refused("absent", 0)]
        await put(store, a_write(expected_version=ABSENT))
        changed = a_definition(DAILY)
        writes = [
            a_write(definition=changed, expected_version=ABSENT),
            a_write(definition=changed, expected_version=2),
        ]
        assert await store.put_schedules(writes) == [Refused("exists", 1), Refused("stale", 1)]
        (answer,) = await put(store, a_write(definition=changed, expected_version=1))
        assert answer.schedule.version == 2

    @case
    async def test_of_creators_at_once_one_wins(self, store: Store) -> None:
        answers = await asyncio.gather(
            *(
                store.put_schedules([a_write(id=f"id-{number}", expected_version=ABSENT)])
                for number in range(5)
            )
        )
        assert answers.count([Refused("exists", 1)]) == 4
        assert len(await store.list_rows()) == 1

    @case
    async def test_full_scopes_refuse_more(self, store: Store) -> None:
        limits = Limits(schedules=2)
        await put(store, a_write("a", limits=limits))
        invoices = ScheduleKey("invoices", SCOPE, "a")
        await put(store, a_write(key=invoices, id="invoice", limits=limits))
        assert await store.put_schedules([a_write("c", limits=limits)]) == [Refused("full", 2)]
        assert await store.get_schedule(a_key("c")) is None
        await put(store, a_write("a", a_definition(DAILY), limits=limits))
        await store.delete_schedule(invoices)
        await put(store, a_write("c", limits=limits))

    @case
    async def test_full_is_counted_within_a_batch(self, store: Store) -> None:
        writes = [a_write(name, limits=Limits(schedules=2)) for name in "abc"]
        answers = await store.put_schedules(writes)
        assert [isinstance(answer, Refused) for answer in answers] == [False, False, True]
        assert answers[2] == Refused("full", 2)

    @case
    async def test_system_has_no_limits(self, store: Store) -> None:
        limits = Limits(schedules=1)
        each_second = a_definition(every(seconds=1))
        keys = [ScheduleKey(FLOW, "system", name) for name in "ab"]
        writes = [
            a_write(key=key, id=f"id-{key.name}", definition=each_second, limits=limits)
            for key in keys
        ]
        assert len(await put(store, *writes)) == 2

    @case
    async def test_short_intervals_are_refused(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            await store.put_schedules([a_write(definition=a_definition(every(seconds=59)))])
        large = a_definition(input="x" * 100)
        with pytest.raises(InvalidInput):
            await store.put_schedules([a_write(definition=large, limits=Limits(input_bytes=99))])
        assert await store.get_schedule(a_key()) is None

    @case
    async def test_names_that_cannot_be_dispatched_are_refused(self, store: Store) -> None:
        for key in (
            ScheduleKey("Reminders", SCOPE, "a"),
            ScheduleKey("a/b", SCOPE, "a"),
            ScheduleKey("", SCOPE, "a"),
            ScheduleKey(FLOW, "ada", "a"),
            ScheduleKey(FLOW, "user:", "a"),
            ScheduleKey(FLOW, SCOPE, ""),
            ScheduleKey(FLOW, SCOPE, ".."),
            ScheduleKey(FLOW, SCOPE, "x" * 129),
        ):
            with pytest.raises(InvalidInput):
                await store.put_schedules([a_write(key=key)])
        assert await store.list_rows() == []

    @case
    async def test_refused_write_stops_no_other(self, store: Store) -> None:
        await put(store, a_write("b"))
        refused = a_write("b", a_definition(DAILY), id="id-x", expected_version=ABSENT)
        first, second, third = await store.put_schedules([a_write("a"), refused, a_write("c")])
        assert isinstance(first, ScheduleWritten)
        assert second == Refused("exists", 1)
        assert isinstance(third, ScheduleWritten)
        assert [row.name for row in await store.list_rows()] == ["b", "a", "c"]
        assert await kinds(store, "id-b") == ["created"]
        assert await kinds(store, "id-x") == []

    @case
    async def test_invalid_write_stops_all(self, store: Store) -> None:
        await put(store, a_write("b"))
        bad = a_write("c", a_definition(every(seconds=1)))
        with pytest.raises(InvalidInput):
            await store.put_schedules([a_write("a"), a_write("b", a_definition(DAILY)), bad])
        assert await store.get_schedule(a_key("a")) is None
        kept = await store.get_schedule(a_key("b"))
        assert kept is not None
        assert kept.definition.trigger == HOURLY
        assert await kinds(store, "id-a") == []
        assert await kinds(store, "id-b") == ["created"]
        assert (await only_row(store)).version == 1

    @case
    async def test_batch_may_name_a_schedule_twice(self, store: Store) -> None:
        first, second = await put(store, a_write(), a_write(definition=a_definition(DAILY)))
        assert (first.created, second.created) == (True, False)
        assert second.schedule.version == 2
        row = await only_row(store)
        assert row == second.row
        assert row.trigger == trigger_text(DAILY)
        assert await kinds(store, "id-a") == ["created", "changed"]

    @case
    async def test_empty_batch_is_fine(self, store: Store) -> None:
        assert await store.put_schedules([]) == []

    @case
    async def test_what_is_no_transaction_cannot_be_joined(self, store: Store) -> None:
        for nothing in (None, object(), "BEGIN"):
            with pytest.raises(InvalidInput):
                store.put_schedules_in(nothing, [a_write()])
        assert await store.get_schedule(a_key()) is None

    @case
    async def test_schedules_are_listed_in_pages(self, store: Store) -> None:
        names = ["B", "a", "b/c", "ä"]
        await put(store, *(a_write(name) for name in reversed(names)))
        longer = ScheduleKey(f"{FLOW}-x", SCOPE, "z")
        await put(store, a_write(key=longer, id="longer"))
        found: list[str] = []
        while page := await store.list_schedules(
            FLOW, SCOPE, after=found[-1] if found else "", limit=3
        ):
            found += [schedule.name for schedule in page]
        assert found == names
        assert [each.name for each in await store.list_schedules(longer.flow, SCOPE)] == ["z"]
        assert await store.list_schedules(FLOW, "user:bob") == []
        for limit in (0, 1_001):
            with pytest.raises(InvalidInput):
                await store.list_schedules(FLOW, SCOPE, limit=limit)

    @case
    async def test_delete_takes_row_and_document_and_leaves_events(self, store: Store) -> None:
        (answer,) = await put(store, a_write())
        assert await store.delete_schedule(a_key(), by="bob") == answer.schedule
        assert await store.get_schedule(a_key()) is None
        assert await store.get_document("schedules", SCOPE, f"{FLOW}/a") is None
        assert await store.list_rows() == []
        last = (await store.schedule_events(answer.schedule.id))[-1]
        # Its detail keeps the key and the trigger for later queries.
        assert last == ScheduleEvent(answer.schedule.id, "deleted", START_MS, "bob", last.detail)

    @case
    async def test_delete_compares_versions(self, store: Store) -> None:
        assert await store.delete_schedule(a_key()) == Refused("absent", 0)
        assert await store.delete_schedule(a_key(), expected_version=1) == Refused("absent", 0)
        await put(store, a_write())
        assert await store.delete_schedule(a_key(), expected_version=2) == Refused("stale", 1)
        assert len(await store.list_rows()) == 1
        assert await kinds(store, "id-a") == ["created"]
        assert isinstance(await store.delete_schedule(a_key(), expected_version=1), Schedule)

    @case
    async def test_created_again_is_another(self, store: Store) -> None:
        await put(store, a_write())
        await store.delete_schedule(a_key())
        (answer,) = await put(store, a_write(id="id-again"))
        assert (answer.created, answer.schedule.id, answer.schedule.version) == (
            True,
            "id-again",
            1,
        )
        assert (await only_row(store)).schedule_id == "id-again"
        assert await kinds(store, "id-a") == ["created", "deleted"]
        assert await kinds(store, "id-again") == ["created"]

    @case
    async def test_newest_events_come_oldest_first(self, store: Store) -> None:
        for number in range(4):
            await put(store, a_write(definition=a_definition(description=f"{number}")))
        await store.delete_schedule(a_key())
        events = await store.schedule_events(ScheduleId("id-a"), limit=2)
        assert [event.kind for event in events] == ["changed", "deleted"]
        assert json.dumps(events[0].detail) == "{}"
        for limit in (0, 1_001):
            with pytest.raises(InvalidInput):
                await store.schedule_events(ScheduleId("id-a"), limit=limit)
