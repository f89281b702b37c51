"""Counts of the ledger by outcome, and schedules that keep missing their times."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from duly.errors import InvalidInput
from duly.model.index import MAX_PAGE
from duly.model.ledger import RECENT_TIMES, outcome_of
from duly.model.ledger_counts import MAX_CHANGES, MissingSchedule, OutcomeCount
from duly.model.plans import Backfill
from duly.model.retries import RetryPolicy
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.model.upkeep import LedgerRetention
from duly.rules.outcomes import Failed, Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claim_one, end
from duly.testing.conformance.planning.ledger_reads import an_outage, end_in_turn
from duly.testing.conformance.planning.samples import ledger, next_hour, plan, put_hourly
from duly.testing.conformance.samples import HOUR_MS, HOURLY, a_definition, a_key, a_write, put
from duly.testing.conformance.suite import StoreConformance, case

FLOW = "reminders"
ONE_TRY = RetryPolicy(attempts=1)


async def counted(store: Store) -> dict[str, int]:
    """Return the counts of the ledger by outcome; all are of one flow."""
    found = await store.count_occurrences()
    assert found.is_whole
    assert {each.flow for each in found.counts} <= {FLOW}
    assert list(found.counts) == sorted(found.counts)
    return {each.outcome: each.times for each in found.counts}


async def in_the_ledger(store: Store, names: str = "a") -> dict[str, int]:
    """Return the same counts from ledger rows, for schedules with one-letter names."""
    counts: Counter[str] = Counter()
    for name in names:
        for row in await ledger(store, name):
            counts[outcome_of(row.state, row.reason)] += row.count
    return dict(counts)


class LedgerCountCases(StoreConformance):
    """Cases for count_occurrences(), fold_counts() and find_missing()."""

    @case
    async def test_counts_of_the_ledger_are_its_rows(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Each time counts once, by its current outcome."""
        assert await counted(store) == {}
        await an_outage(store, clock)
        assert await counted(store) == {"missed": 9, "planned": 2}
        await end_in_turn(store, clock)
        assert await counted(store) == {"missed": 9, "succeeded": 1, "failed": 1}
        await put(store, a_write("b", a_definition(HOURLY)))
        clock.advance(minutes=59, seconds=30)
        await plan(store)
        await store.delete_schedule(a_key("b"), by="ada")
        assert await counted(store) == await in_the_ledger(store, "ab")

    @case
    async def test_what_promotion_decides_is_counted(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Times that promotion marks as missed are counted, though no plan report includes them."""
        await put_hourly(store)
        await plan(store, look_ahead_ms=12 * HOUR_MS)
        assert await counted(store) == {"planned": 12}
        clock.advance(hours=12)
        await store.promote_due()
        assert await counted(store) == {"missed": 11, "planned": 1}
        await end(store, await claim_one(store), Succeeded())
        assert await counted(store) == {"missed": 11, "succeeded": 1}
        assert await in_the_ledger(store) == {"missed": 11, "succeeded": 1}

    @case
    async def test_what_overlap_skips_is_counted(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store)
        await next_hour(store, clock)
        await claim_one(store, lease_ms=86_400_000)
        for _ in range(3):
            await next_hour(store, clock)
            await store.promote_due()
        assert await counted(store) == {"fired": 1, "skipped": 3}

    @case
    async def test_what_a_pause_swallowed_is_counted_apart(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        await put(store, a_write(definition=a_definition(enabled=False)))
        clock.advance(hours=5, minutes=1)
        await put(store, a_write())
        counts = await counted(store)
        assert counts.get("paused") == 5
        assert counts == await in_the_ledger(store)

    @case
    async def test_a_time_that_is_taken_up_leaves_its_count(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A time backfilled out of a missed range is no longer counted as missed."""
        await an_outage(store, clock)
        first = (await ledger(store))[0]
        await store.backfill(
            Backfill(
                ScheduleId("id-a"), first.nominal_ms + 7_200_000, first.nominal_ms + 10_800_000
            )
        )
        counts = await counted(store)
        assert counts == await in_the_ledger(store)
        assert (counts["missed"], counts["planned"]) == (8, 3)

    @case
    async def test_rows_that_are_removed_are_not_counted(
        self, store: Store, clock: ManualClock
    ) -> None:
        await an_outage(store, clock)
        await end_in_turn(store, clock)
        clock.advance(days=200)
        await plan(store)
        step = await store.prune_ledger(LedgerRetention())
        removed = step.occurrences
        while step.cursor is not None:
            step = await store.prune_ledger(LedgerRetention(), cursor=step.cursor)
            removed += step.occurrences
        assert removed > 0
        assert await counted(store) == await in_the_ledger(store)

    @case
    async def test_folding_changes_no_count(self, store: Store, clock: ManualClock) -> None:
        await put_hourly(store, retry=ONE_TRY)
        for number in range(60):
            await next_hour(store, clock)
            job = await claim_one(store)
            await end(store, job, Failed("no") if number % 3 else Succeeded())
        before = await store.count_occurrences()
        assert before.counts == [
            OutcomeCount(FLOW, "failed", 40),
            OutcomeCount(FLOW, "succeeded", 20),
        ]
        await store.fold_counts()
        assert await store.fold_counts() == 0
        assert await store.count_occurrences() == before
        for bad in (0, MAX_CHANGES + 1):
            with pytest.raises(InvalidInput):
                await store.fold_counts(bad)

    @case
    async def test_schedules_that_keep_skipping_are_found(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A schedule is found from its third skip on, until more of its recent times ran."""
        await put_hourly(store, retry=ONE_TRY)
        await next_hour(store, clock)
        job = await claim_one(store, lease_ms=86_400_000)
        for _ in range(3):
            assert await store.find_missing() == []
            await next_hour(store, clock)
            await store.promote_due()
        found = MissingSchedule(ScheduleId("id-a"), FLOW, "user:ada", "a", 4, 0, 3)
        assert await store.find_missing() == [found]
        await end(store, job, Succeeded())
        for _ in range(2):
            await next_hour(store, clock)
            await end(store, await claim_one(store), Succeeded())
        assert [each.looked_at for each in await store.find_missing()] == [6]
        await next_hour(store, clock)
        await end(store, await claim_one(store), Succeeded())
        assert await store.find_missing() == []

    @case
    async def test_schedules_that_keep_missing_are_found(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Active schedules that missed their times within the last day are found."""
        policies = Policies(misfire=Misfire("skip"), grace_ms=1_000)
        for name in "ab":
            await put(store, a_write(name, a_definition(HOURLY, policies=policies)))
        for _ in range(RECENT_TIMES + 2):
            clock.advance(hours=1, seconds=2)
            await plan(store, look_ahead_ms=0)
        found = await store.find_missing()
        assert [(each.name, each.looked_at, each.missed) for each in found] == [
            ("a", RECENT_TIMES, RECENT_TIMES),
            ("b", RECENT_TIMES, RECENT_TIMES),
        ]
        assert [each.name for each in await store.find_missing(limit=1)] == ["a"]
        await put(store, a_write("a", a_definition(HOURLY, enabled=False)))
        assert [each.name for each in await store.find_missing()] == ["b"]
        clock.set(clock.now() + timedelta(days=2))
        assert await store.find_missing() == []

    @case
    async def test_a_page_of_missing_schedules_has_bounds(self, store: Store) -> None:
        for bad in (0, MAX_PAGE + 1):
            with pytest.raises(InvalidInput):
                await store.find_missing(bad)
