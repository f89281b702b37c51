"""What a store goes by when it plans is fixed when it is opened, in every store alike."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from duly.jobs import Job
from duly.plan_store import ActionDefaults, PlanSettings
from duly.retries import RetryPolicy
from duly.schedules import Policies, ScheduleId
from duly.store import Store
from duly.stores import open_store
from duly.testing import ManualClock
from duly.testing.conformance.plan_samples import jobs_of, only_occurrence, plan
from duly.testing.conformance.samples import MINUTE_MS, a_definition, a_write, put
from duly.testing.conformance.suite import START

SLOW = ActionDefaults(queue="slow", retry=RetryPolicy(attempts=7), timeout_ms=9_000)
SETTINGS = PlanSettings(look_ahead_ms=120 * MINUTE_MS, actions={"reminders.send": SLOW})


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new database of every kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/duly.db"


def with_store(
    url: str, settings: PlanSettings, test: Callable[[Store, ManualClock], Awaitable[None]]
) -> None:
    """Run a test on a store that is opened with settings."""

    async def run() -> None:
        clock = ManualClock(START)
        store = open_store(url, clock=clock, planning=settings)
        try:
            await test(store, clock)
        finally:
            await store.close()

    asyncio.run(run())


def ran_as(job: Job) -> tuple[str, int, int]:
    return job.queue, job.retry.attempts, job.timeout_ms


def test_the_look_ahead_of_writes_is_a_setting(url: str) -> None:
    """C16: a minute by default, any other where it is told."""

    async def check(store: Store, _clock: ManualClock) -> None:
        await put(store, a_write())
        assert len(await jobs_of(store)) == 2

    with_store(url, SETTINGS, check)


def test_writes_may_leave_planning_to_planners(url: str) -> None:
    async def check(store: Store, clock: ManualClock) -> None:
        await put(store, a_write())
        clock.advance(minutes=59, seconds=59)
        await put(store, a_write(definition=a_definition(input=1)))
        assert await jobs_of(store) == []
        clock.advance(seconds=1)
        assert (await plan(store)).planned == 1

    with_store(url, PlanSettings(look_ahead_ms=0), check)


def test_actions_say_what_schedules_do_not(url: str) -> None:
    async def check(store: Store, _clock: ManualClock) -> None:
        own = Policies(retry=RetryPolicy(attempts=2), timeout_ms=1_000)
        await put(
            store,
            a_write("a"),
            a_write("b", a_definition(policies=own)),
            a_write("c", a_definition(max_runs=1)),
        )
        (first, *_), (own_job, *_) = await jobs_of(store, "a"), await jobs_of(store, "b")
        assert ran_as(first) == ("slow", 7, 9_000)
        assert ran_as(own_job) == ("slow", 2, 1_000)
        extra = await store.run_now(ScheduleId("id-c"), "one")
        assert extra is not None
        assert [ran_as(job) for job in await jobs_of(store, "c")] == [("slow", 7, 9_000)] * 2

    with_store(url, SETTINGS, check)


def test_other_actions_have_the_defaults(url: str) -> None:
    other = PlanSettings(SETTINGS.look_ahead_ms, {"invoices.send": SLOW})

    async def check(store: Store, _clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(max_runs=1)))
        (job,) = await jobs_of(store)
        assert ran_as(job) == ("default", RetryPolicy().attempts, 300_000)
        assert (await only_occurrence(store)).job_id == job.id

    with_store(url, other, check)
