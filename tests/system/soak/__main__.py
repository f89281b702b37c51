"""Soaks with real processes: `make soak`. Prints a table; exit status 1 where a promise broke."""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from duly import every
from duly.engine.ids import new_id
from duly.model.plans import PlanSettings
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Definition, Misfire, Policies, Schedule, ScheduleId
from duly.stores import open_store
from tests.servers import NO_SERVER, find_binaries
from tests.system.faults.servers import own_cluster
from tests.system.soak.audit import Books, Verdict, judge
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
"""Says nothing of the delivery: that is for the action to declare."""
REPEATED = Policies(delivery="at_least_once", overlap="allow", grace_ms=600_000)
PATIENT_NOTE = Start("note", PATIENT)
CAREFUL_NOTE = Start("note_once", CAREFUL)
REPEATED_NOTE = Start("note_once", REPEATED)
QUIET_S = 180.0


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
    """Ten minutes of minutely schedules, ten times as fast; then very many at once."""
    seconds, count, many = (12, 50, 2_000) if quick else (60, 1_000, 100_000)
    crew = (PLANNER,) * 3 + (WORKER,) * 3
    small = (PLANNER,) * 2 + (WORKER,) * 2
    patient = (PATIENT_NOTE, CAREFUL_NOTE, REPEATED_NOTE)
    plain = (Start("note", Policies()), Start("note_once", Policies()))
    return [
        ("postgresql", Soak("catch up", count, 6, seconds, patient, crew, all_run=True)),
        ("postgresql", Soak("defaults", count, 6, seconds, plain, crew)),
        ("sqlite", Soak("catch up", count, 6, seconds, patient, small, all_run=True)),
        ("sqlite", Soak("defaults", count, 6, seconds, plain, small)),
        (
            "postgresql",
            Soak(
                "many",
                many,
                60,
                60,
                (Start("note", Policies(grace_ms=600_000)),),
                (BOTH,) * 10,
                None,
                all_run=True,
            ),
        ),
    ]


def run(url: str, folder: Path, soak: Soak) -> tuple[Verdict, int, bool]:
    """One soak: the verdict, how many processes were killed, and whether all came to rest."""
    schedules = asyncio.run(_create(url, soak))
    books = Books(url)
    ends_at = max(to_end(schedule) for schedule in schedules)
    with Crew(url, folder, soak.roles) as crew:
        if soak.kill_every_s is not None:
            crew.kill_until(ends_at, soak.kill_every_s, random.Random(2026))
        is_quiet = crew.wait_until(books.is_quiet, QUIET_S + max(0.0, ends_at - time.time()))
        killed = crew.killed
    verdict = judge(books, schedules, folder / "journal")
    books.close()
    return verdict, killed, is_quiet


def to_end(schedule: Schedule) -> float:
    """When its last time is, in seconds of this machine's clock."""
    end_at = schedule.definition.trigger.end_at
    assert end_at is not None
    return end_at.timestamp()


async def _create(url: str, soak: Soak) -> list[Schedule]:
    """Schedules whose times lie evenly over their interval."""
    store = open_store(url, planning=PlanSettings(look_ahead_ms=0))
    start = datetime.now(UTC) + timedelta(seconds=5 + soak.schedules / 4_000)
    made: list[Schedule] = []
    writes = []
    for number in range(soak.schedules):
        offset = timedelta(seconds=soak.interval_s * number / soak.schedules)
        first = start + timedelta(milliseconds=offset // timedelta(milliseconds=1))
        last = first + timedelta(seconds=soak.seconds - soak.interval_s)
        trigger = every(seconds=soak.interval_s, start_at=first, end_at=last)
        start_of = soak.starts[number % len(soak.starts)]
        key = ScheduleKey("soak", "system", f"{number:06}")
        definition = Definition(trigger, start_of.action, policies=start_of.policies)
        writes.append(ScheduleWrite(key, ScheduleId(new_id("sch_")), definition))
    for i in range(0, len(writes), 5_000):
        for answer in await store.put_schedules(writes[i : i + 5_000]):
            assert isinstance(answer, ScheduleWritten)
            made.append(answer.schedule)
    await store.close()
    return made


def row_of(place: str, soak: Soak, answer: tuple[Verdict, int, bool]) -> tuple[str, bool]:
    """A line of the table, and whether the promises held."""
    verdict, killed, is_quiet = answer
    states = ", ".join(f"{state} {count:,}" for state, count in sorted(verdict.states.items()))
    swallowed = verdict.states["missed"] + verdict.states["skipped"]
    is_kept = is_quiet and not (
        verdict.lost or verdict.doubled or verdict.undeclared or verdict.deadlocks
    )
    if soak.all_run:
        is_kept = is_kept and swallowed == 0
    line = (
        f"{place:<11} {soak.name:<9} {soak.schedules:>7,} {len(soak.roles):>9} {killed:>6} "
        f"{verdict.expected:>8,} {verdict.lost:>5} {verdict.doubled:>7} {verdict.again:>6} "
        f"{verdict.undeclared:>10} {verdict.deadlocks:>9}  "
        f"{states}{'' if is_quiet else '; not all came to rest'}"
    )
    return line, is_kept


HEAD = (
    f"{'store':<11} {'soak':<9} {'schedul.':>7} {'processes':>9} {'killed':>6} {'times':>8} "
    f"{'lost':>5} {'doubled':>7} {'again':>6} {'undeclared':>10} {'deadlocks':>9}  "
    "what became of them"
)


def main() -> int:
    """Run them all. Gives the exit status."""
    parser = argparse.ArgumentParser(prog="tests.system.soak", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    parser.add_argument("--only", default="", help="part of `store name`, as in `sqlite def`")
    options = parser.parse_args()
    binaries = find_binaries()
    if binaries is None:
        print(NO_SERVER)
        return 1
    all_kept = True
    print(HEAD)
    with (
        tempfile.TemporaryDirectory(prefix="duly-soak-") as name,
        own_cluster(Path(name, "server"), binaries) as cluster,
    ):
        for number, (place, soak) in enumerate(soaks(quick=options.quick)):
            if options.only not in f"{place} {soak.name}":
                continue
            folder = Path(name, str(number))
            folder.mkdir()
            (folder / "journal").touch()
            url = cluster.create() if place == "postgresql" else f"sqlite:///{folder}/soak.db"
            line, is_kept = row_of(place, soak, run(url, folder, soak))
            print(line, "" if is_kept else "BROKEN", flush=True)
            all_kept = all_kept and is_kept
    return 0 if all_kept else 1


if __name__ == "__main__":
    sys.exit(main())
