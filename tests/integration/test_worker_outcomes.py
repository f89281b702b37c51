"""Results, errors and progress of handlers, and how soon a worker finds new jobs."""

import asyncio
import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from sqlalchemy import event

from duly.app import Duly
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.jobs import JobId, JobState
from duly.model.retries import RetryPolicy
from duly.runtime import WorkerOptions
from duly.runtime.worker.slots import Abort
from duly.stores.sql.store import SqlStore
from duly.testing.clock import ManualClock
from tests.integration.working import enqueue, in_loop, open_app, path, working

AT_ONCE = RetryPolicy(attempts=3, backoff="none")
HALF_A_CHARACTER = "\ud800"


def outcome_flow() -> Flow:
    """Return a flow whose actions end in every possible way."""
    flow = Flow("work")

    @flow.action
    async def give(value: dict[str, Any]) -> dict[str, Any]:
        return value

    @flow.action
    def give_much(size: int) -> str:
        return "é" * size

    @flow.action
    def give_object() -> object:
        return object()

    @flow.action(retry=AT_ONCE)
    async def fail(text: str) -> None:
        raise ValueError(text)

    @flow.action(retry=AT_ONCE)
    def abort(value: dict[str, Any]) -> None:
        raise Abort(f"no account {value['password']} here")

    @flow.action(retry=AT_ONCE)
    async def cancel_itself() -> None:
        task = asyncio.create_task(asyncio.Event().wait())
        task.cancel()
        await task

    @flow.action(retry=AT_ONCE)
    def leave() -> None:
        raise SystemExit(3)

    return flow


@in_loop
async def test_results_are_stored(any_url: str) -> None:
    app, store = open_app(any_url, outcome_flow())
    async with app:
        (small,) = await enqueue(app, "work.give", [{"rows": [1, 2]}])
        (fits,) = await enqueue(app, "work.give_much", [30_000])
        (much,) = await enqueue(app, "work.give_much", [33_000])
        (odd,) = await enqueue(app, "work.give_object", [None])
        async with working(app):
            jobs = await store.ended(small, fits, much, odd)
        assert [job.state.value for job in jobs] == ["succeeded", "succeeded", "dead", "dead"]
        assert await app.client.result(small) == {"rows": [1, 2]}
        assert jobs[2].error == "Abort: the result has 66002 bytes; allowed: 65536"
        assert "cannot be stored as JSON" in str(jobs[3].error)
        assert [job.attempts for job in jobs] == [1, 1, 1, 1]


@in_loop
async def test_the_duration_of_an_attempt_is_that_of_the_handler() -> None:
    """Storing the outcome takes 35 s by the database's clock; the handler returned at once."""
    clock = ManualClock(datetime(2026, 5, 4, 7, tzinfo=UTC))
    app, store = open_app("memory:", outcome_flow(), clock=clock)

    async def slow(*_: object) -> None:
        clock.advance(seconds=35)

    store.before["finish"] = slow
    async with app:
        (job_id,) = await enqueue(app, "work.give", [{"rows": []}])
        async with working(app, lease_s=600):
            await store.ended(job_id)
        (attempt,) = (await app.admin.job(job_id)).attempts
    assert attempt.ended_at is not None
    assert attempt.ended_at - attempt.started_at == timedelta(seconds=35)
    assert attempt.took_ms is not None
    assert attempt.took_ms < 35_000


@in_loop
async def test_failures_are_retried_until_no_attempt_is_left(any_url: str) -> None:
    dead: list[tuple[JobId, str]] = []

    def tell(job_id: JobId, error: str) -> None:
        dead.append((job_id, error))
        raise RuntimeError("a failing hook does not affect other jobs")

    app, store = open_app(any_url, outcome_flow())
    async with app:
        (job_id,) = await enqueue(app, "work.fail", ["out of paper"])
        async with working(app, on_dead=tell):
            (job,) = await store.ended(job_id)
            await store.ended(*await enqueue(app, "work.give", [{}]))
        assert (job.state, job.attempts) == (JobState.DEAD, 3)
        again = ["processing", "failed", "retrying", "queued"]
        assert await path(store, job_id) == [
            "queued",
            *again,
            *again,
            "processing",
            "failed",
            "dead",
        ]
        assert dead == [(job_id, "ValueError: out of paper")]


@in_loop
async def test_abort_is_final_and_secrets_are_scrubbed(any_url: str) -> None:
    app, store = open_app(any_url, outcome_flow())
    async with app:
        (job_id,) = await enqueue(app, "work.abort", [{"password": "hunter22"}])
        async with working(app):
            (job,) = await store.ended(job_id)
        assert (job.state, job.attempts) == (JobState.DEAD, 1)
        assert job.error == "Abort: no account [redacted] here"
        assert "hunter22" not in str(await store.job_events(job_id))


@pytest.mark.parametrize(
    "text", ["a\0b", HALF_A_CHARACTER, "x" * 9_000], ids=["nul", "half", "long"]
)
@in_loop
async def test_errors_with_unstorable_characters_are_stored(any_url: str, text: str) -> None:
    flow = outcome_flow()

    @flow.action(retry=RetryPolicy(attempts=1))
    async def say() -> None:
        raise ValueError(text)

    app, store = open_app(any_url, flow)
    async with app:
        ids = await enqueue(app, say, [None])
        async with working(app):
            (job,) = await store.ended(*ids)
            await store.ended(*await enqueue(app, "work.give", [{}]))
        assert job.state is JobState.DEAD
        assert str(job.error).startswith("ValueError: ")
        assert len(str(job.error)) < 2_100


@pytest.mark.parametrize("action", ["work.cancel_itself", "work.leave"])
@in_loop
async def test_a_handler_that_cancels_or_exits_fails_and_keeps_its_slot(action: str) -> None:
    app, store = open_app("memory:", outcome_flow())
    async with app:
        (job_id,) = await enqueue(app, action, [None])
        async with working(app, slots=1):
            (job,) = await store.ended(job_id)
            await store.ended(*await enqueue(app, "work.give", [{}]))
        assert (job.state, job.attempts) == (JobState.DEAD, 3)


@in_loop
async def test_progress_is_kept_beside_the_running_job(any_url: str) -> None:
    flow, go = Flow("work"), asyncio.Event()

    @flow.action
    async def copy(ctx: Context) -> None:
        ctx.progress(10, "begun")
        ctx.progress(40, "half of it")
        await go.wait()

    app, store = open_app(any_url, flow)
    async with app:
        ids = await enqueue(app, copy, [None])
        async with working(app):
            await store.until("note_progress")
            (job,) = await store.ended(*ids, states={JobState.PROCESSING})
            assert job.progress == '{"percent":40,"message":"half of it"}'
            go.set()
            await store.ended(*ids, states={JobState.SUCCEEDED})


@in_loop
async def test_the_last_progress_of_a_short_job_is_kept(any_url: str) -> None:
    flow = Flow("work")

    @flow.action
    async def copy(ctx: Context) -> None:
        ctx.progress(100, "done")

    app, store = open_app(any_url, flow)
    async with app, working(app):
        (job,) = await store.ended(*await enqueue(app, copy, [None]))
        assert (job.state, job.progress) == (
            JobState.SUCCEEDED,
            '{"percent":100,"message":"done"}',
        )


@in_loop
async def test_unknown_actions_are_left_for_others(any_url: str) -> None:
    app, store = open_app(any_url, outcome_flow())
    async with app:
        next_release = Duly(any_url).on(store)  # an application with flows unknown to this one
        (new,) = await enqueue(next_release, "work.from_the_next_release", [{"a": 1}])
        (old,) = await enqueue(app, "work.give", [{}])
        async with working(app):
            await store.ended(old)
            (job,) = await store.ended(new, states={JobState.QUEUED})
        assert (job.attempts, job.fence) == (0, 0)


@in_loop
async def test_handlers_know_their_job(caplog: pytest.LogCaptureFixture) -> None:
    flow, seen = Flow("work"), dict[str, Any]()

    @flow.action(queue="mail", timeout_s=60)
    def look(value: int, ctx: Context) -> None:
        names = ("job_id", "queue", "workspace_id", "scope", "attempt", "cancelled")
        seen.update({name: getattr(ctx, name) for name in names}, left=ctx.deadline)
        seen["thread"] = threading.current_thread().name
        ctx.log.info("looking", extra={"value": value})

    app, store = open_app("memory:", flow)
    with caplog.at_level(logging.INFO, "duly.job"):
        async with app:
            (job_id,) = await enqueue(app, look, [7], scope="user:ada", workspace="acme")
            async with working(app, queues=("mail",)):
                await store.ended(job_id)
    left = seen.pop("left") - datetime.now(UTC)
    assert timedelta(seconds=50) < left <= timedelta(seconds=60)
    assert seen.pop("thread").startswith("duly-handler")
    expected = {"job_id": job_id, "queue": "mail", "attempt": 1}
    logged = expected | {"workspace": "acme"}
    assert seen == {**expected, "workspace_id": "acme", "scope": "user:ada", "cancelled": False}
    (record,) = [each for each in caplog.records if each.name == "duly.job"]
    assert {name: getattr(record, name) for name in logged} == logged
    assert record.__dict__["action"] == "work.look"


@pytest.mark.parametrize("any_url", ["memory", "postgresql"], indirect=True)
@in_loop
async def test_new_jobs_wake_an_idle_worker(any_url: str) -> None:
    app, store = open_app(any_url, outcome_flow())
    async with app, working(app, poll_s=3_600):
        await _until_asleep(store)
        await store.ended(*await enqueue(app, "work.give", [{}]))


async def _until_asleep(store: Any) -> None:
    """Wait until an idle worker polls at its slowest rate, slower than any of these tests."""
    await store.until("claim_jobs", 7)


@in_loop
async def test_scheduled_jobs_are_awaited_without_polling(any_url: str) -> None:
    app, store = open_app(any_url, outcome_flow())
    async with app:
        soon = timedelta(milliseconds=700)
        (job_id,) = await enqueue(app, "work.give", [{}], delay=soon)
        async with working(app, poll_s=3_600, quick_poll_s=3_600):
            (job,) = await store.ended(job_id)
            claims = store.count("claim_jobs")
        assert job.state is JobState.SUCCEEDED
        assert claims <= 12, "pauses double from 20 ms, then one claim at the run time"
        events = await store.job_events(job_id)
        assert [each.state.value for each in events][:2] == ["scheduled", "queued"]
        assert 0 <= events[1].at_ms - job.run_at_ms < 400


@in_loop
async def test_an_idle_worker_runs_few_statements(emptied_url: str) -> None:
    app, store = open_app(emptied_url, outcome_flow())
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    async with app:
        engine = cast(SqlStore, store.store)._engine
        event.listen(engine, "before_cursor_execute", note)
        async with working(app, poll_s=0.02, heartbeat_s=3_600):
            await store.until("claim_jobs", 3)
            statements.clear()
            before = store.count("claim_jobs")
            await store.until("claim_jobs", 10)
            per_poll = len(statements) / (store.count("claim_jobs") - before)
        default = WorkerOptions()
        per_second = per_poll / default.poll_s + 1 / default.heartbeat_s
        assert per_poll <= 5
        assert per_second <= 2
