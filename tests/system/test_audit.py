"""The audit reports every fault that is planted in what a run has left.

A small run of each of its users is made in this process; each test changes a copy of its database
or of its record.
"""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from duly.clock import SystemClock
from duly.engine.ids import new_id
from duly.flows.client import Client
from duly.model.dispatches import DispatchAnswer, DispatchClaim, Fire
from duly.model.jobs import JobId, JobState, NewJob
from duly.model.schedules import Definition
from duly.model.scopes import SYSTEM, workspace
from duly.stores import open_store
from duly.testing import ManualClock
from duly.testing.jobs import drain
from duly.triggers import once
from tests.system import application
from tests.system.application import app, work
from tests.system.audit import Expected, Verdict, declared_delivery, fault_of_history, judge
from tests.system.database import Database, open_database, store_schedules
from tests.system.fleet import trial
from tests.system.record import Record
from tests.system.soak import soaks

LAST_JOB = "WHERE id = (SELECT max(id) FROM duly_jobs)"
TIME = "(schedule_id, nominal_ms) = (SELECT schedule_id, nominal_ms FROM duly_jobs ORDER BY id"
FIRST, LAST = f"{TIME} LIMIT 1)", f"{TIME} DESC LIMIT 1)"
COVER_TWO = "UPDATE duly_occurrences SET until_ms = nominal_ms + 6000 WHERE"


@dataclass
class Left:
    """What a run has left in a folder, and what it should have left."""

    folder: Path
    expected: Expected

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/run.db"

    @property
    def record(self) -> Record:
        return Record(self.folder / "record")

    def judge(self) -> Verdict:
        return judge(Database(self.url), self.expected, self.record)

    def first(self, action: str) -> str:
        """Return the id of a job of an action."""
        return next(
            job.id for job, _ in Database(self.url).jobs() if job.action == f"work.{action}"
        )


async def run_jobs(url: str) -> Expected:
    """Run jobs that are enqueued, as a scenario does."""
    store = open_database(url)
    client = Client(store, actions=app.actions)
    ids = [(await client.enqueue(f"work.{name}")).job_id for name in ("quick", "once", "quick")]
    await drain(app.on(store))
    await store.close()
    return Expected(ids)


async def run_soak(url: str) -> Expected:
    """Plan and run the schedules of a soak, a minute later."""
    soak = replace(soaks.soaks(quick=True)[0][1], schedules=3)
    stored = await store_schedules(url, SYSTEM, soaks.definitions_of(soak))
    clock = ManualClock(SystemClock().now() + timedelta(minutes=1))
    store = open_store(url, clock=clock, planning=app._planning())
    await app.on(store).planner().run_once()
    clock.advance(minutes=1)
    await drain(app.on(store))
    await store.close()
    return soaks.expected_of(soak, stored)


async def run_fleet(url: str) -> Expected:
    """Dispatch and run the schedules of a trial."""
    stored = {each.id: each for each in await trial.store_due(url, 4)}
    store = open_store(url)
    for row in await store.claim_dispatches(DispatchClaim("posts")):
        key, definition = (row.schedule_id, row.nominal_ms), stored[row.schedule_id].definition
        delivery = declared_delivery(definition.action, definition)
        job = NewJob(
            id=JobId(new_id("job_")),
            action=f"{work.name}.{definition.action}",
            delivery=delivery,
            schedule_id=row.schedule_id,
            nominal_ms=row.nominal_ms,
        )
        await store.fire(Fire(job, row.flow, row.scope, row.name))
        await store.end_dispatches("posts", [DispatchAnswer(*key, "closed")])
    await drain(app.on(store))
    await store.close()
    return trial.expected_of(list(stored.values()))


USERS = {"faults": run_jobs, "soak": run_soak, "dispatch": run_fleet}
"""By the family of their planted faults."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Left]:
    """A run of each user, without a fault."""
    found: dict[str, Left] = {}
    for family, run in USERS.items():
        left = found[family] = Left(tmp_path_factory.mktemp(family), Expected())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(application, "record", left.record)
            left.expected = asyncio.run(run(left.url))
    return found


@pytest.fixture
def left(request: pytest.FixtureRequest, runs: dict[str, Left], tmp_path: Path) -> Left:
    """What the run of the test's family has left, to be changed."""
    found = runs[request.node.get_closest_marker("planted").args[0]]
    return replace(found, folder=shutil.copytree(found.folder, tmp_path / "left"))


def change(*words: str) -> Callable[[Left], None]:
    """Return the fault that a statement makes."""
    return lambda left: Database(left.url).change(" ".join(words))


def set_job(assignment: str) -> Callable[[Left], None]:
    """Return a fault in the row of a job."""
    return change("UPDATE duly_jobs SET", assignment, LAST_JOB)


def start_again(action: str, claim: int) -> Callable[[Left], None]:
    """Return the fault that a job is started once more."""

    def plant(left: Left) -> None:
        with left.record.path.open("a") as file:
            file.write(f"{left.first(action)} {claim} start 7\n")

    return plant


def replace_in_record(old: str, new: str) -> Callable[[Left], None]:
    """Return a fault in the first line of the record that has this text."""

    def plant(left: Left) -> None:
        path = left.record.path
        path.write_text(path.read_text().replace(old, new, 1))

    return plant


def expect(**changes: Any) -> Callable[[Left], None]:
    """Return the fault that something else was asked for."""

    def plant(left: Left) -> None:
        left.expected = replace(left.expected, **changes)

    return plant


def store_another(left: Left) -> None:
    """Store a schedule whose time has not come."""
    later = Definition(once(SystemClock().now() + timedelta(hours=1)), "quick")
    asyncio.run(store_schedules(left.url, workspace("other"), [later]))


Fault = tuple[str, Callable[[Left], None]]
"""What the verdict says of it, and how it is planted."""
FAULTS: dict[str, Fault] = {
    "job missing": ("lost=1", change("DELETE FROM duly_jobs", LAST_JOB)),
    "job not run": ("lost=1", replace_in_record(" end ", " start ")),
    "job not stored": ("ran, but is not stored", replace_in_record("job_", "other_")),
    "claim run twice": ("doubled=1", start_again("quick", 1)),
    "once run twice": ("doubled=1", start_again("once", 2)),
    "claim unknown": ("ran under fences {9} that no claim gave", start_again("quick", 9)),
    "succeeded twice": ("doubled=1", set_job("events = 5")),
    "queued": ("unfinished=1", set_job("state = 'queued'")),
    "not asked for": ("nobody asked for it", expect(jobs=(), schedules=())),
    "delivery": ("undeclared=1", set_job("careful = 3 - careful")),
    "tries": ("undeclared=1", set_job("max_attempts = CASE max_attempts WHEN 1 THEN 7 ELSE 1 END")),
    "next time": ("not all came to rest", store_another),
}
FAULTS_OF_JOBS: dict[str, Fault] = {
    "dead": ("1 jobs are dead; planted: 0", set_job("state = 'dead'")),
    "asked for": ("lost=1", expect(jobs=[JobId("other")])),
}
FAULTS_OF_TIMES: dict[str, Fault] = {
    "time uncovered": ("lost=1", change("DELETE FROM duly_occurrences WHERE", LAST)),
    "time with two jobs": ("doubled=1", set_job(FIRST)),
    "time without a job": ("lost=1", set_job(FIRST)),
    "other time": ("not a time of it", set_job("nominal_ms = 1")),
    **{
        f"time {state}": (
            "unaccounted=1",
            change("UPDATE duly_occurrences SET state =", f"'{state}' WHERE", LAST),
        )
        for state in ("missed", "skipped", "fired", "dispatching")
    },
}
OF_USERS = {
    "faults": FAULTS | FAULTS_OF_JOBS,
    "soak": FAULTS | FAULTS_OF_TIMES | {"time twice": ("doubled=1", change(COVER_TWO, FIRST))},
    "dispatch": FAULTS | FAULTS_OF_TIMES,
}


@pytest.mark.parametrize(
    ("said", "plant"),
    [
        pytest.param(*fault, id=f"{family}-{name}", marks=pytest.mark.planted(family))
        for family, faults in OF_USERS.items()
        for name, fault in faults.items()
    ],
)
def test_a_planted_fault_is_reported(left: Left, said: str, plant: Callable[[Left], None]) -> None:
    sound = left.judge()
    assert sound.is_good, list(sound.lines("sound"))
    assert sound.finished == sound.enqueued > 0
    plant(left)
    verdict = left.judge()
    assert not verdict.is_good
    counts = [f"{name}={value}" for name, value in vars(verdict).items()]
    assert said in counts or any(said in fault for fault in verdict.faults), counts


@pytest.mark.planted("faults")
def test_histories_are_read(left: Left) -> None:
    job, events = next(Database(left.url).jobs())
    first, claimed, end = events
    illegal = [first, claimed._replace(state=JobState.RETRYING), end]
    other = [first, claimed, end._replace(state=JobState.DEAD)]
    assert fault_of_history(job, events) is None
    assert fault_of_history(job, events[1:]) == "numbers [2, 3] of 3 events"
    assert fault_of_history(job, illegal) == "went queued -> retrying, retrying -> succeeded"
    assert fault_of_history(job, other) == "begins queued, ends dead, is succeeded"


@pytest.mark.planted("faults")
def test_repeated_starts_are_listed(left: Left) -> None:
    start_again("quick", 2)(left)
    verdict = left.judge()
    assert (verdict.repeated, verdict.doubled) == (1, 0)
    assert f"repeated: planted: {left.first('quick')} 2" in list(verdict.lines("planted"))


@pytest.mark.planted("soak")
def test_deadlocks_are_named(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Database, "deadlocks", lambda _: 2)
    assert left.judge().faults == ["2 deadlocks"]
