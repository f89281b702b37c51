"""Retention of finished schedules: which ones are deleted, and when."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duly.errors import InvalidInput
from duly.model.upkeep import DAY_MS, LedgerRetention
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.dispatch.samples import claim as claim_posts
from duly.testing.conformance.dispatch.samples import fire
from duly.testing.conformance.jobs.samples import claim_one as take_job
from duly.testing.conformance.jobs.samples import end
from duly.testing.conformance.planning.samples import ledger, plan
from duly.testing.conformance.samples import a_definition, a_key, a_write, put
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import Trigger, once

KEPT = LedgerRetention()
FOREVER = LedgerRetention(finished_ms=None)
AT = START + timedelta(hours=1)


async def prune(store: Store, retention: LedgerRetention = KEPT, limit: int = 1_000) -> list[int]:
    """Run all prune steps; return how many schedules each one deleted."""
    counts: list[int] = []
    cursor: str | None = None
    for _ in range(100):
        step = await store.prune_schedules(retention, limit, cursor)
        assert step.schedules <= limit
        counts.append(step.schedules)
        cursor = step.cursor
        if cursor is None:
            return counts
    raise AssertionError(f"not finished after 100 steps; cursor is {cursor}")


async def left(store: Store, *names: str) -> list[str]:
    """Return which of the schedules exist."""
    return [name for name in names if await store.get_schedule(a_key(name)) is not None]


async def run_single(
    store: Store,
    clock: ManualClock,
    name: str = "a",
    trigger: Trigger | None = None,
    **fields: bool,
) -> None:
    """Store a schedule with a single time and run it."""
    single = once(clock.now() + timedelta(hours=1)) if trigger is None else trigger
    await put(store, a_write(name, a_definition(single, **fields)))
    clock.advance(hours=1)
    await plan(store)
    await end(store, await take_job(store), Succeeded())


class FinishedCases(StoreConformance):
    """Cases for prune_schedules()."""

    @case
    async def test_finished_schedules_are_deleted_in_the_end(
        self, store: Store, clock: ManualClock
    ) -> None:
        await run_single(store, clock)
        await put(store, a_write("b"), a_write("off", a_definition(enabled=False)))
        clock.advance(days=30, milliseconds=-1)
        assert sum(await prune(store)) == 0
        clock.advance(milliseconds=1)
        assert sum(await prune(store, FOREVER)) == 0
        assert sum(await prune(store)) == 1
        assert await left(store, "a", "b", "off") == ["b", "off"]
        *_, event = await store.schedule_events((await ledger(store))[0].schedule_id)
        assert (event.kind, event.by) == ("deleted", "duly")
        assert event.detail["name"] == "a"
        assert [each.state.value for each in await ledger(store)] == ["succeeded"]
        # The name is free again.
        await put(store, a_write("a", id="another"))

    @case
    async def test_completed_schedule_is_deleted_at_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        await run_single(store, clock, "kept")
        flagged = a_definition(once(clock.now() + timedelta(hours=1)), delete_after_completion=True)
        await put(store, a_write("a", flagged))
        assert sum(await prune(store)) == 0
        clock.advance(hours=1)
        await plan(store)
        found = await store.get_schedule(a_key())
        assert found is not None
        assert found.state == "finished"
        # Its last occurrence has not ended: queued, then running.
        assert sum(await prune(store)) == 0
        job = await take_job(store)
        assert sum(await prune(store)) == 0
        await end(store, job, Succeeded())
        assert sum(await prune(store, FOREVER)) == 1
        assert await left(store, "a", "kept") == ["kept"]
        *_, event = await store.schedule_events(found.id)
        assert event.detail["note"] == "delete_after_completion"

    @case
    async def test_dispatch_under_way_keeps_its_schedule(
        self, store: Store, clock: ManualClock
    ) -> None:
        posted = a_definition(once(AT), hand_over="http", delete_after_completion=True)
        await put(store, a_write(definition=posted))
        clock.advance(hours=1)
        assert len(await claim_posts(store, "one")) == 1
        assert sum(await prune(store)) == 0
        await fire(store)
        assert sum(await prune(store)) == 0
        await end(store, await take_job(store), Succeeded())
        assert sum(await prune(store)) == 1

    @case
    async def test_schedule_that_runs_again_is_kept(self, store: Store, clock: ManualClock) -> None:
        await run_single(store, clock, delete_after_completion=True)
        later = once(clock.now() + timedelta(days=60))
        again = a_definition(later, delete_after_completion=True)
        await put(store, a_write(definition=again))
        clock.advance(days=40)
        assert sum(await prune(store)) == 0
        assert await left(store, "a") == ["a"]

    @case
    async def test_flag_of_a_finished_schedule_counts_when_it_is_set(
        self, store: Store, clock: ManualClock
    ) -> None:
        trigger = once(AT)
        await run_single(store, clock, trigger=trigger)
        flagged = a_definition(trigger, delete_after_completion=True)
        (written,) = await put(store, a_write(definition=flagged))
        assert written.schedule.state == "finished"
        assert sum(await prune(store)) == 1

    @case
    async def test_schedules_that_the_code_declares_stay(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Static schedules are kept, since the next start would create and run them again."""
        await put(store, a_write(definition=a_definition(once(AT), origin="static")))
        clock.advance(hours=1)
        await store.claim_due()
        clock.advance(days=60)
        assert sum(await prune(store)) == 0
        assert await left(store, "a") == ["a"]
        with pytest.raises(InvalidInput, match="delete_after_completion"):
            a_definition(once(AT), origin="static", delete_after_completion=True)

    @case
    async def test_deleting_goes_in_steps(self, store: Store, clock: ManualClock) -> None:
        """Pruning goes on past schedules that still have a waiting job."""
        busy = a_definition(once(AT), delete_after_completion=True)
        await put(store, a_write("busy-1", busy), a_write("busy-2", busy))
        clock.advance(hours=1)
        await plan(store)
        single = a_definition(once(AT + timedelta(hours=1)), delete_after_completion=True)
        names = [f"{number}" for number in range(5)]
        await put(store, *(a_write(name, single) for name in names))
        clock.advance(hours=1)
        await store.claim_due()  # creates no job
        counts = await prune(store, limit=2)
        assert (sum(counts), counts[0]) == (5, 0)
        assert await left(store, "busy-1", "busy-2", *names) == ["busy-1", "busy-2"]

    @case
    async def test_too_short_a_retention_is_refused(self, store: Store) -> None:
        for wrong in (0, DAY_MS - 1, 1.5):
            with pytest.raises(InvalidInput):
                LedgerRetention(finished_ms=wrong)  # type: ignore[arg-type]
        for cursor in ("other:1", "finished:x/y"):
            with pytest.raises(InvalidInput):
                await store.prune_schedules(KEPT, 10, cursor)
