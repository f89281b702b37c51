"""The dialect of MariaDB.

It has no set statements of its own: every verb runs in the engine. A statement locks every row that
it reads, so each names the index of its keys. Guards are rows of a table, locked until the
transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    FromClause,
    Integer,
    Select,
    Table,
    bindparam,
    literal_column,
    text,
)
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, IntegrityError

from duly.errors import InvalidInput
from duly.model.index_rows import Moves
from duly.stores.port import Wake
from duly.stores.sql.dialects.mysql.connections import (
    COLLATION,
    lock_schema,
    make_engine,
    set_deadline,
)
from duly.stores.sql.failures import Failure
from duly.stores.sql.options import SqlOptions
from duly.stores.sql.schema.tables import PREFIX, Tables, make_tables

if TYPE_CHECKING:
    from duly.stores.sql.db import Db

GUARDS = 256
"""Rows of the table of guards for scopes, and again for claims: few collisions, and a limit."""
SCHEMA_WAIT_S = 600
_NOW_MS = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000"
_TEXT = f"LONGTEXT CHARACTER SET utf8mb4 COLLATE {COLLATION}"
_DUPLICATE = 1062
_RACES = {
    1020,  # the record has changed since it was read
    1205,  # lock wait timeout: only the statement was rolled back, and the caller rolls back all
    1213,  # deadlock
}
_FAILURES = {
    1062: Failure.TAKEN,
    1048: Failure.BUG,  # NULL in a column that may not be
    1054: Failure.UNAVAILABLE,  # another release's schema
    1064: Failure.BUG,
    1146: Failure.UNAVAILABLE,
    1264: Failure.BAD_VALUE,
    1366: Failure.BAD_VALUE,
    1406: Failure.BAD_VALUE,
    3140: Failure.BAD_VALUE,
    1153: Failure.BAD_VALUE,  # packet too large
}
"""Failures by error number; all others are temporary or need an operator."""


class MysqlDialect:
    """The differences of MariaDB."""

    name = "mysql"
    passes_messages = False
    lock = "FOR UPDATE"
    skip_locked = "FOR UPDATE SKIP LOCKED"
    share_lock = "LOCK IN SHARE MODE"
    each_of_ids = (
        "JOIN JSON_TABLE(m.ids, '$[*]' COLUMNS (value VARCHAR(255) "
        f"CHARACTER SET utf8mb4 COLLATE {COLLATION} PATH '$')) AS e"
    )
    job_of_k = "STRAIGHT_JOIN {p}jobs AS j ON j.id = k.id"
    has_one_writer = False
    index_row_of_r = (
        "STRAIGHT_JOIN {p}schedule_index AS i ON i.row_id = r.row_id AND i.version = r.version"
    )
    finds_row_values = True
    orders_row_values = False
    locks_one_of_a_join = False
    deletes_lists_by_index = False
    deletes_what_it_finds = False
    correlates_derived_tables = False
    limit_form = "{}"
    text_type = "CHAR"
    whole_type = "SIGNED"
    has_fast_paths = False
    inserts_json_rows = False
    tracks_entries = False

    def engine(self, url: URL, options: SqlOptions) -> Engine:
        """Return an engine of bounded connections; refuse to start without the driver."""
        return make_engine(url, options)

    def extend_deadline(self, connection: Connection, deadline_s: float | None) -> None:
        """Let the driver wait longer for answers; the pool restores the deadline."""
        set_deadline(connection.connection.driver_connection, deadline_s)

    def faults(self) -> list[str]:
        """Return an empty list: no faults are known."""
        return []

    def tables(self, namespace: str | None) -> Tables:
        """Return the tables of a namespace, which is a prefix of the table names."""
        return make_tables(PREFIX if namespace is None else f"{namespace}_{PREFIX}")

    def names(self, tables: Tables) -> tuple[str, str]:
        """Return the prefixes; an index belongs to its table, so its name needs none."""
        prefix = tables.schema.name.removesuffix("schema")
        return prefix, prefix

    def now_ms(self) -> ColumnElement[int]:
        """Return the server's time at statement start, whatever the session's zone is."""
        return literal_column(_NOW_MS, BigInteger)

    def guard_schema(self, connection: Connection, tables: Tables) -> None:
        """Take a lock on the schema for this session."""
        lock_schema(connection, f"{tables.schema.name}", SCHEMA_WAIT_S)

    def guard_claim(self, connection: Connection, tables: Tables, claim_id: str) -> None:
        """Lock the guard of the claim id."""
        self._guard(connection, tables, [GUARDS + _share(claim_id)])

    def guard_scopes(self, connection: Connection, tables: Tables, scopes: Iterable[str]) -> None:
        """Lock the guards of the scopes, in one order."""
        self._guard(connection, tables, sorted({_share(scope) for scope in scopes}))

    def _guard(self, connection: Connection, tables: Tables, numbers: Sequence[int]) -> None:
        statement = text(
            f"SELECT number FROM {self.names(tables)[0]}guards WHERE number IN :numbers "
            "ORDER BY number FOR UPDATE"
        ).bindparams(bindparam("numbers", expanding=True))
        connection.execute(statement, {"numbers": list(numbers)}).all()

    def check_caller(self, connection: Connection) -> None:
        """Refuse a session that would read old rows beside the locked ones."""
        level = connection.exec_driver_sql("SELECT @@tx_isolation").scalar()
        if level != "READ-COMMITTED":
            raise InvalidInput(
                f"the connection's isolation level is {level}; Duly needs READ COMMITTED: "
                'create the engine with isolation_level="READ COMMITTED"'
            )

    def held_by(self, statement: Select[Any], table: Table, index: str) -> Select[Any]:
        """Name the index: a scan of a small table would lock all of its rows."""
        hint = f"FORCE INDEX ({index})"
        return statement.with_hint(table, hint, "mysql").with_hint(table, hint, "mariadb")

    def records(self, table: Table) -> str:
        """Return SQL that reads rows from one JSON parameter."""
        columns = ", ".join(
            f"{each.name} "
            f"{'BIGINT' if isinstance(each.type, Integer | BigInteger) else _TEXT} "
            f"PATH '$.{each.name}'"
            for each in table.c
        )
        return f"JSON_TABLE(:rows, '$[*]' COLUMNS ({columns})) AS r"

    def insert_or_ignore(self, table: Table) -> Any:
        """Return an INSERT that keeps existing rows."""
        statement = insert(table)
        # IGNORE would hide other errors too.
        key = next(iter(table.primary_key.columns))
        return statement.on_duplicate_key_update({key.name: table.c[key.name]})

    def among(self, column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        """Return a condition on a list of numbers."""
        return column.in_(numbers)

    def one_of(self, table: Table, condition: ColumnElement[bool]) -> FromClause:  # noqa: ARG002
        """Return the table: the server joins by a key if there is one."""
        return table

    def advance_rows(
        self, db: Db, numbers: Sequence[int], versions: Sequence[int], moves: Moves
    ) -> None:
        """Execute one UPDATE per row, in one batch."""
        prefix, _ = self.names(db.tables)
        statement = text(
            f"UPDATE {prefix}schedule_index SET nominal_ms = :nominal_ms, run_at_ms = :run_at_ms, "
            "runs_left = :runs_left, version = version + 1 "
            "WHERE row_id = :row_id AND version = :version"
        )
        columns = (numbers, versions, moves.nominal_ms, moves.run_at_ms, moves.runs_left)
        names = ("row_id", "version", "nominal_ms", "run_at_ms", "runs_left")
        values = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        db.connection.execute(statement, values)

    def estimate_line(self, db: Db) -> int:
        """Return the number of queued jobs according to the server's statistics."""
        found = db.run(
            "SELECT table_rows FROM information_schema.tables "
            "WHERE table_schema = DATABASE() AND table_name = :name",
            name=db.tables.job_line.name,
        ).scalar()
        return 0 if found is None else int(found)

    def oldest_snapshot_ms(self, db: Db) -> int:
        """Return the age of the oldest transaction, which holds back the purge of old rows."""
        age = db.run(
            "SELECT TIMESTAMPDIFF(MICROSECOND, min(trx_started), NOW(6)) DIV 1000 "
            "FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> CONNECTION_ID()"
        ).scalar()
        return max(0, int(age or 0))

    def tell(self, db: Db, hints: set[str]) -> None:
        """Do nothing: the server passes no messages between sessions."""

    def listen(
        self, url: URL, options: SqlOptions, tables: Tables, wake: Wake
    ) -> Callable[[], None] | None:
        """Return None: the server passes no messages between sessions."""

    def is_race(self, error: DBAPIError) -> bool:
        """Return whether another transaction won a race, so that this one must run again."""
        return isinstance(error, IntegrityError) or number_of(error) in _RACES

    def failure_of(self, error: DBAPIError) -> Failure:
        """Return the kind of a server error, by its number."""
        return _FAILURES.get(number_of(error), Failure.UNAVAILABLE)

    def fault_of(self, error: DBAPIError, url: URL) -> str | None:
        """Return None: the server's own messages are clear, and it may be starting."""

    def after_commit(self, engine: Engine) -> None:
        """Do nothing."""


def number_of(error: DBAPIError) -> int:
    """Return the error number of any driver; 0 if it has none."""
    arguments = getattr(error.orig, "args", ())
    return arguments[0] if arguments and isinstance(arguments[0], int) else 0


def _share(name: str) -> int:
    return crc32(name.encode(errors="replace")) % GUARDS
