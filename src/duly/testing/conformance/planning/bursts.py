"""Bursts: enough rows at once for a store to use its fast path.

The fast path keeps every promise of the engine: texts are stored unchanged, a time in the ledger
gets no second job, running markers are respected, and an invalid row does not block others.
"""

from __future__ import annotations

import json
from itertools import cycle

from duly.model.events import JobEvent
from duly.model.jobs import JobState
from duly.model.retries import RetryPolicy
from duly.model.run_options import options_of
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, Policies
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claims, end
from duly.testing.conformance.planning.samples import (
    jobs_of,
    ledger,
    next_hour,
    only_occurrence,
    plan,
    states,
)
from duly.testing.conformance.samples import (
    FLOW,
    HOUR_MS,
    HOURLY,
    START_MS,
    a_definition,
    a_key,
    a_write,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case

COUNT = 120
TEXTS = (
    "plain",
    "a\ttab",
    "two\nlines\r\n",
    "back\\slash",
    "\\N",
    '"quoted"',
    "{a,b}",
    "Ж ü 🙂",
    "",
)
POLICIES = (
    Policies(),
    Policies(overlap="allow", priority=7),
    Policies(overlap="buffer_one", timeout_ms=5_000),
    Policies(retry=RetryPolicy(attempts=2, backoff="none"), delivery="at_most_once"),
)
NAMES = [f"{number:03}" for number in range(COUNT)]


def various() -> list[ScheduleWrite]:
    """Return schedules that have only their time in common."""
    texts, policies, actions = cycle(TEXTS), cycle(POLICIES), cycle(("send", "print", "count"))
    return [
        a_write(
            name,
            Definition(
                HOURLY, next(actions), input={"name": name, "text": next(texts)}, policies=each
            ),
            # The first and last scope are equal: comparing only these must not suffice.
            key=ScheduleKey(FLOW, f"user:{number % 17}\\{number % 7}", name),
        )
        for number, (name, each) in enumerate(zip(NAMES, policies, strict=False))
    ]


class BurstCases(StoreConformance):
    """Cases for plan_occurrences() of many rows."""

    @case
    async def test_every_job_of_a_burst_is_its_own(self, store: Store, clock: ManualClock) -> None:
        writes = various()
        await put(store, *writes)
        report = await next_hour(store, clock)
        assert (report.rows, report.planned) == (COUNT, COUNT)
        for write in writes:
            asked, policies, name = write.definition, write.definition.policies, write.key.name
            (job,) = await jobs_of(store, name)
            assert json.loads(job.input) == asked.input
            assert (job.action, job.scope) == (f"{FLOW}.{asked.action}", write.key.scope)
            assert (job.state, job.run_at_ms) == (JobState.QUEUED, START_MS + HOUR_MS)
            # These actions declare nothing, so the default policies apply.
            options = options_of(policies)
            assert (job.priority, job.timeout_ms) == (policies.priority, options.timeout_ms)
            assert (job.retry, job.delivery) == (options.retry, options.delivery)
            assert job.turn == (None if policies.overlap == "allow" else "asks")
            first = JobEvent(job.id, 1, START_MS + HOUR_MS, JobState.QUEUED, 0, None, None)
            assert await store.job_events(job.id) == [first]
            occurrence = await only_occurrence(store, name)
            assert (occurrence.job_id, occurrence.scope) == (job.id, write.key.scope)
            assert (occurrence.name, occurrence.nominal_ms) == (name, START_MS + HOUR_MS)

    @case
    async def test_burst_makes_no_second_job(self, store: Store, clock: ManualClock) -> None:
        """Rows set back to a time in the ledger get no second job."""
        often = a_definition(policies=Policies(overlap="allow"))
        written = await put(store, *(a_write(name, often) for name in NAMES))
        clock.advance(hours=1)
        assert (await plan(store, limit=COUNT // 2)).planned == COUNT // 2
        for each in written[: COUNT // 2]:
            assert each.row is not None
            await store.remove(a_key(each.row.name))
            await store.upsert(each.row)
        report = await plan(store)
        assert (report.rows, report.planned) == (COUNT, COUNT // 2)
        for name in NAMES[::5]:
            (job,) = await jobs_of(store, name)
            assert (await only_occurrence(store, name)).job_id == job.id

    @case
    async def test_burst_asks_for_every_marker(self, store: Store, clock: ManualClock) -> None:
        """Each row respects its running marker: some earlier runs have ended, others have not."""
        buffered = a_definition(policies=Policies(overlap="buffer_one"))
        await put(store, *(a_write(name) for name in NAMES[: COUNT // 2]))
        await put(store, *(a_write(name, buffered) for name in NAMES[COUNT // 2 :]))
        await next_hour(store, clock)
        taken = (await claims(store, limit=COUNT)).jobs
        for job in taken[::2]:
            await end(store, job, Succeeded())
        ended = {job.schedule_id for job in taken[::2]}
        report = await next_hour(store, clock)
        assert (report.planned, report.skipped) == (COUNT * 3 // 4, COUNT // 4)
        for number, name in enumerate(NAMES):
            jobs = await jobs_of(store, name)
            if f"id-{name}" in ended:
                assert [(job.state.value, job.in_line) for job in jobs[1:]] == [("queued", False)]
            elif number < COUNT // 2:
                second = (await ledger(store, name))[1]
                assert (second.state.value, second.job_id) == ("skipped", None)
                assert str(jobs[0].id) in (second.reason or "")
            else:
                assert [(job.state.value, job.in_line) for job in jobs[1:]] == [("scheduled", True)]

    @case
    async def test_burst_goes_past_a_bad_row(self, store: Store, clock: ManualClock) -> None:
        """A row with a timeout that no job may have is quarantined; the others are planned."""
        bad = a_definition(policies=Policies(timeout_ms=300 * 24 * HOUR_MS))
        writes = [a_write(name, bad if name == "100" else None) for name in NAMES]
        await put(store, *writes)
        report = await next_hour(store, clock)
        assert (report.planned, report.quarantined) == (COUNT - 1, 1)
        assert await states(store, "100") == ["quarantined"]
        for name in ("099", "101"):
            (job,) = await jobs_of(store, name)
            assert (await only_occurrence(store, name)).job_id == job.id
        assert (await plan(store)).rows == 0
