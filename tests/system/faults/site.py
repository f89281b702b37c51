"""Where a scenario happens: a database, worker processes, and the journal of their handlers."""

import asyncio
import os
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from duly.errors import BackendUnavailable
from duly.flows.client import Client
from duly.flows.collections import ScheduleCollection
from duly.model.claims import ClaimRequest
from duly.model.jobs import FINAL, JobId, WorkerId
from duly.model.plans import PlanSettings
from duly.model.scopes import SYSTEM
from duly.model.stored_jobs import JobFilter
from duly.rules.outcomes import Released, decide
from duly.stores import open_store
from duly.stores.port import Store
from duly.triggers import once
from duly.triggers.instants import from_ms
from tests.system.faults.application import app
from tests.system.faults.places import Place

T = TypeVar("T")
EARLIER = WorkerId("worker_earlier")
ROOT = Path(__file__).parent.parent.parent.parent
DULY = (sys.executable, "-c", "from duly.cli import main; main()", "run")
POLL_S = 0.05
LIMIT_S = 90.0
LINGER_S = 1.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class WorkerProcess:
    """One `duly run`."""

    popen: "subprocess.Popen[str]"
    log: Path
    is_kept: bool
    """Started again when it ends."""
    options: dict[str, Any] = field(default_factory=dict)
    has_noted_death: bool = False

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.popen.send_signal(number)

    def until_phase(self) -> str:
        """Wait until the process says where it is, and waits to be killed."""
        assert self.popen.stdout is not None
        ready, _, _ = select.select([self.popen.stdout], [], [], LIMIT_S)
        if not ready:
            raise TimeoutError(f"no phase was reached:\n{self.log.read_text()[-2000:]}")
        return self.popen.stdout.readline().strip()

    def cpu_s(self) -> float:
        """Processor time used so far."""
        fields = Path(f"/proc/{self.popen.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


class Site:
    """A database under fault; ends every process that it started."""

    def __init__(self, place: Place, folder: Path, *, lease_s: float = 1.5, slots: int = 4) -> None:
        self.place = place
        self.url = url = place.url
        self.folder = folder
        self.slots = slots
        self.fault_ends: list[int] = []
        """When faults ended, in milliseconds since 1970."""
        self.deaths: dict[str, int] = {}
        """When workers were found dead, by their ids, in milliseconds since 1970."""
        self.in_front_until_ms = 0
        """Until then jobs of a higher priority occupied the slots."""
        self.spans: tuple[tuple[int, int], tuple[int, int]] | None = None
        """Between which times to compare rates: before the faults, and after them."""
        self.journal = folder / "journal"
        self.ids: list[JobId] = []
        self.poisoned: list[JobId] = []
        self.workers: list[WorkerProcess] = []
        roles = ("--roles", "planner,worker,keeper")
        self._words = (*roles, "--lease", str(lease_s), "--slots", str(slots), "--drain", "10")
        self._runner = asyncio.Runner()
        self._pause = threading.Event()
        # Planning is left to the workers, which know what the application declares.
        self.store: Store = open_store(url, planning=PlanSettings(look_ahead_ms=0))
        self.client = Client(self.store, actions=app.actions)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        for worker in self.workers:
            if worker.popen.poll() is None:
                worker.popen.kill()
            worker.popen.communicate()
        self.run(self.store.close())
        self._runner.close()

    def freeze(self, worker: WorkerProcess) -> None:
        """Stop a process where it stands, but not while it has a SQLite file to itself."""
        while True:
            worker.kill(signal.SIGSTOP)
            if not self.url.startswith("sqlite:") or _is_writable(self.url):
                return
            worker.kill(signal.SIGCONT)
            self._pause.wait(POLL_S / 10)

    def note_fault_end(self, *, probes: bool = False) -> None:
        """Say that everything works again: from now on the recovery is timed.

        A probe is one more job, where all others may have been completed already.
        """
        self.fault_ends.append(now_ms())
        if probes:
            self.enqueue("quick", [None])

    def lose(self, worker: WorkerProcess) -> None:
        """Kill a worker: from now on the recovery of its jobs is timed."""
        worker.kill()
        worker.popen.wait(LIMIT_S)
        self._note_death(worker)

    def _note_death(self, worker: WorkerProcess) -> None:
        if worker.has_noted_death:
            return
        died_ms = now_ms()
        with suppress(BackendUnavailable):
            registered = self.run(self.store.list_workers())
            self.deaths |= {each.id: died_ms for each in registered if each.pid == worker.popen.pid}
            worker.has_noted_death = True

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The answer of an async call."""
        return self._runner.run(coroutine)

    def enqueue(self, action: str, inputs: Iterable[object], **options: Any) -> list[JobId]:
        """Jobs of the application, to be judged at the end."""
        answers = self.run(self.client.enqueue_many(f"work.{action}", inputs, **options))
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
        mine = ScheduleCollection(self.store, "work").of(SYSTEM)
        self.run(mine.create(name, once(self.at(1)), action=action))

    def find_jobs(self, action: str) -> None:
        """Judge the jobs that schedules have made of an action, too."""
        self.ids += [job.id for job in self.run(self.store.list_jobs(JobFilter(action=action)))]

    def at(self, seconds: float) -> datetime:
        """So long from now, by the clock that decides."""
        return from_ms(self.run(self.store.now_ms()) + int(seconds * 1000))

    def start(self, *, is_kept: bool = False, **environment: str) -> WorkerProcess:
        """A worker process; the rest are its environment variables."""
        log = self.folder / f"worker-{len(self.workers)}.log"
        named = {
            f"DULY_FAULT_{name}": value for name, value in environment.items() if name.isupper()
        }
        plain = {name.upper(): value for name, value in environment.items() if name.islower()}
        with log.open("w") as errors:
            popen = subprocess.Popen(
                [*DULY, "tests.system.faults.application:app", *self._words],
                cwd=ROOT,
                env=os.environ
                | {"DULY_FAULT_URL": self.place.worker_url}
                | {"DULY_FAULT_JOURNAL": str(self.journal)}
                | named
                | plain,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        worker = WorkerProcess(popen, log, is_kept, dict(environment))
        self.workers.append(worker)
        return worker

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Look until it is so; workers that are kept are started again meanwhile."""
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            is_alone = self.workers and all(each.popen.poll() is not None for each in self.workers)
            if time.monotonic() > deadline or (is_alone and not self._is_kept()):
                logs = "\n".join(worker.log.read_text()[-1500:] for worker in self.workers)
                raise TimeoutError(f"{what}: not within {LIMIT_S} s, or no worker is left\n{logs}")
            for worker in [each for each in self.workers if each.popen.poll() is not None]:
                self._note_death(worker)
                if worker.is_kept:
                    worker.is_kept = False
                    self.start(is_kept=True, **worker.options)
            self._pause.wait(POLL_S)

    def _is_kept(self) -> bool:
        return any(worker.is_kept for worker in self.workers)

    def noted(self, what: str, ids: Iterable[JobId]) -> int:
        """How many of the jobs have such a line in the journal."""
        wanted = set(ids)
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        found = {words[0] for words in map(str.split, lines) if words[2] == what}
        return len(wanted & found)

    def _runs(self, job_id: JobId) -> int:
        """Return the process that started a job."""
        lines = map(str.split, self.journal.read_text().splitlines())
        return next(int(words[3]) for words in lines if words[0] == job_id)

    def until_noted(self, what: str, ids: Collection[JobId], jobs: int) -> None:
        """Wait until so many of the jobs have such a line."""
        self.until(lambda: self.noted(what, ids) >= jobs, f"{jobs} jobs {what}")

    def until_logged(self, words: str) -> None:
        """Wait until every worker that runs has met a fault, by what it logs."""
        self.until(
            lambda: all(
                words in worker.log.read_text()
                for worker in self.workers
                if worker.popen.poll() is None
            ),
            f"every worker logs {words!r}",
        )

    def until_ended(self) -> None:
        """Wait until every job has ended."""
        self.until(lambda: self.count_ended() >= len(self.ids), "every job ends")

    def count_ended(self) -> int:
        """Jobs in a final state; none while the database is away."""
        try:
            counts = self.run(self.store.count_jobs())
        except BackendUnavailable:
            return 0
        return sum(each.jobs for each in counts if each.state in FINAL)

    def drain(self) -> float:
        """Stop all workers while one has a handler to wait for; gives the processor's share."""
        alive = [worker for worker in self.workers if worker.popen.poll() is None]
        lingering = self.enqueue("steady", [LINGER_S])
        self.until_noted("start", lingering, 1)
        for worker in alive:
            worker.is_kept = False
        # Others have nothing to wait for: they end, and taking them down is not looked at.
        waiting = next(each for each in alive if each.popen.pid == self._runs(lingering[0]))
        before_s = waiting.cpu_s()
        began_s = time.monotonic()
        for worker in alive:
            worker.kill(signal.SIGTERM)
        # Looked at before the end, so that taking the interpreter down is not counted.
        self.until(lambda: time.monotonic() - began_s > LINGER_S / 2, "half of it")
        used_s = waiting.cpu_s() - before_s if waiting.popen.poll() is None else 0.0
        share = used_s / (time.monotonic() - began_s)
        for worker in alive:
            worker.popen.wait(LIMIT_S)
        self.until_ended()
        return share


def now_ms() -> int:
    """Return the present, in milliseconds since 1970; servers share this machine's clock."""
    return time.time_ns() // 1_000_000


def _is_writable(url: str) -> bool:
    """Whether nobody holds the file's only write lock."""
    file = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=POLL_S)
    try:
        file.execute("BEGIN IMMEDIATE")
        file.rollback()
    except sqlite3.OperationalError:
        return False
    finally:
        file.close()
    return True
