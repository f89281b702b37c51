"""Index rows: one item in two tables, joined by `row_id`.

`schedule_index` has the columns that claims search and write, `schedule_rules` those that they only
read. The narrow row is locked first, then the rule is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row

from duly.engine.kinds import ROW, StoredRow, row_key
from duly.engine.transaction import Change, Key
from duly.model.index_rows import Moves
from duly.model.schedule_writes import ScheduleKey
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db
from duly.stores.sql.items.mapped import Mapped, Values, changed
from duly.stores.sql.rows import index_rows as rows


def row_of(found: Row[Any]) -> StoredRow:
    """Return the item stored in the columns of both tables."""
    return StoredRow(rows.row_of(found), found.error, found.not_found, found.row_id)


def _values(item: StoredRow) -> Values:
    return _moving(item) | _ruling(item)


def _moving(item: StoredRow) -> Values:
    run_at_ms = item.row.run_at_ms if item.error is None else None
    return {
        "row_id": item.number,
        **rows.index_values(item.row),
        "run_at_ms": run_at_ms,
        "error": item.error,
    }


def _ruling(item: StoredRow) -> Values:
    return {
        "row_id": item.number,
        **rows.rule_values(item.row),
        "not_found": item.not_found,
    }


class RowTables(Mapped[StoredRow]):
    """The two tables of index rows."""

    def rows(self, db: Db, keys: Sequence[Key], *, hold: bool) -> dict[Key, Row[Any]]:
        """Return rows with the columns of both tables; lock them if `hold`."""
        found: dict[Key, Row[Any]] = {}
        for chunk in chunks(keys):
            here = [ScheduleKey(*map(str, key)) for key in chunk]
            read = rows.locked(db, here) if hold else rows.unlocked(db, here)
            found |= {(row.flow, row.scope, row.name): row for row in read}
        return found

    def write(self, db: Db, changes: Mapping[Key, Change]) -> None:
        """Remove, move, update and insert rows; a move writes only the narrow row."""
        ordered = sorted(map(_numbered, changes.values()), key=_number)
        rows.remove(db, [each.before.number for each in ordered if each.after is None])
        kept = [each for each in ordered if each.before is not None and each.after is not None]
        _move(db, [each for each in kept if _is_move(each)])
        others = [each for each in kept if not _is_move(each)]
        for table, values in ((_INDEX, _moving), (_RULES, _ruling)):
            pairs = [(values(each.before), values(each.after)) for each in others]
            table.set_values(db, [(new, changed(old, new)) for old, new in pairs])
        # New rows get their numbers in insertion order.
        new = [each.after.row for each in changes.values() if each.before is None]
        if new and db.is_retry:
            rows.remove_halves(db, [row_key(row) for row in new])
        rows.insert(db, new)


def _is_move(change: Change) -> bool:
    """Return whether a change only moves a row to another time and the next version."""
    before, after = change.before.row, change.after.row
    same = replace(
        before,
        nominal_ms=after.nominal_ms,
        run_at_ms=after.run_at_ms,
        runs_left=after.runs_left,
        version=before.version + 1,
    )
    return change.after == change.before._replace(row=same) and change.after.error is None


def _move(db: Db, changes: Sequence[Change]) -> None:
    """Move rows, found by number and version, the key of the index (ADR 0031)."""
    if not changes:
        return
    after = [change.after.row for change in changes]
    moves = Moves(
        [row.nominal_ms for row in after],
        [row.run_at_ms for row in after],
        [row.runs_left for row in after],
        [0] * len(after),
        {},
    )
    numbers = [change.before.number for change in changes]
    versions = [change.before.row.version for change in changes]
    db.dialect.advance_rows(db, numbers, versions, moves)


def _numbered(change: Change) -> Change:
    """Return a change whose row keeps its number, even if it was removed and put again."""
    before, after = change
    if before is None or after is None:
        return change
    return Change(before, after._replace(number=before.number))


def _number(change: Change) -> int:
    return 0 if change.before is None else int(change.before.number)


_INDEX = Mapped(ROW, "schedule_index", ("row_id",), row_of, _moving)
_RULES = Mapped(ROW, "schedule_rules", ("row_id",), row_of, _ruling)
ROWS = RowTables(ROW, "schedule_rules", ("flow", "scope", "name"), row_of, _values)
