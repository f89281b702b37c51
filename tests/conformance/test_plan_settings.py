"""Planning settings are fixed when a store is opened, in every store."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from duly.model.dispatches import DispatchAnswer, DispatchClaim
from duly.model.jobs import Job
from duly.model.ledger import OccurrenceState
from duly.model.plans import Backfill, PlanSettings
from duly.model.retries import RetryPolicy
from duly.model.run_options import RunOptions
from duly.model.schedules import Policies, ScheduleId
from duly.stores import open_store
from duly.stores.port import Store
from duly.testing import ManualClock
from duly.testing.conformance.planning.samples import jobs_of, only_occurrence, plan
from duly.testing.conformance.samples import MINUTE_MS, a_definition, a_write, put
from duly.testing.conformance.suite import START

SLOW = RunOptions(queue="slow", retry=RetryPolicy(attempts=7), timeout_ms=9_000)
SETTINGS = PlanSettings(look_ahead_ms=120 * MINUTE_MS, actions={"reminders.send": SLOW})


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a new database of each kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/duly.db"


def with_store(
    url: str, settings: PlanSettings, test: Callable[[Store, ManualClock], Awaitable[None]]
) -> None:
    """Run a test on a store opened with the given settings."""

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
    """C16: the default is one minute."""

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


def test_actions_give_defaults_to_schedules(url: str) -> None:
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


ONCE = PlanSettings(
    look_ahead_ms=120 * MINUTE_MS,
    actions={
        "reminders.send": RunOptions(
            retry=RetryPolicy(attempts=7), timeout_ms=9_000, delivery="at_most_once"
        )
    },
)
"""The application's code declares that an action is never repeated."""


def is_at_most_once(job: Job) -> bool:
    return job.delivery == "at_most_once" and job.max_attempts == 1


def test_declared_delivery_applies_to_every_job_of_a_schedule(url: str) -> None:
    """Covers occurrences made by the planner, a write, an extra run and a backfill."""

    async def check(store: Store, clock: ManualClock) -> None:
        await put(store, a_write("a"))
        assert await store.run_now(ScheduleId("id-a"), "one") is not None
        clock.advance(hours=5)
        await plan(store)
        start_ms, now_ms = int(START.timestamp() * 1000), await store.now_ms()
        past = Backfill(ScheduleId("id-a"), start_ms - 120 * MINUTE_MS, now_ms)
        report = await store.backfill(past)
        assert report is not None
        assert report.planned
        jobs = await jobs_of(store, "a")
        assert len(jobs) > 4
        assert [is_at_most_once(job) for job in jobs] == [True] * len(jobs)

    with_store(url, ONCE, check)


def test_explicit_options_of_a_schedule_win_even_when_they_equal_the_defaults(url: str) -> None:
    async def check(store: Store, _clock: ManualClock) -> None:
        own = Policies(retry=RetryPolicy(), timeout_ms=300_000, delivery="at_least_once")
        await put(store, a_write("a", a_definition(policies=own, max_runs=1)))
        (job,) = await jobs_of(store, "a")
        assert ran_as(job) == ("default", RetryPolicy().attempts, 300_000)
        assert not is_at_most_once(job)

    with_store(url, ONCE, check)


@pytest.mark.parametrize(
    ("policies", "state"),
    [
        (Policies(), OccurrenceState.FAILED),
        (Policies(delivery="at_least_once"), OccurrenceState.DISPATCHING),
    ],
)
def test_declared_delivery_decides_whether_a_post_is_repeated(
    url: str, policies: Policies, state: OccurrenceState
) -> None:
    async def check(store: Store, clock: ManualClock) -> None:
        definition = a_definition(hand_over="http", policies=policies)
        await put(store, a_write("a", definition))
        clock.advance(hours=1)
        (post,) = await store.claim_dispatches(DispatchClaim("one", lease_ms=1_000))
        assert post.delivery == (policies.delivery or "at_most_once")
        again = DispatchAnswer(post.schedule_id, post.nominal_ms, "again", "503")
        assert await store.end_dispatches("one", [again]) == 1
        assert (await only_occurrence(store, "a")).state is state

    with_store(url, ONCE, check)


def test_declared_delivery_applies_to_posts_of_a_tick_that_died(url: str) -> None:
    async def check(store: Store, clock: ManualClock) -> None:
        await put(store, a_write("a", a_definition(hand_over="http", max_runs=1)))
        clock.advance(hours=1)
        assert await store.claim_dispatches(DispatchClaim("one", lease_ms=1_000))
        clock.advance(minutes=1)
        assert await store.claim_dispatches(DispatchClaim("two", lease_ms=1_000)) == []
        assert (await only_occurrence(store, "a")).state is OccurrenceState.FAILED

    with_store(url, ONCE, check)
