"""Station 5: how the posts of a tick end, and what is counted against a schedule.

Only what stands under the claim is touched: the endpoint, or another tick, may have moved it on.
Index rows are locked before ledger rows, as everywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, and_, or_

from duly.dispatch_store import MAX_REASON, DispatchAnswer, Dispatching
from duly.dispatching import (
    NOT_FOUND_LIMIT,
    DispatchEnd,
    count_not_found,
    decide_answer,
    not_found_error,
)
from duly.ledger import OccurrenceState
from duly.occurrences import Advance
from duly.stores.checks import check_answers
from duly.stores.sql import events, index, rows
from duly.stores.sql.bulk import update_all
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.dispatch_rows import COLUMNS, change_of, stored_id, write_changes


def end_dispatches(db: Db, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
    """Store how posts ended; gives how many stood under the claim."""
    check_answers(claim_id, answers)
    if not answers:
        return 0
    db = db.at(db.now_ms())
    counted = _lock_counted(db, answers)
    held = _held(db, stored_id(claim_id))
    stood: list[DispatchAnswer] = []
    changes = []
    for answer in answers:
        # One occurrence has one answer: the second finds nothing under the claim.
        each = held.pop((answer.schedule_id, answer.nominal_ms), None)
        if each is not None:
            stood.append(answer)
            changes.append(_answered(db, each, answer))
    write_changes(db, changes)
    known = set(stood)
    _count(db, counted, [each for each in answers if each in known or each.end == "closed"])
    return len(stood)


def _held(db: Db, claim_id: str) -> dict[tuple[str, int], Dispatching]:
    """The dispatches that stand under a claim."""
    found = db.run(
        f"SELECT {COLUMNS} FROM {{p}}occurrences WHERE claim_id = :claim_id "
        "AND state = 'dispatching' ORDER BY schedule_id, nominal_ms {lock}",
        claim_id=claim_id,
    )
    held = map(Dispatching._make, tuples(found))
    return {(each.schedule_id, each.nominal_ms): each for each in held}


def _answered(db: Db, each: Dispatching, answer: DispatchAnswer) -> dict[str, Any]:
    reason = None if answer.reason is None else answer.reason[:MAX_REASON]
    fate = decide_answer(answer.end, each.delivery, each.tries, reason)
    change = change_of(each, fate, db.now_ms())
    if fate.state is OccurrenceState.DISPATCHING:
        change["lease_until_ms"] = db.now_ms() + answer.delay_ms
    return change


def _lock_counted(db: Db, answers: Sequence[DispatchAnswer]) -> Sequence[Row[Any]]:
    """Rows whose count these answers may change; before the ledger, as the lock order wants."""
    rules = db.tables.schedule_rules
    ids = sorted({each.schedule_id for each in answers if each.end in ("closed", "not_found")})
    unknown = sorted({each.schedule_id for each in answers if each.end == "not_found"})
    counts = or_(rules.c.not_found > 0, rules.c.schedule_id.in_(unknown))
    return rows.locked(db, and_(rules.c.schedule_id.in_(ids), counts)) if ids else []


def _count(db: Db, counted: Sequence[Row[Any]], answers: Sequence[DispatchAnswer]) -> None:
    """Count how often in a row the endpoint did not know the schedules of rows."""
    ends: dict[str, list[DispatchEnd]] = defaultdict(list)
    reasons: dict[str, str | None] = {}
    for answer in answers:
        ends[answer.schedule_id].append(answer.end)
        if answer.end == "not_found":
            reasons[answer.schedule_id] = answer.reason
    counts = {
        row.row_id: (row.schedule_id, count_not_found(row.not_found, ends[row.schedule_id]))
        for row in counted
        if row.error is None
    }
    update_all(
        db,
        db.tables.schedule_rules,
        "row_id",
        [{"row_id": number, "not_found": times} for number, (_, times) in counts.items()],
    )
    broken = {
        number: Advance(whose, None, None, None, 0, not_found_error(times, reasons.get(whose)))
        for number, (whose, times) in counts.items()
        if times >= NOT_FOUND_LIMIT
    }
    if broken:
        index.quarantine(db, broken)
        events.end_schedules(db, list(broken.values()), "quarantined", db.now_ms())
