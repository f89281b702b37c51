"""Check tables derived from jobs and ledger: line, completion markers and counts."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, text

from duly.model.jobs import FINAL, JobState
from duly.stores.port import Store
from duly.stores.sql.rows.line import COLUMNS
from duly.stores.sql.store import SqlStore

_COUNTED = (
    "SELECT flow, outcome, SUM(times) FROM duly_ledger_counts "
    "GROUP BY flow, outcome HAVING SUM(times) <> 0"
)
_LEDGER = (
    "SELECT flow, CASE WHEN state = 'missed' AND reason = 'paused' THEN 'paused' ELSE state END, "
    "SUM(times) FROM duly_occurrences GROUP BY 1, 2"
)


def check_derived_rows(store: Store) -> None:
    """Check that the line has exactly the queued jobs, and markers the running and ended jobs.

    Each ended job is in exactly one marker, because markers are counted. The counts of the ledger
    equal a count of its rows.
    """
    if not isinstance(store, SqlStore):
        return
    with store._engine.connect() as connection:
        assert _rows(connection, _COUNTED) == _rows(connection, _LEDGER)
        line = f"SELECT {COLUMNS} FROM duly_job_line"  # noqa: S608
        queued = f"SELECT {COLUMNS} FROM duly_jobs WHERE state = 'queued'"  # noqa: S608
        assert _rows(connection, line) == _rows(connection, queued)
        marks = _rows(connection, "SELECT state, at_ms, jobs, ids, seq FROM duly_job_marks")
        named = [(job_id, *mark[:2]) for mark in marks for job_id in json.loads(mark[3])]
        marked = set(named)
        assert all(len(json.loads(mark[3])) == mark[2] for mark in marks)
        jobs = _rows(
            connection,
            "SELECT id, state, finished_at_ms, lease_until_ms, waits, in_line FROM duly_jobs",
        )
    ended = sorted((job_id, state, ms) for job_id, state, ms, *_ in jobs if state in FINAL)
    assert sorted(each for each in named if each[1] in FINAL) == ended
    for job_id, state, _, lease_until_ms, waits, in_line in jobs:
        if state == JobState.PROCESSING:
            assert (job_id, state, lease_until_ms) in marked
        is_later = state in (JobState.SCHEDULED, JobState.RETRYING)
        assert waits == (is_later and not in_line), (job_id, state)


def _rows(connection: Connection, statement: str) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in connection.execute(text(statement))}
