"""Conflicting pairs of verbs: the second runs between the reads and the commit of the first.

For each kind of item that a transaction holds there is a pair that breaks a promise when commits do
not check that kind, and passes when they do.
"""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from duly.model.claims import ClaimRequest
from duly.model.dispatches import DispatchClaim
from duly.model.documents import DocumentWrite
from duly.model.jobs import JobId, NewJob, Token, WorkerId
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, Limits, ScheduleId
from duly.rules.outcomes import Succeeded, decide
from duly.testing import ManualClock
from duly.testing.between import BetweenStore, run
from duly.triggers import every

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
ADA, BOB = WorkerId("ada"), WorkerId("bob")
POLICIES = '{"overlap":"buffer_one"}'
HELD = "held items"
"""Not a kind of item, but a conflict of transactions that held the same item and wrote others."""


class Pair(NamedTuple):
    """Two verbs, of which the second runs between the reads and the commit of the first."""

    first: Callable[[BetweenStore], Coroutine[Any, Any, object]]
    second: Callable[[BetweenStore], Coroutine[Any, Any, object]]


class Case(NamedTuple):
    """The kind that commits do not check, the pair to run, and the promise that then breaks."""

    unchecked: str
    prepare: Callable[[BetweenStore, ManualClock], Pair]
    promise: str


class CarelessStore(BetweenStore):
    """A store whose commits do not check one kind of held items."""

    unchecked = ""

    def pause(self, *, is_commit: bool = False) -> None:
        if self.unchecked == HELD:
            self.versions.clear()
        super().pause(is_commit=is_commit)
        if self.unchecked == HELD:
            self.versions.clear()

    def conflicts(self, *attempt: Any) -> list[str]:
        found = super().conflicts(*attempt)
        own = (f"{self.unchecked}:", f"{self.unchecked} of ")
        return [name for name in found if name != self.unchecked and not name.startswith(own)]


def insert(store: BetweenStore, *jobs: NewJob) -> None:
    run(store.insert_jobs(jobs))


def a_job(name: str, **fields: Any) -> NewJob:
    return NewJob(id=JobId(name), action="mail.send", **fields)


def one_job(store: BetweenStore, _clock: ManualClock) -> Pair:
    insert(store, a_job("a"))
    return Pair(
        lambda store: store.claim_jobs(ClaimRequest(ADA)),
        lambda store: store.claim_jobs(ClaimRequest(BOB)),
    )


def _of_schedule(store: BetweenStore, clock: ManualClock) -> int:
    """Insert two jobs of one schedule, on different queues. Return their run time."""
    run_at_ms = clock.now_ms() + 1_000
    for name in ("a", "b"):
        fields = {"schedule_id": "sch", "policies": POLICIES, "turn": "asks"}
        insert(store, a_job(name, queue=name, run_at_ms=run_at_ms, **fields))
    return run_at_ms


def free_marker(store: BetweenStore, clock: ManualClock) -> Pair:
    _of_schedule(store, clock)
    clock.advance(seconds=1)
    return Pair(
        lambda store: store.claim_jobs(ClaimRequest(ADA, queues=("a",))),
        lambda store: store.claim_jobs(ClaimRequest(BOB, queues=("b",))),
    )


def end_of_holder(store: BetweenStore, clock: ManualClock) -> Pair:
    """The holder reads an empty line and ends, while another job is put in line."""
    _of_schedule(store, clock)
    clock.advance(seconds=1)
    (holder,) = run(store.claim_jobs(ClaimRequest(ADA, queues=("a",)))).jobs
    return Pair(
        lambda store: store.finish([decide(holder, Succeeded())]),
        lambda store: store.claim_jobs(ClaimRequest(BOB, queues=("b",))),
    )


def one_key(_store: BetweenStore, _clock: ManualClock) -> Pair:
    return Pair(
        lambda store: store.insert_jobs([a_job("a", key="k")]),
        lambda store: store.insert_jobs([a_job("b", key="k")]),
    )


def expired_token(store: BetweenStore, clock: ManualClock) -> Pair:
    insert(store, a_job("a"), a_job("b"))
    request = ClaimRequest(ADA, fair=True, limit=1, token_lease_ms=1_000)
    claims = run(store.claim_jobs(request))
    (token,) = claims.holds[JobId("a")]
    clock.advance(seconds=2)
    return Pair(
        lambda store: store.renew(ADA, [], 1_000, [Token(*token)]),
        lambda store: store.claim_jobs(ClaimRequest(BOB, fair=True)),
    )


def free_lock(_store: BetweenStore, _clock: ManualClock) -> Pair:
    return Pair(
        lambda store: store.acquire_lock("keeper", "ada", 1_000),
        lambda store: store.acquire_lock("keeper", "bob", 1_000),
    )


def a_document(name: str, **fields: Any) -> DocumentWrite:
    values: dict[str, Any] = {"body": "{}", **fields}
    return DocumentWrite("notes", "user:ada", name, f"doc-{name}", **values)


def one_document(store: BetweenStore, _clock: ManualClock) -> Pair:
    run(store.put_document(a_document("a")))
    return Pair(
        lambda store: store.put_document(a_document("a", expected_version=1, body="1")),
        lambda store: store.put_document(a_document("a", expected_version=1, body="2")),
    )


def room_for_one(store: BetweenStore, _clock: ManualClock) -> Pair:
    store.limits = {"notes": 1}
    return Pair(
        lambda store: store.put_document(a_document("a", scope_limit=1)),
        lambda store: store.put_document(a_document("b", scope_limit=1)),
    )


def a_write(name: str, **fields: Any) -> ScheduleWrite:
    values: dict[str, Any] = {"definition": Definition(every(minutes=1), "send"), **fields}
    return ScheduleWrite(ScheduleKey("mail", "user:ada", name), ScheduleId(f"id-{name}"), **values)


def one_row(store: BetweenStore, clock: ManualClock) -> Pair:
    """Two claims of due rows, as an application makes that dispatches by itself."""
    definition = Definition(every(minutes=1), "send", hand_over="http")
    run(store.put_schedules([a_write("a", definition=definition)]))
    clock.advance(minutes=1)
    now_ms = clock.now_ms()
    return Pair(
        lambda store: store.claim_due(now_ms),
        lambda store: store.claim_due(now_ms + 60_000),
    )


def paused_schedule(store: BetweenStore, _clock: ManualClock) -> Pair:
    """A paused schedule has no index row, so the transactions hold no other item."""
    paused = Definition(every(minutes=1), "send", enabled=False)
    run(store.put_schedules([a_write("a", definition=paused)]))
    one, other = (replace(paused, description=text) for text in ("one", "other"))
    return Pair(
        lambda store: store.put_schedules([a_write("a", definition=one)]),
        lambda store: store.put_schedules([a_write("a", definition=other)]),
    )


def lapsed_dispatch(store: BetweenStore, clock: ManualClock) -> Pair:
    """The lease of a dead tick has expired, and two other ticks claim its dispatch."""
    definition = Definition(every(minutes=5), "send", hand_over="http")
    run(store.put_schedules([a_write("a", definition=definition)]))
    clock.advance(minutes=5)
    assert run(store.claim_dispatches(DispatchClaim("t0", lease_ms=1_000)))
    clock.advance(seconds=2)
    return Pair(
        lambda store: store.claim_dispatches(DispatchClaim("t1", lease_ms=10_000)),
        lambda store: store.claim_dispatches(DispatchClaim("t2", lease_ms=10_000)),
    )


def room_for_one_schedule(store: BetweenStore, _clock: ManualClock) -> Pair:
    store.limits = {"schedules": 1}
    limits = Limits(schedules=1)
    return Pair(
        lambda store: store.put_schedules([a_write("a", limits=limits)]),
        lambda store: store.put_schedules([a_write("b", limits=limits)]),
    )


def zone_rules(_store: BetweenStore, _clock: ManualClock) -> Pair:
    return Pair(
        lambda store: store.recompute_zones("2026a"),
        lambda store: store.recompute_zones("2026b"),
    )


CASES = [
    Case("row", one_row, "a version is written once"),
    Case("schedule", paused_schedule, "a version is written once"),
    Case("document", one_document, "a version is written once"),
    Case("idempotency key", one_key, "an idempotency key is taken once"),
    Case("job", one_job, "a fence is used once"),
    Case("occurrence", lapsed_dispatch, "a dispatch has one owner"),
    Case("running marker", free_marker, "one live job for each marker"),
    Case(HELD, end_of_holder, "a job in line waits for a marker"),
    Case("token", expired_token, "a fence is used once"),
    Case("lock", free_lock, "a lock has one owner"),
    Case("setting", zone_rules, "zone rules are never older"),
    Case("guard notes", room_for_one, "a scope keeps its limit"),
    Case("guard scope", room_for_one_schedule, "a scope keeps its limit"),
]


def meet(case: Case, unchecked: str) -> None:
    """Run the pair of a case in a store that does not check a kind."""
    clock = ManualClock(START)
    store = CarelessStore(clock)
    pair = case.prepare(store, clock)
    store.unchecked = unchecked
    store.step(lambda: store.meet(lambda: run(pair.first(store)), lambda: run(pair.second(store))))
