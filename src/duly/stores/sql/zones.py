"""Station 3: next times computed anew when the rules of time zones have changed.

Pages of rows are read without locks; the few whose time is another are locked, read once more, and
moved with a fact that says from when to when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import select

from duly.occurrences import TRIGGER_VERSION, Moves
from duly.rules.checks import check_limit
from duly.rules.zone_times import Zoned, move_event, right_time
from duly.stores.sql import events
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.index import write_moves
from duly.stores.sql.ledger_upkeep import existing
from duly.upkeep_store import MAX_EXAMPLES, MAX_ZONED, Recomputed, ZoneMove, check_cursor
from duly.zone_rules import is_newer

_ROWS = (
    "SELECT i.row_id, i.version, i.runs_left, r.schedule_id, r.trigger_json, r.zone, i.nominal_ms, "
    "i.run_at_ms, (SELECT COALESCE(o.until_ms, o.nominal_ms) FROM {p}occurrences o "
    "WHERE o.schedule_id = r.schedule_id AND o.state NOT IN ('withdrawn', 'quarantined') "
    "AND COALESCE(o.claim_id, '') NOT LIKE 'run_now:%' "
    "ORDER BY o.nominal_ms DESC LIMIT 1) FROM {p}schedule_rules r "
    "JOIN {p}schedule_index i ON i.row_id = r.row_id WHERE r.zone <> 'UTC' "
    "AND i.run_at_ms > :now_ms AND i.trigger_version <= :newest "
    # Both sides are asked for the page, so that neither is read whole to be joined.
    "AND r.row_id > :after AND r.row_id <= :last AND i.row_id > :after AND i.row_id <= :last"
)


class _Row(NamedTuple):
    row_id: int
    version: int
    runs_left: int | None
    zoned: Zoned


def zone_rules(db: Db) -> str | None:
    """The version that all next times are right by."""
    found: str | None = db.run("SELECT tz_version FROM {p}schema").scalar()
    return found


def recompute_zones(db: Db, rules: str | None, limit: int, cursor: str | None) -> Recomputed:
    """One page of rows by their numbers."""
    check_limit(limit, MAX_ZONED)
    _, place = check_cursor(cursor, ("rows",))
    after, now_ms = int(place or 0), db.now_ms()
    numbers = db.run(
        "SELECT row_id FROM {p}schedule_rules WHERE row_id > :after ORDER BY row_id LIMIT :limit",
        after=after,
        limit=limit,
    )
    page = list(numbers.scalars())
    last = page[-1] if page else after
    found = _page(db, now_ms, after, last)
    wrong = [row for row in found if right_time(row.zoned, now_ms) != row.zoned.nominal_ms]
    # A row without a schedule is its application's own to move.
    standing = existing(db, {row.zoned.schedule_id for row in wrong})
    moves = _move(db, [row.row_id for row in wrong if row.zoned.schedule_id in standing], now_ms)
    is_over = len(page) < limit
    if is_over and is_newer(rules, zone_rules(db)):
        db.run("UPDATE {p}schema SET tz_version = :rules", rules=rules)
    following = None if is_over else f"rows:{last}"
    return Recomputed(len(found), len(moves), tuple(moves[:MAX_EXAMPLES]), following)


def _page(db: Db, now_ms: int, after: int, last: int) -> list[_Row]:
    found = db.run(_ROWS, now_ms=now_ms, newest=TRIGGER_VERSION, after=after, last=last)
    return [_Row(row[0], row[1], row[2], Zoned._make(row[3:])) for row in tuples(found)]


def _move(db: Db, numbers: Sequence[int], now_ms: int) -> list[ZoneMove]:
    """Move rows that still stand where they stood, once they are locked in their order."""
    if not numbers:
        return []
    index = db.tables.schedule_index
    ours = db.dialect.among(index.c.row_id, list(numbers))
    db.connection.execute(
        select(index.c.row_id).where(ours).order_by(index.c.row_id).with_for_update()
    )
    found = _page(db, now_ms, min(numbers) - 1, max(numbers))
    locked = set(numbers)
    times = [(row, right_time(row.zoned, now_ms)) for row in found if row.row_id in locked]
    moved = [(row, right_ms) for row, right_ms in times if right_ms != row.zoned.nominal_ms]
    if not moved:
        return []
    offsets = [row.zoned.run_at_ms - row.zoned.nominal_ms for row, _ in moved]
    right = [right_ms for _, right_ms in moved]
    running = [None if ms is None else ms + by for ms, by in zip(right, offsets, strict=True)]
    moves = Moves(right, running, [row.runs_left for row, _ in moved], [0] * len(moved), {})
    answers = [
        ZoneMove(row.zoned.schedule_id, row.zoned.zone, row.zoned.nominal_ms, ms)
        for row, ms in moved
    ]
    events.append(db, [move_event(each, now_ms) for each in answers])
    at = [row.row_id for row, _ in moved], [row.version for row, _ in moved]
    write_moves(db, *at, [each.schedule_id for each in answers], moves, now_ms)
    return answers
