"""Kinds of stored items: keys, lock order, indexes and logs.

Only this module defines how an item is found. The memory store scans items with these functions,
SQL stores use tables and indexes of their own, and both are tested against them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from duly.engine.transaction import Index, Kind, Log, Place
from duly.model.dispatches import Dispatching
from duly.model.documents import Document
from duly.model.events import JobEvent
from duly.model.index_rows import TRIGGER_VERSION, Claimed, IndexRow
from duly.model.jobs import Delivery, Job, JobId, JobState, WorkerId
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.plans import BACKFILL, RUN_NOW
from duly.model.queues import QueueSettings, WorkerInfo
from duly.model.schedule_writes import ScheduleEvent, ScheduleKey
from duly.model.schedules import Schedule, ScheduleId
from duly.model.summaries import AuditEntry
from duly.rules.quotas import COUNTED as COUNTED_STATES


class StoredRow(NamedTuple):
    """An index row with its quarantine error and its count of unknown-schedule answers."""

    row: IndexRow
    error: str | None = None
    """Reason of quarantine; None: it has a next time."""
    not_found: int = 0
    """Consecutive answers in which the endpoint did not know the schedule."""
    number: int = 0
    """Assigned by the database on insert, ascending if it can; 0 before that."""


class StoredSchedule(NamedTuple):
    """A schedule and the time at which it finished."""

    schedule: Schedule
    finished_at_ms: int | None = None


class StoredDocument(NamedTuple):
    """A document and its entries in the sparse index, which are written but never read back."""

    document: Document
    entries: tuple[tuple[str, str], ...] = ()


class StoredJob(NamedTuple):
    """A job and its place in the line of its queue."""

    job: Job
    place: int


class StoredKey(NamedTuple):
    """An idempotency key with its job and the digest of the job's input."""

    workspace: str
    action: str
    key: str
    job_id: JobId
    digest: str
    """Digest of the input."""
    expires_at_ms: int


class StoredOccurrence(msgspec.Struct, frozen=True, gc=False):
    """A ledger row, with its claim or dispatch."""

    occurrence: Occurrence
    claim_id: str | None = None
    """Claim id of claim_due(), of the tick that posts it, or of the run_now request."""
    position: int = 0
    """Position in its claim."""
    missed: int = 0
    row_version: int = 0
    """`missed` and `row_version` are what claim_due() returned; 0 for other rows."""
    at_ms: int = 0
    """Time at which the row was written."""
    lease_until_ms: int | None = None
    """For a dispatch: no other tick posts it before this time."""
    tries: int | None = None
    delivery: Delivery | None = None


class Marker(NamedTuple):
    """The running marker of a schedule; one job holds it, from queued to its end."""

    schedule_id: str
    job_id: JobId
    since_ms: int


class StoredToken(NamedTuple):
    """A token of a (queue, workspace) pair, or a slot of a queue, with its last lease."""

    queue: str
    workspace: str
    number: int
    owner: WorkerId
    fence: int
    leased_until_ms: int
    served_at_ms: int


class StoredLock(NamedTuple):
    """A named lock; a free one has no owner and keeps its fence."""

    name: str
    owner: str | None
    fence: int
    until_ms: int
    updated_at_ms: int = 0


class StoredSetting(NamedTuple):
    """A name and value that apply to the whole store."""

    name: str
    value: str


ZONE_RULES = "zone rules"
"""Name of the setting with the time-zone version that all next times were computed with."""


def row_key(row: IndexRow) -> ScheduleKey:
    """Return the key of the schedule that a row belongs to."""
    return ScheduleKey(row.flow, row.scope, row.name)


def schedule_key(schedule: Schedule) -> ScheduleKey:
    """Return the key of a schedule."""
    return ScheduleKey(schedule.flow, str(schedule.scope), schedule.name)


def key_parts(key: ScheduleKey) -> tuple[str, str, str]:
    """Return a schedule key as the item key of its row and definition."""
    return key.flow, key.scope, key.name


ROW: Kind[StoredRow] = Kind("row", 1, lambda item: key_parts(row_key(item.row)))
SCHEDULE: Kind[StoredSchedule] = Kind(
    "schedule", 2, lambda item: key_parts(schedule_key(item.schedule))
)
DOCUMENT: Kind[StoredDocument] = Kind(
    "document",
    3,
    lambda item: (item.document.collection, item.document.scope, item.document.name),
)
IDEMPOTENCY_KEY: Kind[StoredKey] = Kind("idempotency key", 4, lambda item: item[:3])
JOB: Kind[StoredJob] = Kind("job", 5, lambda item: (item.job.id,))
OCCURRENCE: Kind[StoredOccurrence] = Kind(
    "occurrence", 6, lambda item: (item.occurrence.schedule_id, item.occurrence.nominal_ms)
)
MARKER: Kind[Marker] = Kind("running marker", 7, lambda item: (item.schedule_id,))
QUEUE: Kind[QueueSettings] = Kind("queue", 8, lambda item: (item.queue,))
TOKEN: Kind[StoredToken] = Kind("token", 9, lambda item: item[:3])
WORKER: Kind[WorkerInfo] = Kind("worker", 10, lambda item: (item.id,))
LOCK: Kind[StoredLock] = Kind("lock", 11, lambda item: (item.name,))
SETTING: Kind[StoredSetting] = Kind("setting", 12, lambda item: (item.name,))

KINDS: tuple[Kind[Any], ...] = (
    *(ROW, SCHEDULE, DOCUMENT, IDEMPOTENCY_KEY, JOB, OCCURRENCE),
    *(MARKER, QUEUE, TOKEN, WORKER, LOCK, SETTING),
)

SCHEDULE_EVENTS: Log[ScheduleEvent] = Log(
    "schedule events", lambda fact: fact.schedule_id, lambda fact: (fact.seq,)
)
JOB_EVENTS: Log[JobEvent] = Log(
    "job events", lambda fact: fact.job_id, lambda fact: (fact.job_id, fact.seq)
)
AUDIT: Log[AuditEntry] = Log("audit", lambda fact: fact.target, lambda fact: (fact.seq,))

WAITING_STATES = frozenset({JobState.SCHEDULED, JobState.RETRYING})
UNBEGUN_STATES = frozenset({JobState.SCHEDULED, JobState.QUEUED})
_ENDED_RUNS = frozenset({OccurrenceState.SUCCEEDED, OccurrenceState.FAILED})
_NOT_CHARGED = frozenset(
    {OccurrenceState.MISSED, OccurrenceState.WITHDRAWN, OccurrenceState.QUARANTINED}
)


def is_waiting(job: Job) -> bool:
    """Return whether a job will be queued at its run time."""
    return job.state in WAITING_STATES and not job.in_line


def run_order(job: Job) -> tuple[int, int, JobId]:
    """Return the order in which the jobs of a schedule take its running marker."""
    return job.run_at_ms or 0, job.nominal_ms or 0, job.id


def claim_order(item: StoredRow) -> tuple[int, int, int, ScheduleId]:
    """Return the sort key of claims: run time, then priority, then the row stored first."""
    row = item.row
    return row.run_at_ms, -row.priority, item.number, row.schedule_id


def _place_in_line(item: StoredJob) -> Place | None:
    job = item.job
    is_queued = job.state is JobState.QUEUED
    return Place((job.queue,), (item.place, job.id)) if is_queued else None


def _place_waiting(item: StoredJob) -> Place | None:
    job = item.job
    return Place((job.queue,), (job.run_at_ms, job.id)) if is_waiting(job) else None


def _place_leased(item: StoredJob) -> Place | None:
    job = item.job
    return None if job.lease_until_ms is None else Place((), (job.lease_until_ms, job.id))


def _place_ended(item: StoredJob) -> Place | None:
    job = item.job
    if job.finished_at_ms is None:
        return None
    return Place((job.state.value,), (job.finished_at_ms, job.id))


def _place_unbegun(item: StoredJob) -> Place | None:
    job = item.job
    if job.schedule_id is None or job.state not in UNBEGUN_STATES:
        return None
    return Place((job.schedule_id,), (job.id,))


def _place_turn(item: StoredJob) -> Place | None:
    job = item.job
    is_in_line = job.schedule_id is not None and job.in_line
    return Place((job.schedule_id or "",), run_order(job)) if is_in_line else None


def _place_in_ledger(item: StoredOccurrence) -> Place:
    own = item.occurrence
    return Place((own.schedule_id,), (own.nominal_ms,))


def _place_claimed(item: StoredOccurrence) -> Place | None:
    own = item.occurrence
    if item.claim_id is None:
        return None
    return Place((item.claim_id,), (item.position, own.schedule_id, own.nominal_ms))


def _place_dispatching(item: StoredOccurrence) -> Place | None:
    own = item.occurrence
    if own.state is not OccurrenceState.DISPATCHING or item.lease_until_ms is None:
        return None
    return Place((own.flow,), (item.lease_until_ms, own.schedule_id, own.nominal_ms))


def _place_unposted(item: StoredOccurrence) -> Place | None:
    own = item.occurrence
    if own.state is not OccurrenceState.DISPATCHING or item.tries:
        return None
    return Place((own.schedule_id,), (own.nominal_ms,))


def _place_ended_run(item: StoredOccurrence) -> Place | None:
    own = item.occurrence
    if own.state not in _ENDED_RUNS or own.ended_at_ms is None:
        return None
    return Place((own.schedule_id,), (own.ended_at_ms, own.nominal_ms))


def _place_charged(item: StoredOccurrence) -> Place | None:
    own = item.occurrence
    is_extra = own.reason == BACKFILL or (item.claim_id or "").startswith(f"{RUN_NOW}:")
    if own.state in _NOT_CHARGED or is_extra:
        return None
    return Place((own.schedule_id,), (own.nominal_ms,))


def _place_counted(item: StoredSchedule) -> Place | None:
    own = item.schedule
    if own.state not in COUNTED_STATES:
        return None
    return Place((str(own.scope),), (own.flow, own.name))


def _place_counted_of_flow(item: StoredSchedule) -> Place | None:
    own = item.schedule
    return Place((str(own.scope), own.flow), (own.name,)) if own.state in COUNTED_STATES else None


def _place_schedule_id(item: StoredSchedule) -> Place:
    return Place((item.schedule.id,), ())


def _place_document_id(item: StoredDocument) -> Place:
    return Place((item.document.id,), ())


def _place_row_id(item: StoredRow) -> Place:
    return Place((item.row.schedule_id,), ())


def _place_not_found(item: StoredRow) -> Place | None:
    return Place(key_parts(row_key(item.row)), ()) if item.not_found else None


def _place_in_scope(item: StoredDocument) -> Place:
    own = item.document
    return Place((own.collection, own.scope), (own.name,))


def _place_due(item: StoredRow) -> Place | None:
    row = item.row
    if item.error is not None or row.trigger_version > TRIGGER_VERSION:
        return None
    return Place((row.hand_over, row.flow), claim_order(item))


def _place_expiry(item: StoredKey) -> Place:
    return Place((), (item.expires_at_ms, *item[:3]))


def _place_worker(item: WorkerInfo) -> Place:
    return Place((), (item.beat_at_ms, item.id))


LINE = Index("line", JOB, _place_in_line)
WAITING = Index("waiting jobs", JOB, _place_waiting)
LEASES = Index("leases", JOB, _place_leased)
ENDED = Index("ended jobs", JOB, _place_ended)
UNBEGUN = Index("unbegun jobs", JOB, _place_unbegun, guard="the schedule's row")
WAITING_RUNS = Index("jobs in line for a marker", JOB, _place_turn, guard="the running marker")
LEDGER = Index("ledger", OCCURRENCE, _place_in_ledger, guard="the schedule's row")
CLAIMED = Index("claimed occurrences", OCCURRENCE, _place_claimed, guard="the claim id")
DISPATCHES = Index("dispatches", OCCURRENCE, _place_dispatching)
UNPOSTED = Index("unposted dispatches", OCCURRENCE, _place_unposted, guard="the schedule's row")
ENDED_RUNS = Index("ended runs", OCCURRENCE, _place_ended_run)
CHARGED = Index("charged runs", OCCURRENCE, _place_charged)
COUNTED = Index("counted schedules", SCHEDULE, _place_counted)
COUNTED_OF_FLOW = Index("counted schedules of a flow", SCHEDULE, _place_counted_of_flow)
SCHEDULE_IDS = Index("schedules by id", SCHEDULE, _place_schedule_id)
DOCUMENT_IDS = Index("documents by id", DOCUMENT, _place_document_id)
DUE = Index("due rows", ROW, _place_due)
ROW_IDS = Index("rows by schedule id", ROW, _place_row_id)
NOT_FOUND = Index("rows whose schedule was not found", ROW, _place_not_found)
IN_SCOPE = Index("documents of a scope", DOCUMENT, _place_in_scope, guard="the scope")
EXPIRED_KEYS = Index("idempotency keys by expiry", IDEMPOTENCY_KEY, _place_expiry)
SILENCE = Index("workers by heartbeat", WORKER, _place_worker)


def claimed_of(item: StoredOccurrence) -> Claimed:
    """Return an occurrence as claim_due() returned it."""
    own = item.occurrence
    return Claimed(
        own.schedule_id,
        own.flow,
        own.scope,
        own.name,
        own.nominal_ms,
        own.run_at_ms,
        item.missed,
        item.row_version,
    )


def dispatching_of(item: StoredOccurrence) -> Dispatching:
    """Return an occurrence as a tick receives it for posting."""
    own = item.occurrence
    assert item.delivery is not None
    assert item.lease_until_ms is not None
    return Dispatching(
        own.schedule_id,
        own.flow,
        own.scope,
        own.name,
        own.nominal_ms,
        own.run_at_ms,
        item.tries or 0,
        item.delivery,
        item.lease_until_ms,
    )
