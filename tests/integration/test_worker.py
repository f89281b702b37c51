"""The worker as a whole: slots that refill one by one, a small buffer and a graceful stop."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from duly.errors import BackendUnavailable
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.jobs import JobId, JobState, LeasedJob, StartMode
from duly.runtime import WorkerOptions
from duly.runtime.worker.buffer import Buffer
from duly.runtime.worker.worker import LOOK_S
from tests.integration.working import enqueue, in_loop, open_app, path, working


class Gate:
    """Signals that a handler has started and holds it until the test releases it."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.go = asyncio.Event()

    async def wait(self) -> None:
        self.begun.release()
        await self.go.wait()

    async def until_begun(self, jobs: int = 1) -> None:
        for _ in range(jobs):
            await self.begun.acquire()


def gated_flow() -> tuple[Flow, Gate]:
    """Return a flow whose `work.slow` waits at the gate and whose `work.quick` does not."""
    flow, gate = Flow("work"), Gate()

    @flow.action
    async def slow(ctx: Context) -> None:
        await gate.wait()

    @flow.action
    async def quick(ctx: Context) -> None:
        pass

    return flow, gate


@in_loop
async def test_a_slow_job_does_not_idle_the_other_slots(any_url: str) -> None:
    flow, gate = gated_flow()
    app, store = open_app(any_url, flow)
    async with app:
        (slow,) = await enqueue(app, "work.slow", [None])
        quick = await enqueue(app, "work.quick", [None] * 20)
        async with working(app):
            await store.ended(*quick, states={JobState.SUCCEEDED})
            assert (await store.ended(slow, states={JobState.PROCESSING}))[0].attempts == 0
            gate.go.set()
            await store.ended(slow, states={JobState.SUCCEEDED})


@in_loop
async def test_claims_and_heartbeats_do_not_wait_for_handlers(any_url: str) -> None:
    flow, gate = gated_flow()
    app, store = open_app(any_url, flow)
    async with app:
        await enqueue(app, "work.slow", [None])
        async with working(app, heartbeat_s=0.01):
            await gate.until_begun()
            later = await enqueue(app, "work.quick", [None])
            await store.ended(*later, states={JobState.SUCCEEDED})
            await store.until("beat", 3)
            assert [worker.running for worker in await store.list_workers()] == [1]
            gate.go.set()
        assert await store.list_workers() == []


@in_loop
async def test_completions_are_stored_in_batches(any_url: str) -> None:
    flow = Flow("work")
    all_ran = asyncio.Event()
    left = 12

    @flow.action
    async def counted(ctx: Context) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            all_ran.set()

    app, store = open_app(any_url, flow)

    async def wait_for_all(*_: object) -> None:
        await all_ran.wait()

    store.before["finish"] = wait_for_all
    async with app:
        ids = await enqueue(app, "work.counted", [None] * 12)
        async with working(app, slots=4):
            await store.ended(*ids)
        assert store.count("finish") <= 2


@in_loop
async def test_a_new_worker_claims_no_more_than_it_can_begin(any_url: str) -> None:
    flow, gate = gated_flow()
    app, store = open_app(any_url, flow)
    async with app:
        ids = await enqueue(app, "work.slow", [None] * 20)
        async with working(app, heartbeat_s=0.01):
            await gate.until_begun(2)
            await store.until("beat", 3)
            jobs = [await store.get_job(job_id) for job_id in ids]
            assert sum(job.state is JobState.PROCESSING for job in jobs) == 2
            gate.go.set()
            await store.ended(*ids, states={JobState.SUCCEEDED})


def a_job(number: int) -> LeasedJob:
    values = dict.fromkeys(LeasedJob._fields) | {"id": JobId(f"job_{number}"), "careful": 0}
    return LeasedJob(**values)  # type: ignore[arg-type]


def a_buffer(most: int = 1_000, wake: Callable[[], None] = lambda: None) -> Buffer:
    return Buffer(most, 0.25, wake)


@in_loop
async def test_the_buffer_follows_the_rate_of_jobs() -> None:
    buffer = a_buffer(most=50)
    for _ in range(6):
        buffer.measure(10.0)
    assert (buffer.room, buffer.is_wanting) == (0, False)
    for _ in range(12):
        buffer.take([a_job(number) for number in range(100)])
        for _ in range(100):
            await buffer.next()
        buffer.measure(1.0)
    assert 20 <= buffer.room <= 25, "jobs for a quarter of a second at 100 per second"
    for _ in range(12):
        buffer.take([a_job(1)])
        await buffer.next()
        buffer.measure(60.0)
    assert buffer.room == 0, "the buffer stays empty when a job takes a minute"


@in_loop
async def test_an_at_most_once_job_in_the_buffer_has_not_begun(any_url: str) -> None:
    flow, gate = gated_flow()
    app, store = open_app(any_url, flow)
    async with app:
        await enqueue(app, "work.slow", [None])
        async with working(app, slots=1) as worker:
            await gate.until_begun()
            worker._buffer._pace = 1_000
            (once,) = await enqueue(app, "work.quick", [None], delivery="at_most_once")
            (job,) = await store.ended(once, states={JobState.PROCESSING})
            assert (job.attempts, job.fence, job.unstarted) == (0, 1, 1)
            gate.go.set()
            (job,) = await store.ended(once)
            assert (job.state, job.attempts, job.unstarted) == (JobState.SUCCEEDED, 1, None)


@in_loop
async def test_starts_are_recorded_together_before_handlers_are_called(any_url: str) -> None:
    flow = Flow("work")
    unrecorded: list[JobId] = []

    @flow.action(delivery="at_most_once")
    async def once(ctx: Context) -> None:
        job = await store.get_job(ctx.job_id)
        assert job is not None
        if job.unstarted is not None or job.attempts != 1:
            unrecorded.append(job.id)

    app, store = open_app(any_url, flow)
    async with app:
        ids = await enqueue(app, "work.once", [None] * 40)
        async with working(app, slots=8):
            await store.ended(*ids, states={JobState.SUCCEEDED})
    assert unrecorded == []
    assert store.count("start_jobs") < 40


@in_loop
async def test_a_job_asked_to_stop_before_its_start_is_cancelled(any_url: str) -> None:
    flow, gate = gated_flow()
    app, store = open_app(any_url, flow)

    async def ask(_worker: object, leases: list[tuple[JobId, int]]) -> None:
        await app.client.cancel(leases[0][0])

    store.before["start_jobs"] = ask
    async with app:
        (once,) = await enqueue(app, "work.slow", [None], delivery="at_most_once")
        async with working(app):
            (job,) = await store.ended(once, states={JobState.CANCELLED})
    assert job.attempts <= 1
    assert gate.begun.locked()


@in_loop
async def test_stop_finishes_started_jobs_and_releases_the_rest(any_url: str) -> None:
    flow, gate = gated_flow()
    app, store = open_app(any_url, flow)
    async with app:
        (first,) = await enqueue(app, "work.slow", [None])
        async with working(app, slots=1) as worker:
            await gate.until_begun()
            worker._buffer._pace = 1_000
            waiting = await enqueue(app, "work.slow", [None] * 9)
            await store.ended(*waiting, states={JobState.PROCESSING})
            worker.stop()
            await store.ended(*waiting, states={JobState.QUEUED})
            gate.go.set()
        for job in await store.ended(*waiting, states={JobState.QUEUED}):
            assert (job.attempts, job.start_mode, job.worker) == (0, StartMode.AHEAD, None)
            (attempt,) = await store.job_attempts(job.id)
            assert attempt.status == "released"
        assert await path(store, first) == ["queued", "processing", "succeeded"]


@in_loop
async def test_after_the_drain_limit_handlers_are_cancelled_and_released(any_url: str) -> None:
    flow, gate = gated_flow()
    told, loop = threading.Event(), asyncio.get_running_loop()

    @flow.action
    def blocking(ctx: Context) -> None:
        loop.call_soon_threadsafe(gate.begun.release)
        while not ctx.cancelled:
            told.wait(0.005)

    app, store = open_app(any_url, flow)
    async with app:
        ids = await enqueue(app, "work.slow", [None])
        ids += await enqueue(app, "work.blocking", [None])
        async with working(app, drain_s=0.02):
            await gate.until_begun(2)
        for job in await store.ended(*ids, states={JobState.QUEUED}):
            assert job.attempts == 0
            assert [a.status for a in await store.job_attempts(job.id)] == ["released"]


@in_loop
async def test_a_started_at_most_once_job_is_not_released(any_url: str) -> None:
    flow, gate = gated_flow()
    app, store = open_app(any_url, flow)
    async with app:
        (begun,) = await enqueue(app, "work.slow", [None], delivery="at_most_once")
        async with working(app, drain_s=0.02):
            await gate.until_begun()
        (job,) = await store.ended(begun)
        assert (job.state, job.error) == (JobState.DEAD, "stopped before it ended")


@in_loop
async def test_draining_takes_no_processor_time(any_url: str) -> None:
    flow, gate = gated_flow()
    app, store = open_app(any_url, flow)
    async with app:
        ids = await enqueue(app, "work.slow", [None])
        async with working(app) as worker:
            await gate.until_begun()
            worker.stop()
            await store.until("beat")
            asyncio.get_running_loop().call_later(0.6, gate.go.set)
            began_s, used_s = time.perf_counter(), time.process_time()
            await gate.go.wait()
            share = (time.process_time() - used_s) / (time.perf_counter() - began_s)
        assert share < 0.2
        await store.ended(*ids, states={JobState.SUCCEEDED})


@in_loop
async def test_idling_takes_no_processor_time(any_url: str) -> None:
    flow, gate = gated_flow()
    app, store = open_app(any_url, flow)
    async with app, working(app):
        await store.until("claim_jobs", 3)
        asyncio.get_running_loop().call_later(0.6, gate.go.set)
        began_s, used_s = time.perf_counter(), time.process_time()
        await gate.go.wait()
        share = (time.process_time() - used_s) / (time.perf_counter() - began_s)
    assert share < 0.2


@in_loop
async def test_an_idle_worker_polls_at_the_configured_period() -> None:
    flow, _ = gated_flow()
    app, _ = open_app("memory:", flow)
    async with app:
        worker = app.worker(WorkerOptions(poll_s=0.1))
        pauses: list[float | None] = []

        async def wait(timeout_s: float | None = None) -> bool:
            await asyncio.sleep(0)
            if timeout_s != LOOK_S:  # otherwise the slots have not started yet
                pauses.append(timeout_s)
            if len(pauses) == 6:
                worker.stop()
            return False

        worker._wake.wait = wait  # type: ignore[method-assign]
        await worker.run()
    assert pauses == [0.02, 0.04, 0.08, 0.1, 0.1, 0.1]


@in_loop
async def test_a_worker_survives_outages(any_url: str) -> None:
    flow, gate = gated_flow()
    app, store = open_app(any_url, flow)
    left = {"claim_jobs": 3, "finish": 2, "renew": 2, "beat": 1}

    def failing(verb: str) -> None:
        async def fail(*_: object) -> None:
            if left[verb]:
                left[verb] -= 1
                raise BackendUnavailable("planted")

        store.before[verb] = fail

    for verb in left:
        failing(verb)
    async with app:
        slow = await enqueue(app, "work.slow", [None])
        async with working(app, lease_s=0.6):
            await gate.until_begun()
            await store.until("renew")
            gate.go.set()
            (job,) = await store.ended(*slow)
            assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)
        assert not any(left.values())


@pytest.mark.parametrize("verb", ["finish", "renew", "beat", "claim_jobs"])
@in_loop
async def test_a_task_that_fails_ends_the_worker(verb: str) -> None:
    flow, _ = gated_flow()
    app, store = open_app("memory:", flow)

    async def break_down(*_: object) -> None:
        raise RuntimeError("planted")

    async with app:
        await enqueue(app, "work.quick" if verb == "finish" else "work.slow", [None])
        store.before[verb] = break_down
        with pytest.raises(RuntimeError, match="planted"):
            await app.worker(WorkerOptions(lease_s=0.1, drain_s=0.01)).run()


@in_loop
async def test_one_process_never_runs_two_attempts_at_once(any_url: str) -> None:
    """The process loses a lease while it stalls, and claims the same job again."""
    flow = Flow("work")
    running, most, attempts = 0, 0, asyncio.Semaphore(0)
    told = asyncio.Event()

    @flow.action
    async def slow(ctx: Context) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        attempts.release()
        try:
            if ctx.attempt == 1:
                await asyncio.Event().wait()
        finally:
            told.set()
            await asyncio.sleep(0)
            running -= 1

    app, store = open_app(any_url, flow)

    async def stall(*_: object) -> None:
        await told.wait()

    store.before["renew"] = stall
    async with app:
        (job_id,) = await enqueue(app, "work.slow", [None])
        async with working(app, slots=2, lease_s=0.3, block_limit_s=0):
            await attempts.acquire()
            await attempts.acquire()
            (job,) = await store.ended(job_id, states={JobState.SUCCEEDED})
    assert told.is_set()
    assert most == 1
    assert job.fence >= 2  # a slow machine may lose a later lease too


@in_loop
async def test_an_unresponsive_attempt_does_not_block_the_next(any_url: str) -> None:
    """With one worker the next attempt can start only after the unresponsive one is given up."""
    flow, deaf = Flow("work"), threading.Event()

    @flow.action(timeout_s=0.02)
    def ignore(ctx: Context) -> None:
        if ctx.attempt == 1:
            deaf.wait()

    app, store = open_app(any_url, flow)
    try:
        async with app:
            (job_id,) = await enqueue(app, ignore, [None])
            async with working(app, slots=2, lease_s=0.3, stubborn_s=0.02) as worker:
                await store.ended(job_id, states={JobState.SUCCEEDED})
                deaf.set()
                for slot in worker._slots:
                    await slot.until_idle()
    finally:
        deaf.set()
