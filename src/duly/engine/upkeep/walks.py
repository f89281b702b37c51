"""Indexes for upkeep: all items of a kind, and those of one owner.

They are not in `engine.kinds`, since no other use case reads them. A walk reads page by page in an
order that does not change when items are removed.
"""

from __future__ import annotations

from duly.engine.kinds import (
    DOCUMENT,
    IDEMPOTENCY_KEY,
    JOB,
    OCCURRENCE,
    ROW,
    SCHEDULE,
    TOKEN,
    StoredDocument,
    StoredJob,
    StoredKey,
    StoredOccurrence,
    StoredRow,
    StoredSchedule,
    StoredToken,
)
from duly.engine.schedules.ledger import is_extra, is_taken
from duly.engine.transaction import Index, Place
from duly.model.jobs import FINAL
from duly.model.ledger import OccurrenceState
from duly.model.schedules import Schedule


def schedule_place(schedule: Schedule) -> tuple[str, str]:
    """Return the sort key of a schedule and its row: scope, then flow and name."""
    return str(schedule.scope), f"{schedule.flow}/{schedule.name}"


def _place_schedule(item: StoredSchedule) -> Place:
    return Place((), schedule_place(item.schedule))


def _place_owned_schedule(item: StoredSchedule) -> Place:
    scope, name = schedule_place(item.schedule)
    return Place((scope,), (name,))


def _place_finished(item: StoredSchedule) -> Place | None:
    own = item.schedule
    if own.state != "finished" or item.finished_at_ms is None:
        return None
    return Place((), (item.finished_at_ms, own.id))


def _place_temporary(item: StoredSchedule) -> Place | None:
    is_temporary = item.schedule.definition.delete_after_completion
    return _place_finished(item) if is_temporary else None


def _place_row(item: StoredRow) -> Place:
    return Place((), (item.row.schedule_id,))


def _place_owned_row(item: StoredRow) -> Place:
    return Place((item.row.scope,), (item.row.flow, item.row.name))


def _place_owned_document(item: StoredDocument) -> Place:
    own = item.document
    return Place((own.scope,), (own.collection, own.name))


def _place_job(item: StoredJob) -> Place:
    return Place((), (item.job.id,))


def _place_live_job(item: StoredJob) -> Place | None:
    job = item.job
    if job.schedule_id is None or job.state in FINAL:
        return None
    return Place((job.schedule_id,), (job.id,))


def _place_owned_key(item: StoredKey) -> Place:
    return Place((item.workspace,), (item.action, item.key))


def _place_occurrence(item: StoredOccurrence) -> Place:
    return Place((), (item.occurrence.schedule_id, item.occurrence.nominal_ms))


def _place_taken(item: StoredOccurrence) -> Place | None:
    own = item.occurrence
    if not is_taken(item) or is_extra(item):
        return None
    return Place((own.schedule_id,), (own.nominal_ms,))


def _place_posted(item: StoredOccurrence) -> Place | None:
    own = item.occurrence
    if own.state is not OccurrenceState.DISPATCHING:
        return None
    return Place((own.schedule_id,), (own.nominal_ms,))


def _place_owned_token(item: StoredToken) -> Place:
    return Place((item.workspace,), (item.queue, item.number))


SCHEDULES = Index("schedules", SCHEDULE, _place_schedule)
SCHEDULES_OF = Index("schedules of a scope", SCHEDULE, _place_owned_schedule)
FINISHED = Index("finished schedules", SCHEDULE, _place_finished)
TEMPORARY = Index("finished schedules to be deleted then", SCHEDULE, _place_temporary)
ROWS = Index("rows", ROW, _place_row)
ROWS_OF = Index("rows of a scope", ROW, _place_owned_row)
DOCUMENTS_OF = Index("all documents of a scope", DOCUMENT, _place_owned_document)
JOBS = Index("jobs", JOB, _place_job)
LIVE_JOBS = Index("live jobs of a schedule", JOB, _place_live_job, guard="the schedule")
KEYS_OF = Index("idempotency keys of a workspace", IDEMPOTENCY_KEY, _place_owned_key)
OCCURRENCES = Index("occurrences", OCCURRENCE, _place_occurrence)
TAKEN = Index("taken times", OCCURRENCE, _place_taken, guard="the schedule's row")
POSTED = Index("dispatches of a schedule", OCCURRENCE, _place_posted, guard="the schedule")
TOKENS_OF = Index("tokens of a workspace", TOKEN, _place_owned_token)
