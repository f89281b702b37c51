"""Reading the ledger: pages of one schedule, also after its deletion."""

from __future__ import annotations

import pytest

from duly.errors import InvalidInput
from duly.model.index import MAX_PAGE, ReconcileReport
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claim_one, end
from duly.testing.conformance.planning.samples import FROM_TWO, jobs_of, ledger, plan, plan_one
from duly.testing.conformance.samples import (
    DAILY,
    HOUR_MS,
    MINUTE_MS,
    MINUTELY,
    START_MS,
    a_definition,
    a_key,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case

ID = ScheduleId("id-a")


class LedgerCases(StoreConformance):
    """Cases for list_occurrences(), and for the ledger after other verbs."""

    @case
    async def test_pages_go_back_in_time(self, store: Store) -> None:
        minutely = a_definition(MINUTELY)
        await put(store, a_write("a", minutely), a_write("b", minutely))
        await plan(store, look_ahead_ms=5 * MINUTE_MS)
        times = [START_MS + minute * MINUTE_MS for minute in (5, 4, 3, 2, 1)]
        pages = [
            await store.list_occurrences(ID, limit=2),
            await store.list_occurrences(ID, before_ms=times[1], limit=2),
            await store.list_occurrences(ID, before_ms=times[3], limit=2),
            await store.list_occurrences(ID, before_ms=times[4], limit=2),
        ]
        found = [[each.nominal_ms for each in page] for page in pages]
        assert found == [times[:2], times[2:4], times[4:], []]
        assert {each.schedule_id for page in pages for each in page} == {ID}
        assert len(await store.list_occurrences(ID)) == 5

    @case
    async def test_nobody_has_no_history(self, store: Store, clock: ManualClock) -> None:
        await plan_one(store, clock)
        assert await store.list_occurrences(ScheduleId("nobody")) == []

    @case
    async def test_senseless_pages_are_refused(self, store: Store) -> None:
        for limit in (-1, 0, MAX_PAGE + 1):
            with pytest.raises(InvalidInput, match="limit"):
                await store.list_occurrences(ID, limit=limit)
        assert await store.list_occurrences(ID, limit=MAX_PAGE) == []

    @case
    async def test_history_outlives_edits_and_the_schedule(
        self, store: Store, clock: ManualClock
    ) -> None:
        await plan_one(store, clock)
        await end(store, await claim_one(store), Succeeded())
        before = await ledger(store)
        await put(store, a_write(definition=a_definition(DAILY, input="other")))
        assert await ledger(store) == before
        await put(store, a_write(definition=a_definition(DAILY, enabled=False)))
        assert await ledger(store) == before
        await store.delete_schedule(a_key())
        assert await ledger(store) == before

    @case
    async def test_new_schedule_of_the_name_begins_anew(
        self, store: Store, clock: ManualClock
    ) -> None:
        await plan_one(store, clock)
        await end(store, await claim_one(store), Succeeded())
        await store.delete_schedule(a_key())
        await put(store, a_write(id="id-second"))
        assert await ledger(store, "second") == []
        clock.advance(hours=1)
        assert (await plan(store)).planned == 1
        assert (len(await ledger(store)), len(await ledger(store, "second"))) == (1, 1)
        assert len(await jobs_of(store, "second")) == 1

    @case
    async def test_lost_rows_go_on_after_what_was_planned(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write(definition=a_definition(max_runs=9)))
        for _ in range(2):
            clock.advance(hours=1)
            await plan(store)
        right = await only_row(store)
        await store.remove(a_key())
        clock.advance(minutes=30)
        assert await store.reconcile() == ReconcileReport(checked=1, added=1)
        repaired = await only_row(store)
        assert (repaired.nominal_ms, repaired.run_at_ms) == (right.nominal_ms, right.run_at_ms)
        assert repaired.runs_left == right.runs_left == 7

    @case
    async def test_lost_rows_go_on_after_what_was_missed(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A repaired row resumes after missed times, which are not counted as runs."""
        catching_up = Policies(misfire=Misfire("catch_up", limit=3, per_minute=1), grace_ms=0)
        definition = a_definition(FROM_TWO, policies=catching_up, max_runs=9)
        await put(store, a_write(definition=definition))
        clock.advance(hours=1, seconds=30)
        report = await plan(store)
        assert (report.planned, report.missed) == (3, 56)
        right = await only_row(store)
        assert right.nominal_ms == START_MS + HOUR_MS + MINUTE_MS
        await store.remove(a_key())
        await store.reconcile()
        repaired = await only_row(store)
        assert (repaired.nominal_ms, repaired.runs_left) == (right.nominal_ms, right.runs_left)
        assert repaired.runs_left == 6
