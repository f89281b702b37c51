"""Recomputation of next times after time-zone rules have changed.

Rows are read page by page without holding them; the few whose time differs are held and moved, and
an event records the old and the new time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from duly.engine.kinds import (
    ROW,
    SCHEDULE_EVENTS,
    SETTING,
    ZONE_RULES,
    StoredRow,
    StoredSetting,
)
from duly.engine.schedules.planning import definitions_of
from duly.engine.schedules.rows import move_row
from duly.engine.transaction import Key, Tx
from duly.engine.upkeep.walks import ROWS, TAKEN
from duly.engine.upkeep.zone_version import is_newer
from duly.model.index_rows import TRIGGER_VERSION, Advance
from duly.model.upkeep import MAX_EXAMPLES, MAX_ZONED, Recomputed, ZoneMove, check_cursor
from duly.rules.checks import check_limit
from duly.rules.zone_times import Zoned, move_event, right_time


def zone_rules(tx: Tx) -> str | None:
    """Return the time-zone version that all next times were computed with; None: unknown."""
    setting = tx.peek(SETTING, ZONE_RULES)
    return None if setting is None else setting.value


def recompute_zones(
    tx: Tx, rules: str | None, *, limit: int = MAX_ZONED, cursor: str | None = None
) -> Recomputed:
    """Recompute one page of rows, by schedule id; the last page stores `rules` if newer."""
    check_limit(limit, MAX_ZONED)
    _, place = check_cursor(cursor, ("rows",))
    keys = tx.find(ROWS, since=(place,), limit=limit + 1)
    found = tx.peek_many(ROW, keys)
    following = found[keys[limit]].row.schedule_id if len(found) > limit else None
    zoned = _zoned(tx, (found[key] for key in keys[:limit] if key in found))
    wrong = [key for key, each in zoned.items() if right_time(each, tx.now_ms) != each.nominal_ms]
    moves = _move(tx, tx.get_many(ROW, wrong))
    if following is None and rules is not None:
        _remember(tx, rules)
    cursor = None if following is None else f"rows:{following}"
    return Recomputed(len(zoned), len(moves), tuple(moves[:MAX_EXAMPLES]), cursor)


def _zoned(tx: Tx, items: Iterable[StoredRow]) -> dict[Key, Zoned]:
    """Return the rows whose next time is in the future and depends on a time zone, by key."""
    rows = [
        item.row
        for item in items
        if item.error is None
        and item.row.zone != "UTC"
        and item.row.run_at_ms > tx.now_ms
        and item.row.trigger_version <= TRIGGER_VERSION
    ]
    last = tx.peek_firsts(TAKEN, [(row.schedule_id,) for row in rows], is_reverse=True)
    zoned: dict[Key, Zoned] = {}
    for row in rows:
        known = last.get((row.schedule_id,))
        last_ms = None if known is None else known.occurrence.until_ms
        times = (row.nominal_ms, row.run_at_ms, last_ms)
        key = (row.flow, row.scope, row.name)
        zoned[key] = Zoned(row.schedule_id, row.trigger, row.zone, *times)
    return zoned


def _move(tx: Tx, held: Mapping[Key, StoredRow]) -> list[ZoneMove]:
    """Move held rows to their right times and record it; skip rows that are right by now."""
    # A row without a stored schedule is left to the application that owns it.
    stored = definitions_of(tx, list(held.values()))
    moves: list[ZoneMove] = []
    for key, zoned in _zoned(tx, (held[key] for key in held if key in stored)).items():
        right_ms = right_time(zoned, tx.now_ms)
        if right_ms == zoned.nominal_ms:
            continue
        item = held[key]
        move = ZoneMove(zoned.schedule_id, zoned.zone, zoned.nominal_ms, right_ms)
        tx.append(SCHEDULE_EVENTS, move_event(move, tx.now_ms))
        run_at_ms = None if right_ms is None else right_ms + zoned.run_at_ms - zoned.nominal_ms
        to = Advance(zoned.schedule_id, right_ms, run_at_ms, item.row.runs_left, 0)
        move_row(tx, item, to)
        moves.append(move)
    return moves


def _remember(tx: Tx, rules: str) -> None:
    setting = tx.get(SETTING, ZONE_RULES)
    if is_newer(rules, None if setting is None else setting.value):
        tx.put(SETTING, StoredSetting(ZONE_RULES, rules))
