"""Tests of the client: calls, answers, and refusals."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from duly.errors import Conflict, DulyError, InvalidInput, InvalidInstant, NotFound
from duly.flows.client import MAX_ENQUEUE, Client
from duly.flows.flow import Flow
from duly.model.claims import ClaimRequest
from duly.model.jobs import Job, JobId, JobState, LeasedJob, NewJob, WorkerId
from duly.model.retries import RetryPolicy
from duly.model.scopes import SYSTEM, Scope, user, workspace, workspace_of
from duly.model.stored_jobs import MAX_INSERT, Enqueued, KeyTaken
from duly.rules.outcomes import Failed, Outcome, Succeeded, decide
from duly.stores.memory import MemoryStore
from duly.testing import ManualClock
from duly.triggers.instants import to_ms

NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)
T = TypeVar("T")

mail = Flow("mail")


@dataclass
class Letter:
    to: str
    lines: int = 1


@mail.action(
    queue="letters",
    retry=RetryPolicy(attempts=2),
    timeout_s=7,
    delivery="at_most_once",
)
def send(letter: Letter) -> None: ...


@mail.action
def sweep() -> None: ...


def run(asked: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asked)


class RecordingStore(MemoryStore):
    """A store that records inserted jobs and joins any transaction."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.inserted: list[Sequence[NewJob]] = []
        self.transactions: list[object] = []

    async def insert_jobs(self, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        self.inserted.append(jobs)
        return await super().insert_jobs(jobs)

    def insert_jobs_in(self, transaction: Any, jobs: Sequence[NewJob]) -> list[Enqueued | KeyTaken]:
        self.inserted.append(jobs)
        self.transactions.append(transaction)
        return [Enqueued(job.id, created=True) for job in jobs]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store(clock: ManualClock) -> RecordingStore:
    return RecordingStore(clock)


@pytest.fixture
def client(store: RecordingStore, clock: ManualClock) -> Client:
    return Client(store, actions={send.name: send}, clock=clock)


def stored(store: RecordingStore) -> NewJob:
    return store.inserted[-1][0]


def end(store: MemoryStore, outcome: Outcome) -> LeasedJob:
    """Claim the next job and finish it."""

    async def work() -> LeasedJob:
        claims = await store.claim_jobs(ClaimRequest(WorkerId("w"), ("default", "letters"), 1))
        assert await store.finish([decide(claims.jobs[0], outcome)]) == []
        return claims.jobs[0]

    return run(work())


def existing(client: Client, job_id: JobId) -> Job:
    job = run(client.job(job_id))
    assert job is not None
    return job


def test_a_job_is_stored_with_the_options_of_its_action(
    client: Client, store: RecordingStore
) -> None:
    made = run(client.enqueue(send, Letter("ada", 3)))
    assert made.created
    assert made.job_id.startswith("job_")
    assert len(made.job_id) == 36
    job = existing(client, made.job_id)
    assert (job.action, job.input) == ("mail.send", '{"to":"ada","lines":3}')
    assert (job.state, job.queue, job.scope) == (JobState.QUEUED, "letters", "system")
    new = stored(store)
    assert (new.retry, new.timeout_ms, new.delivery) == (
        RetryPolicy(attempts=2),
        7_000,
        "at_most_once",
    )
    assert (new.run_at_ms, new.key, new.metadata, new.aging_ms) == (None, None, None, 0)


def test_an_action_may_be_passed_by_name(client: Client, store: RecordingStore) -> None:
    run(client.enqueue("mail.send", {"to": "ada"}))
    assert (stored(store).queue, stored(store).timeout_ms) == ("letters", 7_000)


def test_an_action_of_another_application_takes_plain_json(
    client: Client, store: RecordingStore
) -> None:
    run(client.enqueue("other.work", {"at": NOW, "by": Letter("ada")}))
    new = stored(store)
    assert new.input == '{"at":"2026-05-04T07:00:00Z","by":{"to":"ada","lines":1}}'
    assert (new.queue, new.retry, new.timeout_ms) == ("default", RetryPolicy(), 300_000)


def test_options_override_those_of_the_action(client: Client, store: RecordingStore) -> None:
    run(
        client.enqueue(
            send,
            Letter("ada"),
            queue="slow",
            workspace="acme",
            scope=user("u_1"),
            priority=5,
            run_at=NOW + timedelta(hours=1),
            retry=RetryPolicy(attempts=9),
            timeout=timedelta(minutes=1),
            delivery="at_least_once",
            key="k",
            key_ttl=timedelta(days=1),
            correlation_id="c",
            metadata={"source": "test"},
        )
    )
    new = stored(store)
    assert (new.queue, new.workspace, new.scope, new.priority) == ("slow", "acme", "user:u_1", 5)
    assert new.run_at_ms == to_ms(NOW) + 3_600_000
    assert (new.retry.attempts, new.timeout_ms, new.delivery) == (9, 60_000, "at_least_once")
    assert (new.key, new.key_ttl_ms, new.correlation_id) == ("k", 86_400_000, "c")
    assert new.metadata == '{"source":"test"}'


def test_none_means_not_given(client: Client, store: RecordingStore) -> None:
    run(client.enqueue(send, Letter("ada"), key=None, delay=None, run_at=None, metadata=None))
    assert (stored(store).key, stored(store).run_at_ms) == (None, None)


def test_a_delay_counts_from_the_clock_of_the_store(store: RecordingStore) -> None:
    elsewhere = ManualClock(NOW + timedelta(days=1))
    client = Client(store, clock=elsewhere)
    made = run(client.enqueue("a.b", delay=timedelta(minutes=5)))
    job = existing(client, made.job_id)
    assert (job.state, job.run_at_ms) == (JobState.SCHEDULED, to_ms(NOW) + 300_000)


def test_aging_is_set_by_the_client(store: RecordingStore) -> None:
    run(Client(store, aging_ms=1_000).enqueue("a.b"))
    assert stored(store).aging_ms == 1_000


@pytest.mark.parametrize(
    ("scope", "expected"),
    [(SYSTEM, "system"), (workspace("acme"), "acme"), (user("u_1"), "user:u_1")],
)
def test_the_workspace_follows_from_the_scope(
    client: Client, store: RecordingStore, scope: Scope, expected: str
) -> None:
    assert workspace_of(scope) == expected
    run(client.enqueue("a.b", scope=scope))
    assert (stored(store).scope, stored(store).workspace) == (str(scope), expected)
    run(client.enqueue("a.b", scope=str(scope)))
    assert stored(store).workspace == expected


@pytest.mark.parametrize(
    ("action", "given", "options", "words"),
    [
        (send, {"to": 5}, {}, "$.to"),
        (send, {"lines": 1}, {}, "`to`"),
        (sweep, 1, {}, "mail.sweep takes no input"),
        ("a.b", float("nan"), {}, "input of a.b cannot be written as JSON"),
        ("a.b", [float("inf")], {}, "cannot be written as JSON"),
        ("a.b", "\ud800", {}, "cannot be written as JSON"),
        ("a.b", object(), {}, "cannot be written as JSON"),
        ("a.b", "x" * 262_143, {}, "more than 262144 bytes"),
        ("a.b", "€" * 90_000, {}, "270002 bytes"),
        ("", None, {}, "action"),
        (len, None, {}, "pass an action of a flow"),
        ("a.b", None, {"prioritty": 1}, "did you mean 'priority'?"),
        ("a.b", None, {"priority": 10_001}, "priority"),
        ("a.b", None, {"queue": ""}, "queue"),
        ("a.b", None, {"key": "k" * 300}, "key"),
        ("a.b", None, {"scope": "team:x"}, "scope 'team'"),
        ("a.b", None, {"delivery": "exactly_once"}, "allowed: at_least_once, at_most_once"),
        ("a.b", None, {"retry": 3}, "RetryPolicy"),
        ("a.b", None, {"timeout": 5}, "timeout is 5; pass a timedelta"),
        ("a.b", None, {"timeout": timedelta(0)}, "timeout_ms"),
        ("a.b", None, {"delay": timedelta(seconds=-1)}, "not negative"),
        ("a.b", None, {"delay": timedelta.max}, "run_at_ms"),
        ("a.b", None, {"delay": timedelta(1), "run_at": NOW}, "pass one of them"),
        ("a.b", None, {"key_ttl": timedelta(days=400)}, "key_ttl_ms"),
        ("a.b", None, {"metadata": [1]}, "pass a mapping"),
        ("a.b", None, {"metadata": {"a": "x" * 5_000}}, "allowed: 4096"),
    ],
)
def test_what_is_refused(
    client: Client,
    store: RecordingStore,
    action: Any,
    given: object,
    options: dict[str, Any],
    words: str,
) -> None:
    with pytest.raises(InvalidInput, match=_literal(words)):
        run(client.enqueue(action, given, **options))
    with pytest.raises(InvalidInput, match=_literal(words)):
        client.enqueue_in(object(), action, given, **options)
    assert store.inserted == []


def test_a_time_without_a_zone_is_refused(client: Client) -> None:
    with pytest.raises(InvalidInstant, match="no time zone"):
        run(client.enqueue("a.b", run_at=NOW.replace(tzinfo=None)))


def test_a_repeated_key_returns_the_first_job(client: Client) -> None:
    first = run(client.enqueue(send, Letter("ada"), key="k"))
    again = run(client.enqueue("mail.send", {"to": "ada", "lines": 1}, key="k"))
    assert again == Enqueued(first.job_id, created=False)
    assert run(client.enqueue(send, Letter("bob"), key="k", workspace="other")).created


def test_a_key_with_another_input_is_a_conflict(client: Client) -> None:
    first = run(client.enqueue(send, Letter("ada"), key="k"))
    with pytest.raises(Conflict) as caught:
        run(client.enqueue(send, Letter("bob"), key="k"))
    for word in ("'k'", "mail.send", first.job_id, "use another key"):
        assert word in str(caught.value)


def test_a_key_can_be_used_again_after_its_ttl(client: Client, clock: ManualClock) -> None:
    first = run(client.enqueue(send, Letter("ada"), key="k", key_ttl=timedelta(hours=1)))
    clock.advance(hours=1)
    second = run(client.enqueue(send, Letter("bob"), key="k"))
    assert second.created
    assert second.job_id != first.job_id


def test_many_jobs_run_in_the_order_given(client: Client, store: RecordingStore) -> None:
    count = MAX_INSERT + 5
    made = run(client.enqueue_many("a.b", ({"n": number} for number in range(count))))
    assert [len(jobs) for jobs in store.inserted] == [MAX_INSERT, 5]
    ids = [each.job_id for each in made]
    assert ids == sorted(ids)
    assert len(set(ids)) == count
    jobs = [job for batch in store.inserted for job in batch]
    assert [job.id for job in jobs] == ids
    assert [job.input for job in jobs] == [f'{{"n":{number}}}' for number in range(count)]
    claims = run(store.claim_jobs(ClaimRequest(WorkerId("w"), limit=3)))
    assert [job.id for job in claims.jobs] == ids[:3]


def test_many_jobs_share_their_options(client: Client, store: RecordingStore) -> None:
    options: Any = {"queue": "slow", "scope": workspace("acme"), "priority": 3}
    run(client.enqueue_many(send, [Letter("ada"), Letter("bob")], **options))
    jobs = store.inserted[-1]
    assert {(job.queue, job.workspace, job.priority, job.timeout_ms) for job in jobs} == {
        ("slow", "acme", 3, 7_000)
    }
    assert run(client.enqueue_many(send, [])) == []


def test_many_jobs_equal_single_ones(client: Client, store: RecordingStore) -> None:
    """The copies are not checked again, so they must equal single jobs."""
    run(client.enqueue_many(send, [Letter("ada")], keys=["k"], priority=3))
    many = stored(store)
    fields = {name: getattr(many, name) for name in NewJob.__struct_fields__}
    assert NewJob(**fields) == many


@pytest.mark.parametrize("keys", [["a", None], lambda letter: letter.to if letter.lines else None])
def test_many_jobs_have_keys_of_their_own(client: Client, store: RecordingStore, keys: Any) -> None:
    letters = [Letter("a", 1), Letter("b", 0)]
    first = run(client.enqueue_many(send, letters, keys=keys))
    assert [job.key for job in store.inserted[-1]] == ["a", None]
    again = run(client.enqueue_many(send, letters, keys=keys))
    assert [each.created for each in again] == [False, True]
    assert again[0].job_id == first[0].job_id


@pytest.mark.parametrize(
    ("inputs", "options", "words"),
    [
        ([Letter("a"), {"to": 5}, {"to": 6}], {}, "number 2 of 3: "),
        ([Letter("a")], {"key": "k"}, "pass keys="),
        ([Letter("a")], {"keys": []}, "0 keys for 1 inputs"),
        ([Letter("a"), Letter("b")], {"keys": "ab"}, "pass one for each"),
        ([Letter("a")], {"keys": [""]}, "key"),
        ([Letter("a")], {"prioritty": 1}, "did you mean 'priority'?"),
    ],
)
def test_one_mistake_refuses_many(
    client: Client, store: RecordingStore, inputs: list[object], options: Any, words: str
) -> None:
    with pytest.raises(InvalidInput, match=_literal(words)):
        run(client.enqueue_many(send, inputs, **options))
    with pytest.raises(InvalidInput, match=_literal(words)):
        client.enqueue_many_in(object(), send, inputs, **options)
    assert store.inserted == []


def test_too_many_jobs_are_refused(client: Client) -> None:
    with pytest.raises(InvalidInput, match="at once"):
        run(client.enqueue_many("a.b", [None] * (MAX_ENQUEUE + 1)))


def test_a_taken_key_among_many_is_reported_after_the_others_are_stored(
    client: Client, store: RecordingStore
) -> None:
    run(client.enqueue(send, Letter("ada"), key="k"))
    with pytest.raises(Conflict, match=r"'k' .* 1 jobs are taken; 2 are stored"):
        run(client.enqueue_many(send, list(map(Letter, "abc")), keys=["x", "k", "y"]))
    assert sum(count.jobs for count in run(store.count_jobs())) == 3


def test_jobs_are_stored_in_the_callers_transaction(
    client: Client, store: RecordingStore, clock: ManualClock
) -> None:
    transaction = object()
    one = client.enqueue_in(transaction, send, Letter("ada"), delay=timedelta(seconds=1))
    assert one == Enqueued(stored(store).id, created=True)
    assert stored(store).run_at_ms == clock.now_ms() + 1_000
    made = client.enqueue_many_in(transaction, "a.b", range(MAX_INSERT + 1))
    assert len(made) == MAX_INSERT + 1
    assert store.transactions == [transaction] * 3


def test_a_store_without_transactions_is_refused(clock: ManualClock) -> None:
    with pytest.raises(InvalidInput, match="no transactions to join"):
        Client(MemoryStore(clock)).enqueue_in(object(), "a.b")


def test_a_result_is_available_after_success(client: Client, store: RecordingStore) -> None:
    made = run(client.enqueue("a.b"))
    with pytest.raises(Conflict, match=f"{made.job_id} is queued and has no result"):
        run(client.result(made.job_id))
    end(store, Succeeded('{"sent":3}'))
    assert run(client.result(made.job_id)) == {"sent": 3}
    nothing = run(client.enqueue("a.b"))
    end(store, Succeeded())
    assert run(client.result(nothing.job_id)) is None


def test_a_waiting_job_is_cancelled(client: Client, store: RecordingStore) -> None:
    made = run(client.enqueue("a.b"))
    job = run(client.cancel(made.job_id, by="ada", reason="not needed"))
    assert job.state is JobState.CANCELLED
    last = run(store.job_events(made.job_id))[-1]
    assert (last.actor, last.reason) == ("ada", "not needed")
    assert run(client.cancel(made.job_id)) == job


def test_a_running_job_is_asked_to_stop(client: Client, store: RecordingStore) -> None:
    made = run(client.enqueue("a.b"))
    run(store.claim_jobs(ClaimRequest(WorkerId("w"))))
    job = run(client.cancel(made.job_id))
    assert (job.state, job.cancel_asked) == (JobState.PROCESSING, True)


def test_a_retried_job_has_all_its_attempts_again(client: Client, store: RecordingStore) -> None:
    made = run(client.enqueue("a.b", retry=RetryPolicy(attempts=1)))
    end(store, Failed("boom"))
    assert existing(client, made.job_id).state is JobState.DEAD
    job = run(client.retry(made.job_id, by="ada"))
    assert (job.state, job.attempts, job.max_attempts) == (JobState.QUEUED, 0, 1)


def test_a_retry_may_be_one_more_attempt_only(client: Client, store: RecordingStore) -> None:
    made = run(client.enqueue("a.b", retry=RetryPolicy(attempts=1)))
    end(store, Failed("boom"))
    job = run(client.retry(made.job_id, reset_attempts=False))
    assert (job.attempts, job.max_attempts) == (1, 2)


def test_a_deleted_job_has_no_input(client: Client) -> None:
    made = run(client.enqueue("a.b", {"name": "ada"}))
    job = run(client.delete(made.job_id))
    assert (job.state, job.input) == (JobState.DELETED, "null")


@pytest.mark.parametrize("verb", ["cancel", "retry", "delete", "result"])
def test_unknown_jobs_are_not_found(client: Client, verb: str) -> None:
    with pytest.raises(NotFound, match="job job_0 does not exist"):
        run(getattr(client, verb)(JobId("job_0")))
    assert run(client.job(JobId("job_0"))) is None


@pytest.mark.parametrize(("verb", "done"), [("cancel", "cancelled"), ("retry", "retried")])
def test_an_ended_job_stays_as_it_is(
    client: Client, store: RecordingStore, verb: str, done: str
) -> None:
    made = run(client.enqueue("a.b"))
    end(store, Succeeded())
    with pytest.raises(Conflict, match=f"{made.job_id} is succeeded and cannot be {done}"):
        run(getattr(client, verb)(made.job_id))


def test_a_running_job_cannot_be_deleted(client: Client, store: RecordingStore) -> None:
    made = run(client.enqueue("a.b"))
    run(store.claim_jobs(ClaimRequest(WorkerId("w"))))
    with pytest.raises(DulyError, match="is processing and cannot be deleted"):
        run(client.delete(made.job_id))


def _literal(words: str) -> str:
    return "".join(f"[{letter}]" if letter in "$.?()[" else letter for letter in words)


WRONG: Any = 5
MANY: Any = "many"


@pytest.mark.parametrize(
    "given",
    [Letter(WRONG), Letter("ada", MANY), {"to": "ada", "lnes": 2}, {"lines": 2}, "ada"],
    ids=str,
)
def test_an_input_that_does_not_fit_is_refused_before_it_is_stored(given: object) -> None:
    store = MemoryStore(ManualClock(NOW))
    with pytest.raises(InvalidInput):
        run(Client(store).enqueue(send, given))
    assert run(store.count_jobs()) == []


def test_plain_input_is_stored_as_the_action_encodes_it() -> None:
    store = MemoryStore(ManualClock(NOW))
    answer = run(Client(store).enqueue(send, {"to": "ada"}))
    job = run(store.get_job(answer.job_id))
    assert job is not None
    assert send.decode(job.input) == Letter("ada")
