"""Stations 4 and 5: occurrences that somebody asks for: one now, or past ones after all.

Both go the planner's way, ledger first, so that asking again makes no second job.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import structs

from duly.errors import BackendUnavailable
from duly.ids import new_ids
from duly.jobs import JobId, check_text
from duly.ledger import BACKFILLABLE, BROKEN_OFF, Occurrence, OccurrenceState
from duly.occurrences import trigger_text
from duly.plan_store import BACKFILL, RUN_NOW, Backfill, BackfillReport
from duly.planning import PlannedOccurrence
from duly.schedules import Limits, Schedule, ScheduleId
from duly.store import ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.stores.checks import check_backfill
from duly.stores.spans import Span, spans_left
from duly.stores.sql import ledger
from duly.stores.sql.db import Db
from duly.stores.sql.hand_over import hand_over, jobs_of, key_of
from duly.stores.sql.schedules import find_schedule, hold_schedule, put_schedules

_PLANNED = OccurrenceState.PLANNED
_NO_LIMITS = Limits(2**31 - 1, 1, 2**31 - 1)
"""Whoever stored a schedule was allowed to, and pausing it asks for nothing more."""
_TRIES = 1_000
"""Milliseconds after now that may be taken by other extras."""


def run_now(db: Db, schedule_id: ScheduleId, request_id: str) -> Occurrence | None:
    """Make one extra occurrence."""
    check_text("request_id", request_id)
    schedule = find_schedule(db, schedule_id)
    if schedule is None:
        return None
    claim_id = f"{RUN_NOW}:{request_id}"
    db.dialect.guard_claim(db.connection, db.tables, f"{schedule_id}/{claim_id}")
    asked_before = ledger.by_claim(db, schedule_id, claim_id)
    if asked_before is not None:
        return asked_before
    now_ms = db.now_ms()
    digest = sha256(f"{RUN_NOW}/{schedule_id}/{request_id}".encode()).hexdigest()
    trigger = schedule.definition.trigger
    for nominal_ms in range(now_ms, now_ms + _TRIES):
        if trigger.next_after_ms(nominal_ms - 1) == nominal_ms:
            continue  # the schedule's own time is not taken by an extra
        extra = _single(schedule_id, nominal_ms, now_ms, RUN_NOW)
        job_id = JobId(f"job_{digest[:32]}")
        entry = ledger.entry_of(extra, key_of(schedule), now_ms, job_id, claim_id)
        handed = hand_over(db.at(now_ms), [entry], jobs_of(db, schedule, [entry]))
        if not handed.taken:
            return ledger.by_claim(db, schedule_id, claim_id)
    raise BackendUnavailable(f"schedule {schedule_id} has too many extras at once; ask again")


def backfill(db: Db, request: Backfill) -> BackfillReport | None:
    """Plan past times that did not run."""
    now_ms = db.now_ms()
    check_backfill(request, now_ms)
    # Two steps, or a step and a planner, would each part a run of times as if it were alone.
    schedule = hold_schedule(db, request.schedule_id)
    if schedule is None:
        return None
    times, next_from_ms = _times(schedule, request)
    if not times:
        return BackfillReport(0, 0, None)
    _open_ranges(db, schedule, times, now_ms)
    key = key_of(schedule)
    entries = []
    for nominal_ms, job_id in zip(times, new_ids("job_", len(times)), strict=True):
        again = _single(schedule.id, nominal_ms, now_ms, BACKFILL)
        entries.append(ledger.entry_of(again, key, now_ms, JobId(job_id)))
    jobs = jobs_of(db, schedule, entries)
    handed = hand_over(db.at(now_ms), entries, jobs, over=sorted(BACKFILLABLE))
    return BackfillReport(handed.planned, len(times) - handed.planned, next_from_ms)


def _times(schedule: Schedule, request: Backfill) -> tuple[list[int], int | None]:
    """The times of one step, and where the next one begins."""
    trigger = schedule.definition.trigger
    times: list[int] = []
    found = trigger.next_after_ms(request.from_ms - 1)
    while found is not None and found < request.to_ms:
        if len(times) == request.limit:
            return times, times[-1] + 1
        times.append(found)
        found = trigger.next_after_ms(found)
    return times, None


def _open_ranges(db: Db, schedule: Schedule, times: Sequence[int], now_ms: int) -> None:
    """Take the times out of missed runs of times; what is left of a run stays missed."""
    rows = db.run(
        "SELECT * FROM {p}occurrences WHERE schedule_id = :id AND nominal_ms <= :last_ms "
        "AND until_ms >= :first_ms AND until_ms > nominal_ms AND state = 'missed' {lock}",
        id=schedule.id,
        first_ms=times[0],
        last_ms=times[-1],
    ).all()
    rule = trigger_text(schedule.definition.trigger)
    entries = []
    for row in rows:
        db.run(
            "DELETE FROM {p}occurrences WHERE schedule_id = :id AND nominal_ms = :nominal_ms",
            id=schedule.id,
            nominal_ms=row.nominal_ms,
        )
        whole = Span(row.nominal_ms, row.until_ms, row.times)
        offset_ms = row.run_at_ms - row.nominal_ms
        for left in spans_left(rule, whole, [(ms, ms) for ms in times]):
            kept = PlannedOccurrence(
                schedule.id,
                *left,
                left.first_ms + offset_ms,
                OccurrenceState.MISSED,
                row.reason,
            )
            key = ScheduleKey(row.flow, row.scope, row.name)
            entries.append(ledger.entry_of(kept, key, now_ms))
    ledger.write(db, entries)


def _single(
    schedule_id: ScheduleId, nominal_ms: int, now_ms: int, reason: str
) -> PlannedOccurrence:
    return PlannedOccurrence(schedule_id, nominal_ms, nominal_ms, 1, now_ms, _PLANNED, reason)


def pause_failing(db: Db, schedule_id: ScheduleId) -> Schedule | None:
    """Pause a schedule whose last runs all failed."""
    schedule = find_schedule(db, schedule_id)
    if schedule is None or not schedule.definition.enabled:
        return None
    most = schedule.definition.policies.pause_after_failures
    if most is None:
        return None
    resumed_ms = db.run(
        "SELECT MAX(at_ms) FROM {p}schedule_events WHERE schedule_id = :id AND kind = 'resumed'",
        id=schedule_id,
    ).scalar()
    # What was taken away did not die. Of what was asked for by hand, whose reason says that, the
    # job alone knows.
    states = db.run(
        "SELECT state FROM {p}occurrences o WHERE schedule_id = :id "
        "AND state IN ('succeeded', 'failed') AND ended_at_ms > :since_ms "
        "AND NOT (state = 'failed' AND reason IS NOT NULL AND (reason IN :broken_off OR EXISTS "
        "(SELECT 1 FROM {p}jobs j WHERE j.id = o.job_id AND j.state = 'cancelled'))) "
        "ORDER BY ended_at_ms DESC, nominal_ms DESC LIMIT :most",
        id=schedule_id,
        broken_off=sorted(BROKEN_OFF),
        since_ms=-1 if resumed_ms is None else resumed_ms,
        most=most,
    ).scalars()
    if list(states) != ["failed"] * most:
        return None
    note = f"paused after {most} failures in a row"
    write = ScheduleWrite(
        key_of(schedule),
        schedule.id,
        structs.replace(schedule.definition, enabled=False, note=note),
        limits=_NO_LIMITS,
        expected_version=schedule.version,
        by="duly",
    )
    (written,) = put_schedules(db, [write])
    return written.schedule if isinstance(written, ScheduleWritten) else None
