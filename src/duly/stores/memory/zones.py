"""Next times in memory, computed anew when the rules of time zones have changed."""

from __future__ import annotations

from duly.occurrences import TRIGGER_VERSION, Advance, IndexRow
from duly.stores.checks import check_limit
from duly.stores.memory.index import in_order, move_row
from duly.stores.memory.ledger import FREE, is_extra
from duly.stores.memory.tables import Tables
from duly.stores.zone_times import Zoned, move_event, right_time
from duly.upkeep_store import MAX_EXAMPLES, MAX_ZONED, Recomputed, ZoneMove, check_cursor
from duly.zone_rules import is_newer


def recompute_zones(
    tables: Tables, now_ms: int, rules: str | None, limit: int, cursor: str | None
) -> Recomputed:
    """One page of rows by their schedules' ids."""
    check_limit(limit, MAX_ZONED)
    _, after = check_cursor(cursor, ("rows",))
    ids = {each.id for each in tables.schedules()}
    known = [
        row
        for row in sorted(in_order(tables), key=lambda row: row.schedule_id)
        if row.zone != "UTC" and row.schedule_id > after
    ]
    page = [row for row in known[:limit] if row.trigger_version <= TRIGGER_VERSION]
    # A row without a schedule is its application's own to move.
    found = [_moved(tables, now_ms, row) for row in page if row.schedule_id in ids]
    moves = [move for move in found if move is not None]
    is_over = len(known) <= limit
    if is_over and is_newer(rules, tables.zone_rules):
        tables.zone_rules = rules
    following = None if is_over else f"rows:{known[limit - 1].schedule_id}"
    checked = sum(row.run_at_ms > now_ms for row in page)
    return Recomputed(checked, len(moves), tuple(moves[:MAX_EXAMPLES]), following)


def _moved(tables: Tables, now_ms: int, row: IndexRow) -> ZoneMove | None:
    """Move a row to its right time, and record it; None: it stands there already."""
    last_ms = _last_ms(tables, row.schedule_id)
    times = (row.nominal_ms, row.run_at_ms, last_ms)
    right_ms = right_time(Zoned(row.schedule_id, row.trigger, row.zone, *times), now_ms)
    if right_ms == row.nominal_ms:
        return None
    move = ZoneMove(row.schedule_id, row.zone, row.nominal_ms, right_ms)
    tables.events.append(move_event(move, now_ms))
    run_at_ms = None if right_ms is None else right_ms + row.run_at_ms - row.nominal_ms
    move_row(tables, row, Advance(row.schedule_id, right_ms, run_at_ms, row.runs_left, 0), now_ms)
    return move


def _last_ms(tables: Tables, schedule_id: str) -> int | None:
    """The last nominal time that the ledger has."""
    known = (
        entry.occurrence.until_ms
        for (owner, _), entry in tables.ledger.items()
        if owner == schedule_id and entry.occurrence.state not in FREE and not is_extra(entry)
    )
    return max(known, default=None)
