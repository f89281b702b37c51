"""Ledger queries: the outcome of a time, a summary of a period, and lateness."""

from __future__ import annotations

import pytest

from duly.errors import InvalidInput
from duly.model.claims import ClaimRequest
from duly.model.jobs import JobId, WorkerId
from duly.model.ledger import OccurrenceState
from duly.model.ledger_counts import MAX_LATENESS, Lateness, LedgerCount, LedgerSummary
from duly.model.plans import PAUSED, RUN_NOW
from duly.model.retries import RetryPolicy
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.rules.outcomes import Failed, Succeeded, decide
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import a_job, claim_one, end, insert
from duly.testing.conformance.planning.samples import ledger, plan
from duly.testing.conformance.samples import (
    HOUR_MS,
    HOURLY,
    START_MS,
    a_definition,
    a_write,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case

ID = ScheduleId("id-a")
SKIPPING = Policies(
    misfire=Misfire("skip"), grace_ms=HOUR_MS, overlap="allow", retry=RetryPolicy(attempts=1)
)
S = OccurrenceState


def hour(number: int) -> int:
    """Return the nominal time `number` hours after the start."""
    return START_MS + number * HOUR_MS


async def an_outage(store: Store, clock: ManualClock) -> None:
    """Make hours 1 to 9 missed, and 10 and 11 planned; 12 is next."""
    await put(store, a_write(definition=a_definition(HOURLY, policies=SKIPPING)))
    clock.advance(hours=11)
    await plan(store)


async def end_in_turn(store: Store, clock: ManualClock) -> None:
    """Let hour 10 succeed after 5 more seconds, and hour 11 die 1 second later."""
    clock.advance(seconds=5)
    await end(store, await claim_one(store, limit=1), Succeeded())
    clock.advance(seconds=1)
    await end(store, await claim_one(store, limit=1), Failed("no"))


class LedgerReadCases(StoreConformance):
    """Cases for occurrence_at(), ledger_summary(), recent_lateness(), list_occurrences()."""

    @case
    async def test_time_is_found_by_its_own_row(self, store: Store, clock: ManualClock) -> None:
        await an_outage(store, clock)
        _, tenth, eleventh = await ledger(store)
        assert await store.occurrence_at(ID, hour(10)) == tenth
        assert await store.occurrence_at(ID, hour(11)) == eleventh

    @case
    async def test_swallowed_time_is_found_in_its_run(
        self, store: Store, clock: ManualClock
    ) -> None:
        await an_outage(store, clock)
        missed = (await ledger(store))[0]
        assert (missed.count, missed.state) == (9, S.MISSED)
        for number in (1, 5, 9):
            assert await store.occurrence_at(ID, hour(number)) == missed
        assert await store.occurrence_at(ID, hour(0)) is None
        assert await store.occurrence_at(ID, hour(12)) is None
        assert await store.occurrence_at(ID, hour(10) - 1) is None
        assert await store.occurrence_at(ID, hour(10) + 1) is None
        assert await store.occurrence_at(ScheduleId("nobody"), hour(5)) is None

    @case
    async def test_jobs_know_their_occurrences(self, store: Store, clock: ManualClock) -> None:
        await an_outage(store, clock)
        _, tenth, eleventh = await ledger(store)
        made = [each.job_id for each in (tenth, eleventh) if each.job_id is not None]
        found = await store.occurrences_of_jobs([*made, JobId("job_nobodys")])
        assert found == dict(zip(made, (tenth, eleventh), strict=True))
        assert await store.occurrences_of_jobs(made[:1]) == {made[0]: tenth}
        assert await store.occurrences_of_jobs([]) == {}

    @case
    async def test_pages_of_some_states(self, store: Store, clock: ManualClock) -> None:
        await an_outage(store, clock)
        await end_in_turn(store, clock)

        async def times(*states: OccurrenceState) -> list[int]:
            return [each.nominal_ms for each in await store.list_occurrences(ID, states=states)]

        assert await times(S.MISSED) == [hour(1)]
        assert await times(S.FAILED, S.MISSED) == [hour(11), hour(1)]
        assert await times(S.PLANNED) == []
        assert await times() == []

    @case
    async def test_pages_of_a_window(self, store: Store) -> None:
        await put(store, a_write(definition=a_definition(HOURLY)))
        await plan(store, look_ahead_ms=5 * HOUR_MS)
        page = await store.list_occurrences(ID, since_ms=hour(2), before_ms=hour(4))
        assert [each.nominal_ms for each in page] == [hour(3), hour(2)]
        page = await store.list_occurrences(ID, since_ms=hour(2), limit=3)
        assert [each.nominal_ms for each in page] == [hour(5), hour(4), hour(3)]
        assert await store.list_occurrences(ID, since_ms=hour(6)) == []

    @case
    async def test_summary_counts_times_by_state(self, store: Store, clock: ManualClock) -> None:
        await an_outage(store, clock)
        await end_in_turn(store, clock)
        assert await store.ledger_summary(ID, START_MS, START_MS + 24 * HOUR_MS) == LedgerSummary(
            from_ms=START_MS,
            counts=(
                LedgerCount(S.FAILED, None, 1),
                LedgerCount(S.MISSED, None, 9),
                LedgerCount(S.SUCCEEDED, None, 1),
            ),
            edges=(),
            lateness=(
                Lateness(hour(11) + 6_000, 6_000),
                Lateness(hour(11) + 5_000, HOUR_MS + 5_000),
            ),
        )

    @case
    async def test_summary_leaves_out_what_is_outside(
        self, store: Store, clock: ManualClock
    ) -> None:
        await an_outage(store, clock)
        await end_in_turn(store, clock)
        summary = await store.ledger_summary(ID, hour(10), hour(11))
        assert summary.counts == (LedgerCount(S.SUCCEEDED, None, 1),)
        assert [each.late_ms for each in summary.lateness] == [HOUR_MS + 5_000]
        nobody = await store.ledger_summary(ScheduleId("nobody"), START_MS, hour(60))
        assert nobody == LedgerSummary(START_MS, (), (), ())

    @case
    async def test_runs_over_an_end_of_the_window_are_given_whole(
        self, store: Store, clock: ManualClock
    ) -> None:
        await an_outage(store, clock)
        missed = (await ledger(store))[0]
        begun = LedgerCount(S.PLANNED, None, 1)
        for from_ms, to_ms, edges, counts in (
            (hour(1), hour(10), (), (LedgerCount(S.MISSED, None, 9),)),
            (hour(2), hour(10), (missed,), ()),
            (hour(9), hour(11), (missed,), (begun,)),
            (hour(9) + 1, hour(11), (), (begun,)),
            (hour(0), hour(9), (missed,), ()),
            (hour(4), hour(5), (missed,), ()),
            (hour(0), hour(1), (), ()),
        ):
            summary = await store.ledger_summary(ID, from_ms, to_ms)
            assert (summary.edges, summary.counts) == (edges, counts), (from_ms, to_ms)

    @case
    async def test_summary_tells_extras_and_pauses_apart(
        self, store: Store, clock: ManualClock
    ) -> None:
        """The summary counts times missed in a pause apart from runs requested during it."""
        on, off = (a_definition(HOURLY, policies=SKIPPING, enabled=each) for each in (True, False))
        await put(store, a_write(definition=on))
        await put(store, a_write(definition=off))
        clock.advance(hours=2, minutes=30)
        for request in ("one", "two"):
            assert await store.run_now(ID, request) is not None
        clock.advance(hours=3)
        await put(store, a_write(definition=on))
        summary = await store.ledger_summary(ID, START_MS, hour(5) + HOUR_MS // 2)
        assert summary.counts == (
            LedgerCount(S.MISSED, PAUSED, 5),
            LedgerCount(S.PLANNED, RUN_NOW, 2),
        )
        swallowed = await store.occurrence_at(ID, hour(4))
        assert swallowed is not None
        assert (swallowed.state, swallowed.reason) == (S.MISSED, PAUSED)

    @case
    async def test_window_of_nothing_is_refused(self, store: Store) -> None:
        for from_ms, to_ms in ((START_MS, START_MS), (START_MS + 1, START_MS)):
            with pytest.raises(InvalidInput, match="from must be before to"):
                await store.ledger_summary(ID, from_ms, to_ms)

    @case
    async def test_lateness_of_what_ended_last(self, store: Store, clock: ManualClock) -> None:
        await an_outage(store, clock)
        assert await store.recent_lateness() == []
        await end_in_turn(store, clock)
        last = Lateness(hour(11) + 6_000, 6_000)
        first = Lateness(hour(11) + 5_000, HOUR_MS + 5_000)
        assert await store.recent_lateness() == [last, first]
        assert await store.recent_lateness(1) == [last]

    @case
    async def test_lateness_is_of_schedules_alone(self, store: Store) -> None:
        await insert(store, a_job("plain"))
        request = ClaimRequest(worker=WorkerId("w"), limit=10)
        claims = await store.claim_jobs(request)
        await store.finish([decide(job, Succeeded()) for job in claims.jobs])
        assert len(claims.jobs) == 1
        assert await store.recent_lateness() == []
        for limit in (0, MAX_LATENESS + 1):
            with pytest.raises(InvalidInput, match="limit"):
                await store.recent_lateness(limit)
