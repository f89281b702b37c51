"""The conformance suite for monitoring reads: bounded counts, completions, upcoming, audit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from duly.errors import InvalidInput
from duly.model.jobs import Job, JobState
from duly.model.queues import QueueSettings
from duly.model.stored_jobs import JobFilter
from duly.model.summaries import (
    MAX_AUDIT_TEXT,
    AuditEntry,
    Backlog,
    EndCount,
    IndexStretch,
    JobPage,
    QueueCount,
    Upcoming,
    WorkspaceCount,
)
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import a_job, bring_to, insert
from duly.testing.conformance.samples import (
    HOUR_MS,
    MINUTE_MS,
    START_MS,
    a_definition,
    a_row,
    a_write,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import cron, every, once


class CountCases(StoreConformance):
    """Cases for count_states(), count_queues(), count_workspaces() and count_ends()."""

    @case
    async def test_states_are_counted_up_to_a_number(self, store: Store) -> None:
        assert await store.count_states() == {}
        for state in JobState:
            if state is not JobState.FAILED:
                await bring_to(store, state, state.value, queue=f"of-{state}")
        await insert(store, *(a_job(f"more-{number}") for number in range(4)))
        counts = await store.count_states()
        assert counts.pop(JobState.QUEUED) == 5
        assert counts == dict.fromkeys(
            sorted(set(JobState) - {JobState.QUEUED, JobState.FAILED}), 1
        )
        assert (await store.count_states(3))[JobState.QUEUED] == 3

    @case
    async def test_who_has_ended_and_goes_on_is_counted_there(self, store: Store) -> None:
        ended = [await bring_to(store, JobState.DEAD, name) for name in "abc"]
        for name in "de":
            await bring_to(store, JobState.SUCCEEDED, name, scope="user:ada")
        await store.retry_job(ended[0].id)
        await store.delete_job(ended[1].id)
        await store.delete_job(ended[1].id)
        wanted = {JobState.QUEUED: 1, JobState.DEAD: 1, JobState.DELETED: 1}
        assert await store.count_states() == wanted | {JobState.SUCCEEDED: 2}
        erased = await store.erase("user:ada")
        while erased.cursor is not None:
            erased = await store.erase("user:ada", cursor=erased.cursor)
        assert await store.count_states() == wanted
        assert await store.count_ends(START_MS) == [EndCount(START_MS, JobState.DEAD, 1)]

    @case
    async def test_queues_say_what_is_in_them(self, store: Store, clock: ManualClock) -> None:
        assert await store.count_queues() == []
        await bring_to(store, JobState.DEAD, "d1", queue="mail")
        await bring_to(store, JobState.SUCCEEDED, "s1", queue="gone")
        await bring_to(store, JobState.RETRYING, "r1", queue="mail")
        await bring_to(store, JobState.SCHEDULED, "l1", queue="later")
        await bring_to(store, JobState.PROCESSING, "p1", queue="busy")
        await insert(store, *(a_job(f"q{number}", queue="mail") for number in range(4)))
        await store.set_queue(QueueSettings("spoken", is_paused=True))
        clock.advance(minutes=1)
        await insert(store, a_job("first", queue="mail", priority=9))
        moved_ms = START_MS + MINUTE_MS
        wanted = [
            QueueCount("busy", 0, 0, 1, 0, None),
            QueueCount("later", 0, 1, 0, 0, None),
            QueueCount("mail", 5, 1, 0, 1, moved_ms),
            QueueCount("spoken", 0, 0, 0, 0, None),
        ]
        assert await store.count_queues() == wanted
        assert await store.count_queues(limit=2) == wanted[:2]
        mail = (await store.count_queues(most=3))[2]
        assert (mail.queued, mail.capped) == (3, ("queued",))

    @case
    async def test_queues_say_which_counts_are_capped(
        self, store: Store, clock: ManualClock
    ) -> None:
        """The cap on running and dead jobs spans all queues, and queues report capped counts."""
        for number, queue in enumerate(("one", "two", "one")):
            await bring_to(store, JobState.DEAD, f"d{number}", queue=queue)
            clock.advance(minutes=1)
        await bring_to(store, JobState.SCHEDULED, "later", queue="two")
        exact = [
            QueueCount("one", 0, 0, 0, 2, None),
            QueueCount("two", 0, 1, 0, 1, None),
        ]
        assert await store.count_queues(most=4) == exact
        assert await store.count_queues(most=3) == [
            each._replace(capped=("dead",)) for each in exact
        ]
        first, second = await store.count_queues(most=2)
        assert (first.dead, first.capped) == (1, ("dead",))
        assert (second.dead, second.capped) == (1, ("dead",))
        first, second = await store.count_queues(most=1)
        assert (first.dead, first.capped) == (1, ("dead",))
        assert (second.later, second.capped) == (1, ("later", "dead"))

    @case
    async def test_backlog_is_exact_up_to_a_number(self, store: Store) -> None:
        """The backlog of all queues is exact up to a limit, and a marked estimate above it."""
        assert await store.count_backlog() == Backlog(0, is_estimate=False)
        for state in JobState:
            if state not in (JobState.FAILED, JobState.QUEUED):
                await bring_to(store, state, state.value, queue=f"of-{state}")
        await insert(store, *(a_job(f"a{n}", queue=f"queue-{n % 2}") for n in range(5)))
        assert await store.count_backlog() == Backlog(5, is_estimate=False)
        found = await store.count_backlog(2)
        assert found.jobs >= 2
        assert found.is_estimate or found.jobs == 5

    @case
    async def test_workspaces_say_what_waits_for_them(self, store: Store) -> None:
        assert await store.count_workspaces("default") == []
        await insert(store, a_job("x", workspace="zoo", queue="other"))
        await insert(store, *(a_job(f"a{n}", workspace="acme") for n in range(3)))
        await insert(store, a_job("b", workspace="beta"))
        await insert(store, a_job("l", workspace="late", run_at_ms=START_MS + HOUR_MS))
        wanted = [WorkspaceCount("acme", 3, START_MS), WorkspaceCount("beta", 1, START_MS)]
        assert await store.count_workspaces("default") == wanted
        assert await store.count_workspaces("default", limit=1) == wanted[:1]
        assert (await store.count_workspaces("default", most=2))[0].queued == 2

    @case
    async def test_ends_are_counted_by_minute(self, store: Store, clock: ManualClock) -> None:
        await bring_to(store, JobState.SUCCEEDED, "early")
        clock.advance(minutes=2, seconds=59)
        for name in "abc":
            await bring_to(store, JobState.SUCCEEDED, name)
        await bring_to(store, JobState.DEAD, "d")
        await bring_to(store, JobState.RETRYING, "r", queue="other")
        clock.advance(seconds=1)
        await bring_to(store, JobState.CANCELLED, "e")
        second_ms, third_ms = START_MS + 2 * MINUTE_MS, START_MS + 3 * MINUTE_MS
        ends = [
            EndCount(second_ms, JobState.DEAD, 1),
            EndCount(second_ms, JobState.SUCCEEDED, 3),
            EndCount(third_ms, JobState.CANCELLED, 1),
        ]
        assert await store.count_ends(START_MS + 1) == ends
        first = EndCount(START_MS, JobState.SUCCEEDED, 1)
        assert await store.count_ends(START_MS) == [first, *ends]
        assert await store.count_ends(START_MS, most=3) == ends

    @case
    async def test_counts_have_bounds(self, store: Store) -> None:
        reads: list[Callable[[int], Awaitable[object]]] = [
            store.count_states,
            store.count_queues,
            store.count_backlog,
            store.due_summary,
            lambda most: store.count_workspaces("a", most),
            lambda most: store.count_ends(START_MS, most),
            lambda most: store.upcoming(START_MS, most),
            lambda most: store.upcoming(START_MS, most=most),
            lambda most: store.check_index(limit=most),
            lambda most: store.search_jobs(JobFilter(), look=most),
        ]
        for read in reads:
            for most in (0, 100_001):
                with pytest.raises(InvalidInput):
                    await read(most)


class SearchCases(StoreConformance):
    """Cases for search_jobs()."""

    @case
    async def test_pages_of_jobs_follow_each_other(self, store: Store) -> None:
        assert await store.search_jobs(JobFilter()) == JobPage([], None)
        await insert(store, *(a_job(f"j{n}", queue="mail" if n % 3 else "rare") for n in range(9)))
        for which in (
            JobFilter(),
            JobFilter(queue="mail"),
            JobFilter(state=JobState.QUEUED, queue="rare"),
            JobFilter(state=JobState.DEAD),
        ):
            whole = await store.list_jobs(which)
            assert await _all_pages(store, which, limit=2) == whole
            page = await store.search_jobs(which, limit=len(whole) or 1)
            assert page == JobPage(whole, None)

    @case
    async def test_a_bounded_look_finds_all_in_time(self, store: Store) -> None:
        for state in JobState:
            if state is not JobState.FAILED:
                await bring_to(store, state, f"a-{state}", queue=f"of-{state}")
        await insert(store, *(a_job(f"b{n}", workspace=f"w{n % 5}") for n in range(20)))
        filters = [JobFilter(state=state) for state in JobState]
        filters += [JobFilter(workspace="w3"), JobFilter(queue=f"of-{JobState.DEAD}")]
        filters += [JobFilter(state=JobState.RETRYING, queue="default"), JobFilter(action="a.b")]
        for which in filters:
            whole = await store.list_jobs(which)
            assert await _all_pages(store, which, limit=3, look=4) == whole, which


async def _all_pages(store: Store, which: JobFilter, **bounds: int) -> list[Job]:
    found: list[Job] = []
    before = None
    for _ in range(40):
        page = await store.search_jobs(which, before=before, **bounds)
        assert len(page.jobs) <= bounds["limit"]
        found += page.jobs
        if page.next_before is None:
            return found
        assert before is None or page.next_before < before
        before = page.next_before
    raise AssertionError("no last page")


class UpcomingCases(StoreConformance):
    """Cases for upcoming(), check_index() and due_summary()."""

    @case
    async def test_rows_are_counted_by_minute(self, store: Store) -> None:
        assert await store.upcoming(START_MS) == Upcoming(START_MS, [], [])
        hourly = a_definition(cron("0 * * * *"))
        await put(store, *(a_write(name, hourly) for name in "abc"))
        await put(store, a_write("d", a_definition(cron("30 12 * * *"))))
        await put(store, a_write("z", a_definition(cron("0 9 1 1 *"))))
        found = await store.upcoming(START_MS + HOUR_MS + 1)
        half_ms = START_MS + HOUR_MS // 2
        assert found.minutes == [(half_ms, 1), (START_MS + HOUR_MS, 3)]
        assert (found.rows, found.share, found.is_estimate) == (4, 1, False)
        assert [row.name for row in found.sample] == ["d", "a", "b", "c"]
        assert (await store.upcoming(START_MS + HOUR_MS)).rows == 1

    @case
    async def test_of_many_rows_some_are_given(self, store: Store) -> None:
        hourly = a_definition(cron("0 * * * *"))
        await put(store, *(a_write(f"{number:02}", hourly) for number in range(40)))
        found = await store.upcoming(START_MS + 2 * HOUR_MS, sample=10)
        assert (found.rows, found.share, found.is_estimate) == (40, 4, False)
        assert len({row.name for row in found.sample}) == 10

    @case
    async def test_too_many_rows_are_estimated(self, store: Store) -> None:
        """Estimates are not biased when every second row fires at another time."""
        odd, even = a_definition(cron("0 * * * *")), a_definition(cron("30 * * * *"))
        named = (a_write(f"{number:03}", odd if number % 2 else even) for number in range(400))
        await put(store, *named)
        found = await store.upcoming(START_MS + 2 * HOUR_MS, sample=50, most=200)
        assert found.is_estimate
        assert 320 <= found.rows <= 480
        assert [ms for ms, _ in found.minutes] == [START_MS + HOUR_MS // 2, START_MS + HOUR_MS]
        assert all(100 <= rows <= 300 for _, rows in found.minutes)
        assert 20 <= len(found.sample) <= 50
        assert 10 <= sum(int(row.name) % 2 for row in found.sample) <= len(found.sample) - 10
        exact = await store.upcoming(START_MS + 2 * HOUR_MS, most=400)
        assert (exact.rows, exact.is_estimate) == (400, False)

    @case
    async def test_schedules_without_rows_are_found_bit_by_bit(self, store: Store) -> None:
        assert await store.check_index() == IndexStretch(0, 0, None)
        await put(store, *(a_write(name) for name in "abcde"))
        await put(store, a_write("p", a_definition(enabled=False)))
        assert await store.check_index() == IndexStretch(5, 0, None)
        for name in "bd":
            await store.remove(a_write(name).key)
        assert await store.check_index() == IndexStretch(5, 2, None)
        found = [await store.check_index(limit=2)]
        while (after := found[-1].last_id) is not None:
            found.append(await store.check_index(after, 2))
            assert len(found) <= 4
        assert found[-1] == IndexStretch(0, 0, None)
        assert (sum(each.active for each in found), sum(each.missing for each in found)) == (5, 2)

    @case
    async def test_a_check_of_writing_changes_nothing(self, store: Store) -> None:
        await put(store, a_write())
        before = await store.due_summary()
        for _ in range(2):
            await store.check_writable()
        assert await store.due_summary() == before

    @case
    async def test_no_snapshot_is_held_for_long(self, store: Store) -> None:
        assert 0 <= await store.oldest_snapshot_ms() < HOUR_MS

    @case
    async def test_glance_sees_what_is_due(self, store: Store, clock: ManualClock) -> None:
        empty = await store.due_summary()
        assert (empty.has_active, empty.has_rows, empty.due, empty.is_silent) == (
            False,
            False,
            0,
            False,
        )
        hourly = a_definition(cron("0 * * * *"))
        await put(store, *(a_write(name, hourly) for name in "abc"))
        idle = await store.due_summary()
        assert (idle.has_active, idle.has_rows, idle.due, list(idle.oldest)) == (True, True, 0, [])
        clock.advance(hours=1)
        busy = await store.due_summary()
        assert (busy.now_ms, busy.due) == (START_MS + HOUR_MS, 3)
        assert [row.name for row in busy.oldest] == ["a", "b", "c"]
        assert not busy.is_due_capped
        few = await store.due_summary(most=2)
        assert (few.due, few.is_due_capped) == (2, True)

    @case
    async def test_planned_runs_come_before_their_rows(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Planned jobs of schedules are listed by run time; their rows have advanced past them."""
        assert await store.next_planned() == []
        often = a_write("often", a_definition(every(minutes=1, start_at=START)))
        soon = a_write("soon", a_definition(once(START + timedelta(seconds=30))))
        await put(store, often, soon, a_write("later"))
        await insert(store, a_job("plain", run_at_ms=START_MS + 1_000))
        expected = [("id-soon", START_MS + 30_000), ("id-often", START_MS + MINUTE_MS)]
        assert await store.next_planned() == expected
        assert await store.next_planned(limit=1) == expected[:1]
        clock.advance(seconds=45)
        await store.promote_due()
        assert await store.next_planned() == expected[1:]

    @case
    async def test_due_rows_are_told_apart_by_who_takes_them(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Due rows are counted separately for planner and tick; rows of callers are not counted."""
        await put(store, a_write("job"), a_write("post", a_definition(hand_over="http")))
        await store.upsert(a_row("own", at=START, hand_over="external"))
        clock.advance(hours=2)
        summary = await store.due_summary()
        oldest_ms = START_MS + HOUR_MS
        assert dict(summary.waiting) == {"jobs": (1, oldest_ms), "http": (1, oldest_ms)}
        assert (summary.due, sorted(row.name for row in summary.oldest)) == (2, ["job", "post"])
        health = await store.index_health()
        assert (health.due, health.oldest_due_ms) == (1, oldest_ms)
        assert (health.posts_due, health.oldest_post_ms) == (1, oldest_ms)

    @case
    async def test_glance_sees_an_emptied_index(self, store: Store) -> None:
        (written,) = await put(store, a_write())
        assert written.row is not None
        await store.remove(a_write().key)
        assert (await store.due_summary()).is_silent
        await store.delete_schedule(a_write().key)
        assert not (await store.due_summary()).is_silent

    @case
    async def test_paused_schedules_are_not_silent(self, store: Store) -> None:
        await put(store, a_write("a", a_definition(enabled=False)))
        assert not (await store.due_summary()).is_silent


class AuditCases(StoreConformance):
    """Cases for append_audit() and list_audit()."""

    @case
    async def test_entries_are_listed_newest_first(self, store: Store, clock: ManualClock) -> None:
        assert await store.list_audit() == []
        first = await store.append_audit(AuditEntry("ada", "job.retry", "job:1", seq=9, at_ms=1))
        clock.advance(minutes=1)
        refused = AuditEntry("bob", "job.cancel", "job:2", "refused", "it has ended")
        second = await store.append_audit(refused)
        assert (first.by, first.action, first.target, first.outcome) == (
            "ada",
            "job.retry",
            "job:1",
            "done",
        )
        assert (first.at_ms, second.at_ms) == (START_MS, START_MS + MINUTE_MS)
        assert first.seq < second.seq
        assert await store.list_audit() == [second, first]
        assert await store.list_audit(limit=1) == [second]
        assert await store.list_audit(before=second.seq) == [first]

    @case
    async def test_entries_are_found_by_their_target(self, store: Store) -> None:
        kept = [
            await store.append_audit(AuditEntry("ada", "job.retry", f"job:{n % 2}"))
            for n in range(6)
        ]
        odd = [each for each in reversed(kept) if each.target == "job:1"]
        assert await store.list_audit(target="job:1") == odd
        assert await store.list_audit(target="job:1", before=odd[0].seq) == odd[1:]
        assert await store.list_audit(target="job:") == []

    @case
    async def test_entries_say_who_and_what(self, store: Store) -> None:
        for entry in (
            AuditEntry("", "job.retry", "job:1"),
            AuditEntry("ada", "", "job:1"),
            AuditEntry("ada", "job.retry", "job:1", detail="x" * (MAX_AUDIT_TEXT + 1)),
        ):
            with pytest.raises(InvalidInput):
                await store.append_audit(entry)
        with pytest.raises(InvalidInput):
            await store.list_audit(limit=0)


class MonitoringConformance(CountCases, SearchCases, UpcomingCases, AuditCases):
    """The suite for MonitoringReads."""
