"""Misbehaving handlers: the job gets an outcome and the slot runs the next one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.jobs import JobState
from duly.model.retries import RetryPolicy
from duly.model.schedules import Policies
from duly.model.scopes import SYSTEM
from duly.testing.jobs import drain
from duly.triggers import every
from tests.integration.working import enqueue, in_loop, open_app, working

ONCE = RetryPolicy(attempts=1)


class Panic(BaseException):
    """An error that is not an Exception, as some extension modules raise."""


def odd_flow() -> Flow:
    flow = Flow("work")

    @flow.action(retry=ONCE)
    async def panic() -> None:
        raise Panic("index out of bounds")

    @flow.action(retry=ONCE)
    def panic_in_thread() -> None:
        raise Panic("index out of bounds")

    @flow.action(retry=ONCE)
    def stop_iteration() -> None:
        next(iter([]))

    @flow.action(retry=ONCE)
    async def cancel_own_task() -> None:
        _own_task().cancel()
        await asyncio.Event().wait()

    @flow.action(retry=ONCE)
    async def cancel_and_return() -> None:
        _own_task().cancel()

    @flow.action(retry=ONCE)
    async def cancel_and_swallow() -> None:
        _own_task().cancel()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    @flow.action(retry=ONCE, timeout_s=0.05)
    async def hang() -> None:
        await asyncio.Event().wait()

    @flow.action
    async def fine() -> str:
        return "fine"

    return flow


def _own_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


@pytest.mark.parametrize(
    ("action", "state", "error"),
    [
        ("panic", "dead", "Panic: index out of bounds"),
        ("panic_in_thread", "dead", "Panic: index out of bounds"),
        ("stop_iteration", "dead", "RuntimeError: StopIteration was raised"),
        ("cancel_own_task", "dead", "CancelledError: "),
        ("cancel_and_return", "succeeded", None),
        ("cancel_and_swallow", "succeeded", None),
    ],
)
@in_loop
async def test_the_slot_runs_the_next_job(action: str, state: str, error: str | None) -> None:
    app, store = open_app("memory:", odd_flow())
    async with app, working(app, slots=1):
        (odd,) = await enqueue(app, f"work.{action}", [None])
        (job,) = await store.ended(odd)
        assert (job.state.value, job.error) == (state, error)
        # A leftover cancellation must affect neither a job that times out nor the next one.
        (hung,) = await enqueue(app, "work.hang", [None])
        (job,) = await store.ended(hung)
        assert (job.state.value, job.error) == ("dead", "timed out after 0.05 s")
        (fine,) = await enqueue(app, "work.fine", [None])
        (job,) = await store.ended(fine)
        assert job.state is JobState.SUCCEEDED


@in_loop
async def test_drain_raises_errors_of_handlers() -> None:
    app, _ = open_app("memory:", odd_flow())
    async with app:
        await enqueue(app, "work.panic", [None])
        with pytest.raises(Panic):
            await drain(app)


@pytest.mark.parametrize("verb", ["occurrences_of_jobs", "find_schedule"])
@in_loop
async def test_failed_authorize_call_charges_no_attempt(verb: str) -> None:
    ran: list[str] = []
    flow = Flow("work")

    @flow.action
    async def pay(ctx: Context) -> None:
        ran.append(ctx.job_id)

    app, store = open_app("memory:", flow)
    app.config = replace(app.config, authorize=lambda *_: True)
    store.fail(verb)
    policies = Policies(delivery="at_most_once", pause_after_failures=1)
    async with app:
        mine = app.schedules(flow).of(SYSTEM)
        schedule = await mine.create("one", every(seconds=60), action="pay", policies=policies)
        made = await app.store.run_now(schedule.id, "now")
        assert made is not None
        assert made.job_id is not None
        async with working(app):
            (job,) = await store.ended(made.job_id)
        assert (job.state, job.attempts, len(ran)) == (JobState.SUCCEEDED, 1, 1)
        reasons = [each.reason for each in await app.store.job_events(job.id)]
        assert "not begun: planted" in reasons
        kept = await mine.get("one")
        assert kept is not None
        assert kept.definition.enabled
