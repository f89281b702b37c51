"""What every store refuses before it touches a row, and what it writes, in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from duly.dispatch_store import MAX_DISPATCHES, MAX_LEASE_MS, DispatchAnswer, DispatchClaim
from duly.errors import InvalidInput
from duly.glass_store import MAX_AUDIT_TEXT, AuditEntry
from duly.occurrences import IndexRow
from duly.plan_store import MAX_PLAN, PlanRequest
from duly.schedules import Schedule
from duly.store import MAX_CLAIM, MAX_PAGE, ScheduleEvent
from duly.triggers.instants import END_MS, STORED_FROM_MS

SCHEDULES = "schedules"
"""The collection that schedules are documents of."""
MAX_CLAIM_ID = 128
MAX_LOOK_AHEAD_MS = 86_400_000


def check_limit(limit: int, most: int = MAX_PAGE) -> None:
    """Refuse a page of nothing, or a page without end."""
    if not 1 <= limit <= most:
        raise InvalidInput(f"limit is {limit}; allowed: 1 to {most}")


def check_window(from_ms: int, to_ms: int) -> None:
    """Refuse a window that holds no instant."""
    if not from_ms < to_ms:
        raise InvalidInput(f"from_ms is {from_ms} and to_ms {to_ms}; from must be before to")


def check_plan(request: PlanRequest) -> None:
    """Refuse a step of planning that has no bounds."""
    check_limit(request.limit, MAX_PLAN)
    if not 0 <= request.look_ahead_ms <= MAX_LOOK_AHEAD_MS:
        raise InvalidInput(
            f"look_ahead_ms is {request.look_ahead_ms}; allowed: 0 to {MAX_LOOK_AHEAD_MS}"
        )


def check_claim(now_ms: int | None, limit: int, claim_id: str | None) -> None:
    """Refuse a claim that could never be right."""
    check_limit(limit, MAX_CLAIM)
    if now_ms is not None and not STORED_FROM_MS <= now_ms < END_MS:
        raise InvalidInput(
            f"now_ms is {now_ms}; allowed: milliseconds since 1970 in the years 2000 to 2199 "
            "(not seconds)"
        )
    if claim_id is not None:
        _check_claim_id(claim_id)


def _check_claim_id(claim_id: str) -> None:
    if not 1 <= len(claim_id) <= MAX_CLAIM_ID:
        raise InvalidInput(f"claim_id has {len(claim_id)} characters; allowed: 1 to {MAX_CLAIM_ID}")


def check_dispatch_claim(claim: DispatchClaim) -> None:
    """Refuse a claim of dispatches that could never be right."""
    check_limit(claim.limit, MAX_DISPATCHES)
    _check_claim_id(claim.claim_id)
    if not 1 <= claim.lease_ms <= MAX_LEASE_MS:
        raise InvalidInput(f"lease_ms is {claim.lease_ms}; allowed: 1 to {MAX_LEASE_MS}")


def check_answers(claim_id: str, answers: Sequence[DispatchAnswer]) -> None:
    """Refuse more answers than a claim can have given, and delays without end."""
    _check_claim_id(claim_id)
    if len(answers) > MAX_DISPATCHES:
        raise InvalidInput(f"{len(answers)} answers at once; allowed: {MAX_DISPATCHES}")
    for answer in answers:
        if not 0 <= answer.delay_ms <= MAX_LEASE_MS:
            raise InvalidInput(f"delay_ms is {answer.delay_ms}; allowed: 0 to {MAX_LEASE_MS}")


def check_audit(entry: AuditEntry) -> None:
    """Refuse an entry that says too little, or too much."""
    texts = (entry.by, entry.action, entry.target, entry.detail)
    if not entry.by or not entry.action or max(map(len, texts)) > MAX_AUDIT_TEXT:
        raise InvalidInput(f"an audit entry names who and what, in {MAX_AUDIT_TEXT} characters")


def refuse_schedules(collection: str) -> None:
    """A schedule written as a plain document would lose its row and its events."""
    if collection == SCHEDULES:
        raise InvalidInput("schedules are written with put_schedules() and delete_schedule()")


def deleted(schedule: Schedule, at_ms: int, by: str) -> ScheduleEvent:
    """The last event of a schedule, which keeps what can be asked about when it is gone."""
    detail = {
        "flow": schedule.flow,
        "scope": str(schedule.scope),
        "name": schedule.name,
        "trigger": schedule.definition.trigger.to_json(),
    }
    return ScheduleEvent(schedule.id, "deleted", at_ms, by, detail)


def with_times_of(row: IndexRow, right: IndexRow) -> IndexRow:
    """What a row should say: its own times, where its trigger is right."""
    if (row.schedule_id, row.trigger) != (right.schedule_id, right.trigger):
        return right
    return replace(
        right,
        nominal_ms=row.nominal_ms,
        run_at_ms=row.run_at_ms,
        runs_left=row.runs_left,
        trigger_version=row.trigger_version,
        version=row.version,
    )
