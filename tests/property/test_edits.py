"""Tests of random edits of schedules: the ledger agrees with a small model for every time."""

import asyncio
import random
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from duly.engine.schedules import schedules, withdrawals
from duly.model.claims import ClaimRequest
from duly.model.jobs import JobState, LeasedJob, WorkerId
from duly.model.plans import PlanRequest
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Definition, Policies, Schedule, ScheduleId
from duly.model.stored_jobs import JobFilter
from duly.rules import edits
from duly.rules.outcomes import Failed, Outcome, Succeeded, decide
from duly.rules.planning import plan_times
from duly.rules.runs import runs_after_edit
from duly.stores import MemoryStore
from duly.stores.port import Store
from duly.testing import ManualClock
from duly.triggers import Trigger, cron, every
from tests.property.edit_oracle import PAUSED, RUNS, WITHDRAWN, Expected, check_apart
from tests.property.strategies import DEPTH
from tests.property.test_plan_walk import START

SPREADS = {"a": 0, "b": 200, "c": 100}
"""Spread in seconds by schedule name. With one spread per schedule, runs keep their order."""
STEPS = 90
CHECK_EVERY = 9
DAY_MS = 86_400_000
NEVER_LATE = Policies(grace_ms=DAY_MS, overlap="allow")
AHEAD = frozenset({JobState.SCHEDULED, JobState.QUEUED, JobState.PROCESSING})


class EditWalk:
    """A walk over a few schedules, each with its expected ledger."""

    def __init__(self, seed: int, clock: ManualClock, store: Store, *, mixes_spreads: bool) -> None:
        self.chance = random.Random(seed)
        self.mixes_spreads = mixes_spreads
        self.clock = clock
        self.store = store
        self.expected: dict[str, Expected] = {}
        """By schedule id, including deleted schedules."""
        self.leases: list[LeasedJob] = []

    async def step(self) -> None:
        self.clock.advance(seconds=self.chance.choice([0, 0, 1, 7, 20, 45, 90, 400]))
        acts = [self.edit, self.plan, self.claim, self.finish, self.delete]
        await self.chance.choices(acts, [10, 6, 4, 3, 1])[0]()

    async def edit(self) -> None:
        key = ScheduleKey("mail", "system", self.chance.choice(list(SPREADS)))
        found = await self.store.get_schedule(key)
        if found is None:
            await self.create(key)
            return
        old, expected = found.definition, self.expected[found.id]
        choice = self.chance.choice(["trigger", "trigger", "input", "enabled", "description"])
        change = {
            "trigger": self.trigger(key),
            "input": self.chance.random(),
            "enabled": not old.enabled,
            "description": str(self.chance.random()),
        }[choice]
        written = await self.write(key, found.id, replace(old, **{choice: change}))
        now_ms = self.clock.now_ms()
        if choice == "trigger":
            expected.retime(written.definition.trigger, now_ms)
        elif choice == "enabled":
            (expected.pause if old.enabled else expected.resume)(now_ms)

    async def create(self, key: ScheduleKey) -> None:
        definition = Definition(
            self.trigger(key),
            "send",
            enabled=self.chance.random() < 0.9,
            policies=NEVER_LATE,
            max_runs=self.chance.choice([None, None, None, 1, 3]),
        )
        own_id = ScheduleId(f"id-{len(self.expected)}")
        trigger = (await self.write(key, own_id, definition)).definition.trigger
        self.expected[own_id] = Expected(
            trigger,
            self.clock.now_ms(),
            enabled=definition.enabled,
            max_runs=definition.max_runs,
        )

    async def write(self, key: ScheduleKey, own_id: ScheduleId, new: Definition) -> Schedule:
        (written,) = await self.store.put_schedules([ScheduleWrite(key, own_id, new)])
        assert isinstance(written, ScheduleWritten)
        return written.schedule

    def trigger(self, key: ScheduleKey) -> Trigger:
        name = self.chance.choice(list(SPREADS)) if self.mixes_spreads else key.name
        spread = SPREADS[name]
        return self.chance.choice(
            [
                # Anchored, so that the triggers share some times.
                every(seconds=20, spread=spread, start_at=START),
                every(minutes=3, spread=spread, start_at=START),
                every(seconds=50, spread=spread),
                cron("* * * * *", spread=spread),
                cron("*/2 * * * *", spread=spread),
            ]
        )

    async def delete(self) -> None:
        key = ScheduleKey("mail", "system", self.chance.choice(list(SPREADS)))
        deleted = await self.store.delete_schedule(key)
        if isinstance(deleted, Schedule):
            self.expected[deleted.id].delete(self.clock.now_ms())

    async def plan(self) -> None:
        look_ahead_ms = self.chance.choice([0, 60_000, 300_000])
        await self.store.plan_occurrences(PlanRequest(look_ahead_ms=look_ahead_ms))

    async def claim(self) -> None:
        limit = self.chance.choice([1, 2, 4])
        claims = await self.store.claim_jobs(
            ClaimRequest(WorkerId("w"), limit=limit, lease_ms=DAY_MS)
        )
        for job in claims.jobs:
            assert job.schedule_id is not None
            assert job.nominal_ms is not None
            expected = self.expected[job.schedule_id]
            expected.advance(self.clock.now_ms())
            if not self.mixes_spreads:
                expected.begin(job.nominal_ms)
        self.leases += claims.jobs

    async def finish(self) -> None:
        ends: list[Outcome] = [Succeeded(), Failed("no luck", is_final=True)]
        await self.store.finish([decide(each, self.chance.choice(ends)) for each in self.leases])
        self.leases.clear()

    async def check(self) -> None:
        while (await self.store.plan_occurrences(PlanRequest())).rows:
            pass
        jobs = await self.store.list_jobs(JobFilter(), limit=1_000)
        ahead = {job.id for job in jobs if job.state in AHEAD}
        for own_id, expected in self.expected.items():
            rows = await self.store.list_occurrences(ScheduleId(own_id), limit=1_000)
            check_apart(rows)
            if not self.mixes_spreads:
                expected.check(rows, self.clock.now_ms())
            ahead -= {row.job_id for row in rows if row.state in ("planned", "fired")}
            found = await self.store.find_schedule(ScheduleId(own_id))
            if found is not None and found.runs_had is not None:
                ran = [row for row in rows if row.state not in ("withdrawn", "missed")]
                assert found.runs_had == len(ran), f"{own_id} had {found.runs_had} runs: {ran}"
        assert not ahead, f"jobs without an occurrence: {ahead}"


async def walk(
    seed: int, store: Store, clock: ManualClock, *, mixes_spreads: bool = False
) -> EditWalk:
    """Walk, and compare at intervals. With mixed spreads, a time may come twice or be skipped."""
    taken = EditWalk(seed, clock, store, mixes_spreads=mixes_spreads)
    for number in range(STEPS):
        await taken.step()
        if number % CHECK_EVERY == 0 or number == STEPS - 1:
            await taken.check()
    return taken


def walk_in_memory(seed: int, *, mixes_spreads: bool = False) -> EditWalk:
    clock = ManualClock(START)
    return asyncio.run(walk(seed, MemoryStore(clock), clock, mixes_spreads=mixes_spreads))


def walk_some(seeds: int) -> None:
    for seed in range(seeds):
        walk_in_memory(seed)


@pytest.mark.parametrize("seed", range(30 * DEPTH))
def test_edits_do_what_is_expected(seed: int) -> None:
    walk_in_memory(seed)


@pytest.mark.parametrize("seed", range(10 * DEPTH))
def test_edits_of_the_spread_cover_nothing_twice(seed: int) -> None:
    walk_in_memory(seed, mixes_spreads=True)


def test_walks_produce_every_state() -> None:
    """Together the walks produce many times of every state."""
    states = [
        state
        for seed in range(5)
        for each in walk_in_memory(seed).expected.values()
        for state in each.states.values()
    ]
    for kind in (RUNS, WITHDRAWN, PAUSED):
        assert states.count(kind) > 50, kind


def forgets_them(row: Any, *_: object) -> Any:
    return [], row.runs_left


def keeps_withdrawn(
    old: Definition, had: int | None, new: Definition, _withdrawn: int
) -> int | None:
    return runs_after_edit(old, had, new, 0)


def charges_nothing(row: Any, come: Any, now_ms: int) -> Any:
    return plan_times(row, come, now_ms)[0], row.runs_left


def back_to_the_first(edit: Any, come: Any, _now_ms: int) -> Any:
    return edits._row_back(edit, come.times[0])


PLANTED: dict[str, tuple[ModuleType, str, object]] = {
    "withdraws nothing": (withdrawals, "withdraw", lambda *_, **__: []),
    "does not set rows back": (edits, "_row_back", lambda edit, _: edit),
    "forgets what had come": (edits, "plan_times", forgets_them),
    "charges nothing again": (edits, "plan_times", charges_nothing),
    "gives no run back": (edits, "runs_after_edit", keeps_withdrawn),
    "plans before the edit": (edits, "_come_again", back_to_the_first),
    "forgets what was spread": (schedules, "unplanned", lambda *_: []),
    "forgets what was due": (schedules, "is_overdue", lambda *_: False),
    "forgets pauses": (withdrawals, "write_pause", lambda *_: None),
    "knows the last trigger alone": (withdrawals, "Change", lambda at_ms, _: (at_ms, 0)),
}


@pytest.mark.planted("walks")
@pytest.mark.parametrize("bug", PLANTED)
def test_walk_of_edits_notices_a_planted_bug(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    monkeypatch.setattr(*PLANTED[bug])
    with pytest.raises(AssertionError):
        walk_some(30)
