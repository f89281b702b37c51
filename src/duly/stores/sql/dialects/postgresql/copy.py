"""PostgreSQL: many new jobs and ledger rows by COPY, several times as fast as INSERT.

COPY has no ON CONFLICT, so it runs in a savepoint: if an id exists already, which only happens when
a call is repeated, nothing is stored and the caller falls back to INSERT.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy.exc import DBAPIError

from duly.model.jobs import JobState, NewJob
from duly.stores.sql.dialects.postgresql.connections import is_lost_server
from duly.stores.sql.fast.inserts import full_row
from duly.stores.sql.rows.ledger import Entry

if TYPE_CHECKING:
    from duly.stores.sql.db import Db

_OWN = ("id", "input", "idempotency_key", "workspace", "scope", "schedule_id", "nominal_ms")
"""Columns that differ from job to job; the others are formatted once for all jobs sharing them."""
_LINE = ("queue", "place", "action", "run_at_ms")
_KEY = attrgetter(*(name for name in NewJob.__struct_fields__ if name not in (*_OWN, "key")))
_LEDGER = {name: attrgetter(name) for name in Entry.__struct_fields__}
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def copy_jobs(db: Db, jobs: Sequence[NewJob]) -> dict[str, str] | None:
    """Store new jobs; return their ids and states, or None if one exists and none was stored."""
    now_ms = db.now_ms()
    shared = _Shared(now_ms)
    parts = [shared.of(job) for job in jobs]
    ids = _column([job.id for job in jobs])
    workspaces = _column([job.workspace for job in jobs])
    own = zip(
        ids,
        _column([job.input for job in jobs]),
        _column([job.key for job in jobs]),
        workspaces,
        _column([job.scope for job in jobs]),
        _column([job.schedule_id for job in jobs]),
        _column([job.nominal_ms for job in jobs]),
        (part.text for part in parts),
        strict=True,
    )
    lines = [f"{a}\t{b}\t{c}\t{d}\t{e}\t{f}\t{g}\t{h}\n" for a, b, c, d, e, f, g, h in own]
    events = [
        f"{job_id}\t1\t{now_ms}\t{part.state}\t0\n" for job_id, part in zip(ids, parts, strict=True)
    ]
    line = [
        f"{job_id}\t{workspace}\t{part.line}\n"
        for job_id, workspace, part in zip(ids, workspaces, parts, strict=True)
        if part.line is not None
    ]
    is_stored = _stored(
        db,
        {
            f"jobs ({', '.join((*_OWN, *shared.names))})": lines,
            "job_events (job_id, seq, at_ms, state, attempt)": events,
            f"job_line (id, workspace, {', '.join(_LINE)})": line,
        },
    )
    if not is_stored:
        return None
    return {job.id: part.state for job, part in zip(jobs, parts, strict=True)}


def copy_occurrences(db: Db, entries: Sequence[Entry]) -> bool:
    """Store new ledger rows; False: one exists, and nothing was stored."""
    names, lines = _lines({name: list(map(get, entries)) for name, get in _LEDGER.items()})
    return _stored(db, {f"occurrences ({', '.join(names)})": lines})


def _lines(columns: dict[str, Sequence[Any]]) -> tuple[list[str], list[str]]:
    """Return column names and COPY lines; columns that are NULL in all rows are left out.

    Columns with the same value in all rows come last and are formatted once.
    """
    alike = {name: values[0] for name, values in columns.items() if _is_alike(values)}
    own = [name for name in columns if name not in alike]
    shared = [name for name, value in alike.items() if value is not None]
    end = "".join([f"\t{_text(alike[name])}" for name in shared]) + "\n"
    rows = zip(*[_column(columns[name]) for name in own], strict=True)
    return own + shared, ["\t".join(row) + end for row in rows]


def _is_alike(values: Sequence[Any]) -> bool:
    return values[0] == values[-1] and values.count(values[0]) == len(values)


def _stored(db: Db, targets: dict[str, Sequence[str]]) -> bool:
    """Copy lines to tables; False: a row exists already, and nothing was stored."""
    import psycopg

    prefix, _ = db.dialect.names(db.tables)
    driver: Any = db.connection.connection.driver_connection
    try:
        with driver.cursor() as cursor:
            cursor.execute("SAVEPOINT duly_copy")
            try:
                for target, lines in targets.items():
                    if lines:
                        _copy(cursor, f"{prefix}{target}", lines)
            except psycopg.errors.UniqueViolation:
                cursor.execute("ROLLBACK TO SAVEPOINT duly_copy")
                return False
            cursor.execute("RELEASE SAVEPOINT duly_copy")
    except psycopg.Error as error:
        failure = DBAPIError.instance("COPY", None, error, psycopg.Error)
        is_lost = driver.closed or is_lost_server(error.sqlstate or "")
        if is_lost and not db.is_foreign:
            # SQLAlchemy has not seen this error and would use the connection again.
            db.connection.invalidate(error)
            failure.connection_invalidated = True
        raise failure from error
    return True


def _copy(cursor: Any, target: str, lines: Iterable[str]) -> None:
    with cursor.copy(f"COPY {target} FROM STDIN") as copy:
        copy.write("".join(lines))


class _Part(NamedTuple):
    """The shared columns of similar jobs."""

    state: str
    text: str
    """Columns of `jobs`, formatted for COPY."""
    line: str | None
    """Columns of `job_line`, formatted for COPY; None: not queued."""


class _Shared:
    """A cache of the columns that jobs of one call share, each formatted once."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._parts: dict[tuple[object, ...], _Part] = {}
        sample = full_row(NewJob(id="a", action="a"), now_ms)  # type: ignore[arg-type]
        self.names = [name for name in sample if name not in _OWN]

    def of(self, job: NewJob) -> _Part:
        """Return the shared columns of a job."""
        key = _KEY(job)
        found = self._parts.get(key)
        if found is None:
            row = full_row(job, self._now_ms)
            text = "\t".join(_text(row[name]) for name in self.names)
            line = "\t".join(_text(row[name]) for name in _LINE)
            state = row["state"]
            found = _Part(state, text, line if state == JobState.QUEUED else None)
            self._parts[key] = found
        return found


def _column(values: Sequence[Any]) -> Sequence[str]:
    """Return values formatted for COPY; escape only if a value needs it."""
    if _is_alike(values):
        return [_text(values[0])] * len(values)
    if None in values:
        return [_text(value) for value in values]
    if type(values[0]) is int:
        return list(map(str, values))
    return values if _is_plain("".join(values)) else [_text(value) for value in values]


def _text(value: object) -> str:
    """Return a value formatted for COPY."""
    if value is None:
        return "\\N"
    text = str(value)
    return text if _is_plain(text) else text.translate(_ESCAPES)


def _is_plain(text: str) -> bool:
    return "\\" not in text and "\t" not in text and "\n" not in text and "\r" not in text
