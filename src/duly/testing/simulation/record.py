"""The record of a simulation: every state of the store, and the handlers that ran.

After each verb the record compares the tables and keeps the changes. Checks read only this record,
so they do not depend on what verbs report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from duly.engine.kinds import StoredJob
from duly.model.events import JobEvent
from duly.model.index_rows import IndexRow
from duly.model.jobs import Job, JobId
from duly.model.ledger import Occurrence
from duly.model.plans import BACKFILL, RUN_NOW
from duly.model.schedules import Schedule, ScheduleId
from duly.rules.checks import SCHEDULES
from duly.stores.memory import MemoryStore
from duly.stores.memory.tables import LedgerEntry, Stored, Tables, schedule_of

Place = tuple[ScheduleId, int]
"""Key of a ledger row: schedule id and nominal time."""

_READS = ("get_", "list_", "find_", "count_", "fold_", "beat", "job_", "now_ms", "schedule_events")


def short(long_id: str) -> str:
    """Return the part of an id that differs between ids made together, for traces."""
    return long_id[-16:-8]


class WatchedStore(MemoryStore):
    """The memory store, with read access to its tables."""

    @property
    def tables(self) -> Tables:
        """The stored tables; read only."""
        return self._tables


class ScheduleChange(NamedTuple):
    """A schedule's value from a time on. None: it was deleted."""

    at_ms: int
    schedule: Schedule | None
    step: int = 0
    """Number of the verb that made the change."""


class RowChange(NamedTuple):
    """A ledger row's value from a time on. None: it was removed, or split into others."""

    at_ms: int
    row: Occurrence | None
    is_extra: bool = False
    """True for a requested run: run now, or a backfill."""
    step: int = 0


class HandChange(NamedTuple):
    """The time of a schedule's index row from a time on. None: it had no row."""

    at_ms: int
    nominal_ms: int | None


class JobChange(NamedTuple):
    """A job's value from a time on. None: it was pruned."""

    at_ms: int
    job: Job | None
    step: int
    """Number of the verb that made the change."""


class Start(NamedTuple):
    """The start of a handler."""

    at_ms: int
    node: str
    job_id: JobId
    schedule_id: ScheduleId | None
    nominal_ms: int | None
    fence: int = 0
    """Fence of the claim it runs under."""


class Violation(NamedTuple):
    """A broken promise: its name, the id concerned, and the details."""

    promise: str
    about: str
    how: str


@dataclass(slots=True)
class Record:
    """Everything that the checks read."""

    store: WatchedStore
    end_ms: int = 0
    """End of the simulation, by the store's clock."""
    schedules: dict[ScheduleId, list[ScheduleChange]] = field(default_factory=dict)
    rows: dict[Place, list[RowChange]] = field(default_factory=dict)
    hands: dict[ScheduleId, list[HandChange]] = field(default_factory=dict)
    jobs: dict[JobId, list[JobChange]] = field(default_factory=dict)
    changes: list[JobChange] = field(default_factory=list)
    """Changes of all jobs, in order."""
    said: dict[int, set[tuple[JobId, int]]] = field(default_factory=dict)
    """Jobs and fences in each `finish` call, by step."""
    events: dict[JobId, tuple[JobEvent, ...]] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    together: list[tuple[Start, Start]] = field(default_factory=list)
    """Pairs of handlers that ran at once for one job on one node: the earlier, the later."""
    at_work: dict[tuple[str, JobId], list[Start]] = field(default_factory=dict)
    """Running handlers, by node and job."""
    errors: list[tuple[str, str]] = field(default_factory=list)
    """Node and error of each loop that failed."""
    metrics: dict[tuple[str, str], int] = field(default_factory=dict)
    """Final values of `duly_occurrences`, by flow and outcome."""
    lines: list[str] = field(default_factory=list)
    """The trace."""
    faults: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    """Number of verbs so far that may change something."""
    verbs: dict[int, str] = field(default_factory=dict)
    """Names of these verbs, by number."""
    _documents: dict[tuple[str, str, str], Stored] = field(default_factory=dict)
    _index: dict[ScheduleId, IndexRow] = field(default_factory=dict)
    _ledger: dict[Place, LedgerEntry] = field(default_factory=dict)
    _jobs: dict[JobId, StoredJob] = field(default_factory=dict)

    def note(self, at_ms: int, who: str, what: str) -> None:
        """Add a line to the trace."""
        self.lines.append(f"{at_ms} {who} {what}")

    def fault(self, at_ms: int, who: str, kind: str, what: str) -> None:
        """Count a fault and add it to the trace."""
        self.faults[kind] += 1
        self.note(at_ms, who, f"{kind}: {what}")

    def begin(self, start: Start) -> None:
        """Record the start of a handler."""
        self.starts.append(start)
        self.note(start.at_ms, start.node, f"runs {short(start.job_id)}")
        beside = self.at_work.setdefault((start.node, start.job_id), [])
        self.together += [(earlier, start) for earlier in beside]
        beside.append(start)

    def end(self, start: Start) -> None:
        """Record the end of a handler, whatever its outcome."""
        self.at_work[start.node, start.job_id].remove(start)

    def digest(self) -> str:
        """Return a hash of the whole trace; equal for equal seeds."""
        return sha256("\n".join(self.lines).encode()).hexdigest()[:16]

    def look(self, at_ms: int, who: str, verb: str, asked: Sequence[Any] = ()) -> None:
        """Record the changes of a verb; `asked` are its arguments."""
        if verb.startswith(_READS):
            return
        self.steps += 1
        self.verbs[self.steps] = verb
        if verb == "finish":
            self.said[self.steps] = {(each.job_id, each.fence) for each in asked[0]}
        told = len(self.lines)
        self._look_at_schedules(at_ms, who)
        self._look_at_jobs(at_ms, who)
        self._look_at_ledger(at_ms, who)
        self._look_at_index(at_ms)
        if len(self.lines) == told:
            self.note(at_ms, who, verb)
        else:
            self.lines[told] += f" by {verb}"

    def _look_at_schedules(self, at_ms: int, who: str) -> None:
        now = self.store.tables.documents
        changed = [key for key, each in now.items() if self._documents.get(key) is not each]
        for key in changed:
            earlier = self._documents.get(key)
            schedule = schedule_of(now[key])
            if earlier is not None and earlier.document.id != schedule.id:
                self._end_schedule(at_ms, earlier)
            self.schedules.setdefault(schedule.id, []).append(
                ScheduleChange(at_ms, schedule, self.steps)
            )
            words = f"{schedule.state} {schedule.definition.trigger.words}"
            self.note(at_ms, who, f"schedule {short(schedule.id)} v{schedule.version} {words}")
        for key in [key for key in self._documents if key not in now]:
            self._end_schedule(at_ms, self._documents[key])
            self.note(at_ms, who, f"schedule {short(self._documents[key].document.id)} deleted")
        self._documents = dict(now)

    def _end_schedule(self, at_ms: int, stored: Stored) -> None:
        if stored.document.collection == SCHEDULES:
            self.schedules[ScheduleId(stored.document.id)].append(
                ScheduleChange(at_ms, None, self.steps)
            )

    def _look_at_jobs(self, at_ms: int, who: str) -> None:
        tables = self.store.tables
        for job_id, stored in tables.jobs.items():
            earlier = self._jobs.get(job_id)
            if earlier is stored:
                continue
            change = JobChange(at_ms, stored.job, self.steps)
            self.jobs.setdefault(job_id, []).append(change)
            self.changes.append(change)
            self.events[job_id] = tables.job_events[job_id]
            if earlier is None or earlier.job.state != stored.job.state:
                owner = short(stored.job.schedule_id or "")
                self.note(at_ms, who, f"job {short(job_id)} of {owner} {stored.job.state}")
        for job_id in [each for each in self._jobs if each not in tables.jobs]:
            self.jobs[job_id].append(JobChange(at_ms, None, self.steps))
        self._jobs = dict(tables.jobs)

    def _look_at_ledger(self, at_ms: int, who: str) -> None:
        now = self.store.tables.ledger
        for place, entry in now.items():
            earlier = self._ledger.get(place)
            if earlier is not entry:
                row = entry.occurrence
                is_extra = row.reason == BACKFILL or (entry.claim_id or "").startswith(RUN_NOW)
                changes = self.rows.setdefault(place, [])
                is_extra = is_extra or bool(changes and earlier and changes[-1].is_extra)
                changes.append(RowChange(at_ms, row, is_extra, self.steps))
                if earlier is None or earlier.occurrence.state != row.state:
                    until = f"..{row.until_ms}" if row.is_range else ""
                    words = f"{short(place[0])} {row.nominal_ms}{until} {row.state}"
                    self.note(at_ms, who, f"ledger {words}")
        for place in [each for each in self._ledger if each not in now]:
            self.rows[place].append(RowChange(at_ms, None, step=self.steps))
        self._ledger = dict(now)

    def _look_at_index(self, at_ms: int) -> None:
        now = {row.schedule_id: row for row in self.store.tables.rows.values()}
        for schedule_id, row in now.items():
            if self._index.get(schedule_id) is not row:
                hand = HandChange(at_ms, row.nominal_ms)
                self.hands.setdefault(schedule_id, []).append(hand)
        for schedule_id in [each for each in self._index if each not in now]:
            self.hands[schedule_id].append(HandChange(at_ms, None))
        self._index = now

    def last_rows(self) -> dict[Place, Occurrence]:
        """Return the ledger at the end, by schedule and nominal time."""
        return {place: entry.occurrence for place, entry in self._ledger.items()}
