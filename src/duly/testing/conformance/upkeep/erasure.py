"""Erasing an owner: all its data is deleted in bounded steps, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from duly.errors import InvalidInput
from duly.model.documents import DocumentWrite, Written
from duly.model.jobs import JobId, JobState
from duly.model.scopes import Scope, workspace_of
from duly.model.stored_jobs import Enqueued, JobFilter, Retention
from duly.model.upkeep import ERASED, Erased
from duly.rules.outcomes import Cancelled, Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import a_job, bring_to, claim_one, claims, end, insert
from duly.testing.conformance.planning.samples import jobs_of, ledger, plan
from duly.testing.conformance.samples import (
    HOUR_MS,
    START_MS,
    a_definition,
    a_key,
    a_row,
    a_write,
    put,
)
from duly.testing.conformance.suite import StoreConformance, case

ADA, BOB = "user:ada", "user:bob"
STEPS = 200
"""Maximum number of steps; more than any case needs."""


async def erase(store: Store, scope: str = ADA, limit: int = 1_000) -> Erased:
    """Run all erase steps and return the sum; check that no step exceeds the limit per kind."""
    total = Erased()
    for _ in range(STEPS):
        step = await store.erase(scope, cursor=total.cursor, limit=limit)
        counts = (step.schedules, step.documents, step.jobs, step.occurrences, step.keys)
        assert max(counts) <= limit
        total += step
        if total.cursor is None:
            return total
    raise AssertionError(f"not finished after {STEPS} steps: {total}")


async def put_document(store: Store, scope: str, name: str = "a") -> None:
    """Store a document with an index entry."""
    write = DocumentWrite("notes", scope, name, f"{scope}-{name}", "{}", (("tag", "x"),))
    assert isinstance(await store.put_document(write), Written)


def job_of(scope: str, name: str, **fields: Any) -> Any:
    """Return a job that runs as an owner."""
    return a_job(name, scope=scope, workspace=workspace_of(Scope.parse(scope)), **fields)


async def leave_everything(store: Store, clock: ManualClock, scope: str) -> None:
    """Store one item of each kind for an owner; names begin with its id."""
    who = scope.partition(":")[2]
    await put(store, a_write(who, key=a_key(who, scope=scope), by=scope))
    clock.advance(hours=1)
    assert (await plan(store)).planned == 1
    await put_document(store, scope)
    await insert(store, job_of(scope, f"{who}-keyed", key="k"))


class EraseCases(StoreConformance):
    """Cases for erase()."""

    @case
    async def test_everything_of_an_owner_goes(self, store: Store, clock: ManualClock) -> None:
        await leave_everything(store, clock, ADA)
        assert await erase(store) == Erased(
            schedules=1, documents=1, jobs=2, occurrences=1, events=1, keys=1
        )
        assert await store.get_schedule(a_key("ada", scope=ADA)) is None
        assert await store.list_rows() == []
        assert await store.find_documents("notes", "tag", "x") == []
        assert await store.count_documents("notes", ADA) == 0
        assert await store.list_jobs(JobFilter()) == []
        assert await store.job_events(JobId("ada-keyed")) == []
        assert await store.job_attempts(JobId("ada-keyed")) == []
        assert await ledger(store, "ada") == []
        assert await store.schedule_events(a_write("ada").id) == []
        (again,) = await store.insert_jobs([job_of(ADA, "new", key="k")])
        assert again == Enqueued(JobId("new"), created=True)

    @case
    async def test_others_keep_everything(self, store: Store, clock: ManualClock) -> None:
        for scope in (BOB, ADA, "workspace:acme"):
            await leave_everything(store, clock, scope)
        kept = await self.left_by(store, "bob"), await self.left_by(store, "acme")
        await erase(store)
        assert (await self.left_by(store, "bob"), await self.left_by(store, "acme")) == kept
        (same,) = await store.insert_jobs([job_of(BOB, "new", key="k")])
        assert same == Enqueued(JobId("bob-keyed"), created=False)

    async def left_by(self, store: Store, who: str) -> tuple[object, ...]:
        """Return what is stored for an owner."""
        scope = "workspace:acme" if who == "acme" else f"user:{who}"
        return (
            await store.get_schedule(a_key(who, scope=scope)),
            [row for row in await store.list_rows() if row.scope == scope],
            await store.list_documents("notes", scope),
            [
                each
                for each in await store.find_documents("notes", "tag", "x")
                if each.scope == scope
            ],
            await jobs_of(store, who),
            await store.get_job(JobId(f"{who}-keyed")),
            await store.job_events(JobId(f"{who}-keyed")),
            await ledger(store, who),
            await store.schedule_events(a_write(who).id),
        )

    @case
    async def test_steps_are_bounded_and_go_on(self, store: Store, clock: ManualClock) -> None:
        for name in ("a", "b", "c"):
            await put(store, a_write(name, by=ADA))
            await put_document(store, ADA, name)
            await insert(store, job_of(ADA, f"job-{name}", key=name))
        await put_document(store, BOB)
        clock.advance(hours=1)
        await plan(store)
        step = await store.erase(ADA, limit=1)
        assert step.cursor is not None
        rest = await erase(store, limit=1)
        assert replace(step + rest, events=0) == Erased(
            schedules=3, documents=3, jobs=6, occurrences=3, keys=3
        )
        assert await erase(store, limit=1) == Erased()
        assert await store.count_documents("notes", BOB) == 1

    @case
    async def test_repeated_it_finds_nothing(self, store: Store, clock: ManualClock) -> None:
        await leave_everything(store, clock, ADA)
        await erase(store)
        assert await erase(store) == Erased()

    @case
    async def test_unstarted_jobs_never_run(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(by=ADA))
        clock.advance(hours=1)
        await plan(store)
        await insert(store, job_of(ADA, "later", run_at_ms=START_MS + 2 * HOUR_MS))
        await erase(store)
        clock.advance(hours=3)
        assert (await plan(store)).rows == 0
        assert await store.promote_due() == 0
        assert (await claims(store)).jobs == []

    @case
    async def test_running_jobs_are_asked_to_stop(self, store: Store) -> None:
        await insert(store, job_of(ADA, "a"), job_of(BOB, "b"))
        running = {job.id: job for job in (await claims(store)).jobs}
        assert await erase(store) == Erased(running=1)
        asked = [await store.get_job(JobId(name)) for name in ("a", "b")]
        assert [job.cancel_asked for job in asked if job is not None] == [True, False]
        await end(store, running[JobId("a")], Cancelled())
        assert await erase(store) == Erased(jobs=1)
        assert await store.get_job(JobId("a")) is None

    @case
    async def test_jobs_of_every_state_go(self, store: Store) -> None:
        states = [each for each in JobState if each not in (JobState.PROCESSING, JobState.FAILED)]
        for state in states:
            queue = f"queue-{state.value}"
            await bring_to(store, state, f"job-{state.value}", scope=ADA, queue=queue)
        assert await erase(store) == Erased(jobs=len(states))
        assert await store.list_jobs(JobFilter()) == []

    @case
    async def test_keys_go_that_outlived_their_jobs(self, store: Store) -> None:
        for scope in (ADA, BOB):
            await insert(store, job_of(scope, f"{scope}-old", key="k"))
            await end(store, await claim_one(store), Succeeded())
        await store.prune(Retention(succeeded_ms=0))
        assert await store.list_jobs(JobFilter()) == []
        assert await erase(store) == Erased(keys=1)
        answers = await store.insert_jobs([job_of(ADA, "a", key="k"), job_of(BOB, "b", key="k")])
        assert [answer.job_id for answer in answers] == ["a", "user:bob-old"]

    @case
    async def test_running_marker_goes_with_its_job(self, store: Store, clock: ManualClock) -> None:
        """A schedule created again with the same id is not blocked by an erased running job."""
        await put(store, a_write(by=ADA))
        clock.advance(hours=1)
        await plan(store)
        await store.promote_due()
        await erase(store)
        await put(store, a_write(by=ADA))
        clock.advance(hours=1)
        await plan(store)
        await store.promote_due()
        assert (await claim_one(store)).schedule_id == "id-a"

    @case
    async def test_history_of_deleted_schedules_goes(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Events of deleted schedules are erased, found by their ledger, jobs or creator."""
        await put(store, a_write("fired", by="ops"), a_write("unfired", by=ADA))
        await put(store, a_write("others", key=a_key("others", scope=BOB), by=BOB))
        clock.advance(hours=1)
        await plan(store)
        for name in ("fired", "unfired"):
            await store.delete_schedule(a_key(name), by="ops")
        await store.delete_schedule(a_key("others", scope=BOB), by=BOB)
        assert (await erase(store)).events == 4
        for name, left in (("fired", 0), ("unfired", 0), ("others", 2)):
            assert len(await store.schedule_events(a_write(name).id)) == left

    @case
    async def test_deeds_on_others_things_lose_the_name(self, store: Store) -> None:
        """Events that the owner caused on others' items stay without its name."""
        key = a_key("b", scope=BOB)
        await put(store, a_write("b", key=key, by=BOB))
        await put(store, a_write("b", a_definition(enabled=False), key=key, by=ADA))
        await insert(store, job_of(BOB, "b"))
        await store.cancel_job(JobId("b"), by=ADA)
        assert await erase(store) == Erased(events=2)
        facts = await store.schedule_events(a_write("b").id)
        assert [(fact.kind, fact.by) for fact in facts] == [("created", BOB), ("paused", ERASED)]
        assert [each.actor for each in await store.job_events(JobId("b"))] == [None, ERASED]

    @case
    async def test_rows_without_schedules_go(self, store: Store) -> None:
        await store.upsert(a_row("x", scope=ADA))
        await store.upsert(a_row("y", scope=BOB))
        assert await erase(store) == Erased(schedules=1)
        assert [row.scope for row in await store.list_rows()] == [BOB]

    @case
    async def test_workspace_takes_what_ran_in_it(self, store: Store) -> None:
        await insert(
            store,
            a_job("own", scope="workspace:acme", workspace="acme"),
            a_job("system", workspace="acme", key="k"),
            a_job("member", scope=ADA, workspace="acme"),
            a_job("elsewhere", scope=ADA, workspace=ADA),
        )
        assert await erase(store, "workspace:acme") == Erased(jobs=3, keys=1)
        assert await store.get_job(JobId("elsewhere")) is not None

    @case
    async def test_names_that_look_like_others_take_nothing(self, store: Store) -> None:
        """A workspace named `system` or `user:ada` is not confused with that scope."""
        await insert(store, a_job("one"), job_of(ADA, "two", key="k"))
        await insert(store, job_of("workspace:user:ada", "three"))
        assert await erase(store, "workspace:system") == Erased()
        assert await erase(store, "workspace:user:ada") == Erased(jobs=1)
        assert await erase(store) == Erased(jobs=1, keys=1)
        assert await store.get_job(JobId("one")) is not None

    @case
    async def test_system_and_nonsense_are_refused(self, store: Store) -> None:
        for scope in ("system", "ada", "user:", "robot:1"):
            with pytest.raises(InvalidInput):
                await store.erase(scope)
        for cursor in ("", "x", "x:1", "jobs"):
            with pytest.raises(InvalidInput, match="cursor"):
                await store.erase(ADA, cursor=cursor)
        for limit in (0, 10_001):
            with pytest.raises(InvalidInput, match="limit"):
                await store.erase(ADA, limit=limit)
