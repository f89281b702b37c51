"""Pages of jobs by any filter; few filters have their own index.

So a search examines a bounded number of jobs: all jobs in the requested state if they are few,
otherwise the newest ones after the end of the previous page.
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

# Each repeats the condition and the order of the partial index that should serve it: with LIMIT
# alone the planner may scan the table.
_LATER = tuple(
    f"SELECT %s FROM (SELECT * FROM {{p}}jobs WHERE {where} ORDER BY {order} LIMIT :look) AS part"
    for where, order in (
        ("waits = 1", "queue, run_at_ms, id"),
        ("in_line = 1", "schedule_id, run_at_ms, nominal_ms, id"),
    )
)
_LINE = "(SELECT id FROM {p}job_line ORDER BY queue, workspace, place, id LIMIT :look)"
IN_LINE = f"SELECT %s FROM {_LINE} AS part"
"""The queued jobs, for counting only."""
PARTS = {
    JobState.QUEUED: (f"SELECT %s FROM (SELECT j.* FROM {_LINE} AS k {{job_of_k}}) AS part",),
    JobState.SCHEDULED: _LATER,
    JobState.RETRYING: _LATER,
} | {
    state: (f"SELECT %s FROM {concerned(state)} AS part",)
    for state in (JobState.PROCESSING, *sorted(FINAL))
}
"""All jobs by state, up to `:look`, perhaps with some of other states; `%s`: columns to select."""
NEWEST_MARKS = (
    "SELECT jobs FROM {p}job_marks WHERE state = '%s' ORDER BY at_ms DESC, seq DESC LIMIT :look"
)
"""Number of jobs in each of the newest `job_marks` rows of a state."""
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
    """Return one page of jobs by id, newest first, examining `look` jobs at most."""
    check_limit(limit)
    check_limit(look, MAX_COUNT)
    asked = {name: getattr(which, name) for name in _FIELDS if getattr(which, name) is not None}
    terms = [f"{name} = :{name}" for name in asked]
    if before is not None:
        asked["before"] = before
        terms.append("id < :before")
    asked |= {"limit": limit + 1, "look": look}
    few = None if asked.keys() & {*_INDEXED} else _short_list(db, which.state, look)
    if few is not None:
        return _page(db, few, terms, asked, None)
    floor = _floor(db, asked)
    if floor is not None:
        asked["floor"] = floor
        terms.append("id >= :floor")
    return _page(db, "{p}jobs", terms, asked, floor)


def _short_list(db: Db, state: JobState | None, look: int) -> str | None:
    """Return SQL for all jobs in a state, and perhaps some others; None: there are too many."""
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
    """Return the last id that a search may examine; None: it reaches the oldest job."""
    indexed = [name for name in _INDEXED if name in asked]
    if indexed == [name for name in _FIELDS if name in asked]:
        return None  # the page follows an index and shows every job in it
    terms = [f"{name} = :{name}" for name in indexed]
    if "before" in asked:
        terms.append("id < :before")
    where = f"WHERE {' AND '.join(terms)} " if terms else ""
    given = {name: asked[name] for name in (*indexed, "before", "look") if name in asked}
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
