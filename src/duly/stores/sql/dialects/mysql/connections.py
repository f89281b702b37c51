"""MariaDB: open and prepare Duly's own connections, and check the server.

Every session reads committed rows, keeps UTC, compares texts byte by byte and refuses values that
do not fit. Connections of callers are not changed.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

from duly.errors import BackendUnavailable, InvalidInput
from duly.stores.sql.options import SqlOptions

COLLATION = "utf8mb4_nopad_bin"
"""Compares texts byte by byte, blanks at the end included."""
CONNECT_TIMEOUT_S = 5
LOCK_SHARE = 0.8
"""Share of the deadline after which the server stops waiting for a lock."""
MIN_PACKET = 4 * 1024 * 1024
"""Least `max_allowed_packet` in bytes: a statement carries up to 1 MiB of rows, or one row."""
OLDEST = (10, 6)
"""The first release of MariaDB that skips locked rows."""
MAX_RECURSION = 1_000_000
"""Rows of a recursive search; the server's default would end it after 1,000, with a warning."""
_LOCKED = "duly_schema_lock"


def make_engine(url: URL, options: SqlOptions) -> Engine:
    """Return an engine of bounded connections whose sessions are prepared."""
    engine = create_engine(
        url.set(drivername=_driver(url)),
        isolation_level="READ COMMITTED",  # whatever the server's default is
        pool_size=options.connections,
        max_overflow=0,
        pool_recycle=options.recycle_s,
        hide_parameters=True,  # job inputs must not leak into unexpected errors
        pool_pre_ping=False,
        connect_args={
            "charset": "utf8mb4",
            "connect_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": round(options.deadline_s),
            "write_timeout": round(options.deadline_s),
        },
    )

    def prepare(connection: Any, _record: object) -> None:
        _prepare_session(connection, options)

    def restore_deadline(connection: Any, _record: object) -> None:
        if connection is not None:
            set_deadline(connection, options.deadline_s)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "checkin", restore_deadline)
    event.listen(engine, "reset", _unlock)
    return engine


def set_deadline(connection: Any, deadline_s: float | None) -> None:
    """Set how long PyMySQL waits for the server; other drivers keep what they began with."""
    if hasattr(connection, "_read_timeout"):
        connection._read_timeout = deadline_s  # noqa: SLF001 - there is no other way to change it


def lock_schema(connection: Connection, name: str, wait_s: int) -> None:
    """Take a lock on a name until the connection returns to the pool.

    A transaction cannot hold it: every statement that changes the schema commits.
    """
    # Waiting for another process and building indexes have no time limit.
    set_deadline(connection.connection.driver_connection, None)
    lock = f"CONCAT('duly:', LEFT(MD5(CONCAT(DATABASE(), '{name}')), 16))"
    taken = connection.exec_driver_sql(f"SELECT GET_LOCK({lock}, {wait_s})").scalar()
    if taken != 1:
        raise BackendUnavailable("another process is upgrading the schema; retry later")
    connection.connection.info[_LOCKED] = True


def _unlock(connection: Any, record: Any, _state: object = None) -> None:
    if record.info.pop(_LOCKED, False):
        with connection.cursor() as cursor:
            cursor.execute("DO RELEASE_ALL_LOCKS()")


def _driver(url: URL) -> str:
    """Return the driver of the URL; PyMySQL unless it names one."""
    named = url.drivername.partition("+")[2]
    if named:
        return f"mysql+{named}"
    try:
        import pymysql  # noqa: F401
    except ImportError:
        raise InvalidInput(
            "MariaDB needs the PyMySQL driver; run: pip install 'duly[mysql]'"
        ) from None
    return "mysql+pymysql"


def _prepare_session(connection: Any, options: SqlOptions) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT VERSION(), @@collation_database, @@global.read_only, @@max_allowed_packet"
        )
        version, collation, is_read_only, packet = cursor.fetchone()
        check_server(
            str(version), str(collation), is_read_only=bool(is_read_only), packet=int(packet)
        )
        mode = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,SIMULTANEOUS_ASSIGNMENT"
        settings = {
            "time_zone": "'+00:00'",
            "sql_mode": f"'{mode}'",
            # Sooner than the driver gives the connection up.
            "innodb_lock_wait_timeout": max(1, int(options.deadline_s * LOCK_SHARE)),
            "max_recursive_iterations": MAX_RECURSION,
        }
        cursor.execute(f"SET NAMES utf8mb4 COLLATE {collation}")
        cursor.execute("SET " + ", ".join(f"SESSION {k} = {v}" for k, v in settings.items()))


def check_server(version: str, collation: str, *, is_read_only: bool, packet: int) -> None:
    """Refuse a server or a database on which Duly cannot work; the error names the remedy."""
    if "mariadb" not in version.lower():
        raise BackendUnavailable(
            f"the server is MySQL {version}, on which Duly has not been tested; use MariaDB"
        )
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise BackendUnavailable(f"the server is MariaDB {version}; Duly needs {oldest} or newer")
    if collation != COLLATION:
        raise BackendUnavailable(
            f"the database's collation is {collation}; Duly needs {COLLATION}; run: "
            f"ALTER DATABASE <name> CHARACTER SET utf8mb4 COLLATE {COLLATION}"
        )
    if packet < MIN_PACKET:
        raise BackendUnavailable(
            f"the server's max_allowed_packet is {packet} bytes; Duly needs {MIN_PACKET}"
        )
    if is_read_only:
        raise BackendUnavailable("the server is read-only (a replica?); connect to the primary")
