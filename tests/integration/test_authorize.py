"""authorize() is called each time a schedule's job is about to start; no job starts without it."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from duly.app import Duly
from duly.flows.flow import Flow
from duly.model.jobs import Job, JobState
from duly.model.principals import Principal
from duly.model.retries import RetryPolicy
from duly.model.schedules import Policies, Schedule
from duly.model.scopes import user
from duly.model.stored_jobs import JobFilter
from duly.testing.clock import ManualClock
from duly.testing.jobs import drain
from duly.triggers import every
from tests.integration.working import in_loop, open_app, working

YES, NO = True, False
START = datetime(2026, 3, 2, 8, tzinfo=UTC)
ONE_TRY_MORE = Policies(
    retry=RetryPolicy(attempts=2, backoff="fixed", first_delay_ms=1_000), overlap="allow"
)


def noting_flow() -> tuple[Flow, list[str]]:
    flow, seen = Flow("mail"), list[str]()

    @flow.action
    async def send(to: str) -> None:
        seen.append(to)

    return flow, seen


async def fire(app: Duly, clock: ManualClock, **options: Any) -> Schedule:
    """Create a schedule of Ada's and plan its first job, one hour later."""
    mine = app.acting_for(Principal("ada", "acme")).schedules("mail")
    made = await mine.create("hourly", every(hours=1), action="send", input="ada", **options)
    clock.advance(hours=1)
    await app.planner().run_once()
    return made


async def the_job(app: Duly, schedule: Schedule) -> Job:
    (job,) = await app.store.list_jobs(JobFilter(schedule_id=schedule.id))
    return job


async def ledger(app: Duly, schedule: Schedule) -> list[str]:
    rows = await app.store.list_occurrences(schedule.id)
    return [row.state.value for row in rows]


def plainly(answer: object, asked: list[Any]) -> Callable[..., Any]:
    def authorize(principal: Principal, schedule: Schedule) -> Any:
        asked.append((principal, schedule.name, threading.current_thread().name))
        return answer

    return authorize


def awaited(answer: object, asked: list[Any]) -> Callable[..., Any]:
    async def authorize(principal: Principal, schedule: Schedule) -> Any:
        asked.append((principal, schedule.name, "loop"))
        return answer

    return authorize


@pytest.mark.parametrize("how", [plainly, awaited])
@pytest.mark.parametrize(
    ("answer", "state", "ledger_state"),
    [
        (True, "succeeded", "succeeded"),
        (False, "cancelled", "denied"),
        (None, "cancelled", "denied"),
    ],
)
@in_loop
async def test_the_answer_of_authorize_decides(
    clean_url: str, how: Any, answer: object, state: str, ledger_state: str
) -> None:
    flow, seen = noting_flow()
    clock, asked = ManualClock(START), list[Any]()
    app = Duly(clean_url, flows=[flow], clock=clock, authorize=how(answer, asked))
    async with app:
        made = await fire(app, clock)
        await drain(app)
        job = await the_job(app, made)
        assert (job.state.value, await ledger(app, made)) == (state, [ledger_state])
        assert seen == ["ada"] * (answer is True)
        ((principal, name, thread),) = asked
        assert (principal, name) == (Principal("ada", "acme"), "hourly")
        assert thread != threading.current_thread().name, "a plain one may block: not on the loop"
        if answer is not True:
            assert job.error == "denied: authorize refused schedule 'hourly' of user:ada"


@in_loop
async def test_an_authorize_that_raises_fails_the_attempt(clean_url: str) -> None:
    """The next attempt calls it again: nothing runs unauthorised and no job is lost."""
    flow, seen = noting_flow()
    clock = ManualClock(START)
    answers: list[Any] = [LookupError("the directory is away"), True]

    async def authorize(principal: Principal, schedule: Schedule) -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    app = Duly(clean_url, flows=[flow], clock=clock, authorize=authorize)
    async with app:
        made = await fire(app, clock, policies=ONE_TRY_MORE)
        await drain(app)
        job = await the_job(app, made)
        assert (job.state, job.error) == (
            JobState.RETRYING,
            "LookupError: the directory is away",
        )
        assert seen == []
        clock.advance(seconds=1)
        await drain(app)
        assert (seen, await ledger(app, made)) == (["ada"], ["succeeded"])


@in_loop
async def test_authorize_is_not_called_for_enqueued_jobs(clean_url: str) -> None:
    flow, seen = noting_flow()
    asked: list[Any] = []
    app = Duly(clean_url, flows=[flow], authorize=plainly(NO, asked))
    async with app:
        await app.client.enqueue("mail.send", "bob", scope=user("bob"))
        await drain(app)
        assert (seen, asked) == (["bob"], [])


@in_loop
async def test_a_schedule_that_is_gone_cannot_be_authorised(clean_url: str) -> None:
    flow, seen = noting_flow()
    clock, asked = ManualClock(START), list[Any]()
    app, store = open_app(clean_url, flow, clock=clock)
    app.config = replace(app.config, authorize=plainly(YES, asked))
    async with app:
        made = await fire(app, clock)

        async def delete(_: object) -> None:
            store.after.clear()
            await app.schedules("mail").of(user("ada")).delete("hourly")

        store.after["claim_jobs"] = delete  # it has started, so deleting does not withdraw it
        await drain(app)
        assert (seen, asked) == ([], [])
        assert (await the_job(app, made)).error == "denied: its schedule was deleted"


@in_loop
async def test_a_slow_authorize_times_out_in_a_worker(clean_url: str) -> None:
    flow, seen = noting_flow()
    clock = ManualClock(START)
    app, store = open_app(clean_url, flow, clock=clock)
    never = threading.Event()

    async def authorize(principal: Principal, schedule: Schedule) -> bool:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            never.set()
        return True  # ignores the cancellation

    app.config = replace(app.config, authorize=authorize)
    async with app:
        policies = Policies(timeout_ms=1_000, retry=RetryPolicy(attempts=1))
        made = await fire(app, clock, policies=policies)
        job = await the_job(app, made)
        async with working(app, quick_poll_s=0.02):
            (ended,) = await store.ended(job.id)
        assert (ended.state, ended.error) == (JobState.DEAD, "timed out after 1 s")
        assert never.is_set()
        assert seen == [], "swallowing the cancellation does not start the handler"
