"""Extra occurrences in memory: run now, and past times that shall run after all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import groupby

from msgspec.structs import replace as changed

from duly.jobs import JobId, NewJob, check_text
from duly.ledger import BACKFILLABLE, Occurrence, OccurrenceState
from duly.occurrences import trigger_text
from duly.plan_store import BACKFILL, RUN_NOW, Backfill, BackfillReport
from duly.planning import PlannedOccurrence
from duly.schedules import Schedule, ScheduleId
from duly.stores.memory import ledger
from duly.stores.memory.hand_over import Step, hand_over, new_job, source_of
from duly.stores.memory.tables import LedgerEntry
from duly.stores.spans import span, span_until
from duly.triggers import Trigger

_PLANNED = OccurrenceState.PLANNED


def run_now(step: Step, schedule: Schedule, request_id: str) -> Occurrence:
    """One extra occurrence, the same for the same request."""
    claim_id = f"{RUN_NOW}:{request_id}"
    for entry in ledger.entries(step.tables, schedule.id):
        if entry.claim_id == claim_id:
            return entry.occurrence
    at_ms = step.now_ms
    while not _is_nobodys(step, schedule, at_ms):
        at_ms += 1
    digest = sha256(f"{RUN_NOW}/{schedule.id}/{request_id}".encode()).hexdigest()
    extra = PlannedOccurrence(schedule.id, at_ms, at_ms, 1, step.now_ms, _PLANNED, RUN_NOW)
    source = source_of(schedule)
    job = new_job(step, source, extra, JobId(f"job_{digest[:32]}"))
    hand_over(step, source, [extra], {at_ms: job}, claim_id)
    return step.tables.ledger[schedule.id, at_ms].occurrence


def _is_nobodys(step: Step, schedule: Schedule, at_ms: int) -> bool:
    """Whether an extra may have this time: the ledger has it not, nor will the schedule."""
    trigger = schedule.definition.trigger
    has_row = ledger.entry_at(step.tables, schedule.id, at_ms) is not None
    return not has_row and trigger.next_after_ms(at_ms - 1) != at_ms


def check_request(request_id: str) -> None:
    """Refuse what could not tell one request from another."""
    check_text("request_id", request_id)


@dataclass(slots=True)
class _Looked:
    """The times that a step of a backfill looked at."""

    free: list[int] = field(default_factory=list)
    """They have no row."""
    taken_up: list[tuple[LedgerEntry, int]] = field(default_factory=list)
    """They have one that may be taken up."""
    left_alone: int = 0
    next_from_ms: int | None = None


def backfill(step: Step, schedule: Schedule, request: Backfill) -> BackfillReport:
    """Plan past times that did not run, the oldest first."""
    looked = _look(step, schedule, request)
    times = sorted([*looked.free, *(ms for _, ms in looked.taken_up)])
    step.reserve(len(times))
    late = [
        PlannedOccurrence(schedule.id, ms, ms, 1, step.now_ms, _PLANNED, BACKFILL) for ms in times
    ]
    source = source_of(schedule)
    jobs: dict[int, NewJob] = {each.nominal_ms: new_job(step, source, each) for each in late}
    # Jobs first: of what no job can carry the ledger stays as it is.
    for _, group in groupby(looked.taken_up, key=lambda each: id(each[0])):
        _take_out(step, schedule, list(group))
    hand_over(step, source, late, jobs)
    return BackfillReport(step.planned, looked.left_alone, looked.next_from_ms)


def _look(step: Step, schedule: Schedule, request: Backfill) -> _Looked:
    trigger = schedule.definition.trigger
    looked = _Looked()
    found = trigger.next_after_ms(request.from_ms - 1)
    last_ms = request.from_ms
    for _ in range(request.limit):
        if found is None or found >= request.to_ms:
            return looked
        _look_at(step, looked, schedule.id, found)
        last_ms, found = found, trigger.next_after_ms(found)
    if found is not None and found < request.to_ms:
        looked.next_from_ms = last_ms + 1
    return looked


def _look_at(step: Step, looked: _Looked, schedule_id: ScheduleId, ms: int) -> None:
    entry = ledger.entry_at(step.tables, schedule_id, ms)
    if entry is None:
        looked.free.append(ms)
    elif entry.occurrence.state in BACKFILLABLE:
        looked.taken_up.append((entry, ms))
    else:
        looked.left_alone += 1


def _take_out(step: Step, schedule: Schedule, taken: list[tuple[LedgerEntry, int]]) -> None:
    """Leave of a row what lies before and after the times that are taken out of it."""
    entry, first_ms = taken[0]
    _, last_ms = taken[-1]
    row, trigger = entry.occurrence, schedule.definition.trigger
    del step.tables.ledger[schedule.id, row.nominal_ms]
    for left in _rest(trigger, row, first_ms, last_ms):
        step.tables.ledger[schedule.id, left.nominal_ms] = replace(entry, occurrence=left)


def _rest(trigger: Trigger, row: Occurrence, first_ms: int, last_ms: int) -> list[Occurrence]:
    rule, rest = trigger_text(trigger), []
    if row.nominal_ms < first_ms:
        before = span_until(rule, row.nominal_ms, first_ms)
        rest.append(changed(row, until_ms=before.last_ms, count=before.times))
    following_ms = trigger.next_after_ms(last_ms)
    if following_ms is not None and following_ms <= row.until_ms:
        after = span(rule, following_ms, row.until_ms)
        run_at_ms = following_ms + row.run_at_ms - row.nominal_ms
        rest.append(changed(row, nominal_ms=following_ms, run_at_ms=run_at_ms, count=after.times))
    return rest
