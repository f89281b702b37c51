"""Manually requested occurrences: `run_now`, and `backfill` of past nominal times.

Both are handed over like planned ones, ledger first, so that a repeated request makes no second
job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from msgspec.structs import replace

from duly.engine.kinds import CLAIMED, OCCURRENCE, StoredOccurrence
from duly.engine.schedules import ledger
from duly.engine.schedules.hand_over import hand_over, new_job, new_jobs, source_of
from duly.engine.schedules.rows import hold_schedule
from duly.engine.transaction import Tx
from duly.errors import BackendUnavailable
from duly.model.index_rows import trigger_text
from duly.model.jobs import JobId, check_text
from duly.model.ledger import BACKFILLABLE, Occurrence, OccurrenceState
from duly.model.plans import BACKFILL, RUN_NOW, Backfill, BackfillReport
from duly.model.schedules import Schedule, ScheduleId
from duly.rules.checks import check_backfill
from duly.rules.planning import PlannedOccurrence
from duly.rules.spans import Span, spans_left
from duly.triggers import Trigger

_TRIES = 1_000
"""Milliseconds from now on that are tried for a free nominal time."""


def run_now(tx: Tx, schedule_id: ScheduleId, request_id: str) -> Occurrence | None:
    """Make one extra occurrence; a repeated request returns the same; None: no such schedule."""
    check_text("request_id", request_id)
    stored = hold_schedule(tx, schedule_id)
    if stored is None:
        return None
    claim_id = f"{RUN_NOW}:{request_id}"
    tx.guard(f"{schedule_id}/{claim_id}")
    place = (0, schedule_id)
    for asked in tx.members(CLAIMED, claim_id, since=place, upto=place, limit=1, hold=False):
        return asked.occurrence
    at_ms = _free_ms(tx, stored.schedule)
    digest = sha256(f"{RUN_NOW}/{schedule_id}/{request_id}".encode()).hexdigest()
    extra = _single(tx, schedule_id, at_ms, RUN_NOW)
    source = source_of(stored.schedule)
    job = new_job(tx, source, extra, JobId(f"job_{digest[:32]}"))
    hand_over(tx, source, [extra], {at_ms: job}, claim_id)
    made = tx.get(OCCURRENCE, schedule_id, at_ms)
    assert made is not None
    return made.occurrence


def _free_ms(tx: Tx, schedule: Schedule) -> int:
    """Return the first instant from now on that is neither in the ledger nor a nominal time.

    Raise BackendUnavailable if there is none within `_TRIES` milliseconds.
    """
    trigger = schedule.definition.trigger
    last_ms = tx.now_ms + _TRIES - 1
    rows = ledger.rows_between(tx, schedule.id, tx.now_ms, last_ms)
    taken = {each.occurrence.nominal_ms for each in rows}
    ranges = [each.occurrence for each in rows if each.occurrence.is_range]
    for at_ms in range(tx.now_ms, last_ms + 1):
        is_taken = at_ms in taken or any(each.covers(at_ms) for each in ranges)
        if not is_taken and trigger.next_after_ms(at_ms - 1) != at_ms:
            return at_ms
    raise BackendUnavailable(f"too many run_now requests at once for schedule {schedule.id}; retry")


def _single(tx: Tx, schedule_id: ScheduleId, nominal_ms: int, reason: str) -> PlannedOccurrence:
    state = OccurrenceState.PLANNED
    return PlannedOccurrence(schedule_id, nominal_ms, nominal_ms, 1, tx.now_ms, state, reason)


@dataclass(slots=True)
class _Looked:
    """Nominal times that one step of a backfill compared with the ledger."""

    times: list[int] = field(default_factory=list)
    """Times to plan: they have no row, or one in a state that may be backfilled."""
    ranges: dict[int, tuple[StoredOccurrence, list[int]]] = field(default_factory=dict)
    """Ranges that contain some of `times`, with those times; by the range's nominal time."""
    left_alone: int = 0


def backfill(tx: Tx, request: Backfill) -> BackfillReport | None:
    """Plan past times that did not run, oldest first; None: no such schedule."""
    check_backfill(request, tx.now_ms)
    # Held, because concurrent steps or a planner would each split a range as if it were alone.
    stored = hold_schedule(tx, request.schedule_id)
    if stored is None:
        return None
    schedule = stored.schedule
    times, next_from_ms = _times(schedule.definition.trigger, request)
    if not times:
        return BackfillReport(0, 0, None)
    looked = _look(tx, schedule.id, times)
    late = [_single(tx, schedule.id, ms, BACKFILL) for ms in looked.times]
    source = source_of(schedule)
    # Jobs first: if one cannot be made, the ledger must stay unchanged.
    jobs = new_jobs(tx, source, late, iter(tx.new_ids("job_", len(late))))
    keys = [(schedule.id, ms) for ms in {*looked.times, *looked.ranges}]
    tx.get_many(OCCURRENCE, keys)
    rule = trigger_text(schedule.definition.trigger)
    for item, taken in looked.ranges.values():
        _take_out(tx, rule, item, taken)
    handed = hand_over(tx, source, late, jobs)
    return BackfillReport(handed.planned, looked.left_alone, next_from_ms)


def _times(trigger: Trigger, request: Backfill) -> tuple[list[int], int | None]:
    """Return the times of one step, and where the next step begins (None: it is the last)."""
    times: list[int] = []
    found = trigger.next_after_ms(request.from_ms - 1)
    while found is not None and found < request.to_ms:
        if len(times) == request.limit:
            return times, times[-1] + 1
        times.append(found)
        found = trigger.next_after_ms(found)
    return times, None


def _look(tx: Tx, schedule_id: ScheduleId, times: Sequence[int]) -> _Looked:
    """Return which times to plan and which to leave alone, according to the ledger."""
    looked = _Looked()
    rows = iter(ledger.rows_between(tx, schedule_id, times[0], times[-1]))
    item = next(rows, None)
    for ms in times:
        while item is not None and item.occurrence.until_ms < ms:
            item = next(rows, None)
        if item is None or not item.occurrence.covers(ms):
            looked.times.append(ms)
        elif item.occurrence.state not in BACKFILLABLE:
            looked.left_alone += 1
        else:
            looked.times.append(ms)
            if item.occurrence.is_range:
                looked.ranges.setdefault(item.occurrence.nominal_ms, (item, []))[1].append(ms)
    return looked


def _take_out(tx: Tx, rule: str, item: StoredOccurrence, taken: Iterable[int]) -> None:
    """Remove times from a range by splitting it into the parts around them."""
    row = item.occurrence
    tx.delete(OCCURRENCE, row.schedule_id, row.nominal_ms)
    whole = Span(row.nominal_ms, row.until_ms, row.count)
    for left in spans_left(rule, whole, [(ms, ms) for ms in taken]):
        part = replace(
            row,
            nominal_ms=left.first_ms,
            until_ms=left.last_ms,
            count=left.times,
            run_at_ms=left.first_ms + row.run_at_ms - row.nominal_ms,
        )
        tx.get(OCCURRENCE, row.schedule_id, left.first_ms)
        tx.put(OCCURRENCE, replace(item, occurrence=part))
