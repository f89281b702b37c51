"""Tests of the schedule admin: search over all scopes, redacted views, audited operations."""

import asyncio
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from duly import cron
from duly.errors import Conflict, InvalidInput, NotFound
from duly.flows.collections import ScheduleCollection
from duly.flows.flow import Flow, actions_of
from duly.model.claims import ClaimRequest
from duly.model.jobs import WorkerId
from duly.model.ledger import OccurrenceState
from duly.model.plans import PlanRequest
from duly.model.queues import WorkerInfo
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.model.scopes import SYSTEM, user, workspace
from duly.operate.admin import Admin
from duly.operate.schedule_views import key_of, key_text, parse_key
from duly.operate.why import Verdict
from duly.rules.outcomes import Failed, Succeeded, decide
from duly.stores.memory import MemoryStore
from duly.testing import ManualClock
from duly.testing.conformance.index.quarantine import BAD

NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)
HOURLY = cron("0 * * * *", tz="Europe/Berlin")
SECRET = "hunter22-hunter22"  # noqa: S105
SSN = "078-05-1120"
T = TypeVar("T")

crm = Flow("crm")


@dataclass
class Person:
    name: str
    user_ssn: str
    password: str


@crm.action(redact=["ssn"])
def greet(person: Person) -> None: ...


PERSON = {"name": "Ada", "user_ssn": SSN, "password": SECRET}


def run(asked: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asked)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def admin(store: MemoryStore) -> Admin:
    return Admin(store, actions=actions_of([crm]))


def create(store: MemoryStore, name: str, scope: Any = None, **options: Any) -> ScheduleId:
    schedules = ScheduleCollection(store, "crm").of(user("ada") if scope is None else scope)
    made = schedules.create(name, options.pop("trigger", HOURLY), action="greet", **options)
    return run(made).id


def fire(store: MemoryStore, *, succeeds: bool = True) -> None:
    """Plan due occurrences and finish their jobs."""
    run(store.plan_occurrences(PlanRequest()))
    claims = run(store.claim_jobs(ClaimRequest(worker=WorkerId("w"), limit=100)))
    end = Succeeded() if succeeds else Failed("no", is_final=True)
    run(store.finish([decide(job, end) for job in claims.jobs]))


def test_keys_are_read_as_they_are_written() -> None:
    for key in (
        ScheduleKey("crm", "user:ada", "digest"),
        ScheduleKey("crm", "user:a/b%2Fc", "50% / half"),
        ScheduleKey("crm", "system", "nightly"),
    ):
        assert parse_key(key_text(key)) == key
    assert parse_key("crm/nightly") == ScheduleKey("crm", "system", "nightly")
    assert parse_key("sch_1") == "sch_1"


@pytest.mark.parametrize("text", ["", "a/b/c/d", "crm//x", "crm/", "CRM/user:ada/x", "crm/bob/x"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_key(text)


def test_search_over_all_scopes(store: MemoryStore, admin: Admin) -> None:
    for scope in (user("ada"), user("bob"), workspace("acme"), SYSTEM):
        create(store, "daily", scope)
        create(store, "weekly", scope, enabled=False)
    paused = run(admin.schedules.search(ScheduleFilter(state="paused")))
    assert [each.key for each in paused] == [
        "crm/system/weekly",
        "crm/user:ada/weekly",
        "crm/user:bob/weekly",
        "crm/workspace:acme/weekly",
    ]
    assert {each.next_at for each in paused} == {None}
    first = run(admin.schedules.search(limit=3))
    rest = run(admin.schedules.search(after=first[-1].key))
    assert len({each.id for each in [*first, *rest]}) == len(first) + len(rest) == 8
    assert first[0].next_at == NOW + timedelta(hours=1)
    assert (first[0].words, first[0].zone) == (HOURLY.words, "Europe/Berlin")
    with pytest.raises(InvalidInput, match="not its id"):
        run(admin.schedules.search(after="sch_1"))


def test_by_key_and_by_id(store: MemoryStore, admin: Admin) -> None:
    schedule_id = create(store, "daily")
    for which in (schedule_id, "crm/user:ada/daily", ScheduleKey("crm", "user:ada", "daily")):
        assert run(admin.schedules.get(which)).id == schedule_id


def test_unknown_schedules_suggest_similar_names(store: MemoryStore, admin: Admin) -> None:
    create(store, "weekly-digest")
    with pytest.raises(NotFound, match="did you mean 'weekly-digest'"):
        run(admin.schedules.get("crm/user:ada/weekly-diges"))
    with pytest.raises(NotFound, match="there is crm/user:ada/weekly-digest"):
        run(admin.schedules.get("crm/user:bob/weekly-digest"))
    with pytest.raises(NotFound, match="duly schedules list"):
        run(admin.schedules.get("crm/user:bob/other"))
    for asked in (admin.schedules.get, admin.schedules.events):
        with pytest.raises(NotFound, match="sch_0 does not exist"):
            run(asked("sch_0"))


def test_nothing_secret_is_shown(store: MemoryStore, admin: Admin, clock: ManualClock) -> None:
    schedule_id = create(
        store, "daily", input=PERSON, description=f"the pin is {SECRET}", note=f"for {SSN}"
    )
    clock.advance(hours=1)
    fire(store)
    run(admin.schedules.pause(schedule_id, f"{SECRET} leaked", by=f"bob of {SSN}"))
    detail = run(admin.schedules.show(schedule_id))
    shown = [
        repr(asdict(detail)),
        repr(run(admin.schedules.search())),
        repr(run(admin.schedules.events(schedule_id))),
        repr(run(admin.schedules.occurrences(schedule_id))),
        repr(run(admin.why(schedule_id, clock.now() + timedelta(hours=1)))),
        repr(run(admin.schedules.delete(schedule_id))),
    ]
    assert "Ada" in shown[0]
    for each in shown:
        assert SECRET not in each
        assert SSN not in each
    assert (
        "[redacted]"
        in run(admin.schedules.show(create(store, "x", input=PERSON))).schedule.input_preview
    )


def test_details_of_a_schedule(store: MemoryStore, admin: Admin, clock: ManualClock) -> None:
    schedule_id = create(store, "daily", max_runs=9)
    clock.advance(hours=1, seconds=2)
    fire(store)
    clock.advance(hours=1)
    fire(store, succeeds=False)
    detail = run(admin.schedules.show(schedule_id, times=2))
    assert [each.at for each in detail.next_times] == [
        NOW + timedelta(hours=3),
        NOW + timedelta(hours=4),
    ]
    assert [each.state for each in detail.occurrences] == ["failed", "succeeded"]
    assert [each.late_ms for each in detail.occurrences] == [2_000, 2_000]
    assert [each.kind for each in detail.events] == ["created"]
    assert detail.schedule.runs_left == 7
    coverage = detail.coverage
    assert (coverage.expected, coverage.fired, coverage.share) == (2, 2, 1.0)
    assert coverage.states == {"failed": 1, "succeeded": 1}
    assert (coverage.lateness.p50_ms, coverage.lateness.max_ms) == (2_000, 2_000)


def test_pages_of_the_ledger(store: MemoryStore, admin: Admin, clock: ManualClock) -> None:
    schedule_id = create(store, "daily")
    for hour in range(4):
        clock.advance(hours=1)
        fire(store, succeeds=hour != 2)
    ask = admin.schedules.occurrences
    times = [NOW + timedelta(hours=hour) for hour in (4, 3, 2, 1)]
    assert [each.nominal_at for each in run(ask(schedule_id))] == times
    assert [each.nominal_at for each in run(ask(schedule_id, before=times[1]))] == times[2:]
    assert [each.nominal_at for each in run(ask(schedule_id, since=times[1]))] == times[:2]
    failed = run(ask(schedule_id, states=[OccurrenceState.FAILED]))
    assert [each.nominal_at for each in failed] == [times[1]]


def test_pause_and_resume(store: MemoryStore, admin: Admin) -> None:
    schedule_id = create(store, "daily")
    paused = run(admin.schedules.pause(schedule_id, "repairs", by="bob"))
    assert (paused.state, paused.note, paused.next_at) == ("paused", "repairs", None)
    resumed = run(admin.schedules.resume(schedule_id))
    assert (resumed.state, resumed.next_at) == ("active", NOW + timedelta(hours=1))
    events = run(admin.schedules.events(schedule_id))
    assert [(each.kind, each.by, each.note) for each in events] == [
        ("created", "user:ada", None),
        ("paused", "bob", "repairs"),
        ("resumed", "operator", None),
    ]


def test_limits_of_the_owner_do_not_apply_to_operators(store: MemoryStore, admin: Admin) -> None:
    """The limits of the owner may be lower now, but pausing must always be possible."""
    schedule_id = create(store, "often", SYSTEM, trigger=cron("* * * * * *", seconds=True))
    assert run(admin.schedules.pause(schedule_id)).state == "paused"


def test_deleted_schedules_keep_their_history(
    store: MemoryStore, admin: Admin, clock: ManualClock
) -> None:
    schedule_id = create(store, "daily")
    clock.advance(hours=1)
    fire(store)
    run(admin.schedules.delete("crm/user:ada/daily", by="bob"))
    with pytest.raises(NotFound):
        run(admin.schedules.get(schedule_id))
    assert [each.kind for each in run(admin.schedules.events(schedule_id))] == [
        "created",
        "deleted",
    ]
    assert len(run(admin.schedules.occurrences(schedule_id))) == 1
    verdicts = [
        run(admin.why(schedule_id, NOW + timedelta(minutes=minutes))).verdict
        for minutes in (-1, 30, 60, 120)
    ]
    assert verdicts == [
        Verdict.BEFORE_CREATION,
        Verdict.NOT_A_TIME,
        Verdict.FIRED,
        Verdict.DELETED,
    ]
    with pytest.raises(NotFound):
        run(admin.why("sch_0", NOW))


def test_why_reads_what_is_stored(store: MemoryStore, admin: Admin, clock: ManualClock) -> None:
    policies = Policies(misfire=Misfire("skip"))
    schedule_id = create(store, "daily", policies=policies)
    clock.advance(hours=3)
    fire(store)
    verdicts = [
        run(admin.why(schedule_id, NOW + timedelta(hours=hours))).verdict for hours in (1, 2, 3, 4)
    ]
    assert verdicts == [Verdict.MISSED, Verdict.MISSED, Verdict.FIRED, Verdict.WILL_FIRE]
    clock.advance(hours=1)
    late = run(admin.why(schedule_id, NOW + timedelta(hours=4)))
    assert late.verdict is Verdict.NOT_YET_PLANNED


def test_run_now(store: MemoryStore, admin: Admin, clock: ManualClock) -> None:
    schedule_id = create(store, "daily")
    clock.advance(minutes=7)
    made = run(admin.schedules.run_now(schedule_id, "ticket-1"))
    assert (made.reason, made.nominal_at, made.state) == ("run_now", clock.now(), "planned")
    assert run(admin.schedules.run_now(schedule_id, "ticket-1")) == made
    second = run(admin.schedules.run_now(schedule_id))
    assert second.state == "skipped"  # the first has not ended
    answer = run(admin.why(schedule_id, made.nominal_at))
    assert answer.text.endswith("It was requested with run_now.")
    coverage = run(admin.schedules.coverage(schedule_id))
    assert (coverage.expected, coverage.fired, coverage.extras) == (0, 0, 1)


def test_backfill_in_steps(store: MemoryStore, admin: Admin, clock: ManualClock) -> None:
    """Nine of ten hours were missed; the backfill makes nine jobs, four at a time."""
    schedule_id = create(store, "daily", policies=Policies(misfire=Misfire("skip")))
    clock.advance(hours=10)
    fire(store)
    seen: list[tuple[int, int, int]] = []
    done = run(
        admin.schedules.backfill(
            schedule_id,
            NOW + timedelta(hours=1),
            clock.now(),
            on_step=lambda at: seen.append((at.done, at.total, at.planned)),
            step=4,
        )
    )
    assert seen == [(4, 9, 4), (8, 9, 8), (9, 9, 9)]
    assert (done.planned, done.left_alone) == (9, 0)
    again = run(admin.schedules.backfill(schedule_id, NOW + timedelta(hours=1), clock.now()))
    assert (again.planned, again.left_alone) == (0, 9)
    with pytest.raises(InvalidInput):
        run(admin.schedules.backfill(schedule_id, NOW, clock.now() + timedelta(days=1)))


def test_quarantine_and_release(store: MemoryStore, admin: Admin, clock: ManualClock) -> None:
    schedule_id = create(store, "daily")
    with pytest.raises(Conflict, match="active, not quarantined"):
        run(admin.schedules.release(schedule_id))
    (row,) = run(store.find_rows([schedule_id])).values()
    run(store.upsert(replace(row, trigger=BAD)))
    clock.advance(hours=1)
    run(store.plan_occurrences(PlanRequest()))
    (quarantined,) = run(admin.schedules.quarantined())
    assert quarantined.schedule_id == schedule_id
    assert run(admin.schedules.get(schedule_id)).state == "quarantined"
    released = run(admin.schedules.release(schedule_id, by="bob"))
    assert (released.state, released.error) == ("active", None)
    assert run(admin.schedules.quarantined()) == []


def test_locks(store: MemoryStore, admin: Admin) -> None:
    run(store.acquire_lock("nightly", "ada", 5_000))
    (lock,) = run(admin.locks())
    assert (lock.name, lock.owner, lock.until_at) == ("nightly", "ada", NOW + timedelta(seconds=5))
    assert run(admin.release_lock("nightly")) == lock
    assert run(admin.locks()) == []
    with pytest.raises(NotFound, match="lock 'nightly' is not held"):
        run(admin.release_lock("nightly"))


def test_health_of_stored_data(store: MemoryStore, admin: Admin, clock: ManualClock) -> None:
    schedule_id = create(store, "daily")
    assert run(admin.health()).level == "warning"  # no worker
    worker = WorkerInfo(WorkerId("w"), "host", 1, ("default",), 4, 0, is_stopping=False)
    run(store.beat(worker))
    assert run(admin.health()).level == "ok"
    found = run(store.find_schedule(schedule_id))
    assert found is not None
    run(store.remove(key_of(found)))
    health = run(admin.health())
    assert health.level == "bad"
    assert "nothing will fire" in health.findings[0].text
    assert run(admin.repair()).added == 1
    run(store.beat(worker))
    assert run(admin.health()).level == "ok"
    clock.advance(hours=2)
    run(store.beat(worker))
    (bad,) = [each for each in run(admin.health()).findings if each.level == "bad"]
    assert bad.name == "planning"
