"""What stands beside the jobs: the line and the marks, compared with the jobs themselves."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, text

from duly.jobs import FINAL, JobState
from duly.store import Store
from duly.stores.sql.job_line import COLUMNS
from duly.stores.sql.store import SqlStore


def check_beside(store: Store) -> None:
    """Who is queued stands in line, and nobody else; whoever runs or has ended is marked."""
    if not isinstance(store, SqlStore):
        return
    with store._engine.connect() as connection:
        stands = f"SELECT {COLUMNS} FROM duly_job_line"  # noqa: S608
        queued = f"SELECT {COLUMNS} FROM duly_jobs WHERE state = 'queued'"  # noqa: S608
        assert _rows(connection, stands) == _rows(connection, queued)
        marks = _rows(connection, "SELECT state, at_ms, jobs, ids FROM duly_job_marks")
        marked = {(job_id, *mark[:2]) for mark in marks for job_id in json.loads(mark[3])}
        assert all(len(json.loads(mark[3])) == mark[2] for mark in marks)
        jobs = _rows(
            connection,
            "SELECT id, state, finished_at_ms, lease_until_ms, waits, in_line FROM duly_jobs",
        )
    for job_id, state, finished_at_ms, lease_until_ms, waits, in_line in jobs:
        if state in FINAL:
            assert (job_id, state, finished_at_ms) in marked
        elif state == JobState.PROCESSING:
            assert (job_id, state, lease_until_ms) in marked
        is_later = state in (JobState.SCHEDULED, JobState.RETRYING)
        assert waits == (is_later and not in_line), (job_id, state)


def _rows(connection: Connection, statement: str) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in connection.execute(text(statement))}
