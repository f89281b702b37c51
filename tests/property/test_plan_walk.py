"""Tests of random walks over planning: sound in memory, and the same in every store."""

import asyncio
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import count, pairwise, zip_longest
from pathlib import Path

import pytest

from duly.engine import ids as id_makers
from duly.engine.jobs import moves
from duly.engine.kinds import JOB
from duly.engine.transaction import Index
from duly.model.jobs import Job, JobId, JobState
from duly.model.ledger import OccurrenceState
from duly.model.plans import PlanRequest
from duly.rules import spans
from duly.stores import MemoryStore, open_store
from duly.stores.port import Store
from duly.stores.sql.options import SqlOptions
from duly.testing import ManualClock
from tests.property.derived_rows import check_derived_rows
from tests.property.plan_walk import PlanWalk, all_jobs, dump
from tests.property.strategies import DEPTH

START = datetime(2026, 3, 2, 12, tzinfo=UTC)
STEPS = 600
DUMP_EVERY = 20
AT_WORK = frozenset({JobState.QUEUED, JobState.PROCESSING, JobState.RETRYING})
BEFORE = frozenset({JobState.SCHEDULED, JobState.QUEUED})
ALLOWED = {
    OccurrenceState.PLANNED: BEFORE,
    OccurrenceState.FIRED: AT_WORK,
    OccurrenceState.SUCCEEDED: frozenset({JobState.SUCCEEDED, JobState.DELETED}),
    OccurrenceState.FAILED: frozenset({JobState.DEAD, JobState.CANCELLED, JobState.DELETED}),
    OccurrenceState.SKIPPED: frozenset({JobState.CANCELLED, JobState.DELETED}),
    OccurrenceState.MISSED: frozenset({JobState.CANCELLED, JobState.DELETED}),
    OccurrenceState.WITHDRAWN: frozenset({JobState.CANCELLED, JobState.DELETED}),
}
"""States that the job of an occurrence may have."""


@pytest.fixture(autouse=True)
def rising_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ids strictly increasing even within a millisecond, so that stores agree on the order."""
    numbers = count(1)
    single, many = id_makers.new_id.__kwdefaults__, id_makers.new_ids.__kwdefaults__
    assert single is not None
    assert many is not None
    monkeypatch.setitem(single, "entropy", lambda size: next(numbers).to_bytes(size, "big"))
    monkeypatch.setitem(
        many, "entropy", lambda size: (next(numbers) * 1_000 << 48).to_bytes(size, "big")
    )


def check_sound(store: MemoryStore, walk: PlanWalk) -> None:
    """Check the invariants of the stored data."""
    tables = store._tables
    jobs = {job.id: job for job, _ in tables.jobs.values()}
    for schedule_id, holder in tables.running.items():
        assert jobs[holder].state in AT_WORK, (schedule_id, jobs[holder])
    at_work: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs.values():
        if job.in_line:
            assert job.state is JobState.SCHEDULED, job
            assert job.schedule_id in tables.running, job
        if job.turn is not None and job.state in AT_WORK:
            at_work[job.schedule_id or ""].append(job)
    for schedule_id, together in at_work.items():
        assert schedule_id in walk.retried or len(together) == 1, together
    named = Counter(entry.occurrence.job_id for entry in tables.ledger.values())
    assert all(times == 1 for job_id, times in named.items() if job_id is not None)
    for schedule_id in walk.ids:
        check_ledger(store, jobs, schedule_id)


def check_ledger(store: MemoryStore, jobs: dict[JobId, Job], schedule_id: str) -> None:
    """Check that no time is covered twice, and that every row agrees with its job."""
    found = [entry for (owner, _), entry in store._tables.ledger.items() if owner == schedule_id]
    rows = sorted((entry.occurrence for entry in found), key=lambda row: row.nominal_ms)
    for one, another in pairwise(rows):
        assert one.until_ms < another.nominal_ms, (one, another)
    for row in rows:
        assert row.count >= 1
        assert (row.job_id is None) <= (row.state not in (OccurrenceState.PLANNED,)), row
        job = None if row.job_id is None else jobs.get(row.job_id)
        if job is not None:
            assert job.state in ALLOWED[row.state], (row, job)
        elif row.job_id is not None:
            assert not ALLOWED[row.state] & AT_WORK, row


async def check_covered(store: MemoryStore, walk: PlanWalk, now_ms: int) -> int:
    """Check that after planning, each time of a schedule without edits has exactly one row."""
    while (await store.plan_occurrences(PlanRequest())).rows:
        pass
    checked = 0
    for schedule in await store.list_schedules("mail", "system"):
        if schedule.id in walk.moved or schedule.definition.max_runs is not None:
            continue
        rows = await store.list_occurrences(schedule.id, limit=1_000)
        trigger = schedule.definition.trigger
        ms = trigger.next_after_ms(schedule.created_at_ms)
        while ms is not None and ms + trigger.offset_ms <= now_ms:
            assert sum(row.covers(ms) for row in rows) == 1, (schedule.name, ms)
            checked += 1
            ms = trigger.next_after_ms(ms)
    return checked


async def walk_in_memory(store: MemoryStore, clock: ManualClock, seed: int) -> Counter[str]:
    """Walk and check after every step. Return the number of steps and of states by name."""
    walk, taken = PlanWalk(seed, clock, store), Counter[str]()
    for number in range(STEPS):
        name, ask = await walk.next()
        same = {job.id: job.id for job, _ in store._tables.jobs.values()}
        answer = await ask(store, same)
        walk.learn(answer)
        taken[name] += 1
        check_sound(store, walk)
        if number % 50 == 0:
            taken["covered"] += await check_covered(store, walk, clock.now_ms())
    for entry in store._tables.ledger.values():
        taken[f"row {entry.occurrence.state}"] += 1
    taken["in line"] = sum(job.in_line for job, _ in store._tables.jobs.values())
    return taken


class Names:
    """Maps the job ids of a store to names by rank, which are the same in every store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.by_id: dict[str, str] = {}

    async def learn(self) -> None:
        """Assign names to new jobs."""
        for job in await all_jobs(self._store):
            self.by_id.setdefault(job.id, f"job {len(self.by_id)}")

    def renamed(self, known: object) -> str:
        """Return a value as text, with names in place of ids."""
        # A reason may name a job that was skipped before it was stored.
        return re.sub("job_[0-9a-f]{32}", lambda found: self.by_id.get(found[0], "?"), repr(known))


async def walk_together(clock: ManualClock, store: Store, seed: int, steps: int = 300) -> None:
    """Walk in memory and in another store, and compare."""
    model = MemoryStore(clock)
    walk = PlanWalk(seed, clock, model)
    ours, theirs = Names(model), Names(store)
    for number in range(steps):
        name, ask = await walk.next()
        theirs_by_name = {known: JobId(each) for each, known in theirs.by_id.items()}
        ids = {JobId(each): theirs_by_name[known] for each, known in ours.by_id.items()}
        expected, answer = await ask(model, {each: each for each in ids}), await ask(store, ids)
        walk.learn(expected)
        await ours.learn()
        await theirs.learn()
        where = f"seed {seed}, step {number}: {name}"
        assert theirs.renamed(answer) == ours.renamed(expected), where
        if number % DUMP_EVERY == 0 or number == steps - 1:
            check_derived_rows(store)
            assert await store.count_occurrences() == await model.count_occurrences(), where
            assert await store.find_missing() == await model.find_missing(), where
            for one, other in zip_longest(
                await dump(model, walk.ids), await dump(store, walk.ids), fillvalue="nothing"
            ):
                assert theirs.renamed(other) == ours.renamed(one), where


async def walk_with(url: str, seed: int, *, fast_paths: bool = True) -> None:
    clock = ManualClock(START)
    options = SqlOptions(fast_paths=fast_paths, synchronous="NORMAL")
    store = open_store(url, clock=clock, options=options)
    try:
        await walk_together(clock, store, seed)
    finally:
        await store.close()


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_walk_is_sound(seed: int) -> None:
    clock = ManualClock(START)
    taken = asyncio.run(walk_in_memory(MemoryStore(clock), clock, seed))
    seen = [name for name in taken if not name.startswith("row") and name != "in line"]
    assert len(seen) == 14, "each verb must be called"


def test_walks_reach_every_state() -> None:
    """Together the walks reach every state that an occurrence can have without a tick."""
    total = Counter[str]()
    for seed in range(10, 14):
        clock = ManualClock(START)
        total += asyncio.run(walk_in_memory(MemoryStore(clock), clock, seed))
    states = {name.removeprefix("row ") for name in total if name.startswith("row")}
    assert states == {state.value for state in ALLOWED}
    assert total["covered"] > 200


PLANTED: dict[str, tuple[object, str, object]] = {
    "keeps the marker": (moves, "give_back", lambda *_: None),
    "forgets the line": (moves, "WAITING_RUNS", Index("nobody", JOB, lambda _: None, guard="none")),
    "covers twice": (spans, "spans_left", lambda _rule, whole, _taken: [whole]),
}


def walk_some(seeds: int) -> None:
    for seed in range(seeds):
        clock = ManualClock(START)
        asyncio.run(walk_in_memory(MemoryStore(clock), clock, seed))


@pytest.mark.planted("walks")
@pytest.mark.parametrize("bug", PLANTED)
def test_walk_notices_a_planted_bug(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    module, name, wrong = PLANTED[bug]
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises((AssertionError, KeyError)):
        walk_some(20)


def test_walk_is_reproducible() -> None:
    clock = ManualClock(START)
    asyncio.run(walk_together(clock, MemoryStore(clock), seed=2))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(11, 11 + DEPTH))
def test_sqlite_walks_with_the_model(tmp_path: Path, seed: int) -> None:
    asyncio.run(walk_with(f"sqlite:///{tmp_path}/walk.db", seed))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(11, 11 + DEPTH))
def test_postgresql_walks_with_the_model(postgres_url: str, seed: int) -> None:
    asyncio.run(walk_with(postgres_url, seed))


@pytest.mark.extended
@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
@pytest.mark.parametrize("seed", range(21, 21 + DEPTH))
def test_the_engine_alone_walks_with_the_model(
    tmp_path: Path, request: pytest.FixtureRequest, backend: str, seed: int
) -> None:
    url = f"sqlite:///{tmp_path}/walk.db"
    if backend == "postgresql":
        url = request.getfixturevalue("postgres_url")
    asyncio.run(walk_with(url, seed, fast_paths=False))
