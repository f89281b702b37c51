"""Where a scenario happens: a database, worker processes, and what must be judged at the end."""

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from duly.errors import BackendUnavailable
from duly.flows.client import Client
from duly.flows.collections import ScheduleCollection
from duly.model.claims import ClaimRequest
from duly.model.jobs import FINAL, Job, JobId, WorkerId
from duly.model.schedules import Schedule
from duly.model.scopes import SYSTEM
from duly.model.stored_jobs import JobFilter
from duly.rules.outcomes import Released, decide
from duly.triggers import once
from duly.triggers.instants import from_ms
from tests.system.application import app, work
from tests.system.database import open_database
from tests.system.faults.places import Place
from tests.system.phases import REACHED
from tests.system.processes import LIMIT_S, POLL_S, Process, Processes, now_ms
from tests.system.record import Moment

T = TypeVar("T")
EARLIER = WorkerId("worker_earlier")
LINGER_S = 1.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Load:
    """How much of everything."""

    jobs: int
    rounds: int
    """Faults in a row, where one fault can be done again and again."""
    is_quick: bool = False
    """A short form: leases are short, and rates are not judged."""

    def inputs(self, share: int = 1) -> list[None]:
        """Return no input for each of a share of the jobs."""
        return [None] * (self.jobs // share)


class Site(Processes):
    """A database under fault and its workers; kills every process that it started."""

    def __init__(self, place: Place, folder: Path, *, lease_s: float = 1.5, slots: int = 4) -> None:
        super().__init__(place.worker_url, folder)
        self._told["DULY_SYSTEM_STUBBORN_S"] = "0.5"
        self.place = place
        self.url = place.url
        self.slots = slots
        self.fault_ends: list[int] = []
        """When faults ended, in milliseconds since 1970."""
        self.deaths: dict[str, int] = {}
        """When workers were found dead, by their ids, in milliseconds since 1970."""
        self.in_front_until_ms = 0
        """Until then jobs of a higher priority occupied the slots."""
        self.spans: tuple[tuple[int, int], tuple[int, int]] | None = None
        """Between which times to compare rates: before the faults, and after them."""
        self.ids: list[JobId] = []
        self.schedules: list[Schedule] = []
        roles = ("--roles", "planner,worker,keeper")
        self._words = (*roles, "--lease", str(lease_s), "--slots", str(slots), "--drain", "10")
        self._kept: dict[Process, Mapping[str, str]] = {}
        """Workers that are started again when they end, with their environment."""
        self._noted: set[Process] = set()
        """Workers whose death is noted."""
        self._runner = asyncio.Runner()
        self.store = open_database(self.url)
        self.client = Client(self.store, actions=app.actions)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.run(self.store.close())
        self._runner.close()

    def start(
        self, *, is_kept: bool = False, environment: Mapping[str, str] | None = None, **told: str
    ) -> Process:
        """Start a worker; `told` is for the application, as `DULY_SYSTEM_` variables."""
        own = {f"DULY_SYSTEM_{name.upper()}": value for name, value in told.items()}
        variables = {**(environment or {}), **own}
        worker = self.launch("run", *self._words, environment=variables)
        if is_kept:
            self._kept[worker] = variables
        return worker

    def tend(self) -> None:
        """Note the deaths of workers, and start those again that are kept."""
        for worker in [each for each in self.started if not each.is_running]:
            self._note_death(worker)
            if worker in self._kept:
                self.start(is_kept=True, environment=self._kept.pop(worker))

    def freeze(self, worker: Process) -> None:
        """Stop a process where it stands, but not while it has a SQLite file to itself."""
        while True:
            worker.signal(signal.SIGSTOP)
            if not self.url.startswith("sqlite:") or _is_writable(self.url):
                return
            worker.signal(signal.SIGCONT)
            self._pause.wait(POLL_S / 10)

    def lose(self, worker: Process) -> None:
        """Kill a worker: from now on the recovery of its jobs is timed."""
        worker.kill()
        self._note_death(worker)

    def lose_at(self, phase: str, worker: Process) -> None:
        """Kill a worker that stops at a phase, when it is there."""
        self.until(lambda: worker.has_logged(REACHED + phase), f"a worker is {phase}")
        self.lose(worker)

    def _note_death(self, worker: Process) -> None:
        if worker in self._noted:
            return
        died_ms = now_ms()
        with suppress(BackendUnavailable):
            registered = self.run(self.store.list_workers())
            self.deaths |= {each.id: died_ms for each in registered if each.pid == worker.popen.pid}
            self._noted.add(worker)

    def note_fault_end(self, *, probes: bool = False) -> None:
        """Say that everything works again: from now on the recovery is timed.

        A probe is one more job, where all others may have been completed already.
        """
        self.fault_ends.append(now_ms())
        if probes:
            self.enqueue("quick", [None])

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the answer of an async call."""
        return self._runner.run(coroutine)

    def enqueue(self, action: str, inputs: Iterable[object], **options: Any) -> list[JobId]:
        """Enqueue jobs, to be judged at the end."""
        answers = self.run(self.client.enqueue_many(f"{work.name}.{action}", inputs, **options))
        ids = [answer.job_id for answer in answers]
        self.ids += ids
        return ids

    def isolate(self, ids: Collection[JobId]) -> None:
        """Mark queued jobs as suspects, as after two losses."""
        claims = self.run(self.store.claim_jobs(ClaimRequest(EARLIER, limit=len(ids))))
        back = [decide(job, Released())._replace(isolate=True) for job in claims.jobs]
        assert {job.id for job in claims.jobs} == set(ids)
        assert self.run(self.store.finish(back)) == []

    def schedule(self, action: str, name: str) -> None:
        """Store a schedule of the system that fires once, soon; a planner makes its job."""
        mine = ScheduleCollection(self.store, work.name).of(SYSTEM)
        self.schedules.append(self.run(mine.create(name, once(self.at(1)), action=action)))

    def find_jobs(self, action: str) -> None:
        """Wait at the end also for the jobs that schedules have made of an action."""
        which = JobFilter(action=f"{work.name}.{action}")
        self.ids += [job.id for job in self.run(self.store.list_jobs(which))]

    def jobs(self, ids: Iterable[JobId]) -> list[Job]:
        """Return jobs that must be stored."""
        found = [self.run(self.store.get_job(job_id)) for job_id in ids]
        assert None not in found, "a job is gone"
        return [job for job in found if job is not None]

    def at(self, seconds: float) -> datetime:
        """Return an instant so long from now, by the clock that decides."""
        return from_ms(self.run(self.store.now_ms()) + int(seconds * 1000))

    def count_recorded(self, moment: Moment, ids: Iterable[JobId]) -> int:
        """Return how many of the jobs have such a line in the record."""
        return len(
            set(ids) & {line.job_id for line in self.record.lines() if line.moment == moment}
        )

    def until_recorded(self, moment: Moment, ids: Collection[JobId], jobs: int) -> None:
        """Wait until so many of the jobs have such a line."""
        self.until(lambda: self.count_recorded(moment, ids) >= jobs, f"{jobs} jobs {moment}")

    def until_logged(self, words: str) -> None:
        """Wait until every worker that runs has met a fault, by what it logs."""
        self.until(
            lambda: all(worker.has_logged(words) for worker in self.running),
            f"every worker logs {words!r}",
        )

    def until_ended(self) -> None:
        """Wait until every job has ended."""
        self.until(lambda: self.count_ended() >= len(self.ids), "every job ends")

    def count_ended(self) -> int:
        """Return the number of jobs in a final state; none while the database is away."""
        try:
            counts = self.run(self.store.count_jobs())
        except BackendUnavailable:
            return 0
        return sum(each.jobs for each in counts if each.state in FINAL)

    def drain(self) -> float:
        """Stop all workers while one waits for a handler; return its share of a processor."""
        self._kept.clear()
        alive = self.running
        (lingering,) = self.enqueue("steady", [LINGER_S])
        self.until_recorded("start", [lingering], 1)
        pid = next(line.pid for line in self.record.lines() if line.job_id == lingering)
        # Others have nothing to wait for: they end, and taking them down is not looked at.
        waiting = next(each for each in alive if each.popen.pid == pid)
        before_s, began_s = _cpu_s(pid), time.monotonic()
        for worker in alive:
            worker.signal(signal.SIGTERM)
        # Looked at before the end, so that taking the interpreter down is not counted.
        self.until(lambda: time.monotonic() - began_s > LINGER_S / 2, "half of it")
        used_s = _cpu_s(pid) - before_s if waiting.is_running else 0.0
        share = used_s / (time.monotonic() - began_s)
        for worker in alive:
            worker.popen.wait(LIMIT_S)
        self.until_ended()
        return share


def _cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _is_writable(url: str) -> bool:
    """Return whether nobody holds the file's only write lock."""
    file = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=POLL_S)
    try:
        file.execute("BEGIN IMMEDIATE")
        file.rollback()
    except sqlite3.OperationalError:
        return False
    finally:
        file.close()
    return True
