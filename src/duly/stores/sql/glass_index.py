"""Station 8: what pages read of the index, however large it is.

No statement looks at more rows than it is told. Where there are more, a part is looked up by number
and stands for all: chosen evenly, but by no stride that a pattern of the rows could follow.
"""

from __future__ import annotations

from sqlalchemy import Subquery, func, select

from duly.glass_store import (
    MAX_COUNT,
    MAX_SAMPLE,
    MINUTE_MS,
    OLDEST,
    DueRows,
    Glance,
    IndexStretch,
    Upcoming,
)
from duly.occurrences import IndexRow
from duly.schedules import HandOver
from duly.stores.checks import SCHEDULES, check_limit
from duly.stores.sql import rows
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.index import list_rows

_GOLDEN = 0.6180339887498949
"""Steps of this length, round a circle, come near no place twice."""
_MIX, _PRIME = 1_103_515_245, 2_147_483_647
"""A row's number is mixed by them, so that an order by it is no order in time."""
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
    """Rows with a run time before `until_ms`, by minute; and up to `sample` of them."""
    check_limit(sample, MAX_SAMPLE)
    check_limit(most, MAX_COUNT)
    index = db.tables.schedule_index
    coming = select(index.c.row_id, index.c.run_at_ms).where(
        index.c.run_at_ms.is_not(None), index.c.run_at_ms < until_ms
    )
    part = coming.order_by(index.c.run_at_ms).limit(most + 1).subquery()
    minutes = _by_minute(db, part)
    is_estimate = sum(fires for _, fires in minutes) > most
    if is_estimate:
        numbers, step = _spread(db, most)
        part = coming.where(db.dialect.among(index.c.row_id, numbers)).subquery()
        found = _by_minute(db, part)
        minutes = [(ms, max(1, round(fires * step))) for ms, fires in found]
        some = numbers[:: -(-sum(fires for _, fires in found) // sample) or 1]
        part = coming.where(db.dialect.among(index.c.row_id, some)).subquery()
    return Upcoming(db.now_ms(), minutes, _sample(db, part, sample), is_estimate)


def _by_minute(db: Db, part: Subquery) -> list[tuple[int, int]]:
    minute = (part.c.run_at_ms // MINUTE_MS).label("minute")
    found = select(minute, func.count()).group_by("minute").order_by("minute")
    return [(each * MINUTE_MS, fires) for each, fires in db.connection.execute(found)]


def _spread(db: Db, count: int) -> tuple[list[int], float]:
    """Numbers of rows from the first to the last, one in each step; and the step."""
    row_id = db.tables.schedule_index.c.row_id
    # Of both in one question, SQLite would read the table.
    first = db.connection.execute(select(func.min(row_id))).scalar_one()
    last = db.connection.execute(select(func.max(row_id))).scalar_one()
    step = max(1.0, (last - first + 1) / count)
    places = range(min(count, last - first + 1))
    return [int(first + (place + place * _GOLDEN % 1) * step) for place in places], step


def _sample(db: Db, part: Subquery, count: int) -> list[IndexRow]:
    index = db.tables.schedule_index
    chosen = select(part.c.row_id).order_by(part.c.row_id * _MIX % _PRIME).limit(count)
    statement = rows.whole(db).where(index.c.row_id.in_(chosen))
    found = statement.order_by(index.c.run_at_ms, index.c.priority.desc(), index.c.row_id)
    return [rows.row_of(row) for row in db.connection.execute(found)]


def check_index(db: Db, after: str = "", limit: int = 5_000) -> IndexStretch:
    """Look at the next documents behind an id: which of them lack their row."""
    check_limit(limit, MAX_COUNT)
    row = db.run(_STRETCH, schedules=SCHEDULES, after=after, limit=limit).one()
    last_id = row.last_id if row.checked == limit else None
    return IndexStretch(row.active or 0, row.missing or 0, last_id, row.external or 0)


def glance(db: Db, most: int = 10_000) -> Glance:
    """Due and quarantined rows, and those due for longest."""
    check_limit(most, MAX_COUNT)
    facts = db.run(
        "SELECT {now} AS now_ms, "
        # Asked whether one exists, a planner would begin at any end of the table.
        "(SELECT run_at_ms FROM {p}schedule_index WHERE run_at_ms IS NOT NULL "
        "ORDER BY run_at_ms LIMIT 1) IS NOT NULL AS has_rows, "
        "(SELECT count(*) FROM (SELECT 1 AS one FROM {p}schedule_index WHERE error IS NOT NULL "
        "ORDER BY row_id LIMIT :most) q) AS quarantined",
        most=most,
    ).one()
    has_rows = bool(facts.has_rows)
    waiting = _waiting(db.at(facts.now_ms), most)
    oldest = list_rows(db, until_ms=facts.now_ms, limit=OLDEST) if waiting else []
    return Glance(
        facts.now_ms,
        has_rows or _has_active(db, most),
        has_rows,
        sum(each.rows for each in waiting.values()),
        facts.quarantined,
        [row for row in oldest if row.hand_over in waiting],
        waiting,
    )


def _waiting(db: Db, most: int) -> dict[HandOver, DueRows]:
    """Due rows by hand-over, of the `most` that have been due for longest."""
    found = db.run(
        "SELECT d.hand_over, count(*), min(d.run_at_ms) FROM (SELECT hand_over, run_at_ms "
        "FROM {p}schedule_index WHERE run_at_ms <= {now} ORDER BY run_at_ms LIMIT :most) d "
        "WHERE d.hand_over <> 'external' GROUP BY d.hand_over",
        most=most,
    )
    return {row[0]: DueRows(row[1], row[2]) for row in tuples(found)}


def _has_active(db: Db, most: int) -> bool:
    """Return whether an active schedule needs an index row, looking at `most` of them."""
    table = db.tables.resources
    active = select(table.c.hand_over).where(
        table.c.collection == SCHEDULES, table.c.state == "active"
    )
    some = active.order_by(table.c.name, table.c.scope).limit(most).subquery()
    needed = select(some).where(some.c.hand_over.is_distinct_from("external")).limit(1)
    return db.connection.execute(needed).first() is not None
