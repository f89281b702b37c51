"""Memory stores with one bug each in monitoring reads, each with the case that notices it."""

from dataclasses import replace

from duly.model.jobs import JobId, JobState
from duly.model.stored_jobs import JobFilter
from duly.model.summaries import (
    AuditEntry,
    Backlog,
    DueRows,
    DueSummary,
    EndCount,
    IndexStretch,
    JobPage,
    PlannedFire,
    QueueCount,
    Upcoming,
)
from duly.stores import MemoryStore
from duly.testing.conformance import MonitoringConformance, StoreConformance


class CountsWithoutLimit(MemoryStore):
    async def count_states(self, most: int = 10_000) -> dict[JobState, int]:
        await super().count_states(most)
        return await super().count_states(100_000)


class OmitsEmptyConfiguredQueues(MemoryStore):
    async def count_queues(self, most: int = 10_000, limit: int = 100) -> list[QueueCount]:
        found = await super().count_queues(most, limit)
        return [each for each in found if sum(each[1:5])]


class HidesThatACountIsCapped(MemoryStore):
    async def count_queues(self, most: int = 10_000, limit: int = 100) -> list[QueueCount]:
        return [each._replace(capped=()) for each in await super().count_queues(most, limit)]


class HidesThatMoreIsDue(MemoryStore):
    async def due_summary(self, most: int = 10_000) -> DueSummary:
        return replace(await super().due_summary(most), is_due_capped=False)


class CountsWhatIsLaterAsBacklog(MemoryStore):
    async def count_backlog(self, most: int = 10_000) -> Backlog:
        found = await super().count_backlog(most)
        counts = await self.count_states(most)
        return found._replace(jobs=found.jobs + counts.get(JobState.SCHEDULED, 0))


class CountsEveryEnd(MemoryStore):
    async def count_ends(self, since_ms: int, most: int = 50_000) -> list[EndCount]:
        return await super().count_ends(min(0, since_ms), most)


class ForgetsTheOverdue(MemoryStore):
    async def upcoming(self, until_ms: int, sample: int = 1_000, most: int = 10_000) -> Upcoming:
        found = await super().upcoming(until_ms, sample, most)
        return replace(found, minutes=found.minutes[1:])


class SeesOnlyTheFirstMinute(MemoryStore):
    async def upcoming(self, until_ms: int, sample: int = 1_000, most: int = 10_000) -> Upcoming:
        found = await super().upcoming(until_ms, sample, most)
        return replace(found, minutes=found.minutes[:1]) if found.is_estimate else found


class CallsEveryRowMissing(MemoryStore):
    async def check_index(self, after: str = "", limit: int = 5_000) -> IndexStretch:
        found = await super().check_index(after, limit)
        return found._replace(missing=found.active)


class NeverEndsTheScan(MemoryStore):
    async def check_index(self, after: str = "", limit: int = 5_000) -> IndexStretch:
        found = await super().check_index(after, limit)
        return found._replace(last_id=found.last_id or after)


class LosesTheLastOfAPage(MemoryStore):
    async def search_jobs(
        self,
        which: JobFilter,
        *,
        before: JobId | None = None,
        limit: int = 100,
        look: int = 10_000,
    ) -> JobPage:
        found = await super().search_jobs(which, before=before, limit=limit, look=look)
        return found._replace(jobs=found.jobs[:-1]) if found.next_before else found


class StopsWhereItLooked(MemoryStore):
    async def search_jobs(
        self,
        which: JobFilter,
        *,
        before: JobId | None = None,
        limit: int = 100,
        look: int = 10_000,
    ) -> JobPage:
        newest = {job.id for job in await self.list_jobs(JobFilter(), limit=min(look, 1_000))}
        found = await super().search_jobs(which, before=before, limit=limit, look=look)
        seen = [job for job in found.jobs if job.id in newest]
        return JobPage(seen, seen[-1].id if seen and found.next_before else None)


class NeverSilent(MemoryStore):
    async def due_summary(self, most: int = 10_000) -> DueSummary:
        return replace(await super().due_summary(most), has_active=False)


class BelievesTheCaller(MemoryStore):
    async def append_audit(self, entry: AuditEntry) -> AuditEntry:
        kept = await super().append_audit(entry)
        return replace(kept, at_ms=entry.at_ms)


class ListsEveryTarget(MemoryStore):
    async def list_audit(
        self, *, target: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        return await super().list_audit(target=target and None, before=before, limit=limit)


class OmitsPlannedRuns(MemoryStore):
    async def next_planned(self, limit: int = 10, look: int = 1_000) -> list[PlannedFire]:
        return (await super().next_planned(limit, look))[1:]


class BlamesPlannersForPosts(MemoryStore):
    async def due_summary(self, most: int = 10_000) -> DueSummary:
        found = await super().due_summary(most)
        return replace(found, waiting={"jobs": DueRows(found.due, 0)})


BROKEN_MONITORING: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (broken, MonitoringConformance, name)
    for broken, name in (
        (CountsWithoutLimit, "test_states_are_counted_up_to_a_number"),
        (OmitsPlannedRuns, "test_planned_runs_come_before_their_rows"),
        (BlamesPlannersForPosts, "test_due_rows_are_told_apart_by_who_takes_them"),
        (OmitsEmptyConfiguredQueues, "test_queues_say_what_is_in_them"),
        (HidesThatACountIsCapped, "test_queues_say_which_counts_are_capped"),
        (HidesThatMoreIsDue, "test_glance_sees_what_is_due"),
        (CountsWhatIsLaterAsBacklog, "test_backlog_is_exact_up_to_a_number"),
        (CountsEveryEnd, "test_ends_are_counted_by_minute"),
        (ForgetsTheOverdue, "test_rows_are_counted_by_minute"),
        (SeesOnlyTheFirstMinute, "test_too_many_rows_are_estimated"),
        (CallsEveryRowMissing, "test_schedules_without_rows_are_found_bit_by_bit"),
        (NeverEndsTheScan, "test_schedules_without_rows_are_found_bit_by_bit"),
        (LosesTheLastOfAPage, "test_pages_of_jobs_follow_each_other"),
        (StopsWhereItLooked, "test_a_bounded_look_finds_all_in_time"),
        (NeverSilent, "test_glance_sees_an_emptied_index"),
        (BelievesTheCaller, "test_entries_are_listed_newest_first"),
        (ListsEveryTarget, "test_entries_are_found_by_their_target"),
    )
]
