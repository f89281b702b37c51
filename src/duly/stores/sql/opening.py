"""Open a relational store by URL."""

from __future__ import annotations

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from duly.clock import Clock
from duly.errors import InvalidInput
from duly.stores.sql.dialects.dialect import Dialect
from duly.stores.sql.dialects.mysql.dialect import MysqlDialect
from duly.stores.sql.dialects.postgresql.dialect import PostgresqlDialect
from duly.stores.sql.dialects.sqlite.dialect import SqliteDialect
from duly.stores.sql.options import SqlOptions
from duly.stores.sql.store import SqlStore

_DIALECTS: dict[str, type[Dialect]] = {
    "sqlite": SqliteDialect,
    "postgresql": PostgresqlDialect,
    "postgres": PostgresqlDialect,
    "mysql": MysqlDialect,
    "mariadb": MysqlDialect,
}


def open_sql_store(url: str, clock: Clock | None, options: SqlOptions) -> SqlStore:
    """Return the store for a URL."""
    return SqlStore(dialect_of(url), make_url(url), options, clock)


def dialect_of(url: str) -> Dialect:
    """Return the dialect for a URL; refuse unsupported databases."""
    try:
        backend = make_url(url).get_backend_name()
    except ArgumentError:
        backend = url.partition(":")[0]
    if backend not in _DIALECTS:
        raise InvalidInput(
            f"unsupported database {backend!r} in the URL; "
            "supported: memory:, sqlite:///file.db, postgresql://user@host/db, mysql://user@host/db"
        )
    return _DIALECTS[backend]()


def shown_url(url: str) -> str:
    """Return a URL without possible secrets: credentials and query options are masked."""
    try:
        found = make_url(url)
    except ArgumentError:
        return "***"  # not a URL, so any part may be a secret
    who = "***@" if found.username or found.password else ""
    host = f"[{found.host}]" if ":" in (found.host or "") else found.host or ""
    port = "" if found.port is None else f":{found.port}"
    options = "?***" if found.query else ""
    return f"{found.drivername}://{who}{host}{port}/{found.database or ''}{options}"
