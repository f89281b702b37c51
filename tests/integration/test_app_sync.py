"""The application used from sync code, from threads, while it runs, and in tests."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly.app import Duly
from duly.errors import InvalidInput
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.jobs import JobId, JobState
from duly.model.retries import RetryPolicy
from duly.runtime import KeeperOptions, WorkerOptions
from duly.testing.clock import ManualClock
from duly.testing.jobs import drain
from tests.integration.working import LIMIT_S, in_loop, open_app


def counting_flow() -> tuple[Flow, list[int]]:
    flow, seen = Flow("work"), list[int]()

    @flow.action
    async def count(number: int) -> int:
        seen.append(number)
        return number * 2

    return flow, seen


def test_sync_code_has_the_same_calls(any_url: str) -> None:
    flow, _ = counting_flow()
    app = Duly(any_url, flows=[flow])
    made = app.sync.client.enqueue("work.count", 21)
    assert app.sync.admin.counts()[0].jobs == 1
    assert app.sync.client.job(made.job_id).state is JobState.QUEUED
    with pytest.raises(InvalidInput, match="priority"):
        app.sync.client.enqueue("work.count", 1, priority=10**9)
    app.sync.close()
    app.sync.close()
    if any_url != "memory:":
        assert app.sync.client.job(made.job_id) is not None, "opened again by the next use"
        app.sync.close()


FORKED = """
import os, signal, sys
from duly import Duly, Flow

flow = Flow("work")

@flow.action
def count(number: int) -> None: ...

app = Duly(sys.argv[1], flows=[flow])
app.sync.client.enqueue("work.count", 1)
child = os.fork()
if child == 0:
    signal.alarm(15)  # in case it waits for a thread that fork() did not copy
    app.sync.client.enqueue("work.count", 2)
    app.sync.close()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
app.sync.client.enqueue("work.count", 3)
print(app.sync.admin.counts()[0].jobs)
app.sync.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_opens_its_own_store(any_url: str) -> None:
    """A server such as gunicorn loads the application and then forks."""
    command = [sys.executable, "-c", FORKED, any_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    jobs = 2 if any_url == "memory:" else 3  # memory is each process's own
    assert (done.returncode, done.stdout) == (0, f"{jobs}\n"), done.stderr


def test_threads_share_one_store(any_url: str) -> None:
    flow, _ = counting_flow()
    app = Duly(any_url, flows=[flow])
    together = threading.Barrier(8)

    def call(number: int) -> JobId:
        together.wait(LIMIT_S)
        job_id: JobId = app.sync.client.enqueue("work.count", number).job_id
        return job_id

    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(call, range(8)))
    assert len(set(ids)) == 8
    assert sum(each.jobs for each in app.sync.admin.counts()) == 8
    assert [each.name for each in threading.enumerate()].count("duly-sync") >= 1
    app.sync.close()


@in_loop
async def test_sync_calls_from_async_code_are_refused() -> None:
    app = Duly("memory:")
    with pytest.raises(InvalidInput, match="await the call itself"):
        app.sync.admin.counts()
    await app.close()
    gc.collect()  # A coroutine that nobody awaited would be a warning here.


@in_loop
async def test_running_works_drains_and_closes(any_url: str) -> None:
    flow, seen = counting_flow()
    done = asyncio.Event()

    @flow.action(name="last")
    async def last(ctx: Context) -> None:
        done.set()

    app = Duly(any_url, flows=[flow])
    quick = WorkerOptions(quick_poll_s=0.02)
    async with app.running(worker=quick, keeper=KeeperOptions(period_s=0.05)):
        await app.client.enqueue_many("work.count", range(5))
        await app.client.enqueue("work.last", priority=-1)
        await done.wait()
    assert sorted(seen) == list(range(5))
    assert app._opened is None
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    if any_url != "memory:":
        async with app:
            states = {(each.state, each.jobs) for each in await app.admin.counts()}
            assert states == {(JobState.SUCCEEDED, 6)}
            assert await app.store.list_workers() == []


@in_loop
async def test_an_error_in_the_block_ends_the_loops() -> None:
    flow, _ = counting_flow()
    app = Duly("memory:", flows=[flow])
    with pytest.raises(ExceptionGroup) as raised:
        async with app.running():
            raise LookupError("planted")
    assert raised.group_contains(LookupError, match="planted")
    assert app._opened is None
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@in_loop
async def test_an_error_of_a_loop_ends_the_block() -> None:
    flow, _ = counting_flow()
    app, store = open_app("memory:", flow)

    async def break_down(*_: object) -> None:
        raise RuntimeError("planted")

    store.before["beat"] = break_down
    with pytest.raises(ExceptionGroup) as raised:
        async with app.running():
            await asyncio.Event().wait()
    assert raised.group_contains(RuntimeError, match="planted")


@in_loop
async def test_drain_runs_what_is_due_and_what_that_enqueues(any_url: str) -> None:
    flow, seen = counting_flow()
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))

    @flow.action(name="twice", retry=RetryPolicy(attempts=2, backoff="fixed", first_delay_ms=1_000))
    async def twice(ctx: Context) -> None:
        ctx.progress(50)
        if ctx.attempt == 1:
            raise ValueError("once more")
        await app.client.enqueue("work.count", 1)

    app = Duly(any_url, flows=[flow], clock=clock)
    async with app:
        await app.client.enqueue("work.twice")
        first = await drain(app)
        assert (len(first), first.ids(), seen) == (1, [], [])
        assert len(await drain(app)) == 0
        clock.advance(seconds=2)
        second = await drain(app)
        assert (len(second.ids()), seen) == (2, [1])


def test_an_unused_app_connects_to_nothing(tmp_path: Path) -> None:
    Duly(f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []
