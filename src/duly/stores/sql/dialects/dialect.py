"""What differs between relational databases, and nothing else.

A dialect answers questions and writes the few statements that no common SQL can express. The verbs
ask it; they never ask for its name.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import ColumnElement, Connection, Engine, FromClause, Table
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
    """The differences."""

    name: str
    """Of its migration files."""
    passes_messages: bool
    """Whether tell() reaches other processes."""
    lock: str
    """At the end of a SELECT: hold the rows until the transaction ends."""
    skip_locked: str
    """The same, leaving out rows that others hold."""
    share_lock: str
    """The same for rows that others may share, and change."""
    each_of_ids: str
    """A join of the ids in `m.ids`, a JSON array, as `e.value`."""
    job_of_k: str
    """A join of the job `j` with the id `k.id`, by its key and in no other way."""
    has_one_writer: bool
    """Whether transactions run one after another, so that it is no use to begin several."""

    index_row_of_r: str
    """A join of the index row `i` with the number and version of `r`, by its key."""
    finds_row_values: bool
    """Whether rows are found by an index where several columns are compared as one value."""

    tracks_entries: bool
    """Whether searches skip what has passed, by the transactions that rows record (ADR 0031)."""

    def engine(self, url: URL, options: SqlOptions) -> Engine:
        """An engine whose transactions take the locks the verbs rely on."""

    def extend_deadline(self, connection: Connection, deadline_s: float | None) -> None:
        """Let statements of this transaction take longer; None: without end."""

    def faults(self) -> list[str]:
        """Known faults of the database version in use, for the log and for operators."""

    def tables(self, namespace: str | None) -> Tables:
        """The tables of a namespace."""

    def names(self, tables: Tables) -> tuple[str, str]:
        """Prefixes of table and index names in statements, quoted."""

    def now_ms(self) -> ColumnElement[int]:
        """The database's clock, fixed for one statement so that an index can be searched by it."""

    def guard_schema(self, connection: Connection, tables: Tables) -> None:
        """Hold off other starters until this transaction ends."""

    def guard_claim(self, connection: Connection, tables: Tables, claim_id: str) -> None:
        """Hold off this namespace's other claims with the same id until the transaction ends."""

    def guard_scopes(self, connection: Connection, tables: Tables, scopes: Iterable[str]) -> None:
        """Hold off this namespace's other creations in the scopes until the transaction ends."""

    def insert(self, table: Table) -> Any:
        """An INSERT that knows `on_conflict_do_update`."""

    def records(self, table: Table) -> str:
        """Rows of a table from the parameter `:rows`, a JSON array of objects, as `r`."""

    def insert_or_ignore(self, table: Table) -> Any:
        """An INSERT that leaves an existing row alone."""

    def among(self, column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        """That a column is one of very many numbers, which go as one parameter."""

    def one_of(self, table: Table, condition: ColumnElement[bool]) -> FromClause:
        """Return the row of a table that a condition finds by its key, to join it in no other way.

        The condition names another table of the statement.
        """

    def advance_rows(
        self, db: Db, numbers: Sequence[int], versions: Sequence[int], moves: Moves
    ) -> None:
        """Move index rows to their next time: one statement or one prepared batch.

        The rows are locked, and `versions` was read after that.
        """

    def add_markers(self, db: Db, jobs: Mapping[str, str]) -> list[str]:
        """Let jobs hold the running markers of schedules; gives those that were taken."""

    def add_jobs(self, db: Db, jobs: Sequence[NewJob]) -> dict[str, str]:
        """Store new jobs and their events; gives ids and states of those that were new."""

    def add_occurrences(self, db: Db, entries: Sequence[Entry]) -> bool:
        """Store many ledger rows at once, all new; False: it cannot, or some are there already."""

    def take_jobs(self, db: Db, take: Take) -> Iterable[tuple[Any, ...]]:
        """Claim jobs with attempts and events; gives the fields of LeasedJob, best place first."""

    def end_jobs(self, db: Db, finishes: Sequence[Finish]) -> Iterable[Lease]:
        """Store ends that are alike; gives the leases that were void."""

    def write_progress(self, db: Db, notes: Sequence[ProgressNote]) -> None:
        """Write progress notes beside jobs that are locked."""

    def estimate_line(self, db: Db) -> int:
        """Return about how many jobs are queued, without reading a row for each."""

    def oldest_snapshot_ms(self, db: Db) -> int:
        """Return the age of the oldest transaction that keeps deleted rows; 0: none does."""

    def tell(self, db: Db, hints: set[str]) -> None:
        """Pass hints to every listener when the transaction commits, where that is possible."""

    def listen(
        self, url: URL, options: SqlOptions, tables: Tables, wake: Wake
    ) -> Callable[[], None] | None:
        """Hear what other processes tell; None where the database cannot."""

    def is_race(self, error: DBAPIError) -> bool:
        """The transaction lost a race and was rolled back: running it again is the remedy."""

    def failure_of(self, error: DBAPIError) -> Failure:
        """Return what kind of error the database reported, by its code."""

    def fault_of(self, error: DBAPIError, url: URL) -> str | None:
        """What is wrong with the place itself, and the remedy; None: it may pass by itself."""

    def after_commit(self, engine: Engine) -> None:
        """Housekeeping that must not run inside a transaction."""
