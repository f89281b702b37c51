"""Leases of a worker: renewal, loss, cancel, timeout and handlers that hang."""

import asyncio
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.claims import ClaimRequest
from duly.model.jobs import JobId, JobState, WorkerId
from duly.model.queues import QueueSettings
from duly.model.retries import RetryPolicy
from duly.model.stored_jobs import JobFilter
from duly.runtime import WorkerOptions, WorkerStuck
from duly.testing.clock import ManualClock
from tests.integration.working import Watched, enqueue, in_loop, open_app, path, working

ROOT = Path(__file__).parent.parent.parent
DULY = (sys.executable, "-c", "from duly.cli import main; main()")
OTHER = WorkerId("worker_other")
AT_ONCE = RetryPolicy(attempts=2, backoff="none")


class Handlers:
    """`work.wait` and `work.block` run until they are released or cancelled."""

    def __init__(self) -> None:
        self.flow = Flow("work")
        self.loop = asyncio.get_running_loop()
        self.begun = asyncio.Semaphore(0)
        self.go = asyncio.Event()
        self.stopped: list[str] = []
        blocks = threading.Event()

        async def wait(ctx: Context) -> None:
            self.begun.release()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.stopped.append("wait")
                raise

        def block(ctx: Context) -> None:
            self.loop.call_soon_threadsafe(self.begun.release)
            while not ctx.cancelled and not self.go.is_set():
                blocks.wait(0.005)
            if ctx.cancelled:
                self.stopped.append("block")

        self.flow.action(wait)
        self.flow.action(block)


@in_loop
async def test_leases_renew_themselves(any_url: str) -> None:
    handlers = Handlers()
    app, store = open_app(any_url, handlers.flow)
    async with app:
        ids = await enqueue(app, "work.wait", [None])
        async with working(app, lease_s=0.9):
            await handlers.begun.acquire()
            await store.until("renew", 5)
            assert await store.release_expired() == 0
            handlers.go.set()
            (job,) = await store.ended(*ids)
        assert (job.state, job.attempts, job.fence) == (JobState.SUCCEEDED, 1, 1)


@pytest.mark.parametrize("action", ["work.wait", "work.block"])
@in_loop
async def test_a_lost_lease_stops_the_handler_and_voids_its_outcome(
    any_url: str, action: str
) -> None:
    handlers = Handlers()
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    app, store = open_app(any_url, handlers.flow, clock=clock)
    async with app:
        (lost,) = await enqueue(app, action, [None])
        async with working(app, lease_s=0.3, slots=1) as worker:
            await handlers.begun.acquire()
            request = ClaimRequest(worker=OTHER, lease_ms=3_600_000)
            claims = await _take_over(store, clock, request)
            assert [job.id for job in claims] == [lost]
            (rest,) = await enqueue(app, action, [None])
            await handlers.begun.acquire()
            assert handlers.stopped == [action.removeprefix("work.")]
            assert lost not in worker._leases
            handlers.go.set()
            await store.ended(rest, states={JobState.SUCCEEDED})
        job = await store.get_job(lost)
        assert (job.state, job.worker, job.fence) == (JobState.PROCESSING, OTHER, 2)
        assert [attempt.status for attempt in await store.job_attempts(lost)] == ["lost", None]
        finished = [end for name, args, _ in store.calls if name == "finish" for end in args[0]]
        assert [end.job_id for end in finished] == [rest]


async def _take_over(store: Watched, clock: ManualClock, request: ClaimRequest) -> list[Any]:
    """Expire a lease between two renewals of its holder and claim the job."""
    while True:
        await store.until("renew")
        clock.advance(hours=1)
        claims = await store.store.claim_jobs(request)
        if claims.jobs:
            return claims.jobs


@pytest.mark.parametrize("action", ["work.wait", "work.block"])
@pytest.mark.parametrize("any_url", ["memory", "postgresql"], indirect=True)
@in_loop
async def test_a_cancel_reaches_the_handler_at_once(any_url: str, action: str) -> None:
    handlers = Handlers()
    app, store = open_app(any_url, handlers.flow)
    async with app:
        (cancelled,) = await enqueue(app, action, [None])
        async with working(app, lease_s=300):
            await handlers.begun.acquire()
            asked = await app.client.cancel(cancelled, by="ada")
            assert asked.cancel_asked
            (job,) = await store.ended(cancelled)
        assert (job.state, job.worker, job.lease_until_ms) == (JobState.CANCELLED, None, None)
        assert handlers.stopped == [action.removeprefix("work.")]
        assert [each.status for each in await store.job_attempts(cancelled)] == ["cancelled"]


@in_loop
async def test_a_cancel_comes_with_the_renewal_without_notices(tmp_path: Path) -> None:
    handlers = Handlers()
    app, store = open_app(f"sqlite:///{tmp_path}/work.db", handlers.flow)
    async with app:
        (cancelled,) = await enqueue(app, "work.block", [None])
        async with working(app, lease_s=0.9):
            await handlers.begun.acquire()
            await app.client.cancel(cancelled)
            (job,) = await store.ended(cancelled)
        assert job.state is JobState.CANCELLED


@in_loop
async def test_a_cancelled_job_that_waits_in_the_buffer_never_begins() -> None:
    handlers = Handlers()
    app, store = open_app("memory:", handlers.flow)
    async with app:
        await enqueue(app, "work.wait", [None])
        async with working(app, slots=1) as worker:
            await handlers.begun.acquire()
            worker._buffer._pace = 1_000
            (waiting,) = await enqueue(app, "work.wait", [None])
            await store.ended(waiting, states={JobState.PROCESSING})
            await app.client.cancel(waiting)
            (job,) = await store.ended(waiting)
            assert job.state is JobState.CANCELLED
            handlers.go.set()
        assert handlers.begun.locked()


@in_loop
async def test_a_job_claimed_again_replaces_the_claim_in_the_buffer() -> None:
    """A process that stalls past its lease may claim a job that still waits in its buffer."""
    flow, go = Flow("work"), asyncio.Event()
    begun: list[tuple[JobId, int]] = []
    is_busy = asyncio.Event()

    @flow.action
    async def wait(ctx: Context) -> None:
        begun.append((ctx.job_id, ctx.attempt))
        is_busy.set()
        await go.wait()

    async def stall(*_: object) -> None:
        await asyncio.Event().wait()

    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    app, store = open_app("memory:", flow, clock=clock)
    store.before["renew"] = stall
    async with app:
        await enqueue(app, wait, [None])
        async with working(app, slots=1, lease_s=300, quick_poll_s=0.01) as worker:
            await is_busy.wait()
            worker._buffer._pace = 1_000
            (waiting,) = await enqueue(app, wait, [None])
            await store.ended(waiting, states={JobState.PROCESSING})
            clock.advance(hours=1)
            while (await store.get_job(waiting)).fence < 2:
                await store.until("claim_jobs")
            go.set()
            (job,) = await store.ended(waiting, states={JobState.SUCCEEDED})
    assert [attempt for job_id, attempt in begun if job_id == waiting] == [2]
    assert job.fence == 2


@pytest.mark.parametrize("action", ["work.wait", "work.block"])
@in_loop
async def test_a_timeout_is_a_failure_that_is_retried(any_url: str, action: str) -> None:
    handlers = Handlers()
    app, store = open_app(any_url, handlers.flow)
    async with app:
        (late,) = await enqueue(
            app, action, [None], timeout=timedelta(milliseconds=30), retry=AT_ONCE
        )
        async with working(app):
            (job,) = await store.ended(late)
        assert (job.state, job.attempts) == (JobState.DEAD, 2)
        assert job.error == "timed out after 0.03 s"
        assert [each.status for each in await store.job_attempts(late)] == ["timed_out"] * 2
        once = ["processing", "failed"]
        assert await path(store, late) == [
            *("queued", *once, "retrying"),
            *("queued", *once, "dead"),
        ]


@in_loop
async def test_handlers_that_ignore_timeouts_lose_slots_then_the_worker() -> None:
    flow, deaf = Flow("work"), threading.Event()

    @flow.action(timeout_s=0.02)
    def ignore(ctx: Context) -> None:
        deaf.wait()

    @flow.action
    def quick() -> None:
        pass

    app, store = open_app("memory:", flow)
    try:
        async with app:
            stuck = await enqueue(app, ignore, [None])
            worker = app.worker(WorkerOptions(slots=2, stubborn_s=0.02, heartbeat_s=0.01))
            running = asyncio.create_task(worker.run())
            while not any(slot.is_lost for slot in worker._slots):
                await store.until("beat")
            assert stuck[0] not in worker._leases
            await store.ended(*await enqueue(app, quick, [None]))
            await enqueue(app, ignore, [None])
            with pytest.raises(WorkerStuck, match="all 2 slots are lost"):
                await running
    finally:
        deaf.set()


@pytest.mark.parametrize("kind", ["thread", "loop"])
@in_loop
async def test_handlers_that_outlive_a_stop_are_reported(kind: str) -> None:
    flow, deaf, begun = Flow("work"), threading.Event(), asyncio.Event()
    loop, free = asyncio.get_running_loop(), asyncio.Event()

    @flow.action(name="thread")
    def ignore() -> None:
        loop.call_soon_threadsafe(begun.set)
        deaf.wait()

    @flow.action(name="loop")
    async def swallow() -> None:
        begun.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    app, store = open_app("memory:", flow)
    try:
        async with app:
            (job_id,) = await enqueue(app, f"work.{kind}", [None])
            worker = app.worker(WorkerOptions(drain_s=0.01, stubborn_s=0.01))
            running = asyncio.create_task(worker.run())
            await begun.wait()
            worker.stop()
            with pytest.raises(WorkerStuck, match="handlers of 1 jobs did not stop"):
                await running
            (job,) = await store.ended(job_id, states={JobState.PROCESSING})
            assert job.attempts == 0
    finally:
        deaf.set()
        free.set()


STUCK_APP = """
import asyncio, dataclasses, threading
from duly.app import Duly
from duly import Flow
flow = Flow("work")
@flow.action(timeout_s=0.05)
def thread() -> None:
    threading.Event().wait()
@flow.action(timeout_s=0.05)
async def loop() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
class Impatient(Duly):
    def worker(self, options=None):
        return super().worker(dataclasses.replace(options, stubborn_s=0.1))
app = Impatient("sqlite:///stuck.db", flows=[flow])
"""


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_a_stuck_worker_ends_its_process(tmp_path: Path, kind: str) -> None:
    (tmp_path / "stuck_app.py").write_text(STUCK_APP)
    add = f"from stuck_app import app; app.sync.client.enqueue('work.{kind}')"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", add], cwd=tmp_path, env=environment, check=True)
    ran = subprocess.run(
        [*DULY, "worker", "stuck_app:app", "--slots", "1"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
    assert "all 1 slots are lost" in ran.stderr


@in_loop
async def test_a_retry_claimed_before_the_answer_about_its_failure_keeps_its_lease() -> None:
    flow, go = Flow("work"), asyncio.Event()
    begun = asyncio.Semaphore(0)

    @flow.action(retry=AT_ONCE)
    async def second_time(ctx: Context) -> None:
        begun.release()
        if ctx.attempt == 1:
            raise ValueError("first")
        await go.wait()

    app, store = open_app("memory:", flow)

    async def until_claimed_again(_: object) -> None:
        del store.after["finish"]
        await begun.acquire()
        await begun.acquire()

    store.after["finish"] = until_claimed_again
    async with app:
        (job_id,) = await enqueue(app, second_time, [None])
        async with working(app, lease_s=0.9):
            await store.until("renew")
            ((_, leases, *_),) = [args for name, args, _ in store.calls if name == "renew"]
            assert leases == [(job_id, 2)]
            go.set()
            (job,) = await store.ended(job_id)
        assert (job.state, job.attempts) == (JobState.SUCCEEDED, 2)


@in_loop
async def test_a_late_renewal_does_not_stop_the_next_attempt() -> None:
    flow, go, renewing = Flow("work"), asyncio.Event(), asyncio.Event()
    first, second = asyncio.Event(), asyncio.Event()

    @flow.action(retry=AT_ONCE)
    async def second_time(ctx: Context) -> None:
        if ctx.attempt == 1:
            await first.wait()
            raise ValueError("first")
        second.set()
        await go.wait()

    app, store = open_app("memory:", flow)

    async def hold(*_: object) -> None:
        del store.before["renew"]
        renewing.set()
        await second.wait()

    store.before["renew"] = hold
    async with app:
        (job_id,) = await enqueue(app, second_time, [None])
        async with working(app, lease_s=0.3):
            await renewing.wait()
            first.set()
            await store.until("renew")
            go.set()
            (job,) = await store.ended(job_id)
        assert (job.state, job.attempts, job.fence) == (JobState.SUCCEEDED, 2, 2)


@in_loop
async def test_a_fair_worker_keeps_its_token_while_it_works_and_gives_it_back(any_url: str) -> None:
    handlers = Handlers()
    app, store = open_app(any_url, handlers.flow)
    request = ClaimRequest(worker=OTHER, fair=True)
    async with app:
        async with working(app, fair=True, lease_s=30, token_lease_s=1.2, slots=1):
            await store.until("claim_jobs", 3)
            (ours,) = await enqueue(app, "work.wait", [None], workspace="acme")
            await handlers.begun.acquire()
            (next_one,) = await enqueue(app, "work.wait", [None], workspace="acme")
            (free,) = await enqueue(app, "work.wait", [None], workspace="globex")
            await store.until("renew", 4)
            claims = await store.store.claim_jobs(request)
            assert [job.id for job in claims.jobs] == [free], "acme's only token is held"
            handlers.go.set()
            await store.ended(ours, next_one)
        await enqueue(app, "work.wait", [None], workspace="acme")
        assert [job.workspace for job in (await store.claim_jobs(request)).jobs] == ["acme"]


@in_loop
async def test_a_paused_queue_is_left_alone(any_url: str) -> None:
    handlers = Handlers()
    app, store = open_app(any_url, handlers.flow)
    handlers.go.set()
    async with app:
        await store.set_queue(QueueSettings("default", is_paused=True, note="moving"))
        ids = await enqueue(app, "work.wait", [None])
        async with working(app, quick_poll_s=0.01, poll_s=0.01):
            await store.until("claim_jobs", 3)
            assert await store.list_jobs(JobFilter(state=JobState.PROCESSING)) == []
            await store.set_queue(QueueSettings("default"))
            await store.ended(*ids, states={JobState.SUCCEEDED})
