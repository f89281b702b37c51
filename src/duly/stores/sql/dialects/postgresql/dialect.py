"""The PostgreSQL dialect.

Claims skip rows locked by other transactions, arrays send a batch in one statement, and guards are
transaction-scoped advisory locks, which work through a transaction-mode pooler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Select,
    Table,
    any_,
    cast,
    func,
    literal,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError

from duly.errors import InvalidInput
from duly.model.index_rows import Moves
from duly.stores.port import Wake
from duly.stores.sql.dialects.postgresql import jobs as postgresql_jobs
from duly.stores.sql.dialects.postgresql.arrays import numbers_array, texts_array
from duly.stores.sql.dialects.postgresql.connections import (
    connect_parameters,
    extend_deadline,
    make_engine,
)
from duly.stores.sql.dialects.postgresql.notices import Listener
from duly.stores.sql.failures import Failure
from duly.stores.sql.options import SqlOptions
from duly.stores.sql.schema.tables import PREFIX, Tables, make_tables

if TYPE_CHECKING:
    from duly.stores.sql.db import Db

_RACES = {"40001", "40P01", "23505"}
"""Serialization failure, deadlock, unique violation."""
_UNIQUE_VIOLATION = "23505"
_UNAVAILABLE = {"42501", "42P01", "42703", "42P07"}
"""Missing rights, tables or columns: a grant or a migration adds them."""
_FAILURES = {
    "21": Failure.BAD_VALUE,
    "22": Failure.BAD_VALUE,
    "54": Failure.BAD_VALUE,
    "23": Failure.BUG,
    "42": Failure.BUG,
}
"""Failures by SQLSTATE class; all others are temporary or need an operator."""
_SHARES = 256
"""Number of locks shared by the scopes of a namespace: few collisions, and a limit for bulks."""


class PostgresqlDialect:
    """The differences of PostgreSQL."""

    name = "postgresql"
    passes_messages = True
    lock = "FOR UPDATE"
    skip_locked = "FOR UPDATE SKIP LOCKED"
    share_lock = "FOR KEY SHARE"
    each_of_ids = "CROSS JOIN LATERAL json_array_elements_text(CAST(m.ids AS json)) AS e (value)"
    job_of_k = "CROSS JOIN LATERAL (SELECT * FROM {p}jobs WHERE id = k.id LIMIT 1) AS j"
    has_one_writer = False
    index_row_of_r = (
        "CROSS JOIN LATERAL (SELECT * FROM {p}schedule_index "
        "WHERE row_id = r.row_id AND version = r.version OFFSET 0) AS i"
    )
    finds_row_values = True
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
    tracks_entries = True
    add_jobs = staticmethod(postgresql_jobs.add_jobs)
    add_occurrences = staticmethod(postgresql_jobs.add_occurrences)
    take_jobs = staticmethod(postgresql_jobs.take_jobs)
    end_jobs = staticmethod(postgresql_jobs.end_jobs)
    write_progress = staticmethod(postgresql_jobs.write_progress)
    extend_deadline = staticmethod(extend_deadline)

    def engine(self, url: URL, options: SqlOptions) -> Engine:
        """Return an engine of bounded connections; refuse to start without the driver."""
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise InvalidInput(
                "postgresql needs the psycopg driver; run: pip install 'duly[postgres]'"
            ) from None
        return make_engine(url, options)

    def faults(self) -> list[str]:
        """Return an empty list: no faults are known."""
        return []

    def tables(self, namespace: str | None) -> Tables:
        """Return the tables of a namespace, which is a schema."""
        return make_tables(PREFIX, namespace)

    def names(self, tables: Tables) -> tuple[str, str]:
        """Return the prefixes; table names are qualified, an index is in its table's schema."""
        schema = tables.schema.schema
        return (PREFIX if schema is None else f'"{schema}".{PREFIX}'), PREFIX

    def now_ms(self) -> ColumnElement[int]:
        """Return the server's time at statement start: stable, so that indexes can be used."""
        return cast(func.extract("epoch", func.statement_timestamp()) * 1000, BigInteger)

    def guard_schema(self, connection: Connection, tables: Tables) -> None:
        """Take a transaction-scoped advisory lock and create the schema of the namespace."""
        schema = tables.schema.schema
        # Waiting for another process and building indexes have no time limit.
        self.extend_deadline(connection, None)
        self._lock(connection, f"duly schema {schema}")
        if schema is not None:
            connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')

    def guard_claim(self, connection: Connection, tables: Tables, claim_id: str) -> None:
        """Take a transaction-scoped advisory lock on the claim id."""
        self._lock(connection, f"duly claim {tables.schema.schema} {claim_id}")

    def guard_scopes(self, connection: Connection, tables: Tables, scopes: Iterable[str]) -> None:
        """Take advisory locks shared by many scopes: the server has room for some thousands."""
        shares = {crc32(scope.encode(errors="replace")) % _SHARES for scope in scopes}
        names = [f"duly create {tables.schema.schema} {share}" for share in sorted(shares)]
        # All callers lock in the same order, which prevents deadlocks.
        connection.execute(
            text(
                "SELECT pg_advisory_xact_lock(hashtextextended(value, 0)) "
                "FROM json_array_elements_text(CAST(:names AS json))"
            ),
            {"names": json.dumps(names)},
        )

    def _lock(self, connection: Connection, name: str) -> None:
        connection.execute(
            text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name}
        )

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
        columns = ", ".join(f"{each.name} {each.type}" for each in table.c)
        return f"json_to_recordset(CAST(:rows AS json)) AS r ({columns})"

    def insert_or_ignore(self, table: Table) -> Any:
        """Return an INSERT that keeps existing rows."""
        return insert(table).on_conflict_do_nothing()

    def among(self, column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        """Return a condition on an array hidden from the planner, which would parse it to count."""
        unseen = select(literal(numbers_array(numbers))).scalar_subquery()
        return column == any_(cast(unseen, ARRAY(BigInteger)))

    def one_of(self, table: Table, condition: ColumnElement[bool]) -> FromClause:
        """Return a lateral subquery: a server that expects one row would scan the table."""
        return select(table).where(condition).limit(1).lateral()

    def advance_rows(
        self, db: Db, numbers: Sequence[int], versions: Sequence[int], moves: Moves
    ) -> None:
        """Move rows with one UPDATE from five arrays, all hidden from the planner.

        With their lengths known, for a thousand rows it would read and hash a whole table of twenty
        thousand.

        A row is found by number and version, which are the key: by number alone, the index would
        return an entry for each move of the row while a snapshot is held.
        """
        moved = db.run(
            "UPDATE {p}schedule_index AS i SET nominal_ms = v.nominal_ms, "
            "run_at_ms = v.run_at_ms, runs_left = v.runs_left, version = i.version + 1 "
            "FROM unnest((SELECT CAST(:numbers AS bigint[])), "
            "(SELECT CAST(:versions AS bigint[])), (SELECT CAST(:nominal AS bigint[])), "
            "(SELECT CAST(:run_at AS bigint[])), (SELECT CAST(:runs_left AS integer[]))) "
            "AS v (row_id, version, nominal_ms, run_at_ms, runs_left) "
            "WHERE i.row_id = v.row_id AND i.version = v.version",
            numbers=numbers_array(numbers),
            versions=numbers_array(versions),
            nominal=numbers_array(moves.nominal_ms),
            run_at=numbers_array(moves.run_at_ms),
            runs_left=numbers_array(moves.runs_left),
        )
        assert moved.rowcount == len(numbers), "a row has another version than when it was locked"

    def add_markers(self, db: Db, jobs: Mapping[str, str], others: Iterable[str] = ()) -> list[str]:
        """Insert the markers from two arrays; return schedules whose marker was taken."""
        wanted = (
            "unnest((SELECT CAST(:schedule_ids AS text[])), (SELECT CAST(:job_ids AS text[]))) "
            "AS r (schedule_id, job_id)"
        )
        arrays = {
            "schedule_ids": texts_array(list(jobs)),
            "job_ids": texts_array(list(jobs.values())),
        }
        added = db.run(
            # Counted, so that all are locked before the first is inserted.
            "WITH held AS MATERIALIZED (SELECT schedule_id FROM {p}running "
            "WHERE schedule_id = ANY(CAST(:all_ids AS text[])) ORDER BY schedule_id {lock}) "
            "INSERT INTO {p}running (schedule_id, job_id, since_ms) SELECT schedule_id, job_id, "
            f"{{now}} FROM {wanted} WHERE (SELECT count(*) FROM held) >= 0 "
            "AND NOT EXISTS (SELECT FROM held WHERE held.schedule_id = r.schedule_id) "
            "ON CONFLICT (schedule_id) DO NOTHING",
            all_ids=texts_array(sorted({*jobs, *others})),
            **arrays,
        )
        if added.rowcount == len(jobs):
            return []
        taken = db.run(
            f"SELECT r.schedule_id FROM {wanted} LEFT JOIN {{p}}running m "
            "ON m.schedule_id = r.schedule_id WHERE m.job_id IS DISTINCT FROM r.job_id",
            **arrays,
        )
        return list(taken.scalars())

    def estimate_line(self, db: Db) -> int:
        """Return the number of queued jobs according to the server's statistics."""
        table = db.tables.job_line
        found = db.run(
            "SELECT n_live_tup FROM pg_stat_all_tables WHERE relname = :name "
            "AND schemaname = COALESCE(CAST(:schema AS text), current_schema())",
            name=table.name,
            schema=table.schema,
        ).scalar()
        return 0 if found is None else int(found)

    def oldest_snapshot_ms(self, db: Db) -> int:
        """Return the age of the oldest session or prepared transaction that holds a snapshot.

        Sessions of other roles are visible only to members of `pg_read_all_stats`.
        """
        age = db.run(
            "SELECT CAST(EXTRACT(epoch FROM clock_timestamp() - min(since)) * 1000 AS bigint) "
            "FROM (SELECT xact_start AS since FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) "
            "AND backend_type <> 'autovacuum worker' "
            "UNION ALL SELECT prepared FROM pg_prepared_xacts "
            "WHERE database = current_database()) AS held"
        ).scalar()
        return max(0, int(age or 0))

    def tell(self, db: Db, hints: set[str]) -> None:
        """Send a notification for each hint; PostgreSQL delivers them on commit."""
        if hints:
            db.run(
                "SELECT pg_notify(:channel, hint) FROM unnest(CAST(:hints AS text[])) AS hint",
                channel=_channel(db.tables),
                hints=texts_array(sorted(hints)),
            )

    def listen(
        self, url: URL, options: SqlOptions, tables: Tables, wake: Wake
    ) -> Callable[[], None] | None:
        """LISTEN on a separate connection; return the stop function."""
        if not options.notifications:
            return None
        direct = url if options.listen_url is None else make_url(options.listen_url)
        parameters = connect_parameters(direct, options)
        return Listener(direct, parameters, options.deadline_s, _channel(tables), wake).close

    def is_race(self, error: DBAPIError) -> bool:
        """Return whether another transaction won a race, so that this one was rolled back."""
        return isinstance(error, IntegrityError) or sqlstate_of(error) in _RACES

    def failure_of(self, error: DBAPIError) -> Failure:
        """Return the kind of a server error, by its SQLSTATE."""
        state = sqlstate_of(error)
        if not state:
            # Raised by the driver itself: a NUL in a text, a type that it cannot adapt.
            if isinstance(error, DataError):
                return Failure.BAD_VALUE
            return Failure.BUG if isinstance(error, ProgrammingError) else Failure.UNAVAILABLE
        if state in _UNAVAILABLE:
            return Failure.UNAVAILABLE
        if state == _UNIQUE_VIOLATION:
            return Failure.TAKEN
        return _FAILURES.get(state[:2], Failure.UNAVAILABLE)

    def fault_of(self, error: DBAPIError, url: URL) -> str | None:
        """Return None: the server's own messages are clear, and it may be starting."""

    def after_commit(self, engine: Engine) -> None:
        """Do nothing."""


def sqlstate_of(error: DBAPIError) -> str:
    """Return the SQLSTATE of an error of any driver; "" if it has none."""
    cause: Any = error.orig
    for name in ("sqlstate", "pgcode"):  # psycopg and asyncpg; psycopg2
        if state := getattr(cause, name, None):
            return str(state)
    said = cause.args[0] if getattr(cause, "args", None) else None  # pg8000
    return str(said.get("C", "")) if isinstance(said, dict) else ""


def _channel(tables: Tables) -> str:
    return f"{PREFIX}{tables.schema.schema or ''}_jobs"
