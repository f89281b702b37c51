"""Reading jobs: pages, filters, counts, and their newest events and attempts."""

from __future__ import annotations

import pytest

from duly.errors import InvalidInput
from duly.model.events import Attempt, JobEvent
from duly.model.index import MAX_PAGE
from duly.model.jobs import ALL_QUEUES, JobId, JobState
from duly.model.queues import JobCount, QueueSettings
from duly.model.stored_jobs import JobFilter
from duly.rules.outcomes import LEASE_EXPIRED, Failed, Released, Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import (
    ADA,
    BOB,
    LEASE_MS,
    a_job,
    bring_to,
    claim_one,
    claimed,
    end,
    insert,
)
from duly.testing.conformance.samples import HOUR_MS, START_MS
from duly.testing.conformance.suite import StoreConformance, case

A = JobId("a")


async def listed(store: Store, which: JobFilter) -> list[str]:
    """Return the ids of jobs that match a filter."""
    return [job.id for job in await store.list_jobs(which)]


def _long_life() -> list[JobEvent]:
    """Return the events of a job that failed, was lost, succeeded and was deleted."""
    lost_at_ms = START_MS + 3_000 + LEASE_MS
    s = JobState
    return [
        JobEvent(A, 1, START_MS, s.QUEUED, 0, None, None),
        JobEvent(A, 2, START_MS + 1_000, s.PROCESSING, 1, ADA, None),
        JobEvent(A, 3, START_MS + 2_000, s.FAILED, 1, None, "no luck", "failed"),
        JobEvent(A, 4, START_MS + 2_000, s.RETRYING, 1, None, "no luck", "failed"),
        JobEvent(A, 5, START_MS + 3_000, s.QUEUED, 1, None, None),
        JobEvent(A, 6, START_MS + 3_000, s.PROCESSING, 2, BOB, None),
        JobEvent(A, 7, lost_at_ms, s.QUEUED, 2, None, LEASE_EXPIRED, "lost"),
        JobEvent(A, 8, lost_at_ms, s.PROCESSING, 3, ADA, None),
        JobEvent(A, 9, lost_at_ms + 1_000, s.SUCCEEDED, 3, None, None),
        JobEvent(A, 10, lost_at_ms + 2_000, s.DELETED, 3, "ops", "old"),
    ]


class JobReadCases(StoreConformance):
    """Cases for get_job(), list_jobs(), count_jobs(), job_events(), job_attempts(), and queues."""

    @case
    @pytest.mark.parametrize("name", ["a\0b", "a\ud800"], ids=["nul", "half"])
    async def test_what_no_id_can_be_is_refused(self, store: Store, name: str) -> None:
        await insert(store, a_job())
        verbs = (store.get_job, store.cancel_job, store.retry_job, store.delete_job)
        for verb in (*verbs, store.job_events, store.job_attempts):
            with pytest.raises(InvalidInput, match="job_id"):
                await verb(JobId(name))

    @case
    async def test_absent_jobs_are_none(self, store: Store) -> None:
        assert await store.get_job(JobId("nobody")) is None
        assert await store.job_events(JobId("nobody")) == []
        assert await store.job_attempts(JobId("nobody")) == []
        assert await store.list_jobs(JobFilter()) == []
        assert await store.count_jobs() == []

    @case
    async def test_pages_go_from_the_newest(self, store: Store) -> None:
        await insert(store, *(a_job(f"{number}") for number in range(7)))
        pages: list[str] = []
        before: JobId | None = None
        while page := await store.list_jobs(JobFilter(), before=before, limit=3):
            pages.append("".join(job.id for job in page))
            before = page[-1].id
        assert pages == ["654", "321", "0"]

    @case
    async def test_pages_are_whole_jobs(self, store: Store) -> None:
        job = await bring_to(store, JobState.DEAD, input='{"a": 1}')
        assert await store.list_jobs(JobFilter()) == [job]

    @case
    async def test_filters(self, store: Store) -> None:
        await insert(store, a_job("a", queue="mail", workspace="acme", action="x.a"))
        await insert(store, a_job("b", queue="mail", schedule_id="sch_1"))
        await insert(store, a_job("c", correlation_id="r", workspace="acme"))
        await insert(store, a_job("d", run_at_ms=START_MS + HOUR_MS))
        assert await claimed(store) == ["c"]
        assert await listed(store, JobFilter(queue="mail")) == ["b", "a"]
        assert await listed(store, JobFilter(workspace="acme")) == ["c", "a"]
        assert await listed(store, JobFilter(workspace="acme", queue="mail")) == ["a"]
        assert await listed(store, JobFilter(action="x.a")) == ["a"]
        assert await listed(store, JobFilter(schedule_id="sch_1")) == ["b"]
        assert await listed(store, JobFilter(correlation_id="r")) == ["c"]
        assert await listed(store, JobFilter(state=JobState.PROCESSING)) == ["c"]
        assert await listed(store, JobFilter(state=JobState.QUEUED)) == ["b", "a"]
        assert await listed(store, JobFilter(state=JobState.DEAD)) == []
        found = await store.list_jobs(JobFilter(queue="mail"), before=JobId("b"))
        assert [job.id for job in found] == ["a"]

    @case
    async def test_counts_by_queue_and_state(self, store: Store) -> None:
        await bring_to(store, JobState.SUCCEEDED, "a")
        await bring_to(store, JobState.SUCCEEDED, "b")
        await bring_to(store, JobState.DEAD, "c")
        await insert(store, a_job("d", queue="mail"), a_job("e", queue="archive"))
        assert await store.count_jobs() == [
            JobCount("archive", JobState.QUEUED, 1),
            JobCount("default", JobState.DEAD, 1),
            JobCount("default", JobState.SUCCEEDED, 2),
            JobCount("mail", JobState.QUEUED, 1),
        ]

    @case
    async def test_events_of_one_millisecond_are_in_order(self, store: Store) -> None:
        await insert(store, a_job())
        for _ in range(12):
            await end(store, await claim_one(store), Released())
        events = await store.job_events(JobId("a"))
        assert [each.seq for each in events] == list(range(1, 26))
        assert {each.at_ms for each in events} == {START_MS}
        assert [each.state.value for each in events] == ["queued", *["processing", "queued"] * 12]

    @case
    async def test_newest_events_and_attempts_are_given(self, store: Store) -> None:
        await insert(store, a_job())
        for _ in range(5):
            await end(store, await claim_one(store), Released())
        assert [each.seq for each in await store.job_events(JobId("a"), limit=3)] == [9, 10, 11]
        attempts = await store.job_attempts(JobId("a"), limit=2)
        assert [each.number for each in attempts] == [4, 5]

    @case
    async def test_a_long_life_is_told_whole(self, store: Store, clock: ManualClock) -> None:
        """The history of a failed, lost, succeeded and deleted job is complete after each step."""
        told = _long_life()
        await insert(store, a_job())
        seen = [await store.job_events(A)]
        clock.advance(seconds=1)
        job = await claim_one(store, ADA)
        seen.append(await store.job_events(A))
        clock.advance(seconds=1)
        await end(store, job, Failed("no luck"))
        seen.append(await store.job_events(A))
        clock.advance(seconds=1)
        await claim_one(store, BOB, lease_ms=LEASE_MS)
        seen.append(await store.job_events(A))
        clock.advance(milliseconds=LEASE_MS)
        job = await claim_one(store, ADA)
        seen.append(await store.job_events(A))
        clock.advance(seconds=1)
        await end(store, job, Succeeded())
        seen.append(await store.job_events(A))
        clock.advance(seconds=1)
        await store.delete_job(A, by="ops", reason="old")
        seen.append(await store.job_events(A))
        assert seen == [told[:known] for known in (1, 2, 4, 6, 8, 9, 10)]
        lost_at_ms = START_MS + 3_000 + LEASE_MS
        assert await store.job_attempts(A) == [
            Attempt(A, 1, ADA, START_MS + 1_000, START_MS + 2_000, "failed", "no luck"),
            Attempt(A, 2, BOB, START_MS + 3_000, lost_at_ms, "lost", LEASE_EXPIRED),
            Attempt(A, 3, ADA, lost_at_ms, lost_at_ms + 1_000, "succeeded", None),
        ]

    @case
    async def test_pages_of_jobs_have_bounds(self, store: Store) -> None:
        for limit in (0, MAX_PAGE + 1):
            with pytest.raises(InvalidInput):
                await store.list_jobs(JobFilter(), limit=limit)
            with pytest.raises(InvalidInput):
                await store.job_events(JobId("a"), limit)
            with pytest.raises(InvalidInput):
                await store.job_attempts(JobId("a"), limit)

    @case
    async def test_queues_are_as_decided_last(self, store: Store) -> None:
        assert await store.list_queues() == []
        mail = QueueSettings("mail", is_paused=True, note="repairs", job_limit=3, workspace_limit=2)
        await store.set_queue(mail)
        await store.set_queue(QueueSettings("default", job_limit=1))
        assert await store.list_queues() == [QueueSettings("default", job_limit=1), mail]
        await store.set_queue(QueueSettings("default"))
        assert await store.list_queues() == [QueueSettings("default"), mail]

    @case
    async def test_names_that_no_queue_can_have_are_refused(self, store: Store) -> None:
        for name in ("", "*", "*mail", "tab\there", "nul\0", "x" * 256):
            with pytest.raises(InvalidInput, match="queue"):
                await store.set_queue(QueueSettings(name))
        assert await store.list_queues() == []

    @case
    async def test_settings_of_all_queues_are_listed_and_are_no_queue(self, store: Store) -> None:
        everything = QueueSettings(ALL_QUEUES, is_paused=True, note="repairs")
        await store.set_queue(everything)
        await store.set_queue(QueueSettings("mail", job_limit=1))
        assert await store.list_queues() == [everything, QueueSettings("mail", job_limit=1)]
        assert [each.queue for each in await store.count_queues()] == ["mail"]
