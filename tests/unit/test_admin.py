"""Tests of the admin: job views, operations on one job and on many, queues, workers."""

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import pytest

from duly.errors import Conflict, InvalidInput, NotFound
from duly.flows.client import Client
from duly.flows.flow import Flow
from duly.model.claims import ClaimRequest, ProgressNote
from duly.model.jobs import JobId, JobState, WorkerId
from duly.model.queues import JobCount, WorkerInfo
from duly.model.retries import RetryPolicy
from duly.model.stored_jobs import DAY_MS, JobFilter, Retention
from duly.operate.admin import MAX_MANY, Admin, ManyReport
from duly.operate.job_views import JobView
from duly.operate.redaction.values import REDACTED
from duly.rules.outcomes import Failed, Outcome, Succeeded, decide
from duly.stores.memory import MemoryStore
from duly.testing import ManualClock

NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)
PASSWORD = "hunter22-hunter22"  # noqa: S105
SSN = "078-05-1120"
T = TypeVar("T")

people = Flow("people")


@dataclass
class Person:
    name: str
    user_ssn: str
    password: str
    monkey: str = "George"


@people.action(redact=["ssn"], retry=RetryPolicy(attempts=1))
def add(person: Person) -> None: ...


def run(asked: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asked)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def client(store: MemoryStore, clock: ManualClock) -> Client:
    return Client(store, clock=clock)


@pytest.fixture
def admin(store: MemoryStore) -> Admin:
    return Admin(store, actions={add.name: add})


def end(store: MemoryStore, outcome: Outcome, queue: str = "default") -> None:
    """Claim the next job and finish it."""

    async def work() -> None:
        claims = await store.claim_jobs(ClaimRequest(WorkerId("w"), (queue,), limit=1))
        assert await store.finish([decide(claims.jobs[0], outcome)]) == []

    run(work())


def fill(client: Client, count: int, **options: Any) -> list[JobId]:
    made = run(client.enqueue_many("a.b", range(count), **options))
    return [each.job_id for each in made]


def person(client: Client, **options: Any) -> JobId:
    return run(client.enqueue(add, Person("ada", SSN, PASSWORD), **options)).job_id


def counted(store: MemoryStore) -> dict[JobState, int]:
    return {count.state: count.jobs for count in run(store.count_jobs())}


def test_a_view_has_a_preview_and_no_payload(client: Client, admin: Admin) -> None:
    person(client, key="k", metadata={"source": "import"})
    (view,) = run(admin.jobs())
    names = {field.name for field in fields(JobView)}
    assert "payload_preview" in names
    assert not names & {"input", "payload", "payload_json", "result"}
    assert msgspec.json.decode(view.payload_preview) == {
        "name": "ada",
        "user_ssn": REDACTED,
        "password": REDACTED,
        "monkey": "George",
    }
    assert (view.state, view.action, view.key) == (JobState.QUEUED, "people.add", "k")
    assert (view.created_at, view.run_at, view.finished_at) == (NOW, NOW, None)
    assert (view.metadata, view.result_preview, view.error) == ('{"source": "import"}', None, None)


def test_no_view_shows_a_secret_anywhere(client: Client, admin: Admin, store: MemoryStore) -> None:
    job_id = person(
        client,
        key=f"key of {SSN}",
        correlation_id=f"call of {PASSWORD}",
        metadata={"token": "t-12345678", "note": PASSWORD},
    )
    end(store, Failed(f"cannot add {SSN} with {PASSWORD!r}: password=abc123"))
    detail = run(admin.job(job_id))
    text = msgspec.json.encode(asdict(detail)).decode()
    for secret in (PASSWORD, SSN, "t-12345678", "abc123"):
        assert secret not in text
    assert detail.job.error == f"cannot add {REDACTED} with '{REDACTED}': password={REDACTED}"
    assert detail.attempts[0].error == detail.job.error
    assert detail.events[-1].reason == detail.job.error
    assert msgspec.json.encode(asdict(run(admin.jobs())[0])).decode() in text


def test_all_values_of_an_unknown_action_are_hidden(client: Client, store: MemoryStore) -> None:
    """The application does not know which names of the action are secret, so all are hidden."""
    job_id = person(client, metadata={"ssn": SSN})
    end(store, Failed(f"no room for {SSN} of ada", is_final=True))
    detail = run(Admin(store).job(job_id))
    assert msgspec.json.decode(detail.job.payload_preview) == dict.fromkeys(
        msgspec.json.decode(detail.job.payload_preview), "[redacted]"
    )
    text = msgspec.json.encode(asdict(detail)).decode()
    assert "name" in text
    for secret in (SSN, PASSWORD):
        assert secret not in text


def test_results_are_previewed(client: Client, admin: Admin, store: MemoryStore) -> None:
    person(client)
    end(store, Succeeded(f'{{"ssn": "1", "said": "I am {SSN}", "accessToken": "x", "ok": true}}'))
    (view,) = run(admin.jobs())
    assert view.result_preview is not None
    assert msgspec.json.decode(view.result_preview) == {
        "ssn": REDACTED,
        "said": f"I am {REDACTED}",
        "accessToken": REDACTED,
        "ok": True,
    }
    assert view.finished_at == NOW


def test_long_errors_are_cut(client: Client, admin: Admin, store: MemoryStore) -> None:
    fill(client, 1)
    end(store, Failed("x" * 50_000))
    (view,) = run(admin.jobs())
    assert view.error is not None
    assert len(view.error) <= 2_000


def test_a_running_job_shows_worker_lease_and_progress(
    client: Client, admin: Admin, store: MemoryStore
) -> None:
    job_id = person(client)
    claims = run(store.claim_jobs(ClaimRequest(WorkerId("w"), lease_ms=30_000)))
    progress = f'{{"percent":40,"message":"row of {PASSWORD}"}}'
    run(store.note_progress([ProgressNote(job_id, claims.jobs[0].fence, progress)]))
    detail = run(admin.job(job_id))
    assert (detail.job.worker, detail.job.lease_ends_at) == ("w", NOW + timedelta(seconds=30))
    assert detail.job.progress == f'{{"percent": 40, "message": "row of {REDACTED}"}}'
    (attempt,) = detail.attempts
    assert (attempt.worker, attempt.started_at, attempt.ended_at) == ("w", NOW, None)
    assert [event.state for event in detail.events] == [JobState.QUEUED, JobState.PROCESSING]
    assert [(event.seq, event.at) for event in detail.events] == [(1, NOW), (2, NOW)]


def test_jobs_are_listed_in_pages(client: Client, admin: Admin) -> None:
    ids = fill(client, 5)
    first = run(admin.jobs(limit=2))
    rest = run(admin.jobs(before=first[-1].id))
    assert [view.id for view in first + rest] == ids[::-1]
    fill(client, 1, queue="other")
    (only,) = run(admin.jobs(JobFilter(queue="other")))
    assert only.queue == "other"


def test_unknown_jobs_are_not_found(admin: Admin) -> None:
    for asked in (admin.job, admin.cancel, admin.retry, admin.delete):
        with pytest.raises(NotFound, match="job job_0 does not exist"):
            run(asked(JobId("job_0")))


def test_operations_on_a_job_return_its_view(
    client: Client, admin: Admin, store: MemoryStore
) -> None:
    job_id = person(client)
    end(store, Failed(PASSWORD))
    retried = run(admin.retry(job_id, by="ada", reason="mended"))
    assert (retried.state, retried.attempts, retried.error) == (JobState.QUEUED, 0, REDACTED)
    event = run(admin.job(job_id)).events[-1]
    assert (event.actor, event.reason) == ("ada", "mended")
    assert run(admin.cancel(job_id, by="ada")).state is JobState.CANCELLED
    with pytest.raises(Conflict, match="is cancelled and cannot be retried"):
        run(admin.retry(job_id))
    deleted = run(admin.delete(job_id, by="ada"))
    assert (deleted.state, deleted.payload_preview) == (JobState.DELETED, "null")


def test_a_retry_records_whether_attempts_were_reset(
    client: Client, admin: Admin, store: MemoryStore
) -> None:
    job_id = person(client)
    end(store, Failed("boom"))
    kept = run(admin.retry(job_id, reset_attempts=False))
    assert (kept.attempts, kept.max_attempts) == (1, 2)
    end(store, Failed("boom"))
    reset = run(admin.retry(job_id))
    assert (reset.attempts, reset.max_attempts) == (0, 2)
    reasons = [event.reason for event in run(admin.job(job_id)).events]
    assert "retry" in reasons
    assert "retry, attempts reset" in reasons


def test_dead_jobs_are_retried_in_bulk(client: Client, admin: Admin, store: MemoryStore) -> None:
    fill(client, 3, retry=RetryPolicy(attempts=1))
    for _ in range(3):
        end(store, Failed("boom"))
    fill(client, 2, delay=timedelta(hours=1))
    report = run(admin.retry_many(JobFilter(queue="default"), by="ada"))
    assert report == ManyReport(done=3, refused=0, next_before=None)
    assert counted(store) == {JobState.QUEUED: 3, JobState.SCHEDULED: 2}
    assert run(admin.retry_many(JobFilter(state=JobState.SCHEDULED))).done == 2


def test_bulk_operations_are_bounded_and_return_a_cursor(
    client: Client, admin: Admin, store: MemoryStore
) -> None:
    ids = fill(client, 250)
    first = run(admin.cancel_many(JobFilter(queue="default"), limit=120))
    assert first == ManyReport(120, 0, ids[-120])
    rest = run(admin.cancel_many(JobFilter(queue="default"), before=first.next_before))
    assert rest == ManyReport(130, 0, None)
    assert counted(store) == {JobState.CANCELLED: 250}


def test_bulk_operations_count_refusals(client: Client, admin: Admin, store: MemoryStore) -> None:
    fill(client, 3)
    end(store, Succeeded())
    run(store.claim_jobs(ClaimRequest(WorkerId("w"), limit=1)))
    report = run(admin.delete_many(JobFilter(action="a.b"), by="ada", reason="gone"))
    assert report == ManyReport(done=2, refused=1, next_before=None)
    assert counted(store) == {JobState.DELETED: 2, JobState.PROCESSING: 1}


@pytest.mark.parametrize("verb", ["cancel_many", "delete_many"])
def test_bulk_operations_need_a_filter(admin: Admin, verb: str) -> None:
    with pytest.raises(InvalidInput, match="name at least a state or a queue"):
        run(getattr(admin, verb)(JobFilter()))


@pytest.mark.parametrize("limit", [0, MAX_MANY + 1])
def test_limits_of_bulk_operations(admin: Admin, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        run(admin.cancel_many(JobFilter(queue="q"), limit=limit))


def test_cleanup_removes_expired_jobs(
    client: Client, admin: Admin, store: MemoryStore, clock: ManualClock
) -> None:
    fill(client, 30)
    run(admin.cancel_many(JobFilter(queue="default"), limit=25))
    clock.advance(days=7)
    assert run(admin.cleanup(Retention(cancelled_ms=8 * DAY_MS))) == 0
    assert run(admin.cleanup(limit=20)) == 20
    assert counted(store) == {JobState.QUEUED: 5, JobState.CANCELLED: 5}
    assert run(admin.cleanup()) == 5
    assert run(admin.cleanup()) == 0
    assert counted(store) == {JobState.QUEUED: 5}
    with pytest.raises(InvalidInput, match="limit"):
        run(admin.cleanup(limit=0))


def test_counts(client: Client, admin: Admin) -> None:
    fill(client, 2)
    fill(client, 1, queue="slow", delay=timedelta(1))
    assert run(admin.counts()) == [
        JobCount("default", JobState.QUEUED, 2),
        JobCount("slow", JobState.SCHEDULED, 1),
    ]


def test_queues_are_listed_with_their_counts(client: Client, admin: Admin) -> None:
    fill(client, 2)
    run(admin.limit("slow", job_limit=3))
    first, second = run(admin.queues())
    assert (first.queue, first.counts, first.is_paused) == ("default", {JobState.QUEUED: 2}, False)
    assert (second.queue, second.job_limit, second.counts) == ("slow", 3, {})


def test_capped_counts_of_queues_are_marked(client: Client, admin: Admin) -> None:
    fill(client, 3)
    fill(client, 1, queue="slow", delay=timedelta(1))
    first, second = run(admin.queues(most=2))
    assert (first.counts, first.capped) == ({"queued": 2}, ("queued",))
    assert (second.counts, second.capped) == ({"later": 1}, ())
    with pytest.raises(InvalidInput, match="limit"):
        run(admin.queues(most=0))


def test_a_paused_queue_gives_no_jobs(client: Client, admin: Admin, store: MemoryStore) -> None:
    fill(client, 1)
    run(admin.limit("default", workspace_limit=4))
    run(admin.pause("default", "card expired", by="ada"))
    (queue,) = run(admin.queues())
    assert (queue.is_paused, queue.note, queue.workspace_limit) == (True, "card expired (ada)", 4)
    assert run(store.claim_jobs(ClaimRequest(WorkerId("w")))).jobs == []
    run(admin.resume("default"))
    (queue,) = run(admin.queues())
    assert (queue.is_paused, queue.note, queue.workspace_limit) == (False, None, 4)
    assert len(run(store.claim_jobs(ClaimRequest(WorkerId("w")))).jobs) == 1


def test_limits_of_a_queue_are_set_one_by_one(admin: Admin) -> None:
    run(admin.pause("q"))
    run(admin.limit("q", job_limit=5, workspace_limit=2))
    run(admin.limit("q", workspace_limit=3))
    (queue,) = run(admin.queues())
    assert (queue.job_limit, queue.workspace_limit, queue.is_paused) == (5, 3, True)
    assert queue.note is None
    run(admin.limit("q", job_limit=None))
    assert run(admin.queues())[0].job_limit is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"job_limit": 0}, "pause"),
        ({"job_limit": True}, "job_limit"),
        ({"workspace_limit": 0}, "1"),
    ],
)
def test_limits_that_are_refused(admin: Admin, options: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        run(admin.limit("q", **options))
    assert run(admin.queues()) == []


def test_names_and_notes_of_queues_are_checked(admin: Admin) -> None:
    with pytest.raises(InvalidInput, match="queue"):
        run(admin.pause(""))
    with pytest.raises(InvalidInput, match="note"):
        run(admin.pause("q", "x" * 1_001))


def test_workers_are_alive_until_their_heartbeat_expires(
    admin: Admin, store: MemoryStore, clock: ManualClock
) -> None:
    run(store.beat(WorkerInfo(WorkerId("w1"), "host", 1, ("default",), slots=10)))
    clock.advance(seconds=20)
    run(store.beat(WorkerInfo(WorkerId("w2"), "host", 2, ("default", "slow"), slots=4, running=3)))
    clock.advance(seconds=11)
    first, second = run(admin.workers())
    assert (first.id, first.is_alive, first.beat_at) == ("w1", False, NOW)
    assert (second.id, second.is_alive, second.running) == ("w2", True, 3)
    assert second.started_at == NOW + timedelta(seconds=20)
    assert [worker.is_alive for worker in run(admin.workers(alive_ms=31_000))] == [True, True]
    assert len(run(admin.workers(limit=1))) == 1
