"""Stations 6 and 7: marks, which say when to look at which jobs.

A mark names the jobs that one statement leased or ended: their state, and the time that their rows
have as the end of the lease or as the end of the job. Written in the same transaction, and never
changed when a job moves on: then state or time of its row is another, and the mark does not concern
it any longer. So a batch of jobs costs one row and not an index entry for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Row

from duly.jobs import JobState
from duly.stores.sql.db import Db

FIRST_LOOK = (
    "(SELECT at_ms FROM {p}job_marks WHERE state = 'processing' ORDER BY at_ms, seq LIMIT 1)"
)
_MOST = 10_000
"""Jobs that one walk over marks looks at, concerned or not."""


def add(db: Db, state: JobState, at_ms: int, ids: Iterable[str]) -> None:
    """Mark jobs whose rows have this state, and this time, from now on."""
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


def first_lease(db: Db) -> int | None:
    """The first lease to end, for somebody who has time: marks that concern nobody are dropped."""
    looked, at_ms = 0, None
    while looked < _MOST:
        mark = db.run(
            "SELECT seq, at_ms, ids FROM {p}job_marks WHERE state = 'processing' "
            "ORDER BY at_ms, seq LIMIT 1 {skip}"
        ).first()
        if mark is None:
            return None
        ids = _ids(mark.ids)
        standing = db.run(
            "SELECT 1 FROM {p}jobs WHERE id IN :ids AND state = 'processing' "
            "AND lease_until_ms = :at_ms LIMIT 1",
            ids=ids,
            at_ms=mark.at_ms,
        ).first()
        at_ms = int(mark.at_ms)
        if standing is not None:
            break
        _cut(db, mark.seq, [])
        looked += len(ids)
    return at_ms


class _Entry(NamedTuple):
    """A job as a mark names it, in the order in which they are looked at."""

    at_ms: int
    job_id: str
    state: str
    seq: int


def take(db: Db, until: Mapping[JobState, int], columns: str, limit: int) -> list[Row[Any]]:
    """Jobs whose marks have come by the times given for their states, oldest first.

    They lose their marks, and their rows are locked. What is beyond the limit stays marked.
    """
    found: list[Row[Any]] = []
    looked = 0
    while len(found) < limit and looked < _MOST:
        entries = {each.job_id: each for each in _next(db, until, limit - len(found))}
        if not entries:
            break
        looked += len(entries)
        rows = db.run(
            f"SELECT {columns}, state, COALESCE(finished_at_ms, lease_until_ms) AS marked_ms "
            "FROM {p}jobs WHERE id IN :ids ORDER BY id {lock}",
            ids=list(entries),
        )
        standing = {row.id: row for row in rows}
        for job_id, entry in entries.items():
            row = standing.get(job_id)
            if row is not None and (row.state, row.marked_ms) == (entry.state, entry.at_ms):
                found.append(row)
    return found


def _next(db: Db, until: Mapping[JobState, int], limit: int) -> list[_Entry]:
    """The jobs of the oldest marks, no more than so many, which are taken off them."""
    marks: list[Row[Any]] = []
    for state, until_ms in until.items():
        marks += db.run(
            "SELECT at_ms, seq, state, jobs FROM {p}job_marks WHERE state = :state "
            "AND at_ms <= :until_ms ORDER BY at_ms, seq LIMIT :limit {skip}",
            state=state.value,
            until_ms=until_ms,
            limit=limit,
        )
    entries: list[_Entry] = []
    last_ms = None
    for mark in sorted(marks):
        if len(entries) >= limit and mark.at_ms != last_ms:
            break
        last_ms = mark.at_ms
        text = db.run("SELECT ids FROM {p}job_marks WHERE seq = :seq", seq=mark.seq).scalar_one()
        entries += [_Entry(mark.at_ms, each, mark.state, mark.seq) for each in _ids(text)]
    entries.sort()
    rest: dict[int, list[str]] = {each.seq: [] for each in entries}
    for each in entries[limit:]:
        rest[each.seq].append(each.job_id)
    for seq, ids in rest.items():
        _cut(db, seq, ids)
    return entries[:limit]


def _ids(text: str) -> list[str]:
    return msgspec.json.decode(text, type=list[str])


def _cut(db: Db, seq: int, rest: Sequence[str]) -> None:
    """Leave a mark with the rest of its jobs."""
    if not rest:
        db.run("DELETE FROM {p}job_marks WHERE seq = :seq", seq=seq)
        return
    db.run(
        "UPDATE {p}job_marks SET jobs = :jobs, ids = :ids WHERE seq = :seq",
        seq=seq,
        jobs=len(rest),
        ids=_text(rest),
    )


def _text(ids: Sequence[str]) -> str:
    return msgspec.json.encode(ids).decode()


TIMES = dict.fromkeys(JobState, "finished_at_ms") | {JobState.PROCESSING: "lease_until_ms"}
"""The column of a job that its mark repeats."""


def concerned(state: JobState) -> str:
    """The jobs that the newest marks of a state concern, as a table; looks at `:look` of them."""
    return (
        "(SELECT j.* FROM (SELECT m.at_ms, e.value AS id FROM (SELECT at_ms, ids FROM {p}job_marks "
        f"WHERE state = '{state}' ORDER BY at_ms DESC, seq DESC LIMIT :look) AS m "
        "{each_of_ids} LIMIT :look) AS k {job_of_k} "
        f"WHERE j.state = '{state}' AND j.{TIMES[state]} = k.at_ms)"
    )
