"""The SQLite dialect.

One writer at a time (BEGIN IMMEDIATE), WAL, and manual checkpoints only: SQLite before 3.51.3 can
lose WAL data when one connection checkpoints while another writes. So automatic checkpoints are
off, and ours runs while a second connection holds the write lock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Select,
    Table,
    create_engine,
    event,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import URL
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InterfaceError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.pool import QueuePool

from duly.errors import InvalidInput
from duly.model.index_rows import Moves
from duly.stores.sql.dialects.sqlite import jobs as sqlite_jobs
from duly.stores.sql.failures import Failure
from duly.stores.sql.options import SqlOptions
from duly.stores.sql.schema.tables import PREFIX, Tables, make_tables

if TYPE_CHECKING:
    from duly.stores.sql.db import Db

CHECKPOINT_BYTES = 32 * 1024 * 1024
"""WAL size that triggers a checkpoint; half of it is the size limit after a reset."""
CACHE_KIB = 16_384
"""Page cache of a connection in KiB: a claim of a thousand rows touches a thousand pages."""
LOOK_MS = 20
"""Milliseconds that SQLite waits for the write lock before BEGIN is tried again."""
_MAX_LINE = 1_000_000
_TAKEN = {sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY}
_FAILURES = {
    sqlite3.SQLITE_TOOBIG: Failure.BAD_VALUE,
    sqlite3.SQLITE_ERROR: Failure.BUG,
    sqlite3.SQLITE_CONSTRAINT: Failure.BUG,
    sqlite3.SQLITE_MISMATCH: Failure.BUG,
    sqlite3.SQLITE_MISUSE: Failure.BUG,
    sqlite3.SQLITE_RANGE: Failure.BUG,
}
"""Failures by result code; all others are temporary or need an operator."""
_FIXED_BRANCHES = {(3, 44): 6, (3, 50): 7}


def loses_wal_data(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> bool:
    """Return whether this SQLite version has the checkpoint bug."""
    branch = _FIXED_BRANCHES.get(version[:2])
    return version < (3, 51, 3) and (branch is None or version[2] < branch)


class SqliteDialect:
    """The differences of SQLite."""

    name = "sqlite"
    passes_messages = False
    lock = ""
    skip_locked = ""
    share_lock = ""
    each_of_ids = "CROSS JOIN json_each(m.ids) AS e"
    job_of_k = "CROSS JOIN {p}jobs AS j ON j.id = k.id"
    has_one_writer = True
    index_row_of_r = (
        "CROSS JOIN {p}schedule_index AS i ON i.row_id = r.row_id AND i.version = r.version"
    )
    finds_row_values = False
    orders_row_values = True
    locks_one_of_a_join = True
    deletes_lists_by_index = True
    deletes_what_it_finds = True
    correlates_derived_tables = True
    limit_form = "(SELECT {})"
    text_type = "text"
    whole_type = "bigint"
    has_fast_paths = True
    inserts_json_rows = True
    tracks_entries = False
    add_jobs = staticmethod(sqlite_jobs.add_jobs)
    add_occurrences = staticmethod(sqlite_jobs.add_occurrences)
    take_jobs = staticmethod(sqlite_jobs.take_jobs)
    end_jobs = staticmethod(sqlite_jobs.end_jobs)
    write_progress = staticmethod(sqlite_jobs.write_progress)

    def engine(self, url: URL, options: SqlOptions) -> Engine:
        """Return an engine whose transactions hold the write lock from their start."""
        if not url.database or url.database == ":memory:":
            raise InvalidInput("sqlite needs a file: sqlite:///duly.db (or use memory:)")
        engine = create_engine(
            url,
            poolclass=QueuePool,
            pool_size=options.connections,
            max_overflow=0,
            hide_parameters=True,  # job inputs must not leak into unexpected errors
            connect_args={
                "check_same_thread": False,
                "timeout": options.busy_timeout_ms / 1000,
                "isolation_level": None,
            },
        )
        event.listen(engine, "connect", _settings(options))
        event.listen(engine, "begin", _begin(options.busy_timeout_ms / 1000))
        return engine

    def extend_deadline(self, connection: Connection, deadline_s: float | None) -> None:
        """Do nothing: there is no server that could stop answering."""

    def faults(self) -> list[str]:
        """Return the checkpoint bug if this SQLite version has it."""
        if not loses_wal_data():
            return []
        fault = (
            f"sqlite {sqlite3.sqlite_version} can lose data when a checkpoint overlaps a write; "
            "Duly checkpoints under the write lock, but no other program may write this file; "
            "upgrade to SQLite 3.51.3 or newer"
        )
        return [fault]

    def tables(self, namespace: str | None) -> Tables:
        """Return the tables of a namespace, which is a prefix of the table names."""
        return make_tables(PREFIX if namespace is None else f"{namespace}_{PREFIX}")

    def names(self, tables: Tables) -> tuple[str, str]:
        """Return the prefixes of table and index names."""
        prefix = tables.schema.name.removesuffix("schema")
        return prefix, prefix

    def now_ms(self) -> ColumnElement[int]:
        """Return the host's clock, as read by SQLite."""
        return literal_column("CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)")

    def guard_schema(self, connection: Connection, tables: Tables) -> None:
        """Do nothing: BEGIN IMMEDIATE already excludes other writers."""

    def guard_claim(self, connection: Connection, tables: Tables, claim_id: str) -> None:
        """Do nothing: BEGIN IMMEDIATE already excludes other claims."""

    def guard_scopes(self, connection: Connection, tables: Tables, scopes: Iterable[str]) -> None:
        """Do nothing: BEGIN IMMEDIATE already excludes other writers."""

    def check_caller(self, connection: Connection) -> None:
        """Accept every connection."""

    def held_by(
        self,
        statement: Select[Any],
        table: Table,  # noqa: ARG002
        index: str,  # noqa: ARG002
    ) -> Select[Any]:
        """Return the statement: locks are taken on the rows of the result."""
        return statement

    def insert(self, table: Table) -> Any:
        """Return an INSERT that supports `on_conflict_do_update`."""
        return insert(table)

    def records(self, table: Table) -> str:
        """Return SQL that reads rows from one JSON parameter."""
        columns = ", ".join(
            f"json_extract(value, '$.{each.name}') AS {each.name}" for each in table.c
        )
        return f"(SELECT {columns} FROM json_each(:rows)) AS r"

    def insert_or_ignore(self, table: Table) -> Any:
        """Return an INSERT that keeps existing rows."""
        return insert(table).on_conflict_do_nothing()

    def among(self, column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        """Return a condition on a JSON array, as SQLite has no array type."""
        each = func.json_each(json.dumps(numbers)).table_valued("value")
        return column.in_(select(each.c.value))

    def one_of(self, table: Table, condition: ColumnElement[bool]) -> FromClause:  # noqa: ARG002
        """Return the table: SQLite always joins by an index if there is one."""
        return table

    def advance_rows(
        self,
        db: Db,
        numbers: Sequence[int],
        versions: Sequence[int],  # noqa: ARG002
        moves: Moves,
    ) -> None:
        """Execute one prepared statement per row, directly on the driver because it is hot."""
        prefix, _ = self.names(db.tables)
        statement = (
            f"UPDATE {prefix}schedule_index "
            "SET nominal_ms = ?, run_at_ms = ?, runs_left = ?, version = version + 1 "
            "WHERE row_id = ?"
        )
        values = zip(moves.nominal_ms, moves.run_at_ms, moves.runs_left, numbers, strict=True)
        db.connection.exec_driver_sql(statement, list(values))

    def add_markers(
        self,
        db: Db,
        jobs: Mapping[str, str],
        others: Iterable[str] = (),  # noqa: ARG002 - there is one writer
    ) -> list[str]:
        """Insert the markers from a JSON object; return schedules whose marker was taken."""
        added = db.run(
            "INSERT INTO {p}running (schedule_id, job_id, since_ms) "
            "SELECT key, value, {now} FROM json_each(:jobs) WHERE 1 = 1 "
            "ON CONFLICT (schedule_id) DO NOTHING RETURNING schedule_id",
            jobs=json.dumps(jobs),
        )
        return sorted(jobs.keys() - set(added.scalars()))

    def estimate_line(self, db: Db) -> int:
        """Return the number of queued jobs, counted up to a million: SQLite has no statistics."""
        found = db.run(
            "SELECT count(*) FROM (SELECT 1 FROM {p}job_line "
            "ORDER BY queue, workspace, place, id LIMIT :most)",
            most=_MAX_LINE,
        )
        return int(found.scalar_one())

    def oldest_snapshot_ms(self, db: Db) -> int:  # noqa: ARG002
        """Return 0: deleted rows leave their indexes at once."""
        return 0

    def tell(self, db: Db, hints: set[str]) -> None:
        """Do nothing: SQLite passes no messages between processes."""

    def listen(self, *_: object) -> None:
        """Return None: SQLite passes no messages between processes."""

    def is_race(self, error: DBAPIError) -> bool:
        """Return whether a key existed or the snapshot is older than another writer's commit."""
        return isinstance(error, IntegrityError) or "snapshot" in str(error.orig).lower()

    def failure_of(self, error: DBAPIError) -> Failure:
        """Return the kind of a SQLite error, by its result code."""
        code = getattr(error.orig, "sqlite_errorcode", None)
        if code is None:
            # Raised by the driver itself, e.g. for a type that it cannot bind.
            is_bug = isinstance(error, ProgrammingError | InterfaceError | NotSupportedError)
            is_closed = "closed database" in str(error.orig)
            return Failure.BUG if is_bug and not is_closed else Failure.UNAVAILABLE
        if code in _TAKEN:
            return Failure.TAKEN
        said = str(error.orig)
        if code == sqlite3.SQLITE_ERROR and said.startswith(("no such table", "no such column")):
            return Failure.UNAVAILABLE  # another release's schema
        return _FAILURES.get(code & 0xFF, Failure.UNAVAILABLE)

    def fault_of(self, error: DBAPIError, url: URL) -> str | None:
        """Return the fault of a file that is not a database or cannot be opened or written."""
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF  # the primary result code
        file = Path(url.database or "")
        if code == sqlite3.SQLITE_NOTADB:
            return f"{file} is not a SQLite database; use another path, or move the file away"
        if code == sqlite3.SQLITE_CANTOPEN and not file.parent.exists():
            return f"there is no folder {file.parent} for {file.name}; make it first"
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return f"{file} cannot be opened for writing; this user must own it and its folder"
        return None

    def after_commit(self, engine: Engine) -> None:
        """Checkpoint if the WAL has grown past CHECKPOINT_BYTES."""
        wal = Path(f"{engine.url.database}-wal")
        try:
            grown = wal.stat().st_size > CHECKPOINT_BYTES
        except OSError:
            return
        if grown:
            checkpoint(engine)


def checkpoint(engine: Engine) -> bool:
    """Copy the WAL into the database while no writer can run; False: blocked by a reader."""
    copier = sqlite3.connect(engine.url.database or "", isolation_level=None)
    try:
        copier.execute("PRAGMA wal_autocheckpoint=0")
        with engine.begin():  # BEGIN IMMEDIATE: the write lock
            busy, pages, copied = copier.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    finally:
        copier.close()
    return not busy and pages == copied


def _settings(options: SqlOptions) -> Any:
    def on_connect(connection: sqlite3.Connection, _record: object) -> None:
        for pragma in (
            "journal_mode=WAL",
            "wal_autocheckpoint=0",
            f"journal_size_limit={CHECKPOINT_BYTES // 2}",
            f"synchronous={options.synchronous}",
            "foreign_keys=ON",
            f"cache_size=-{CACHE_KIB}",
            f"busy_timeout={LOOK_MS}",
        ):
            connection.execute(f"PRAGMA {pragma}")

    return on_connect


def _begin(wait_limit_s: float) -> Any:
    def begin(connection: Connection) -> None:
        """Take the write lock, waiting for other processes.

        SQLite backs off for up to 100 ms between attempts and starves under contention. Many short
        waits retry every few milliseconds.
        """
        ends_at = monotonic() + wait_limit_s
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            except OperationalError as error:
                if not _is_busy(error) or monotonic() >= ends_at:
                    raise
            else:
                return

    return begin


def _is_busy(error: OperationalError) -> bool:
    code: int = getattr(error.orig, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_BUSY
