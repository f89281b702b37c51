"""Retention: removal of old history and finished schedules.

Work is done in bounded steps; each step but the last returns a cursor. The ledger is walked
schedule by schedule, events and the audit log in order of their numbers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from duly.engine.kinds import (
    AUDIT,
    LEDGER,
    OCCURRENCE,
    ROW,
    ROW_IDS,
    SCHEDULE,
    SCHEDULE_EVENTS,
    SCHEDULE_IDS,
    StoredOccurrence,
    StoredSchedule,
    key_parts,
    schedule_key,
)
from duly.engine.transaction import EVERY, Key, Tx
from duly.engine.upkeep.walks import FINISHED, LIVE_JOBS, POSTED, TAKEN, TEMPORARY
from duly.errors import InvalidInput
from duly.model.ledger import OPEN, Occurrence, OccurrenceState
from duly.model.schedule_writes import ScheduleEvent
from duly.model.stored_jobs import MAX_SWEEP
from duly.model.upkeep import LedgerPruned, LedgerRetention, SchedulesPruned, check_cursor
from duly.rules.checks import check_limit, pruned, pruning_place

EVERY_MS = 2**62
"""An instant after every other."""
_TOGETHER = 20
"""Schedules whose old rows are read at once; most have few."""
_FACTS = 4
"""Events per schedule in the first read; usually enough to find a newer one of the same kind."""


def prune_ledger(
    tx: Tx, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
) -> LedgerPruned:
    """Take one step: occurrences first, then schedule events, then the audit log."""
    check_limit(limit, MAX_SWEEP)
    kind, place = check_cursor(cursor, ("ledger", "events", "audit"))
    after = _place(place)
    if kind == "ledger":
        return _prune_occurrences(tx, retention, limit, after)
    if kind == "events":
        return _prune_events(tx, retention, limit, after)
    return _prune_audit(tx, retention, limit, after)


def _place(text: str) -> Key:
    try:
        return tuple(json.loads(text or "[]"))
    except (TypeError, ValueError):
        raise InvalidInput(
            f"cursor {text[:80]!r} is invalid; pass that of the previous step"
        ) from None


def _cursor(kind: str, place: Sequence[str | int]) -> str:
    return f"{kind}:{json.dumps(place)}"


def _prune_occurrences(tx: Tx, retention: LedgerRetention, limit: int, place: Key) -> LedgerPruned:
    """Remove old rows: look at up to `limit` schedules of the ledger and `limit` of their rows."""
    first = str(place[0]) if place else ""
    ids = tx.partitions(LEDGER, since=first, limit=limit + 1)
    edge_ms = tx.now_ms - retention.ledger_ms
    oldest = tx.peek_firsts(LEDGER, [(each,) for each in ids[:limit]])
    with_old = [each for each in ids[:limit] if _is_before(oldest.get((each,)), edge_ms)]
    until_ms = _until(tx, with_old, edge_ms)
    keys, more = _old_rows(tx, with_old, {first: place[1:]}, edge_ms, limit)
    following = _cursor("ledger", [ids[limit]]) if len(ids) > limit else _cursor("events", [])
    if more is not None:
        following = _cursor("ledger", more)
    expired = [
        key
        for key, item in tx.get_many(OCCURRENCE, keys).items()
        if _is_over(item.occurrence, edge_ms) and item.occurrence.nominal_ms < until_ms[str(key[0])]
    ]
    for key in expired:
        tx.delete(OCCURRENCE, *key)
    return LedgerPruned(len(expired), 0, following)


def _old_rows(
    tx: Tx, ids: Sequence[str], since: Mapping[str, Key], edge_ms: int, limit: int
) -> tuple[list[Key], list[str | int] | None]:
    """Return the keys of up to `limit` old rows, and where to continue if there may be more."""
    keys: list[Key] = []
    upto = (edge_ms - 1,)
    for start in range(0, len(ids), _TOGETHER):
        few = ids[start : start + _TOGETHER]
        room = limit - len(keys)
        found = tx.find_among(LEDGER, [(each,) for each in few], upto=upto, limit=room)
        if len(found) < room and not any(since.get(each) for each in few):
            keys += found
            continue
        for each in few:
            room = limit - len(keys)
            found = tx.find(LEDGER, each, since=since.get(each, ()), upto=upto, limit=room)
            keys += found
            if len(found) == room:
                return keys, [each, int(found[-1][1]) + 1]
    return keys, None


def _is_before(item: StoredOccurrence | None, edge_ms: int) -> bool:
    return item is not None and item.occurrence.nominal_ms < edge_ms


def _until(tx: Tx, ids: Sequence[str], edge_ms: int) -> dict[str, int]:
    """Return, by schedule id, the nominal time before which old rows may be removed."""
    schedules, rows = _schedules_of(tx, ids), _rows_of(tx, ids)
    newest = tx.peek_firsts(TAKEN, [(each,) for each in ids], is_reverse=True)
    until: dict[str, int] = {}
    for each in ids:
        if each not in schedules and each not in rows:
            until[each] = EVERY_MS
        elif _counts(schedules.get(each)) or rows.get(each, edge_ms) < edge_ms:
            # Keep all: runs that an older release did not count are counted in the ledger, and a
            # planner could repeat occurrences after a row whose next time is before the edge.
            until[each] = 0
        else:
            # reconcile() continues after the newest row.
            known = newest.get((each,))
            until[each] = 0 if known is None else known.occurrence.nominal_ms
    return until


def _counts(item: StoredSchedule | None) -> bool:
    """Return whether the runs of a schedule are counted in its ledger."""
    if item is None:
        return False
    return item.schedule.definition.max_runs is not None and item.schedule.runs_had is None


def _schedules_of(tx: Tx, ids: Collection[str]) -> dict[str, StoredSchedule]:
    """Return the schedules that are stored, by id."""
    keys = tx.find_among(SCHEDULE_IDS, [(each,) for each in ids], limit=EVERY)
    return {item.schedule.id: item for item in tx.peek_many(SCHEDULE, keys).values()}


def _rows_of(tx: Tx, ids: Collection[str]) -> dict[str, int]:
    """Return the next times of the schedules that have a row, by id."""
    keys = tx.find_among(ROW_IDS, [(each,) for each in ids], limit=EVERY)
    return {item.row.schedule_id: item.row.nominal_ms for item in tx.peek_many(ROW, keys).values()}


def _is_over(occurrence: Occurrence, edge_ms: int) -> bool:
    """Return whether an occurrence is closed and all its times are before the edge."""
    # An occurrence taken by claim_due() has no job that could close it.
    is_claimed = occurrence.state is OccurrenceState.FIRED and occurrence.job_id is None
    times = occurrence.until_ms, occurrence.run_at_ms, occurrence.ended_at_ms or 0
    return (is_claimed or occurrence.state not in OPEN) and max(times) < edge_ms


def _prune_events(tx: Tx, retention: LedgerRetention, limit: int, after: Key) -> LedgerPruned:
    edge_ms = tx.now_ms - retention.events_ms
    page = tx.walk(SCHEDULE_EVENTS, after, limit)
    old = [fact for fact in page if fact.at_ms < edge_ms]
    standing = _schedules_of(tx, {fact.schedule_id for fact in old})
    later = _later(tx, [fact for fact in old if fact.schedule_id in standing])
    expired = [fact for fact in old if fact.schedule_id not in standing or fact.seq in later]
    tx.drop(SCHEDULE_EVENTS, expired)
    is_done = len(page) < limit or len(old) < len(page)
    following = _cursor("audit", []) if is_done else _cursor("events", [page[-1].seq])
    return LedgerPruned(0, len(expired), following)


def _later(tx: Tx, facts: Sequence[ScheduleEvent]) -> set[int]:
    """Return the numbers of events that are not the newest of their kind.

    An event that changed the trigger is superseded only by another one that did, since
    reconcile() needs the time of the change.
    """
    newest = tx.histories(SCHEDULE_EVENTS, {fact.schedule_id for fact in facts}, _FACTS)
    long = {
        fact.schedule_id
        for fact in facts
        if not _is_outlived(fact, newest) and not _is_among(fact, newest)
    }
    if long:
        newest |= tx.histories(SCHEDULE_EVENTS, long, EVERY)
    return {fact.seq for fact in facts if _is_outlived(fact, newest)}


def _is_among(fact: ScheduleEvent, newest: Mapping[str, Sequence[ScheduleEvent]]) -> bool:
    """Return whether all events after `fact` have been read."""
    return any(other.seq <= fact.seq for other in newest.get(fact.schedule_id, ()))


def _is_outlived(fact: ScheduleEvent, newest: Mapping[str, Sequence[ScheduleEvent]]) -> bool:
    return any(
        other.seq > fact.seq
        and other.kind == fact.kind
        and ("trigger" in other.detail or "trigger" not in fact.detail)
        for other in newest.get(fact.schedule_id, ())
    )


def _prune_audit(tx: Tx, retention: LedgerRetention, limit: int, after: Key) -> LedgerPruned:
    page = tx.walk(AUDIT, after, limit)
    aged = [entry for entry in page if entry.at_ms < tx.now_ms - retention.audit_ms]
    expired = [each for each in aged if retention.is_audit_over(each.action, each.at_ms, tx.now_ms)]
    tx.drop(AUDIT, expired)
    following = None if len(aged) < limit else _cursor("audit", [page[-1].seq])
    return LedgerPruned(0, 0, following, audit=len(expired))


def prune_schedules(
    tx: Tx, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
) -> SchedulesPruned:
    """Take one step: first schedules with `delete_after_completion`, then those past retention."""
    check_limit(limit, MAX_SWEEP)
    kind, at_ms, last_id = pruning_place(cursor)
    is_temporary = kind == "temporary"
    kept_ms = 0 if is_temporary else retention.finished_ms
    if kept_ms is None:
        return SchedulesPruned(0, None)
    edge_ms = tx.now_ms - kept_ms
    index = TEMPORARY if is_temporary else FINISHED
    keys = tx.find(index, since=(at_ms, last_id), upto=(edge_ms,), limit=limit + 1)
    # Held, so that no edit resumes one meanwhile. The first one may be from the previous step.
    found = [
        item
        for item in tx.get_many(SCHEDULE, keys).values()
        if (item.finished_at_ms, item.schedule.id) != (at_ms, last_id)
    ][:limit]
    removed = _remove(tx, found, edge_ms)
    if len(found) == limit:
        last = found[-1]
        return SchedulesPruned(removed, f"{kind}:{last.finished_at_ms or 0}/{last.schedule.id}")
    return SchedulesPruned(removed, "finished:" if is_temporary else None)


def _remove(tx: Tx, items: Sequence[StoredSchedule], edge_ms: int) -> int:
    """Delete schedules still finished and without open jobs or dispatches; return how many."""
    ended = [
        item.schedule
        for item in items
        if item.schedule.state == "finished"
        and item.finished_at_ms is not None
        and item.finished_at_ms <= edge_ms
        and item.schedule.definition.origin != "static"
    ]
    jobs = tx.peek_firsts(LIVE_JOBS, [(each.id,) for each in ended])
    posted = [(each.id,) for each in ended if each.definition.hand_over == "http"]
    busy = {*jobs, *tx.peek_firsts(POSTED, posted)}
    expired = [each for each in ended if (each.id,) not in busy]
    for schedule in expired:
        tx.delete(SCHEDULE, *key_parts(schedule_key(schedule)))
        tx.append(SCHEDULE_EVENTS, pruned(schedule, tx.now_ms))
    return len(expired)
