"""Tables of the memory store: plain dictionaries of frozen values.

A copy of the dictionaries is a snapshot, from which a failed transaction is undone.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from duly.engine.kinds import StoredJob, StoredLock
from duly.model.documents import Document
from duly.model.events import JobEvent
from duly.model.index_rows import Claimed, IndexRow
from duly.model.jobs import Delivery, JobId, WorkerId
from duly.model.ledger import Occurrence
from duly.model.queues import QueueSettings, WorkerInfo
from duly.model.schedule_writes import ScheduleEvent, ScheduleKey
from duly.model.schedules import Definition, Schedule, ScheduleId, ScheduleState
from duly.model.scopes import Scope
from duly.model.summaries import AuditEntry
from duly.rules.checks import SCHEDULES

DocumentKey = tuple[str, str, str]
Entries = tuple[tuple[str, str], ...]
IdempotencyKey = tuple[str, str, str]
"""(workspace, action, key)."""
TokenKey = tuple[str, str, int]
"""(queue, workspace, number); the workspace "" is the queue itself."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A document with its index entries; the remaining fields apply only to schedules."""

    document: Document
    entries: Entries = ()
    state: ScheduleState = "active"
    error: str | None = None
    runs_had: int | None = None
    """Number of charged runs of a schedule with `max_runs`."""
    finished_at_ms: int | None = None
    """Time at which the schedule finished."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An occurrence, with the answer and id of the claim that took it, if any."""

    occurrence: Occurrence
    claimed: Claimed | None = None
    claim_id: str | None = None
    position: int = 0
    """Position in its claim."""


class Post(NamedTuple):
    """An open dispatch with the claim that posts it and the end of its lease."""

    claim_id: str | None
    """None: unclaimed; free once `lease_until_ms` has passed."""
    position: int
    """Position in its claim."""
    tries: int
    delivery: Delivery
    lease_until_ms: int


class StoredKey(NamedTuple):
    """The job of an idempotency key and the digest of its input."""

    job_id: JobId
    digest: str
    """Digest of the input."""
    expires_at_ms: int


class StoredToken(NamedTuple):
    """A token or slot with its last lease."""

    owner: WorkerId
    fence: int
    leased_until_ms: int
    served_at_ms: int


@dataclass(slots=True)
class Tables:
    """All data of the memory store."""

    documents: dict[DocumentKey, Stored] = field(default_factory=dict)
    rows: dict[ScheduleKey, IndexRow] = field(default_factory=dict)
    numbers: dict[ScheduleKey, int] = field(default_factory=dict)
    """Insertion number of each row, ascending."""
    last_number: int = 0
    errors: dict[ScheduleKey, str] = field(default_factory=dict)
    """Reasons of quarantine; a row without one has a next time."""
    events: list[ScheduleEvent] = field(default_factory=list)
    last_event: int = 0
    """Number of the last event."""
    ledger: dict[tuple[ScheduleId, int], LedgerEntry] = field(default_factory=dict)
    """Rows by (schedule id, nominal time), in the order in which they were first written."""
    posts: dict[tuple[ScheduleId, int], Post] = field(default_factory=dict)
    """Dispatch of each ledger row that is `dispatching`."""
    not_found: dict[ScheduleKey, int] = field(default_factory=dict)
    """Consecutive answers in which the endpoint did not know the schedule of a row."""
    jobs: dict[JobId, StoredJob] = field(default_factory=dict)
    job_events: dict[JobId, tuple[JobEvent, ...]] = field(default_factory=dict)
    keys: dict[IdempotencyKey, StoredKey] = field(default_factory=dict)
    queues: dict[str, QueueSettings] = field(default_factory=dict)
    tokens: dict[TokenKey, StoredToken] = field(default_factory=dict)
    workers: dict[WorkerId, WorkerInfo] = field(default_factory=dict)
    locks: dict[str, StoredLock] = field(default_factory=dict)
    running: dict[str, JobId] = field(default_factory=dict)
    """The job that holds the running marker, from queued to its end; by schedule id."""
    guards: dict[str, int] = field(default_factory=dict)
    """Number of committed transactions that held a guard, by name."""
    hints: dict[str, None] = field(default_factory=dict)
    """Hints for listeners, sent once each after the commit."""
    audit: list[AuditEntry] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    """Values by name."""

    def copy(self) -> Tables:
        """Return a snapshot."""
        return Tables(*(copy(getattr(self, each.name)) for each in fields(self)))

    def tell(self, hint: str) -> None:
        """Send a hint to listeners if the transaction commits."""
        self.hints[hint] = None

    def drop_row(self, key: ScheduleKey) -> None:
        """Remove a row with its number, error and not-found count."""
        self.rows.pop(key, None)
        self.numbers.pop(key, None)
        self.errors.pop(key, None)
        self.not_found.pop(key, None)

    def put_row(self, row: IndexRow) -> None:
        """Store a row that has a next time; clear the error and not-found count of its key."""
        key = row_key(row)
        if key not in self.numbers:
            self.last_number += 1
            self.numbers[key] = self.last_number
        self.rows[key] = row
        self.errors.pop(key, None)
        self.not_found.pop(key, None)

    def schedules(self) -> list[Schedule]:
        """Return every schedule, by document key."""
        keys = sorted(key for key in self.documents if key[0] == SCHEDULES)
        return [schedule_of(self.documents[key]) for key in keys]


def row_key(row: IndexRow) -> ScheduleKey:
    """Return the key of a row's schedule."""
    return ScheduleKey(row.flow, row.scope, row.name)


def schedule_key(schedule: Schedule) -> ScheduleKey:
    """Return the key of a schedule."""
    return ScheduleKey(schedule.flow, str(schedule.scope), schedule.name)


def document_key(key: ScheduleKey) -> DocumentKey:
    """Return the key of the document that stores a schedule."""
    return SCHEDULES, key.scope, f"{key.flow}/{key.name}"


def schedule_of(stored: Stored) -> Schedule:
    """Return the schedule that a document stores."""
    document = stored.document
    flow, _, name = document.name.partition("/")
    return Schedule(
        ScheduleId(document.id),
        flow,
        Scope.parse(document.scope),
        name,
        Definition.parse(document.body),
        stored.state,
        document.version,
        document.created_at_ms,
        document.updated_at_ms,
        stored.error,
        stored.runs_had,
    )
