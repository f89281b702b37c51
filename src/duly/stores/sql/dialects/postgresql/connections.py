"""PostgreSQL: open, bound and discard Duly's own connections.

The URL overrides the defaults here, a connection whose server cannot serve it never returns to the
pool, and every statement except migrations has a deadline. Connections of callers are not changed.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, ExceptionContext

from duly.stores.sql.options import SqlOptions

CONNECT_TIMEOUT_S = 5
"""Seconds for each host of the URL."""
KEEPALIVE_PROBES = 3
SERVER_SHARE = 0.8
"""Share of the deadline after which the server cancels a slow statement, so that it does so before
the client gives up the connection."""

_LOST_SERVER = {
    "25006",  # read_only_sql_transaction: a standby, or a server that is fenced
    "25P03",  # idle_in_transaction_session_timeout
    "25P04",  # transaction_timeout
    "57P01",  # admin_shutdown
    "57P02",  # crash_shutdown
    "57P03",  # cannot_connect_now
    "57P04",  # database_dropped
    "57P05",  # idle_session_timeout
}
_CONNECTION_EXCEPTION = "08"


def is_lost_server(sqlstate: str) -> bool:
    """Return whether a SQLSTATE means that the server can no longer serve this connection."""
    return sqlstate in _LOST_SERVER or sqlstate.startswith(_CONNECTION_EXCEPTION)


def connect_parameters(url: URL, options: SqlOptions) -> dict[str, Any]:
    """Return the libpq parameters that the URL does not set."""
    deadline_s = options.deadline_s
    wanted = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "duly",
        # Use the primary of several hosts; refuse a lone standby.
        "target_session_attrs": "read-write",
        "keepalives": 1,
        "keepalives_idle": max(1, round(deadline_s)),
        "keepalives_interval": max(1, round(deadline_s / KEEPALIVE_PROBES)),
        "keepalives_count": KEEPALIVE_PROBES,
        "tcp_user_timeout": round(deadline_s * 1000),
    }
    return {name: value for name, value in wanted.items() if name not in url.query}


def make_engine(url: URL, options: SqlOptions) -> Engine:
    """Return an engine whose pool keeps no connection that is old, hung or read-only."""
    from duly.stores.sql.dialects.postgresql.driver import BoundedConnection

    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        isolation_level="READ COMMITTED",  # whatever the server's default is
        pool_size=options.connections,
        max_overflow=0,
        pool_recycle=options.recycle_s,
        hide_parameters=True,  # job inputs must not leak into unexpected errors
        pool_pre_ping=False,
        connect_args={
            "prepare_threshold": 5 if options.prepared_statements else None,
            **connect_parameters(url, options),
        },
    )

    def connect(_dialect: object, _record: object, args: Any, given: Any) -> BoundedConnection:
        connection = BoundedConnection.connect(*args, **given)
        connection.deadline_s = options.deadline_s
        return connection

    def restore_deadline(connection: BoundedConnection | None, _record: object) -> None:
        if connection is not None:
            connection.deadline_s = options.deadline_s

    def prepare_session(connection: BoundedConnection, _record: object) -> None:
        _prepare_session(connection, options.deadline_s)

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "checkin", restore_deadline)
    event.listen(engine, "handle_error", _discard_lost)
    if options.prepared_statements:  # otherwise a pooler may be in use, which loses settings
        event.listen(engine, "connect", prepare_session)
    return engine


def extend_deadline(connection: Connection, deadline_s: float | None) -> None:
    """Extend the statement deadline of this transaction; None: no limit.

    Setting it has the usual deadline, so a hung connection is detected. The limit between
    statements stays, so that a client that disappears does not keep its locks.
    """
    timeout_ms = "0" if deadline_s is None else _server_timeout_ms(deadline_s)
    connection.execute(
        text("SELECT set_config('statement_timeout', :timeout_ms, true)"),
        {"timeout_ms": timeout_ms},
    )
    driver: Any = connection.connection.driver_connection
    driver.deadline_s = deadline_s


def _prepare_session(connection: Any, deadline_s: float) -> None:
    timeout_ms = _server_timeout_ms(deadline_s)
    # A generic plan assumes a short array and reads the whole table for a long one: four times
    # slower from the eleventh batch on. The timeouts release the locks of clients that are gone;
    # timeouts set by an administrator stay. While a snapshot is held, an index with few rows but
    # many pages looks expensive, and the server would scan the table. Releases before 18 would also
    # JIT-compile what no index can answer.
    connection.execute(
        "SELECT set_config(name, wanted, false) FROM (VALUES "
        "('plan_cache_mode', 'force_custom_plan'), ('enable_seqscan', 'off'), ('jit', 'off'), "
        "('statement_timeout', %s), ('idle_in_transaction_session_timeout', %s)) "
        "AS settings (name, wanted) "
        "WHERE name NOT LIKE '%%timeout' OR current_setting(name) = '0'",
        (timeout_ms, timeout_ms),
    )
    connection.commit()


def _server_timeout_ms(deadline_s: float) -> str:
    return str(round(deadline_s * SERVER_SHARE * 1000))


def _discard_lost(context: ExceptionContext) -> None:
    """Make SQLAlchemy drop the connection, and those opened before it, on their next use."""
    if is_lost_server(getattr(context.original_exception, "sqlstate", None) or ""):
        context.is_disconnect = True
