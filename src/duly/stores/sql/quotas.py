"""Count the schedules of owners, and keep to their limits when several are created at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from duly.store import ScheduleWrite
from duly.stores.quotas import Holdings
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db, tuples

NEAR = 10
"""An owner is near a limit where so many writers, each unseen by the others, could pass it."""
# The index of schedules that count has the same words: SQLite would not take it for others.
_COUNT = (
    "SELECT scope, count(*) FROM {p}resources "
    "WHERE state IN ('active', 'paused', 'quarantined') AND scope IN :scopes "
)


def holdings(db: Db, writes: Sequence[ScheduleWrite]) -> Holdings:
    """Count the schedules of owners who are to get more; nobody adds to one near a limit.

    Called after the standing rows are locked: whoever has this guard has no more of them to wait
    for. Far from its limits an owner needs none, and nobody waits for another transaction.
    """
    found = _count(db, writes)
    near = _near(writes, found)
    if near:
        db.dialect.guard_scopes(db.connection, db.tables, near)
        again = _count(db, [write for write in writes if write.key.scope in near])
        dict.update(found.scopes, again.scopes)  # a Counter's own update would add
        dict.update(found.flows, again.flows)
    return found


def _near(writes: Sequence[ScheduleWrite], found: Holdings) -> set[str]:
    more, more_of_flow = Counter[str](), Counter[tuple[str, str]]()
    for write in writes:
        more[write.key.scope] += 1
        more_of_flow[write.key.scope, write.key.flow] += 1
    near = set()
    for key, limits in {write.key: write.limits for write in writes}.items():
        flow = key.scope, key.flow
        if NEAR * (found.scopes[key.scope] + more[key.scope]) > limits.schedules:
            near.add(key.scope)
        most = limits.schedules_per_flow
        if most is not None and NEAR * (found.flows[flow] + more_of_flow[flow]) > most:
            near.add(key.scope)
    return near


def _count(db: Db, writes: Sequence[ScheduleWrite]) -> Holdings:
    found = Holdings()
    for chunk in chunks(sorted({write.key.scope for write in writes})):
        rows = db.run(f"{_COUNT}GROUP BY scope", scopes=list(chunk))
        found.scopes.update({row[0]: row[1] for row in tuples(rows)})
    limited = [each.key for each in writes if each.limits.schedules_per_flow is not None]
    for flow in sorted({key.flow for key in limited}):
        for chunk in chunks(sorted({key.scope for key in limited if key.flow == flow})):
            rows = db.run(
                f"{_COUNT}AND name >= :first AND name < :behind GROUP BY scope",
                scopes=list(chunk),
                first=f"{flow}/",
                behind=f"{flow}0",  # "0" is what follows "/"
            )
            found.flows.update({(row[0], flow): row[1] for row in tuples(rows)})
    return found
