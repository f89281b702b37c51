"""Lease and completion markers (`job_marks`): which jobs to look at again, and when.

A marker names the jobs that one statement leased or ended, with their state and the end of the
lease or job. It is written in the same transaction and costs one row per batch instead of an index
entry per job. The job's row decides whether a marker still applies: renewed or ended leases keep
their markers. An ended job that moves on is removed from its marker, so that they can be counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Row, delete, select

from duly.model.claims import NextLeaseEnd
from duly.model.jobs import JobState
from duly.stores.sql.bulk import delete_keys
from duly.stores.sql.db import Db
from duly.stores.sql.gaps.search import MARKS, Wanted, search_alone, search_now

FIRST_LOOK = (
    "(SELECT at_ms FROM {p}job_marks WHERE state = 'processing' ORDER BY at_ms, seq LIMIT 1)"
)
_MAX_MARKED_JOBS = 10_000
"""Maximum number of jobs that one pass over markers checks, stale ones included."""
_FIRST = """
    SELECT m.seq, m.at_ms, m.jobs, EXISTS (
        SELECT 1 FROM (SELECT 1 AS one) AS always {each_of_ids}
        {job_of_e} WHERE j.state = 'processing' AND j.lease_until_ms = m.at_ms) AS stands
    FROM {p}job_marks m WHERE m.state = 'processing' AND m.at_ms >= :from_ms
    ORDER BY m.at_ms, m.seq LIMIT :limit
"""


def add(db: Db, state: JobState, at_ms: int, ids: Iterable[str]) -> None:
    """Add a marker for jobs whose rows now have this state and time."""
    named = sorted(ids)
    if named:
        db.run(
            "INSERT INTO {p}job_marks (state, at_ms, jobs, ids) "
            "VALUES (:state, :at_ms, :jobs, :ids)",
            state=state.value,
            at_ms=at_ms,
            jobs=len(named),
            ids=_text(named),
        )


def strike(db: Db, ended: Iterable[Ended]) -> None:
    """Remove ended jobs from their markers; call this before their rows are locked.

    take() locks markers before jobs too; the reverse order could deadlock.
    """
    by_time: dict[tuple[str, int], set[str]] = defaultdict(set)
    for state, at_ms, job_id in ended:
        by_time[state, at_ms].add(job_id)
    for (state, at_ms), ids in sorted(by_time.items()):
        markers = db.run(
            "SELECT seq, ids FROM {p}job_marks WHERE state = :state AND at_ms = :at_ms "
            "ORDER BY seq {lock}",
            state=state,
            at_ms=at_ms,
        ).all()
        for marker in markers:
            named = msgspec.json.decode(marker.ids, type=list[str])
            left = [job_id for job_id in named if job_id not in ids]
            if len(left) < len(named):
                _rewrite(db, marker.seq, left)


def _rewrite(db: Db, seq: int, ids: Sequence[str]) -> None:
    if not ids:
        _remove(db, [seq])
        return
    db.run(
        "UPDATE {p}job_marks SET jobs = :jobs, ids = :ids WHERE seq = :seq",
        seq=seq,
        jobs=len(ids),
        ids=_text(ids),
    )


def next_lease_end(db: Db) -> NextLeaseEnd:
    """Return when the first lease of a running job ends."""
    now_ms, from_ms = _first_marker(db)
    return NextLeaseEnd(None if from_ms is None else first_lease(db, from_ms), now_ms)


def _first_marker(db: Db) -> tuple[int, int | None]:
    """Return the current time and the time of the first lease marker, stale or not."""
    if not db.dialect.tracks_entries:
        row = db.run(f"SELECT {{now}} AS now_ms, {FIRST_LOOK} AS first_ms").one()
        return row.now_ms, row.first_ms
    leases: Wanted = (MARKS, (JobState.PROCESSING.value,))
    now_ms, found = search_now(db, [leases])
    return now_ms, found[leases].first


def first_lease(db: Db, from_ms: int) -> int | None:
    """Return the end of the first lease, or None; remove stale markers before it.

    No marker is earlier than `from_ms`, except those added since. Markers are read without locks,
    so that concurrent callers find the same one: a stale marker stays stale.
    """
    looked, limit = 0, 1
    while looked < _MAX_MARKED_JOBS:
        markers = db.run(_FIRST, limit=limit, from_ms=from_ms).all()
        stale = list(takewhile(lambda marker: not marker.stands, markers))
        _discard(db, [marker.seq for marker in stale])
        if len(stale) < len(markers):
            return int(markers[len(stale)].at_ms)
        if len(markers) < limit:
            return None
        # A marker names one job or thousands: double the number of markers until it is enough.
        from_ms, looked = int(markers[-1].at_ms), looked + sum(marker.jobs for marker in markers)
        limit *= 2
    return from_ms


class Ended(NamedTuple):
    """An ended job as named in a marker."""

    state: str
    at_ms: int
    job_id: str


class _Mark(NamedTuple):
    at_ms: int
    seq: int
    state: str
    jobs: int
    ids: list[str]


class _Entry(NamedTuple):
    """A job as named in a marker, sortable by processing order."""

    at_ms: int
    job_id: str
    state: str
    seq: int


def take(db: Db, kept: Mapping[JobState, int], columns: str, limit: int) -> list[Row[Any]]:
    """Return and lock jobs whose markers are older than `kept` milliseconds, oldest first.

    The jobs are removed from their markers; those beyond the limit stay marked.
    """
    found: list[Row[Any]] = []
    held_by_others: list[_Entry] = []
    looked = 0
    begins = _begins(db, kept)
    while begins and len(found) < limit and looked < _MAX_MARKED_JOBS:
        entries = _next(db, kept, begins, limit - len(found))
        if not entries:
            break
        looked += len(entries)
        ids = sorted({each.job_id for each in entries})
        # Skip locked jobs: a holder may be waiting for a marker locked here (deadlock).
        standing = _standing(db, kept, columns, ids, "{skip}")
        # A job may be in several markers, even of one time: its row decides.
        taken = [standing.pop((e.job_id, e.state, e.at_ms), None) for e in entries]
        rows = [row for row in taken if row is not None]
        found += rows
        missed = set(ids) - {row.id for row in rows}
        if missed:
            others = _standing(db, kept, "id", sorted(missed), "")
            held_by_others += [e for e in entries if (e.job_id, e.state, e.at_ms) in others]
    for each in held_by_others:
        add(db, JobState(each.state), each.at_ms, [each.job_id])
    return found


def _standing(
    db: Db, kept: Mapping[JobState, int], columns: str, ids: Sequence[str], lock: str
) -> dict[tuple[str, str, int], Row[Any]]:
    """Return the rows of jobs in these states by (id, state, time), as in their markers."""
    rows = db.run(
        f"SELECT {columns}, state, COALESCE(finished_at_ms, lease_until_ms) AS marked_ms "
        f"FROM {{p}}jobs WHERE id IN :ids AND state IN :states ORDER BY id {lock}",
        ids=list(ids),
        states=[state.value for state in kept],
    )
    return {(row.id, row.state, row.marked_ms): row for row in rows}


def _begins(db: Db, states: Iterable[JobState]) -> dict[JobState, int]:
    """Return the time of the first marker of each state; states without markers are left out."""
    if not db.dialect.tracks_entries:
        return dict.fromkeys(states, 0)
    found = search_alone(db, [(MARKS, (state.value,)) for state in states])
    firsts = {JobState(parts[0]): gaps.first for (_, parts), gaps in found.items()}
    return {state: first for state, first in firsts.items() if first is not None}


def _next(
    db: Db, kept: Mapping[JobState, int], begins: Mapping[JobState, int], limit: int
) -> list[_Entry]:
    """Return up to `limit` jobs of the oldest markers, and remove them from those."""
    markers = sorted(
        marker
        for state, from_ms in begins.items()
        for marker in _oldest(db, state, from_ms, kept[state], limit)
    )
    enough, jobs = 0, 0
    while enough < len(markers) and (
        jobs < limit or markers[enough].at_ms == markers[enough - 1].at_ms
    ):
        jobs += markers[enough].jobs
        enough += 1
    entries = sorted(
        _Entry(marker.at_ms, job_id, marker.state, marker.seq)
        for marker in _with_ids(db, markers[:enough])
        for job_id in marker.ids
    )
    rest: dict[int, list[str]] = defaultdict(list)
    for each in entries[limit:]:
        rest[each.seq].append(each.job_id)
    _remove(db, [marker.seq for marker in markers[:enough] if marker.seq not in rest])
    for seq, ids in rest.items():
        _rewrite(db, seq, ids)
    return entries[:limit]


def _oldest(db: Db, state: JobState, from_ms: int, kept_ms: int, limit: int) -> list[_Mark]:
    """Lock and return markers older than `kept_ms`, without ids; skip locked ones."""
    rows = db.run(
        "SELECT at_ms, seq, state, jobs FROM {p}job_marks WHERE state = :state "
        "AND at_ms >= :from_ms AND at_ms <= {now} - :kept_ms "
        "ORDER BY at_ms, seq LIMIT :limit {skip}",
        state=state.value,
        from_ms=from_ms,
        kept_ms=kept_ms,
        limit=limit,
    )
    return [_Mark(row.at_ms, row.seq, row.state, row.jobs, []) for row in rows]


def _with_ids(db: Db, markers: Sequence[_Mark]) -> list[_Mark]:
    if not markers:
        return []
    table = db.tables.job_marks
    wanted = db.dialect.among(table.c.seq, [marker.seq for marker in markers])
    rows = db.connection.execute(select(table.c.seq, table.c.ids).where(wanted))
    ids = {row.seq: msgspec.json.decode(row.ids, type=list[str]) for row in rows}
    return [marker._replace(ids=ids[marker.seq]) for marker in markers]


def _remove(db: Db, numbers: Sequence[int]) -> None:
    if numbers:
        table = db.tables.job_marks
        among = db.dialect.among(table.c.seq, numbers)
        delete_keys(db, table, ("seq",), [(number,) for number in numbers], among)


def _discard(db: Db, numbers: Sequence[int]) -> None:
    """Remove markers, except those locked by other transactions."""
    if numbers:
        table = db.tables.job_marks
        among = db.dialect.among(table.c.seq, numbers)
        free = select(table.c.seq).where(among).with_for_update(skip_locked=True)
        if db.dialect.deletes_what_it_finds:
            db.connection.execute(delete(table).where(table.c.seq.in_(free)))
        else:
            free = db.dialect.held_by(free, table, "PRIMARY")
            _remove(db, db.connection.execute(free).scalars().all())


def _text(ids: Sequence[str]) -> str:
    return msgspec.json.encode(ids).decode()


TIMES = dict.fromkeys(JobState, "finished_at_ms") | {JobState.PROCESSING: "lease_until_ms"}
"""The time column of a job that its marker repeats."""


def concerned(state: JobState) -> str:
    """Return SQL for the jobs that the newest markers of a state apply to; checks `:look` jobs."""
    return (
        "(SELECT j.* FROM (SELECT m.at_ms, e.value AS id FROM (SELECT at_ms, ids FROM {p}job_marks "
        f"WHERE state = '{state}' ORDER BY at_ms DESC, seq DESC LIMIT :look) AS m "
        "{each_of_ids} LIMIT :look) AS k {job_of_k} "
        f"WHERE j.state = '{state}' AND j.{TIMES[state]} = k.at_ms)"
    )
