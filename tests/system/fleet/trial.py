"""Two servers, two ticks and a worker on one PostgreSQL; one server is killed midway.

Half of the schedules are at_least_once: none may be lost. Half are at_most_once: none may be
dispatched twice.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from duly.clock import SystemClock
from duly.model.schedules import Definition, Schedule
from duly.model.scopes import workspace
from duly.testing import ManualClock
from duly.triggers import once
from tests.system.audit import Expected, Verdict, judge
from tests.system.database import Database, store_schedules
from tests.system.processes import Process, Processes

OWNER = workspace("fleet")
POLL_S = 0.01
"""Short, so that the server is killed in the midst of the posts."""


async def store_due(url: str, schedules: int) -> list[Schedule]:
    """Store schedules that are due, half of each delivery."""
    now = SystemClock().now()
    due = once(now - timedelta(seconds=20))
    definitions = [
        Definition(due, "quick" if number % 2 else "once", hand_over="http")
        for number in range(schedules)
    ]
    # Made by a clock of a minute ago, or they would have no next time.
    return await store_schedules(url, OWNER, definitions, ManualClock(now - timedelta(minutes=1)))


def expected_of(schedules: Sequence[Schedule]) -> Expected:
    """Return what a trial must have left."""
    return Expected(schedules=schedules)


def run_trial(url: str, folder: Path, schedules: int) -> Verdict:
    """Let the ticks post everything, and kill a server when a quarter is done."""
    stored = asyncio.run(store_due(url, schedules))
    database = Database(url)

    def are_dispatched(share: int) -> bool:
        (done,) = database.numbers(
            "SELECT count(*) FROM duly_occurrences WHERE state <> 'dispatching'"
        )
        return done * share >= schedules

    with Processes(url, folder) as fleet:
        servers = [_serve(fleet), _serve(fleet)]
        urls = [_url_of(fleet, each) for each in servers]
        fleet.launch("worker", "--slots", "8")
        for each in urls:
            fleet.launch("tick", "--url", each, "--period", "0.1")
        fleet.until(lambda: are_dispatched(4), "a quarter is dispatched", poll_s=POLL_S)
        servers[0].kill()
        # As whatever keeps servers running would: the same address answers again.
        _url_of(fleet, _serve(fleet, urlsplit(urls[0]).port or 0))
        fleet.until(database.is_at_rest, "everything is dispatched and has run")
        fleet.stop()
    return judge(database, expected_of(stored), fleet.record)


def _serve(fleet: Processes, port: int = 0) -> Process:
    return fleet.launch("serve", "--port", str(port), "--dev", "--log-level", "warning")


def _url_of(fleet: Processes, server: Process) -> str:
    fleet.until(lambda: server.url is not None, "a server listens")
    assert server.url is not None
    return server.url


def summary(verdict: Verdict) -> str:
    """Return the counts of a trial."""
    ledger: Counter[tuple[str, str]] = Counter()
    jobs: Counter[tuple[str, int]] = Counter()
    for (delivery, state, made), times in verdict.outcomes.items():
        ledger[delivery, state] += times
        jobs[delivery, made] += times
    counts = (
        f"{verdict.expected} schedules; lost: {verdict.lost}, dispatched twice: "
        f"{verdict.doubled}, unaccounted for: {verdict.unaccounted}, not as declared: "
        f"{verdict.undeclared}, unfinished: {verdict.unfinished}, deadlocks: {verdict.deadlocks}"
    )
    tables = (f"  ledger: {dict(ledger)}", f"  jobs: {dict(jobs)}")
    return "\n".join((counts, *tables, *verdict.lines("fleet")))
