"""Retention of the ledger: old closed rows are pruned, except those still needed."""

from __future__ import annotations

import pytest

from duly.errors import InvalidInput
from duly.model.index import ReconcileReport
from duly.model.ledger import OccurrenceState
from duly.model.plans import LEDGER_MS
from duly.model.schedules import Misfire, Policies
from duly.model.upkeep import LedgerPruned, LedgerRetention
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claims, end
from duly.testing.conformance.planning.samples import ledger, plan, states
from duly.testing.conformance.samples import (
    START_MS,
    a_definition,
    a_key,
    a_row,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case
from duly.triggers import every

DAY_MS = 86_400_000
KEPT = LedgerRetention()
DAYS = KEPT.ledger_ms // DAY_MS
STEPS = 200
"""Maximum number of steps; more than any case needs."""
SKIP = Policies(misfire=Misfire("skip"))


async def prune(
    store: Store, limit: int = 1_000, retention: LedgerRetention = KEPT
) -> LedgerPruned:
    """Run all prune steps and return the sum."""
    occurrences = events = audit = 0
    cursor: str | None = None
    for _ in range(STEPS):
        step = await store.prune_ledger(retention, limit, cursor)
        assert max(step.occurrences, step.events, step.audit) <= limit
        occurrences, events, cursor = occurrences + step[0], events + step[1], step.cursor
        audit += step.audit
        if cursor is None:
            return LedgerPruned(occurrences, events, None, audit)
    raise AssertionError(f"not finished after {STEPS} steps; cursor is {cursor}")


async def run_days(store: Store, clock: ManualClock, days: int) -> None:
    """Plan and run due jobs once a day for `days` days."""
    for _ in range(days):
        clock.advance(days=1)
        await plan(store)
        for job in (await claims(store)).jobs:
            await end(store, job, Succeeded())


class LedgerRetentionCases(StoreConformance):
    """Cases for the ledger in prune_ledger()."""

    @case
    async def test_old_occurrences_go(self, store: Store, clock: ManualClock) -> None:
        """Occurrences older than the retention are pruned; one exactly that old is kept."""
        await put(store, a_write(definition=a_definition(every(days=1))))
        await run_days(store, clock, 3)
        clock.advance(days=DAYS - 1)
        await plan(store)
        assert (await prune(store)).occurrences == 1
        left = [each.nominal_ms for each in await ledger(store)]
        assert left[0] == START_MS + 2 * DAY_MS
        assert (await prune(store)).occurrences == 0

    @case
    async def test_newest_of_a_schedule_stays(self, store: Store, clock: ManualClock) -> None:
        """The newest occurrence stays, so that a rebuilt index does not repeat times that ran."""
        await put(store, a_write(definition=a_definition(every(days=1))))
        await run_days(store, clock, 2)
        await put(store, a_write(definition=a_definition(every(days=1), enabled=False)))
        clock.advance(days=2 * DAYS)
        assert (await prune(store)).occurrences == 1
        assert [each.nominal_ms for each in await ledger(store)] == [START_MS + 2 * DAY_MS]

    @case
    async def test_withdrawn_rows_are_no_newest(self, store: Store, clock: ManualClock) -> None:
        """A withdrawn row does not count as the newest; one that ran or was missed does."""
        await put(store, a_write(definition=a_definition(every(days=1))))
        await run_days(store, clock, 1)
        await plan(store, look_ahead_ms=DAY_MS)
        await store.delete_schedule(a_key())
        await put(store, a_write(definition=a_definition(every(days=1), enabled=False)))
        assert await states(store) == ["succeeded", "withdrawn"]
        clock.advance(days=2 * DAYS)
        await prune(store)
        assert "succeeded" in await states(store)

    @case
    async def test_extras_are_no_newest(self, store: Store, clock: ManualClock) -> None:
        """An extra run does not count as the newest, since it is not a time of the schedule."""
        definition = a_definition(every(days=1), enabled=False)
        await put(store, a_write(definition=a_definition(every(days=1))))
        await run_days(store, clock, 2)
        await put(store, a_write(definition=definition))
        clock.advance(days=1)
        assert await store.run_now(a_write().id, "request") is not None
        (extra,) = (await claims(store)).jobs
        await end(store, extra, Succeeded())
        clock.advance(days=2 * DAYS)
        assert (await prune(store)).occurrences == 1
        assert START_MS + 2 * DAY_MS in [each.nominal_ms for each in await ledger(store)]

    @case
    async def test_ledger_of_a_deleted_schedule_goes(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write(definition=a_definition(every(days=1))))
        await run_days(store, clock, 2)
        await store.delete_schedule(a_key())
        assert (await prune(store)).occurrences == 0
        clock.advance(days=DAYS + 1)
        assert (await prune(store)).occurrences == 2
        assert await ledger(store) == []

    @case
    async def test_open_occurrences_stay(self, store: Store, clock: ManualClock) -> None:
        """Open occurrences stay, regardless of age."""
        await put(store, a_write(definition=a_definition(every(days=1))))
        clock.advance(days=1)
        await plan(store)
        await store.promote_due()
        (running,) = (await claims(store)).jobs
        await store.delete_schedule(a_key())
        clock.advance(days=2 * DAYS)
        assert (await prune(store)).occurrences == 0
        await end(store, running, Succeeded())
        assert (await prune(store)).occurrences == 0  # it ended today
        clock.advance(days=DAYS + 1)
        assert (await prune(store)).occurrences == 1

    @case
    async def test_claimed_occurrences_are_closed(self, store: Store, clock: ManualClock) -> None:
        """Occurrences taken by claim_due() count as closed: their outcome is never reported."""
        await store.upsert(a_row())
        for number in range(3):
            await store.claim_due(claim_id=f"{number}")
            clock.advance(minutes=1)
        clock.advance(days=DAYS + 1)
        await store.claim_due(claim_id="last")
        assert (await prune(store)).occurrences == 3
        assert len(await ledger(store)) == 1

    @case
    async def test_times_to_be_planned_again_stay(self, store: Store, clock: ManualClock) -> None:
        """Occurrences after the index row's time stay, so that they are not run twice."""
        await put(store, a_write(definition=a_definition(every(days=1))))
        first = await only_row(store)
        await run_days(store, clock, 3)
        await store.remove(a_key())
        await store.upsert(first)
        clock.advance(days=2 * DAYS)
        assert (await prune(store)).occurrences == 0
        await plan(store)
        assert (await states(store)).count("succeeded") == 3

    @case
    async def test_runs_stay_counted_when_their_rows_are_removed(
        self, store: Store, clock: ManualClock
    ) -> None:
        definition = a_definition(every(days=1), max_runs=5, policies=SKIP)
        await put(store, a_write(definition=definition))
        await run_days(store, clock, 3)
        clock.advance(days=2 * DAYS)
        await plan(store)
        assert (await prune(store)).occurrences == 3
        await store.remove(a_key())
        assert (await store.reconcile()).added == 1
        assert (await only_row(store)).runs_left == 1

    @case
    async def test_rebuilt_index_is_the_same(self, store: Store, clock: ManualClock) -> None:
        definition = a_definition(every(days=1))
        await put(store, a_write("a", definition), a_write("b", definition))
        await run_days(store, clock, 3)
        clock.advance(days=DAYS)
        await plan(store)
        rows = await store.list_rows()
        assert (await prune(store)).occurrences > 0
        for name in ("a", "b"):
            await store.remove(a_key(name))
        assert await store.reconcile() == ReconcileReport(checked=2, added=2)
        rebuilt = [(row.name, row.nominal_ms, row.run_at_ms) for row in await store.list_rows()]
        assert rebuilt == [(row.name, row.nominal_ms, row.run_at_ms) for row in rows]

    @case
    async def test_ranges_go_as_a_whole(self, store: Store, clock: ManualClock) -> None:
        """A range of missed times is as old as its last time."""
        definition = a_definition(every(days=1), policies=SKIP)
        await put(store, a_write(definition=definition))
        clock.advance(days=30, hours=12)
        await plan(store)
        (missed,) = await ledger(store)
        assert (missed.state, missed.count) == (OccurrenceState.MISSED, 30)
        await run_days(store, clock, DAYS - 1)
        assert (await prune(store)).occurrences == 0
        await run_days(store, clock, 1)
        assert (await prune(store)).occurrences == 1
        assert (await ledger(store))[0].nominal_ms == START_MS + 31 * DAY_MS

    @case
    async def test_steps_are_bounded(self, store: Store, clock: ManualClock) -> None:
        definition = a_definition(every(days=1))
        for name in ("a", "b", "c"):
            await put(store, a_write(name, definition))
        await run_days(store, clock, 3)
        for name in ("a", "b", "c"):
            await store.delete_schedule(a_key(name))
        clock.advance(days=DAYS + 1)
        step = await store.prune_ledger(KEPT, 2)
        assert (step.occurrences, step.cursor is None) == (2, False)
        assert (await prune(store, 2)).occurrences == 7

    @case
    async def test_bad_questions_are_refused(self, store: Store) -> None:
        for limit in (0, 1_001):
            with pytest.raises(InvalidInput, match="limit"):
                await store.prune_ledger(KEPT, limit)
        for cursor in ("", "x", "x:1"):
            with pytest.raises(InvalidInput, match="cursor"):
                await store.prune_ledger(KEPT, 10, cursor)
        with pytest.raises(InvalidInput, match="ledger_ms"):
            LedgerRetention(ledger_ms=LEDGER_MS - 1)
        with pytest.raises(InvalidInput, match="events_ms"):
            LedgerRetention(events_ms=0)
