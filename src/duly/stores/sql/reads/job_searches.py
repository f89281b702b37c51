"""Station 8: a page of jobs by any filter, of which few have an index of their own.

So it looks at a bounded number of jobs: at all that are in the state asked for, where they are few,
else at the newest behind the place where the page before ended.
"""

from __future__ import annotations

from typing import Any

from duly.model.jobs import FINAL, JobId, JobState
from duly.model.stored_jobs import JobFilter
from duly.model.summaries import MAX_COUNT, JobPage
from duly.rules.checks import check_limit
from duly.stores.sql.db import Db
from duly.stores.sql.rows.jobs import job_of
from duly.stores.sql.rows.markers import concerned

# Each names the condition of the partial index that it is to be answered from, and its order: a
# planner that is told LIMIT alone would rather read the table and hope.
_LATER = tuple(
    f"SELECT %s FROM (SELECT * FROM {{p}}jobs WHERE {where} ORDER BY {order} LIMIT :look) AS part"
    for where, order in (
        ("waits = 1", "queue, run_at_ms, id"),
        ("in_line = 1", "schedule_id, run_at_ms, nominal_ms, id"),
    )
)
_LINE = "(SELECT id FROM {p}job_line ORDER BY queue, workspace, place, id LIMIT :look)"
IN_LINE = f"SELECT %s FROM {_LINE} AS part"
"""The queued ones again, where their number is all that is wanted."""
PARTS = {
    JobState.QUEUED: (f"SELECT %s FROM (SELECT j.* FROM {_LINE} AS k {{job_of_k}}) AS part",),
    JobState.SCHEDULED: _LATER,
    JobState.RETRYING: _LATER,
} | {
    state: (f"SELECT %s FROM {concerned(state)} AS part",)
    for state in (JobState.PROCESSING, *sorted(FINAL))
}
"""Of each state all jobs, and perhaps some others, out of `:look` at most; `%s`: what to select."""
NEWEST_MARKS = (
    "SELECT jobs FROM {p}job_marks WHERE state = '%s' ORDER BY at_ms DESC, seq DESC LIMIT :look"
)
"""How many jobs each of the newest marks of a state names."""
_FIELDS = ("state", "queue", "workspace", "action", "schedule_id", "correlation_id")
_INDEXED = ("schedule_id", "correlation_id")


def search_jobs(
    db: Db,
    which: JobFilter,
    *,
    before: JobId | None = None,
    limit: int = 100,
    look: int = 10_000,
) -> JobPage:
    """One page of jobs by id, newest first, out of `look` jobs at most."""
    check_limit(limit)
    check_limit(look, MAX_COUNT)
    asked = {name: getattr(which, name) for name in _FIELDS if getattr(which, name) is not None}
    terms = [f"{name} = :{name}" for name in asked]
    if before is not None:
        asked["before"] = before
        terms.append("id < :before")
    asked |= {"limit": limit + 1, "look": look}
    few = None if asked.keys() & {*_INDEXED} else _few(db, which.state, look)
    if few is not None:
        return _page(db, few, terms, asked, None)
    floor = _floor(db, asked)
    if floor is not None:
        asked["floor"] = floor
        terms.append("id >= :floor")
    return _page(db, "{p}jobs", terms, asked, floor)


def _few(db: Db, state: JobState | None, look: int) -> str | None:
    """All jobs in a state, and perhaps some others, as a table; None: they are too many."""
    parts = PARTS.get(state, ()) if state is not None else ()
    if not parts:
        return None
    if state in FINAL or state is JobState.PROCESSING:
        counts = [f"SELECT COALESCE(SUM(jobs), 0) AS jobs FROM ({NEWEST_MARKS % state}) AS part"]
    else:
        counted = (IN_LINE,) if state is JobState.QUEUED else parts
        counts = [f"SELECT count(*) AS jobs FROM ({part % '1 AS one'}) AS c" for part in counted]
    total = f"SELECT SUM(jobs) FROM ({' UNION ALL '.join(counts)}) AS c"
    if db.run(total, look=look + 1).scalar_one() > look:
        return None
    return f"({' UNION ALL '.join(part % '*' for part in parts)}) AS few"


def _floor(db: Db, asked: dict[str, Any]) -> JobId | None:
    """Where a search that looks at so many jobs ends; None: it reaches the oldest."""
    told = [name for name in _INDEXED if name in asked]
    if told == [name for name in _FIELDS if name in asked]:
        return None  # the page follows an index, and each job of it is shown
    terms = [f"{name} = :{name}" for name in told]
    if "before" in asked:
        terms.append("id < :before")
    where = f"WHERE {' AND '.join(terms)} " if terms else ""
    given = {name: asked[name] for name in (*told, "before", "look") if name in asked}
    found = db.run(
        f"SELECT id FROM {{p}}jobs {where}ORDER BY id DESC LIMIT 1 OFFSET :look", **given
    ).scalar()
    return None if found is None else JobId(found)


def _page(
    db: Db, source: str, terms: list[str], asked: dict[str, Any], floor: JobId | None
) -> JobPage:
    where = f"WHERE {' AND '.join(terms)} " if terms else ""
    statement = f"SELECT * FROM {source} {where}ORDER BY id DESC LIMIT :limit"
    given = {name: value for name, value in asked.items() if f":{name}" in statement}
    found = [job_of(row) for row in db.run(statement, **given)]
    limit = asked["limit"] - 1
    is_full = len(found) > limit
    return JobPage(found[:limit], found[limit - 1].id if is_full else floor)
