"""Only active schedules accept a dispatch, regardless of hand-over."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import get_args

from duly.model.dispatches import Duplicate, Fire, FireAnswer, Fired, Inactive
from duly.model.jobs import JobId
from duly.model.schedules import HandOver, Schedule, ScheduleState
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.dispatch.samples import AT_MS, a_job, a_post, claim, fire
from duly.testing.conformance.index.quarantine import a_bad_row
from duly.testing.conformance.planning.samples import jobs_of, ledger
from duly.testing.conformance.samples import (
    FLOW,
    HOUR_MS,
    SCOPE,
    START_MS,
    a_definition,
    a_key,
    a_write,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import once

AT = START + timedelta(hours=1)


async def stored(store: Store, name: str = "a") -> Schedule:
    """Return a schedule that must exist."""
    found = await store.get_schedule(a_key(name))
    assert found is not None
    return found


async def kinds(store: Store, name: str = "a") -> list[str]:
    """Return the kinds of a schedule's events, oldest first."""
    return [event.kind for event in await store.schedule_events((await stored(store, name)).id)]


async def fire_stored(store: Store, name: str = "a") -> FireAnswer:
    """Fire a dispatch of a schedule that is kept in the store; return the answer."""
    return await store.fire(Fire(a_job(name=name), FLOW, SCOPE, name, is_stored=True))


class FireStateCases(StoreConformance):
    """Cases for dispatches of schedules in each state."""

    @case
    async def test_paused_schedule_accepts_no_dispatch(self, store: Store) -> None:
        for hand_over in get_args(HandOver):
            off = a_definition(hand_over=hand_over, enabled=False)
            await put(store, a_write(hand_over, off))
            assert await fire(store, name=hand_over, key="k") == Inactive("paused")
            assert (await ledger(store, hand_over), await jobs_of(store, hand_over)) == ([], [])
            on = a_definition(hand_over=hand_over)
            await put(store, a_write(hand_over, on))
            job_id = f"job-{hand_over}"
            # The refusal took neither the time nor the key.
            assert await fire(store, job_id, name=hand_over, key="k", action=hand_over) == Fired(
                JobId(job_id)
            )

    @case
    async def test_external_schedule_is_paused_and_resumed(self, store: Store) -> None:
        external = a_definition(hand_over="external")
        paused = a_definition(hand_over="external", enabled=False)
        states: list[tuple[ScheduleState, str]] = []
        for definition in (external, paused, external):
            (answer,) = await put(store, a_write(definition=definition))
            assert answer.row is None
            states.append((answer.schedule.state, answer.schedule.definition.hand_over))
        assert states == [
            ("active", "external"),
            ("paused", "external"),
            ("active", "external"),
        ]
        assert await kinds(store) == ["created", "paused", "resumed"]

    @case
    async def test_finished_schedule_accepts_no_dispatch(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write(definition=a_definition(once(AT))))
        clock.advance(hours=1)
        assert len(await store.claim_due(claim_id="claim")) == 1
        assert (await stored(store)).state == "finished"
        # Its own time was taken; another one is refused.
        assert isinstance(await fire(store), Duplicate)
        assert await fire(store, nominal_ms=AT_MS + 1) == Inactive("finished")

    @case
    async def test_last_post_of_a_finished_schedule_is_fired(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_post(trigger=once(AT)))
        clock.advance(hours=1)
        assert len(await claim(store, "one")) == 1
        assert (await stored(store)).state == "finished"
        assert await fire(store, nominal_ms=AT_MS + 1) == Inactive("finished")
        assert await fire(store) == Fired(JobId("j1"))

    @case
    async def test_post_of_a_paused_schedule_is_refused(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A fire is refused if the schedule was paused after the tick claimed it."""
        await put(store, a_post())
        clock.advance(hours=1)
        assert len(await claim(store, "one")) == 1
        await put(store, a_write(definition=a_definition(hand_over="http", enabled=False)))
        assert await fire(store) == Inactive("paused")
        assert await jobs_of(store) == []

    @case
    async def test_quarantined_schedule_accepts_no_dispatch(self, store: Store) -> None:
        await put(store, a_write())
        await store.upsert(a_bad_row("a"))
        await store.claim_due()
        assert (await stored(store)).state == "quarantined"
        assert await fire(store) == Inactive("quarantined")

    @case
    async def test_deleted_schedule_accepts_no_dispatch(self, store: Store) -> None:
        """A deleted stored schedule accepts no dispatch; one whose definition is elsewhere does."""
        await put(store, a_write())
        await store.delete_schedule(a_key())
        assert await fire_stored(store) == Inactive(None)
        assert await fire(store) == Fired(JobId("j1"))

    @case
    async def test_external_single_time_is_finished_by_its_dispatch(self, store: Store) -> None:
        await put(store, a_write(definition=a_definition(once(AT), hand_over="external")))
        assert (await stored(store)).state == "active"
        # An early dispatch leaves the coming time in place.
        assert await fire(store, "j0", nominal_ms=START_MS + 1) == Fired(JobId("j0"))
        assert (await stored(store)).state == "active"
        assert await fire(store, key="k") == Fired(JobId("j1"))
        assert (await stored(store)).state == "finished"
        assert await kinds(store) == ["created", "finished"]
        # A repeated call, time or key is still answered; anything else is refused.
        assert await fire(store) == Fired(JobId("j1"))
        assert await fire(store, "j2") == Duplicate(JobId("j1"))
        assert await fire(store, "j3", nominal_ms=AT_MS + 1, key="k") == Duplicate(JobId("j1"))
        assert await fire(store, "j4", nominal_ms=AT_MS + 1) == Inactive("finished")
        later = a_definition(once(AT + timedelta(hours=1)), hand_over="external")
        await put(store, a_write(definition=later))
        assert (await stored(store)).state == "active"
        assert await fire(store, "j5", nominal_ms=AT_MS + HOUR_MS) == Fired(JobId("j5"))

    @case
    async def test_external_schedule_whose_time_passed_in_a_pause_is_finished(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write(definition=a_definition(once(AT), hand_over="external")))
        off = a_definition(once(AT), hand_over="external", enabled=False)
        await put(store, a_write(definition=off))
        clock.advance(hours=2)
        await put(store, a_write(definition=a_definition(once(AT), hand_over="external")))
        assert (await stored(store)).state == "finished"
        assert await fire(store) == Inactive("finished")

    @case
    async def test_external_schedules_are_healthy_without_rows(self, store: Store) -> None:
        await put(store, a_write("a", a_definition(hand_over="external")))
        await put(store, a_write("b", a_definition(hand_over="external", enabled=False)))
        health = await store.index_health()
        assert (health.active, health.missing, health.external) == (0, 0, 1)
        assert health.is_healthy
        seen = await store.check_index()
        assert (seen.active, seen.missing, seen.external) == (0, 0, 1)
        assert not (await store.due_summary()).is_silent
        await put(store, a_write("c"))
        health = await store.index_health()
        assert (health.active, health.missing, health.external) == (1, 0, 1)

    @case
    async def test_reconcile_leaves_external_schedules_active(self, store: Store) -> None:
        await put(store, a_write(definition=a_definition(hand_over="external")))
        report = await store.reconcile()
        assert (report.added, report.removed, report.corrected) == (0, 0, 0)
        assert (await stored(store)).state == "active"
        assert await kinds(store) == ["created"]

    @case
    async def test_pause_and_dispatch_at_once(self, store: Store) -> None:
        """A concurrent pause and fire may come in either order; later fires are refused."""
        off = a_write(definition=a_definition(hand_over="external", enabled=False))
        for number in range(10):
            await put(store, a_write(definition=a_definition(hand_over="external")))
            nominal_ms = AT_MS + number * HOUR_MS
            await asyncio.gather(
                put(store, off), fire(store, f"early-{number}", nominal_ms=nominal_ms)
            )
            late = await fire(store, f"late-{number}", nominal_ms=nominal_ms + 1)
            assert late == Inactive("paused")
