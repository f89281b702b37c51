"""Two application servers and two ticks on one PostgreSQL; one server is killed midway.

Half of the schedules are at_least_once: none may be lost. Half are at_most_once: none may be
dispatched twice. What each one came to is counted in the database, not in the processes.
"""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psycopg

from duly.clock import SystemClock
from duly.flows.collections import NewSchedule, ScheduleCollection
from duly.model.schedules import Limits
from duly.model.scopes import workspace
from duly.stores import open_store
from duly.testing import ManualClock
from duly.triggers import once

ROOT = Path(__file__).parent.parent.parent.parent
BATCH = 500


class Member:
    """A process of the fleet."""

    def __init__(self, role: str, database: str, where: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.fleet.application", role, database, where],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def until(self, holds: Callable[[str], bool]) -> str:
        """Read what it says up to a line for which something holds."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if holds(line.strip()):
                return line.strip()
        raise AssertionError(f"it ended with {self.process.wait()}")

    def kill(self) -> None:
        """Give it no time for anything."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Let it end, and read what is left, so that it does not wait for a reader."""
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            assert self.process.stdout is not None
            for _ in self.process.stdout:
                pass
        self.process.wait(30)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def member(role: str, database: str, where: str) -> Iterator[Member]:
    """A process until the end of the block."""
    found = Member(role, database, where)
    try:
        yield found
    finally:
        found.close()


@dataclass(frozen=True)
class Tally:
    """What became of every schedule."""

    schedules: int
    states: dict[tuple[str, str], int]
    """By delivery and ledger state."""
    jobs: dict[tuple[str, int], int]
    """By delivery and the number of jobs that one schedule got."""
    undeclared: int = 0
    """Jobs that are stored with another delivery than their action declares."""

    @property
    def lost(self) -> int:
        """At-least-once schedules without a job."""
        half = self.schedules // 2
        return half - sum(n for (mode, _), n in self.jobs.items() if mode == "at_least_once")

    @property
    def doubled(self) -> int:
        """Schedules with more than one job, whatever their delivery."""
        return sum(n for (_, jobs), n in self.jobs.items() if jobs > 1)

    @property
    def unaccounted(self) -> int:
        """Schedules of which the ledger does not say what became of them."""
        ended = sum(n for (_, state), n in self.states.items() if state in ("fired", "failed"))
        return self.schedules - ended

    def __str__(self) -> str:
        return (
            f"{self.schedules} schedules; lost: {self.lost}, dispatched twice: {self.doubled}, "
            f"unaccounted for: {self.unaccounted}, not as declared: {self.undeclared}\n"
            f"  ledger: {self.states}\n  jobs: {self.jobs}"
        )


async def fill(database: str, schedules: int) -> None:
    """Store schedules that are due, half of each delivery."""
    now = SystemClock().now()
    due = now - timedelta(seconds=20)
    # Made by a clock of a minute ago, or they would have no next time.
    store = open_store(database, clock=ManualClock(now - timedelta(minutes=1)))
    collection = ScheduleCollection(store, "fleet", limits=Limits(schedules=schedules))
    for start in range(0, schedules, BATCH):
        new = [
            NewSchedule(
                f"s{number:05}",
                once(due),
                "count" if number % 2 else "count_once",
                input=number,
                hand_over="http",
            )
            for number in range(start, min(start + BATCH, schedules))
        ]
        await collection.of(workspace("fleet")).create_many(new)
    await store.close()


def run_trial(database: str, schedules: int) -> Tally:
    """Let the fleet post everything, and kill a server when a quarter is done."""
    asyncio.run(fill(database, schedules))
    with ExitStack() as stack:
        servers = [stack.enter_context(member("serve", database, "0")) for _ in range(2)]
        ports = [each.until(lambda line: line.startswith("ready")).split()[1] for each in servers]
        ticks = [
            stack.enter_context(member("tick", database, f"http://127.0.0.1:{port}"))
            for port in ports
        ]
        left = schedules // 8

        def counted(line: str) -> bool:
            nonlocal left
            left -= line == "posted 202"
            return left <= 0

        ticks[0].until(counted)
        servers[0].kill()
        # As whatever keeps servers running would: the same address answers again.
        again = stack.enter_context(member("serve", database, ports[0]))
        again.until(lambda line: line.startswith("ready"))
        drains = asyncio.run(_drained(database, ticks))
        assert drains
    return tally(database, schedules)


async def _drained(database: str, ticks: list[Member]) -> bool:
    """Wait until nothing is left to post: asked whenever a tick finds nothing to do."""

    def read(one: Member) -> None:
        one.until(lambda line: line == "idle" and _is_empty(database))

    await asyncio.gather(*(asyncio.to_thread(read, each) for each in ticks))
    return True


def _is_empty(database: str) -> bool:
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM duly_occurrences WHERE state = 'dispatching') + "
            "(SELECT count(*) FROM duly_schedule_index)"
        ).fetchone()
    assert row is not None
    return bool(row[0] == 0)


def tally(database: str, schedules: int) -> Tally:
    """Count in the database."""
    with psycopg.connect(database) as connection:
        states = connection.execute("SELECT state, name FROM duly_occurrences").fetchall()
        jobs = connection.execute(
            "SELECT name, count(*) FROM duly_jobs JOIN duly_occurrences USING (schedule_id) "
            "GROUP BY name"
        ).fetchall()
        stored = connection.execute("SELECT action, max_attempts FROM duly_jobs").fetchall()
    return Tally(
        schedules,
        dict(Counter((_delivery(name), state) for state, name in states)),
        dict(Counter((_delivery(name), n) for name, n in jobs)),
        sum((tries == 1) != (action == "fleet.count_once") for action, tries in stored),
    )


def _delivery(name: str) -> str:
    return "at_least_once" if int(name[1:]) % 2 else "at_most_once"
