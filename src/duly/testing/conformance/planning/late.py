"""Lateness: jobs planned ahead that were not queued when due."""

from __future__ import annotations

from typing import Any

from duly.model.schedules import Misfire, Policies
from duly.rules.outcomes import Failed, Released
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import PLAIN, claim_one, claimed, end, reasons
from duly.testing.conformance.planning.samples import FROM_TWO, jobs_of, ledger, line, plan, states
from duly.testing.conformance.samples import HOUR_MS, MINUTE_MS, a_definition, a_write, put
from duly.testing.conformance.suite import StoreConformance, case


async def outage(store: Store, clock: ManualClock, minutes: float, **policies: Any) -> None:
    """Plan minutes 2 to 5 ahead, then advance the clock by `minutes` without promotion."""
    definition = a_definition(FROM_TWO, policies=Policies(**{"overlap": "allow"} | policies))
    await put(store, a_write(definition=definition))
    assert (await plan(store, look_ahead_ms=5 * MINUTE_MS)).planned == 4
    clock.advance(minutes=minutes)


class LateCases(StoreConformance):
    """Cases for promote_due() and claims after an outage of the workers."""

    @case
    async def test_late_jobs_are_missed_but_the_latest(
        self, store: Store, clock: ManualClock
    ) -> None:
        await outage(store, clock, 60)
        assert await store.promote_due() == 4
        assert await states(store) == ["missed", "missed", "missed", "planned"]
        assert [state for state, _ in await line(store)] == [*["cancelled"] * 3, "queued"]
        first, *_ = await ledger(store)
        job, *_ = await jobs_of(store)
        assert (first.reason, first.count, first.is_range) == ("run_once", 1, False)
        assert (first.job_id, first.ended_at_ms) == (job.id, None)
        assert await reasons(store, job.id) == [None, "missed: run_once"]

    @case
    async def test_late_gives_way_to_what_is_on_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        await outage(store, clock, 5.5)
        await store.promote_due()
        assert await states(store) == ["missed", "missed", "missed", "planned"]
        on_time = (await ledger(store))[-1]
        assert (on_time.reason, on_time.state.value) == (None, "planned")

    @case
    async def test_grace_keeps_jobs_on_time(self, store: Store, clock: ManualClock) -> None:
        """A job exactly at the end of its grace is on time."""
        await outage(store, clock, 60, grace_ms=56 * MINUTE_MS)
        await store.promote_due()
        assert await states(store) == ["missed", "missed", "planned", "planned"]

    @case
    async def test_skip_misses_all_that_are_late(self, store: Store, clock: ManualClock) -> None:
        await outage(store, clock, 60, misfire=Misfire("skip"))
        assert await store.promote_due() == 4
        assert await states(store) == ["missed"] * 4
        assert {each.reason for each in await ledger(store)} == {"skip"}

    @case
    async def test_catch_up_keeps_the_newest(self, store: Store, clock: ManualClock) -> None:
        await outage(store, clock, 60, misfire=Misfire("catch_up", limit=2))
        await store.promote_due()
        assert await states(store) == ["missed", "missed", "planned", "planned"]
        assert [state for state, _ in await line(store)][2:] == ["queued", "queued"]

    @case
    async def test_catch_up_keeps_none_that_are_too_old(
        self, store: Store, clock: ManualClock
    ) -> None:
        young = Misfire("catch_up", max_age_ms=55 * MINUTE_MS)
        await outage(store, clock, 60, misfire=young)
        await store.promote_due()
        assert await states(store) == ["missed", "missed", "missed", "planned"]

    @case
    async def test_claims_find_the_late_too(self, store: Store, clock: ManualClock) -> None:
        await outage(store, clock, 60)
        jobs = await jobs_of(store)
        assert await claimed(store) == [jobs[-1].id]
        assert (await states(store))[:3] == ["missed"] * 3

    @case
    async def test_lateness_comes_before_overlap(self, store: Store, clock: ManualClock) -> None:
        """Missed jobs do not count as overlapping."""
        await outage(store, clock, 60, overlap="skip")
        await store.promote_due()
        assert await states(store) == ["missed", "missed", "missed", "planned"]
        assert (await line(store))[-1] == ("queued", False)

    @case
    async def test_late_jobs_that_are_kept_have_turns(
        self, store: Store, clock: ManualClock
    ) -> None:
        misfire = Misfire("catch_up", limit=3)
        await outage(store, clock, 60, overlap="buffer_one", misfire=misfire)
        await store.promote_due()
        assert await states(store) == ["missed", "planned", "planned", "skipped"]
        assert (await line(store))[1:] == [
            ("queued", False),
            ("scheduled", True),
            ("cancelled", False),
        ]

    @case
    async def test_caught_up_jobs_are_never_missed(self, store: Store, clock: ManualClock) -> None:
        """Jobs of catch_up are never missed, since they were late when planned."""
        young = Misfire("catch_up", limit=3, max_age_ms=3 * MINUTE_MS, per_minute=1)
        late = Policies(misfire=young, grace_ms=0)
        await put(store, a_write(definition=a_definition(FROM_TWO, policies=late)))
        clock.advance(minutes=10, seconds=30)
        await plan(store)
        clock.advance(hours=1)
        assert await store.promote_due() == 2
        assert await states(store) == ["missed", "planned", "planned", "planned"]
        assert [waits for _, waits in await line(store)] == [False, True, True]

    @case
    async def test_retries_and_rescues_are_never_late(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write(definition=a_definition(policies=Policies(retry=PLAIN))))
        await plan(store, look_ahead_ms=HOUR_MS)
        clock.advance(hours=1)
        await end(store, await claim_one(store), Failed("no luck"))
        clock.advance(hours=3)
        job = await claim_one(store)
        await end(store, job, Released())
        clock.advance(hours=3)
        assert (await claim_one(store)).id == job.id
        assert await states(store) == ["fired"]

    @case
    async def test_queued_jobs_are_never_late(self, store: Store, clock: ManualClock) -> None:
        """A queued job is never missed, no matter how long it waits for a worker."""
        await outage(store, clock, 5)
        await store.promote_due()
        clock.advance(hours=9)
        assert len(await claimed(store)) == 2
        assert await states(store) == ["missed", "missed", "fired", "fired"]

    @case
    async def test_lateness_of_one_is_not_anothers(self, store: Store, clock: ManualClock) -> None:
        await outage(store, clock, 30)
        other = a_definition(policies=Policies(misfire=Misfire("skip")))
        await put(store, a_write("b", other))
        await plan(store, look_ahead_ms=HOUR_MS)
        clock.advance(minutes=30)
        await store.promote_due()
        assert await states(store, "b") == ["planned"]
        assert (await line(store, "b")) == [("queued", False)]
