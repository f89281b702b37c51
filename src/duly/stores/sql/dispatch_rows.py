"""Station 5: ledger rows of dispatches, as claims and answers read and write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from duly.dispatch_store import Dispatching
from duly.dispatching import Fate
from duly.ledger import OccurrenceState
from duly.stores.sql.db import Db

COLUMNS = ", ".join(Dispatching._fields)


def stored_id(claim_id: str) -> str:
    """Ids of ticks are apart from those of claims on the index, which stand in the same column."""
    return f"tick:{claim_id}"


def change_of(each: Dispatching, fate: Fate, now_ms: int) -> dict[str, Any]:
    """The columns of a row that goes to a state, held by nobody."""
    state = fate.state
    is_over = state in (OccurrenceState.SUCCEEDED, OccurrenceState.FAILED)
    return {
        "schedule_id": each.schedule_id,
        "nominal_ms": each.nominal_ms,
        "state": state.value,
        "reason": fate.reason,
        "claim_id": None,
        "position": 0,
        "tries": each.tries,
        "lease_until_ms": None,
        "fired_at_ms": now_ms if state is OccurrenceState.SUCCEEDED else None,
        "ended_at_ms": now_ms if is_over else None,
    }


def write_changes(db: Db, changes: Sequence[dict[str, Any]]) -> None:
    """Write changes of rows that are ours; a reason is kept until there is another."""
    if not changes:
        return
    names = [name for name in changes[0] if name not in ("schedule_id", "nominal_ms", "reason")]
    db.run(
        f"UPDATE {{p}}occurrences AS o SET {', '.join(f'{name} = r.{name}' for name in names)}, "
        "reason = COALESCE(r.reason, o.reason) "
        f"FROM {db.dialect.records(db.tables.occurrences)} "
        "WHERE o.schedule_id = r.schedule_id AND o.nominal_ms = r.nominal_ms "
        "AND o.state = 'dispatching'",
        rows=msgspec.json.encode(changes).decode(),
    )
