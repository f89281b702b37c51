"""Ten thousand random operations: the index holds exactly the schedules that have a next time.

The memory store is the model; the relational stores run the same operations with the same clock
and must agree with it after every batch, and report a healthy index at the end. PostgreSQL is
accessed over a network, so it runs only part of them; `make test-deep` runs all.
"""

import asyncio
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly import cron, every, once, weekly
from duly.model.documents import Refused
from duly.model.index_rows import IndexRow
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition, Policies, Schedule, ScheduleId
from duly.stores import open_store
from duly.stores.memory import MemoryStore
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.triggers import Trigger
from tests.property.strategies import DEPTH

OPERATIONS = 10_000
OVER_A_NETWORK = min(OPERATIONS, 2_000 * DEPTH)
BATCH = 40
KEYS = [ScheduleKey("model", f"user:{u}", f"s{n}") for u in range(30) for n in range(10)]
START = datetime(2026, 3, 1, tzinfo=UTC)


def random_trigger(chance: random.Random) -> Trigger:
    zone = chance.choice(["Europe/Berlin", "America/New_York", "Asia/Kolkata", "UTC"])
    return chance.choice(
        [
            cron(f"{chance.randrange(60)} {chance.randrange(24)} * * *", tz=zone),
            cron("H H * * MON", tz=zone),
            cron("*/5 * * * *", tz=zone, spread=120),
            weekly({"mon": "09:00", "thu": ["08:30", "17:00"]}, tz=zone),
            weekly({}, tz=zone),  # never: a schedule without a row
            every(minutes=chance.randrange(1, 500)),
            # A write refuses a time in the past, so these lie ahead of the clock.
            once(datetime(chance.randrange(2030, 2042), 3, 5, tzinfo=UTC)),
        ]
    )


class Operations:
    """A seeded sequence of random operations, the same for every store."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._serial = 0

    def batch(self, known: dict[ScheduleKey, Schedule]) -> list[ScheduleWrite | ScheduleKey]:
        """Return writes and keys to delete, each key at most once, so that order is irrelevant."""
        keys = self._chance.sample(KEYS, BATCH)
        return [self._one(key, known.get(key)) for key in keys]

    def _one(self, key: ScheduleKey, schedule: Schedule | None) -> ScheduleWrite | ScheduleKey:
        self._serial += 1
        new_id = ScheduleId(f"sch_{self._serial:06}")
        chance = self._chance.random()
        if schedule is None or chance < 0.25:
            enabled = self._chance.random() < 0.9
            definition = Definition(
                trigger=random_trigger(self._chance), action="act", enabled=enabled
            )
            return ScheduleWrite(key, new_id, definition)
        if chance < 0.5:
            return key
        old = schedule.definition
        if chance < 0.75:  # pause or resume
            changed = Definition(old.trigger, old.action, enabled=not old.enabled)
        else:  # an edit that keeps the trigger
            policies = Policies(priority=self._chance.randrange(10))
            changed = Definition(old.trigger, old.action, enabled=old.enabled, policies=policies)
        return ScheduleWrite(key, new_id, changed)


async def apply(store: Store, batch: list[ScheduleWrite | ScheduleKey]) -> list[object]:
    """Apply a batch and return the answers."""
    writes = [each for each in batch if isinstance(each, ScheduleWrite)]
    written = await store.put_schedules(writes)
    gone = [each for each in batch if isinstance(each, ScheduleKey)]
    return [*written, *[await store.delete_schedule(key) for key in gone]]


async def indexed(store: Store) -> list[IndexRow]:
    return await store.list_rows(limit=1_000)


def with_next_time(known: dict[ScheduleKey, Schedule]) -> set[str]:
    return {schedule.id for schedule in known.values() if schedule.state == "active"}


async def check(url: str, count: int = OPERATIONS) -> None:
    clock = ManualClock(START)
    model = MemoryStore(clock)
    store = open_store(url, clock=clock, synchronous="NORMAL")
    operations = Operations(seed=20260301)
    known: dict[ScheduleKey, Schedule] = {}
    for number in range(count // BATCH):
        batch = operations.batch(known)
        expected, answers = await apply(model, batch), await apply(store, batch)
        assert answers == expected, f"batch {number}"
        for each in batch:
            key = each.key if isinstance(each, ScheduleWrite) else each
            schedule = await model.get_schedule(key)
            known.pop(key, None)
            if schedule is not None:
                known[key] = schedule
        rows = await indexed(store)
        assert rows == await indexed(model), f"batch {number}"
        assert {row.schedule_id for row in rows} == with_next_time(known), f"batch {number}"
        clock.advance(minutes=number % 50)
    health = await store.index_health()
    assert (health.missing, health.rows) == (0, health.active)
    assert health.rows > 20, "too few schedules left to prove anything"
    await store.close()


def test_refusals_are_values() -> None:
    """The model returns refusals as values, so comparing answers compares refusals too."""
    assert isinstance(asyncio.run(MemoryStore().delete_schedule(KEYS[0])), Refused)


@pytest.mark.timeout(300)
def test_sqlite_agrees_with_the_model(tmp_path: Path) -> None:
    asyncio.run(check(f"sqlite:///{tmp_path}/model.db"))


@pytest.mark.timeout(300)
def test_postgresql_agrees_with_the_model(postgres_url: str) -> None:
    asyncio.run(check(postgres_url, OVER_A_NETWORK))
