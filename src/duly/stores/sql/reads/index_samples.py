"""Bounded reads of the schedule index for pages.

No statement reads more rows than its limit. Of a larger index, a sample of row numbers stands for
all rows: evenly spread, but without a fixed stride that could match a pattern of the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from sqlalchemy import func, select

from duly.model.index_rows import IndexRow
from duly.model.schedules import HandOver
from duly.model.summaries import (
    MAX_COUNT,
    MAX_SAMPLE,
    MINUTE_MS,
    OLDEST,
    DueRows,
    DueSummary,
    IndexStretch,
    Upcoming,
)
from duly.rules.checks import SCHEDULES, check_limit
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.fast import lanes
from duly.stores.sql.fast.index import rows_of

_GOLDEN = 0.6180339887498949
"""Fractional part of the golden ratio: its multiples modulo 1 spread evenly."""
_MIX, _PRIME = 1_103_515_245, 2_147_483_647
"""Multiplier and modulus that hash a row number, so that sorting by it is not sorting by time."""
_STRETCH = """
SELECT count(*) AS checked, max(d.id) AS last_id,
    sum(CASE WHEN is_active THEN 1 ELSE 0 END) AS active,
    sum(CASE WHEN is_external THEN 1 ELSE 0 END) AS external,
    sum(CASE WHEN is_active AND NOT EXISTS (
        SELECT 1 FROM {p}schedule_rules r JOIN {p}schedule_index i ON i.row_id = r.row_id
        WHERE r.schedule_id = d.id AND i.run_at_ms IS NOT NULL
    ) THEN 1 ELSE 0 END) AS missing
FROM (
    SELECT id,
        collection = :schedules AND state = 'active' AND COALESCE(hand_over, '') <> 'external'
            AS is_active,
        collection = :schedules AND state = 'active' AND hand_over = 'external' AS is_external
    FROM {p}resources
    WHERE id > :after ORDER BY id LIMIT :limit
) d
"""


def upcoming(db: Db, until_ms: int, sample: int = 1_000, most: int = 10_000) -> Upcoming:
    """Count rows with a run time before `until_ms` by minute; return up to `sample` of them."""
    check_limit(sample, MAX_SAMPLE)
    check_limit(most, MAX_COUNT)
    found = lanes.find(db)
    places = lanes.first_places(db, found, until_ms - 1, most + 1)
    if len(places) <= most:
        minutes = _by_minute([place.run_at_ms for place in places])
        chosen = _some([place.row_id for place in places], sample)
        return Upcoming(db.now_ms(), minutes, _in_order(db, chosen), is_estimate=False)
    numbers, step = _spread(db, most)
    index = db.tables.schedule_index
    coming = select(index.c.row_id, index.c.run_at_ms).where(
        index.c.run_at_ms < until_ms, db.dialect.among(index.c.row_id, numbers)
    )
    part = list(tuples(db.connection.execute(coming)))
    minutes = [
        (ms, max(1, round(fires * step))) for ms, fires in _by_minute([row[1] for row in part])
    ]
    chosen = _some([row[0] for row in part], sample)
    return Upcoming(db.now_ms(), minutes, _in_order(db, chosen), is_estimate=True)


def _by_minute(times_ms: Iterable[int]) -> list[tuple[int, int]]:
    return sorted(Counter(ms // MINUTE_MS * MINUTE_MS for ms in times_ms).items())


def _some(numbers: Sequence[int], count: int) -> list[int]:
    return sorted(numbers, key=lambda number: number * _MIX % _PRIME)[:count]


def _in_order(db: Db, numbers: Sequence[int]) -> list[IndexRow]:
    """Return rows by their numbers, in claim order."""
    found = rows_of(db, sorted(numbers))  # ties are claimed in the order of their numbers
    return sorted(found, key=lambda row: (row.run_at_ms, -row.priority))


def _spread(db: Db, count: int) -> tuple[list[int], float]:
    """Return row numbers spread from the first to the last, one per step, and the step."""
    row_id = db.tables.schedule_index.c.row_id
    # With both in one query, SQLite would scan the table.
    first = db.connection.execute(select(func.min(row_id))).scalar_one()
    last = db.connection.execute(select(func.max(row_id))).scalar_one()
    step = max(1.0, (last - first + 1) / count)
    places = range(min(count, last - first + 1))
    return [int(first + (place + place * _GOLDEN % 1) * step) for place in places], step


def check_index(db: Db, after: str = "", limit: int = 5_000) -> IndexStretch:
    """Check the next documents after an id for missing index rows."""
    check_limit(limit, MAX_COUNT)
    row = db.run(_STRETCH, schedules=SCHEDULES, after=after, limit=limit).one()
    last_id = row.last_id if row.checked == limit else None
    return IndexStretch(row.active or 0, row.missing or 0, last_id, row.external or 0)


def due_summary(db: Db, most: int = 10_000) -> DueSummary:
    """Count due and quarantined rows; return those due the longest."""
    check_limit(most, MAX_COUNT)
    facts = db.run(
        "SELECT {now} AS now_ms, "
        "(SELECT count(*) FROM (SELECT 1 AS one FROM {p}schedule_index WHERE error IS NOT NULL "
        "ORDER BY row_id LIMIT :most) q) AS quarantined",
        most=most,
    ).one()
    found = lanes.find(db)
    due = lanes.first_places(db, found, facts.now_ms, most)
    waiting = _waiting(due)
    oldest = rows_of(db, [place.row_id for place in due[:OLDEST]]) if waiting else []
    return DueSummary(
        facts.now_ms,
        bool(found) or _has_active(db, most),
        bool(found),
        sum(each.rows for each in waiting.values()),
        facts.quarantined,
        [row for row in oldest if row.hand_over in waiting],
        waiting,
        is_due_capped=len(due) >= most,
        is_quarantined_capped=facts.quarantined >= most,
    )


def _waiting(due: Sequence[lanes.Place]) -> dict[HandOver, DueRows]:
    """Count due rows by hand-over, except `external` ones, which only claim_due() takes."""
    times: dict[HandOver, list[int]] = {}
    for place in due:
        if place.lane.hand_over != "external":
            times.setdefault(place.lane.hand_over, []).append(place.run_at_ms)
    return {name: DueRows(len(found), found[0]) for name, found in times.items()}


def _has_active(db: Db, most: int) -> bool:
    """Return whether an active schedule needs an index row, checking up to `most` of them."""
    table = db.tables.resources
    active = select(table.c.hand_over).where(
        table.c.collection == SCHEDULES, table.c.state == "active"
    )
    some = active.order_by(table.c.name, table.c.scope).limit(most).subquery()
    needed = select(some).where(some.c.hand_over.is_distinct_from("external")).limit(1)
    return db.connection.execute(needed).first() is not None
