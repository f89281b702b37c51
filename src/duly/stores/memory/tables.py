"""The memory store's tables: plain dictionaries of frozen values.

A copy of the dictionaries is a snapshot, which is all that a transaction needs here.
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
    """A document with its index entries; state and error are a schedule's."""

    document: Document
    entries: Entries = ()
    state: ScheduleState = "active"
    error: str | None = None
    runs_had: int | None = None
    """Of a schedule with a limit on its runs: how many were charged."""
    finished_at_ms: int | None = None
    """Of a schedule that has finished."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """An occurrence; what a claim answered and its id, where one took it."""

    occurrence: Occurrence
    claimed: Claimed | None = None
    claim_id: str | None = None
    position: int = 0
    """In its claim."""


class Post(NamedTuple):
    """A dispatch that has not ended: who posts it, and until when it is theirs."""

    claim_id: str | None
    """None: nobody's, from the end of the lease on."""
    position: int
    """In its claim."""
    tries: int
    delivery: Delivery
    lease_until_ms: int


class StoredKey(NamedTuple):
    """What an idempotency key stands for."""

    job_id: JobId
    digest: str
    """Of the input."""
    expires_at_ms: int


class StoredToken(NamedTuple):
    """A token or a slot as it was last leased."""

    owner: WorkerId
    fence: int
    leased_until_ms: int
    served_at_ms: int


@dataclass(slots=True)
class Tables:
    """Everything the memory store holds."""

    documents: dict[DocumentKey, Stored] = field(default_factory=dict)
    rows: dict[ScheduleKey, IndexRow] = field(default_factory=dict)
    numbers: dict[ScheduleKey, int] = field(default_factory=dict)
    """Of each row: the order in which they were stored first."""
    last_number: int = 0
    errors: dict[ScheduleKey, str] = field(default_factory=dict)
    """Why a row is quarantined; a row that is not here has a next time."""
    events: list[ScheduleEvent] = field(default_factory=list)
    last_event: int = 0
    """The number of the last one."""
    ledger: dict[tuple[ScheduleId, int], LedgerEntry] = field(default_factory=dict)
    """By (schedule id, nominal time), in the order they were written first."""
    posts: dict[tuple[ScheduleId, int], Post] = field(default_factory=dict)
    """Of each ledger row that is `dispatching`."""
    not_found: dict[ScheduleKey, int] = field(default_factory=dict)
    """How often in a row an endpoint did not know the schedule of a row."""
    jobs: dict[JobId, StoredJob] = field(default_factory=dict)
    job_events: dict[JobId, tuple[JobEvent, ...]] = field(default_factory=dict)
    keys: dict[IdempotencyKey, StoredKey] = field(default_factory=dict)
    queues: dict[str, QueueSettings] = field(default_factory=dict)
    tokens: dict[TokenKey, StoredToken] = field(default_factory=dict)
    workers: dict[WorkerId, WorkerInfo] = field(default_factory=dict)
    locks: dict[str, StoredLock] = field(default_factory=dict)
    running: dict[str, JobId] = field(default_factory=dict)
    """By schedule id: the job that holds the running marker, from queued to its end."""
    guards: dict[str, int] = field(default_factory=dict)
    """How often a guard was held by a transaction that committed."""
    hints: dict[str, None] = field(default_factory=dict)
    """What listeners are told when the transaction has ended, each once."""
    audit: list[AuditEntry] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    """By name."""

    def copy(self) -> Tables:
        """A snapshot to go back to."""
        return Tables(*(copy(getattr(self, each.name)) for each in fields(self)))

    def tell(self, hint: str) -> None:
        """Let listeners know, unless all of this is undone."""
        self.hints[hint] = None

    def drop_row(self, key: ScheduleKey) -> None:
        """Remove a row with its error."""
        self.rows.pop(key, None)
        self.numbers.pop(key, None)
        self.errors.pop(key, None)
        self.not_found.pop(key, None)

    def put_row(self, row: IndexRow) -> None:
        """Store a row that has a next time; what stood against the one before is forgotten."""
        key = row_key(row)
        if key not in self.numbers:
            self.last_number += 1
            self.numbers[key] = self.last_number
        self.rows[key] = row
        self.errors.pop(key, None)
        self.not_found.pop(key, None)

    def schedules(self) -> list[Schedule]:
        """Every schedule, by key."""
        keys = sorted(key for key in self.documents if key[0] == SCHEDULES)
        return [schedule_of(self.documents[key]) for key in keys]


def row_key(row: IndexRow) -> ScheduleKey:
    """The key of a row's schedule."""
    return ScheduleKey(row.flow, row.scope, row.name)


def schedule_key(schedule: Schedule) -> ScheduleKey:
    """The key of a schedule."""
    return ScheduleKey(schedule.flow, str(schedule.scope), schedule.name)


def document_key(key: ScheduleKey) -> DocumentKey:
    """Where the document of a schedule stands."""
    return SCHEDULES, key.scope, f"{key.flow}/{key.name}"


def schedule_of(stored: Stored) -> Schedule:
    """The schedule that a document says."""
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
