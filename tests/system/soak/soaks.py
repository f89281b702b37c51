"""Soaks: schedules that planners and workers run while they are killed every second."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from duly import every
from duly.model.ledger import LOST
from duly.model.schedules import Definition, Misfire, Policies, Schedule
from duly.model.scopes import SYSTEM
from tests.system.audit import COMPLETED, Expected, Verdict, judge
from tests.system.database import Database, store_schedules
from tests.system.soak.crew import BOTH, PLANNER, WORKER, Crew


@dataclass(frozen=True, slots=True)
class Start:
    """An action, and the policies of the schedules that start it."""

    action: str
    policies: Policies


PATIENT = Policies(
    misfire=Misfire("catch_up", limit=10_000, per_minute=60_000), grace_ms=60_000, overlap="allow"
)
CAREFUL = Policies(overlap="allow", grace_ms=600_000)
"""Does not say the delivery: that is for the action to declare."""
REPEATED = Policies(delivery="at_least_once", overlap="allow", grace_ms=600_000)
LATE = Policies(grace_ms=600_000)
QUIET_S = 180.0
REST_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Soak:
    """What runs for how long, and what is done to it."""

    name: str
    schedules: int
    interval_s: int
    seconds: int
    starts: tuple[Start, ...]
    roles: tuple[tuple[str, ...], ...]
    kill_every_s: float | None = 1.0
    all_run: bool = False
    """Whether every time must have been handed over: no policy may swallow one."""


def soaks(*, quick: bool) -> list[tuple[str, Soak]]:
    """Return ten minutes of minutely schedules, ten times as fast; then very many at once."""
    seconds, count, many = (12, 50, 2_000) if quick else (60, 1_000, 100_000)
    crew = (PLANNER,) * 3 + (WORKER,) * 3
    small = (PLANNER,) * 2 + (WORKER,) * 2
    patient = (Start("quick", PATIENT), Start("once", CAREFUL), Start("once", REPEATED))
    plain = (Start("quick", Policies()), Start("once", Policies()))
    late = (Start("quick", LATE),)
    return [
        ("postgresql", Soak("catch up", count, 6, seconds, patient, crew, all_run=True)),
        ("postgresql", Soak("defaults", count, 6, seconds, plain, crew)),
        ("sqlite", Soak("catch up", count, 6, seconds, patient, small, all_run=True)),
        ("sqlite", Soak("defaults", count, 6, seconds, plain, small)),
        ("postgresql", Soak("many", many, 60, 60, late, (BOTH,) * 10, None, all_run=True)),
    ]


def run(url: str, folder: Path, soak: Soak) -> tuple[Verdict, int]:
    """Run one soak; return the verdict, and how many processes were killed."""
    schedules = asyncio.run(store_schedules(url, SYSTEM, definitions_of(soak)))
    database = Database(url)
    ends_at = max(_end_s(schedule) for schedule in schedules)
    with Crew(url, folder, soak.roles) as crew:
        if soak.kill_every_s is not None:
            crew.kill_until(ends_at, soak.kill_every_s, random.Random(2026))
        limit_s = QUIET_S + max(0.0, ends_at - time.time())
        late: list[str] = []
        try:
            crew.until(database.is_at_rest, "rest", limit_s=limit_s, poll_s=REST_POLL_S)
        except TimeoutError as error:
            late.append(str(error))
        crew.stop()
    verdict = judge(database, expected_of(soak, schedules), crew.record)
    verdict.faults += late
    return verdict, crew.killed


def expected_of(soak: Soak, schedules: Sequence[Schedule]) -> Expected:
    """Return what a soak must have left."""
    states = COMPLETED if soak.all_run else COMPLETED | LOST
    return Expected(schedules=schedules, states=states, dead=None, can_deadlock=False)


def definitions_of(soak: Soak) -> list[Definition]:
    """Return schedules whose times lie evenly over their interval."""
    start = datetime.now(UTC) + timedelta(seconds=5 + soak.schedules / 4_000)
    made: list[Definition] = []
    for number in range(soak.schedules):
        offset = timedelta(seconds=soak.interval_s * number / soak.schedules)
        first = start + timedelta(milliseconds=offset // timedelta(milliseconds=1))
        last = first + timedelta(seconds=soak.seconds - soak.interval_s)
        trigger = every(seconds=soak.interval_s, start_at=first, end_at=last)
        start_of = soak.starts[number % len(soak.starts)]
        made.append(Definition(trigger, start_of.action, policies=start_of.policies))
    return made


def _end_s(schedule: Schedule) -> float:
    """Return when its last time is, in seconds of this machine's clock."""
    end_at = schedule.definition.trigger.end_at
    assert end_at is not None
    return end_at.timestamp()
