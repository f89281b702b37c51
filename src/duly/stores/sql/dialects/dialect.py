"""The protocol for the differences between relational databases.

A dialect reports capabilities and runs the few statements that common SQL cannot express. Verbs
never test for its name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Select,
    Table,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from duly.model.claims import ProgressNote
from duly.model.index_rows import Moves
from duly.model.jobs import NewJob
from duly.rules.outcomes import Finish
from duly.stores.port import Wake
from duly.stores.sql.options import SqlOptions
from duly.stores.sql.schema.tables import Tables

if TYPE_CHECKING:
    from duly.stores.sql.db import Db
    from duly.stores.sql.failures import Failure
    from duly.stores.sql.fast.claims import Take
    from duly.stores.sql.rows.ledger import Entry


Lease = tuple[str, int]
"""Id and fence of a claimed job."""


class Dialect(Hashable, Protocol):
    """The differences of one database."""

    name: str
    """Name of the dialect, as in its migration files."""
    passes_messages: bool
    """tell() reaches other processes."""
    lock: str
    """Suffix of a SELECT that locks the rows until the transaction ends."""
    skip_locked: str
    """The same, skipping rows locked by other transactions."""
    share_lock: str
    """Suffix of a SELECT that takes a shared lock, which permits changes of non-key columns."""
    each_of_ids: str
    """A join of the ids in `m.ids`, a JSON array, as `e.value`."""
    job_of_k: str
    """A join of the job `j` with the id `k.id`, always by its key."""
    has_one_writer: bool
    """Write transactions run one at a time, so beginning several at once is useless."""

    index_row_of_r: str
    """A join of the index row `i` with the number and version of `r`, by its key."""
    finds_row_values: bool
    """An index finds rows by several columns compared as one row value."""
    orders_row_values: bool
    """An index serves `>=` and `>` of several columns as one row value."""
    locks_one_of_a_join: bool
    """A SELECT of a join can lock the rows of one table only."""
    deletes_lists_by_index: bool
    """A DELETE of a list of keys locks only their rows; else each key needs a DELETE."""
    deletes_what_it_finds: bool
    """A DELETE takes its keys from a sub-select that locks rows of the same table, and returns
    columns."""
    correlates_derived_tables: bool
    """A sub-select in FROM may refer to columns outside of it."""
    limit_form: str
    """A limit hidden from the planner, with `{}` for its parameter."""
    text_type: str
    """Name of the type of texts in a CAST."""
    whole_type: str
    """Name of the type of 64-bit integers in a CAST."""
    inserts_json_rows: bool
    """An INSERT takes any number of rows as one JSON parameter."""
    has_fast_paths: bool
    """This is a FastDialect; else every verb runs in the engine."""

    tracks_entries: bool
    """Searches skip dead index entries, using the transaction recorded in rows (ADR 0031)."""

    def engine(self, url: URL, options: SqlOptions) -> Engine:
        """Return an engine whose transactions take the locks that verbs rely on."""

    def extend_deadline(self, connection: Connection, deadline_s: float | None) -> None:
        """Extend the statement deadline of this transaction; None: no limit."""

    def faults(self) -> list[str]:
        """Return known faults of the database version in use, for logs and operators."""

    def tables(self, namespace: str | None) -> Tables:
        """Return the tables of a namespace."""

    def names(self, tables: Tables) -> tuple[str, str]:
        """Return the prefixes of table and index names in statements, quoted."""

    def now_ms(self) -> ColumnElement[int]:
        """Return the database's clock, constant within a statement so that indexes can be used."""

    def guard_schema(self, connection: Connection, tables: Tables) -> None:
        """Block other schema upgrades until this transaction ends."""

    def guard_claim(self, connection: Connection, tables: Tables, claim_id: str) -> None:
        """Block other claims with the same id in this namespace until the transaction ends."""

    def guard_scopes(self, connection: Connection, tables: Tables, scopes: Iterable[str]) -> None:
        """Block other creations in the scopes of this namespace until the transaction ends."""

    def check_caller(self, connection: Connection) -> None:
        """Refuse a caller's connection in whose transaction verbs would decide wrongly."""

    def held_by(self, statement: Select[Any], table: Table, index: str) -> Select[Any]:
        """Return a SELECT that locks rows of a table, found by the index of their keys only."""

    def records(self, table: Table) -> str:
        """Return SQL for the parameter `:rows`, a JSON array of objects, as rows `r` of a table."""

    def insert_or_ignore(self, table: Table) -> Any:
        """Return an INSERT that keeps existing rows."""

    def among(self, column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        """Return the condition that a column is one of many numbers, sent as one parameter."""

    def one_of(self, table: Table, condition: ColumnElement[bool]) -> FromClause:
        """Return the row of a table that a condition finds, forcing a join by its key.

        The condition refers to another table of the statement.
        """

    def advance_rows(
        self, db: Db, numbers: Sequence[int], versions: Sequence[int], moves: Moves
    ) -> None:
        """Move index rows to their next time, in one statement or one prepared batch.

        The rows are locked; `versions` was read after locking.
        """

    def estimate_line(self, db: Db) -> int:
        """Return the approximate number of queued jobs without counting rows."""

    def oldest_snapshot_ms(self, db: Db) -> int:
        """Return the age of the oldest transaction that holds back cleanup of rows; 0: none."""

    def tell(self, db: Db, hints: set[str]) -> None:
        """Send hints to every listener on commit, if the database supports it."""

    def listen(
        self, url: URL, options: SqlOptions, tables: Tables, wake: Wake
    ) -> Callable[[], None] | None:
        """Listen for hints of other processes; return the stop function, or None if unsupported."""

    def is_race(self, error: DBAPIError) -> bool:
        """Return whether the transaction lost a race, was rolled back and can be run again."""

    def failure_of(self, error: DBAPIError) -> Failure:
        """Return the kind of a database error, by its code."""

    def fault_of(self, error: DBAPIError, url: URL) -> str | None:
        """Return a fault of the database location and its remedy; None: may be temporary."""

    def after_commit(self, engine: Engine) -> None:
        """Do housekeeping that must not run inside a transaction."""


class FastDialect(Dialect, Protocol):
    """A database with set statements, which handle plain jobs and rows without the engine."""

    def insert(self, table: Table) -> Any:
        """Return an INSERT that supports `on_conflict_do_update`."""

    def add_markers(self, db: Db, jobs: Mapping[str, str], others: Iterable[str] = ()) -> list[str]:
        """Give jobs the running markers of schedules; return schedules whose marker was taken.

        Existing markers of these schedules and of `others` are locked first, in the order of the
        schedules' ids: the engine, too, locks markers before it adds any.
        """

    def add_jobs(self, db: Db, jobs: Sequence[NewJob]) -> dict[str, str]:
        """Store new jobs and their events; return the ids and states of those that were new."""

    def add_occurrences(self, db: Db, entries: Sequence[Entry]) -> bool:
        """Store many new ledger rows at once; False: unsupported, or some exist already."""

    def take_jobs(self, db: Db, take: Take) -> Iterable[tuple[Any, ...]]:
        """Claim jobs with their events; return the fields of LeasedJob, best place first."""

    def end_jobs(self, db: Db, finishes: Sequence[Finish]) -> Iterable[Lease]:
        """Store completions of one shape; return the leases that were void."""

    def write_progress(self, db: Db, notes: Sequence[ProgressNote]) -> None:
        """Store progress notes of locked jobs."""
