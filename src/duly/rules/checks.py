"""Checks that every store makes before a write, and events with the same text in every store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from duly.errors import Conflict, InvalidInput
from duly.model.claims import MAX_JOB_CLAIM, ClaimRequest
from duly.model.dispatches import (
    MAX_DISPATCHES,
    MAX_LEASE_MS,
    DispatchAnswer,
    DispatchClaim,
    Fire,
    Inactive,
)
from duly.model.documents import ABSENT, Refused
from duly.model.index import MAX_CLAIM, MAX_PAGE
from duly.model.index_rows import IndexRow
from duly.model.jobs import ALL_QUEUES, NewJob, check_queue, check_text
from duly.model.plans import LEDGER_MS, MAX_PLAN, Backfill, PlanRequest
from duly.model.queues import QueueSettings
from duly.model.schedule_writes import MAX_WRITES, ScheduleEvent, ScheduleWrite
from duly.model.schedules import Schedule, accepts_dispatch
from duly.model.stored_jobs import DAY_MS, MAX_INSERT
from duly.model.summaries import MAX_AUDIT_TEXT, AuditEntry
from duly.model.upkeep import check_cursor
from duly.rules.runs import left_of
from duly.triggers.durations import check_duration
from duly.triggers.instants import END_MS, STORED_FROM_MS, from_ms

SCHEDULES = "schedules"
"""The collection of schedule documents."""
MAX_CLAIM_ID = 128
MAX_LOOK_AHEAD_MS = 86_400_000


def check_limit(limit: int, most: int = MAX_PAGE) -> None:
    """Refuse a limit outside 1 to `most`."""
    if not 1 <= limit <= most:
        raise InvalidInput(f"limit is {limit}; allowed: 1 to {most}")


def check_window(from_ms: int, to_ms: int) -> None:
    """Refuse an empty window."""
    if not from_ms < to_ms:
        raise InvalidInput(f"from_ms is {from_ms} and to_ms {to_ms}; from must be before to")


def check_plan(request: PlanRequest) -> None:
    """Refuse a planning step with a limit or look-ahead out of range."""
    check_limit(request.limit, MAX_PLAN)
    check_duration("look_ahead_ms", request.look_ahead_ms, 0, MAX_LOOK_AHEAD_MS)


def check_claim(now_ms: int | None, limit: int, claim_id: str | None) -> None:
    """Refuse an index claim with a limit, time or id out of range."""
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
    """Refuse a dispatch claim with a limit, id or lease out of range."""
    check_limit(claim.limit, MAX_DISPATCHES)
    _check_claim_id(claim.claim_id)
    check_duration("lease_ms", claim.lease_ms, 1, MAX_LEASE_MS)


def check_answers(claim_id: str, answers: Sequence[DispatchAnswer]) -> None:
    """Refuse more answers than one claim can return, and delays out of range."""
    _check_claim_id(claim_id)
    if len(answers) > MAX_DISPATCHES:
        raise InvalidInput(f"{len(answers)} answers in one call; allowed: {MAX_DISPATCHES}")
    for answer in answers:
        check_duration("delay_ms", answer.delay_ms, 0, MAX_LEASE_MS)


def refuse_fire(request: Fire, schedule: Schedule | None, *, is_open: bool) -> Inactive | None:
    """Return the refusal of a dispatch whose schedule does not accept it, or None.

    `schedule` is None if it is not stored; `is_open`: a tick holds the occurrence.
    """
    if schedule is None:
        return Inactive(None) if request.is_stored else None
    if not accepts_dispatch(schedule.state, is_open=is_open):
        return Inactive(schedule.state)
    # An occurrence that a tick holds was charged already.
    return Inactive("finished") if left_of(schedule) == 0 and not is_open else None


def ends_with(schedule: Schedule, nominal_ms: int | None) -> bool:
    """Return whether the dispatch of a nominal time was the last one of an external schedule."""
    definition = schedule.definition
    if nominal_ms is None or schedule.state != "active" or definition.hand_over != "external":
        return False
    return definition.trigger.next_after_ms(nominal_ms) is None


def check_backfill(request: Backfill, now_ms: int) -> None:
    """Refuse a range that is empty, reaches into the future, or is older than the ledger."""
    check_limit(request.limit, MAX_PLAN)
    start, end = _instant(request.from_ms), _instant(request.to_ms)
    if request.from_ms >= request.to_ms:
        raise InvalidInput(f"backfill from {start} to {end}: the start must be before the end")
    if request.to_ms > now_ms + 1:
        raise InvalidInput(
            f"backfill to {end}: the end must not be in the future (now: {_instant(now_ms)}); "
            "future times are planned by the planner"
        )
    if request.from_ms < now_ms - LEDGER_MS:
        raise InvalidInput(
            f"backfill from {start}: the ledger goes back {LEDGER_MS // DAY_MS} days, to "
            f"{_instant(now_ms - LEDGER_MS)}; older times may have run"
        )


def _instant(ms: int) -> str:
    try:
        return from_ms(ms).isoformat()
    except OverflowError:
        return f"{ms} (in ms since 1970)"


def check_writes(writes: Sequence[ScheduleWrite]) -> None:
    """Refuse more schedules than one transaction may write."""
    if len(writes) > MAX_WRITES:
        raise InvalidInput(f"{len(writes)} schedules in one call; allowed: {MAX_WRITES}")


def check_inserts(jobs: Sequence[NewJob]) -> None:
    """Refuse more jobs than one transaction may insert."""
    if len(jobs) > MAX_INSERT:
        raise InvalidInput(f"{len(jobs)} jobs in one call; allowed: {MAX_INSERT}")


def check_job_claim(request: ClaimRequest) -> None:
    """Refuse a job claim without queues or with a limit out of range."""
    if not request.queues:
        raise InvalidInput("queues is empty; name at least one queue")
    if not 0 <= request.limit <= MAX_JOB_CLAIM:
        raise InvalidInput(f"limit is {request.limit}; allowed: 0 to {MAX_JOB_CLAIM}")


def check_lock(name: str, owner: str, ttl_ms: int) -> None:
    """Refuse a lock without a name or an owner, or with a ttl out of range."""
    check_text("lock name", name)
    check_text("lock owner", owner)
    check_duration("ttl_ms", ttl_ms, 1, DAY_MS)


def write_refusal(expected: int | None, found: int) -> Refused | None:
    """Return the refusal of a write by its expected version, or None; `found` may be ABSENT."""
    if expected is None or expected == found:
        return None
    if expected == ABSENT:
        return Refused("exists", found)
    return Refused("absent", ABSENT) if found == ABSENT else Refused("stale", found)


def delete_refusal(expected: int | None, found: int) -> Refused | None:
    """Return the refusal of a delete by its expected version, or None; `found` may be ABSENT."""
    if found == ABSENT:
        return Refused("absent", ABSENT)
    return None if expected in (None, found) else Refused("stale", found)


def id_taken(stored_id: str, what: str) -> Conflict:
    """Return the error for an id that another document, schedule or index row has."""
    return Conflict(f"id {stored_id!r} is taken; use a new id for {what}")


def check_audit(entry: AuditEntry) -> None:
    """Refuse an audit entry without actor or action, or with text that is too long."""
    texts = (entry.by, entry.action, entry.target, entry.detail)
    if not entry.by or not entry.action or max(map(len, texts)) > MAX_AUDIT_TEXT:
        raise InvalidInput(
            f"an audit entry needs by and action, {MAX_AUDIT_TEXT} characters at most"
        )


def refuse_schedules(collection: str) -> None:
    """Refuse schedules as plain documents, which would have no index row and no events."""
    if collection == SCHEDULES:
        raise InvalidInput("schedules are written with put_schedules() and delete_schedule()")


def deleted(schedule: Schedule, at_ms: int, by: str) -> ScheduleEvent:
    """Return the last event of a deleted schedule, with its key and trigger."""
    detail = {
        "flow": schedule.flow,
        "scope": str(schedule.scope),
        "name": schedule.name,
        "trigger": schedule.definition.trigger.to_json(),
    }
    return ScheduleEvent(schedule.id, "deleted", at_ms, by, detail)


def pruned(schedule: Schedule, at_ms: int) -> ScheduleEvent:
    """Return the last event of a finished schedule that retention deletes."""
    event = deleted(schedule, at_ms, "duly")
    is_early = schedule.definition.delete_after_completion
    note = "delete_after_completion" if is_early else "it had finished, and was kept long enough"
    return replace(event, detail={**event.detail, "note": note})


def pruning_place(cursor: str | None) -> tuple[str, int, str]:
    """Return the kind, time and id after which a prune_schedules() cursor continues."""
    kind, place = check_cursor(cursor, ("temporary", "finished"))
    at_ms, _, last_id = place.partition("/")
    if not place:
        return kind, -1, ""
    if not at_ms.isdecimal():
        raise InvalidInput(f"cursor {place[:80]!r} is invalid; pass that of the previous step")
    return kind, int(at_ms), last_id


def with_times_of(row: IndexRow, right: IndexRow) -> IndexRow:
    """Return the corrected row: `right`, with the row's own times if its trigger is correct."""
    if (row.schedule_id, row.trigger) != (right.schedule_id, right.trigger):
        return right
    return replace(
        right,
        nominal_ms=row.nominal_ms,
        run_at_ms=row.run_at_ms,
        trigger_version=row.trigger_version,
        version=row.version,
    )


def check_queue_settings(settings: QueueSettings) -> None:
    """Refuse settings of an invalid queue name; ALL_QUEUES is allowed."""
    if settings.queue != ALL_QUEUES:
        check_queue(settings.queue)
