"""Join a transaction that the caller began.

Nothing is written before all checks have passed; errors name the object that was passed in.
"""

from __future__ import annotations

import sys
from typing import Any

from sqlalchemy import Connection, Engine

from duly.errors import InvalidInput
from duly.stores.sql.dialects.sqlite.dialect import loses_wal_data
from duly.stores.sql.options import SqlOptions


def join_transaction(transaction: Any, engine: Engine, options: SqlOptions) -> Connection:
    """Return the caller's connection; refuse one without a transaction on the store's database."""
    kind = type(transaction).__name__
    connection = transaction.connection() if _is_session(transaction) else transaction
    if not isinstance(connection, Connection):
        raise InvalidInput(
            f"a {kind} cannot hold the transaction; pass a SQLAlchemy Connection, Session, "
            "AsyncConnection or AsyncSession"
        )
    if _family(connection) != _family(engine):
        raise InvalidInput(
            f"the {kind} is connected to {connection.dialect.name}, but the store uses "
            f"{engine.dialect.name}; pass a connection to the store's database"
        )
    if getattr(connection.connection.dbapi_connection, "autocommit", False) is True:
        raise InvalidInput(
            f"the {kind} is in autocommit and cannot hold a transaction; "
            "pass one without autocommit"
        )
    is_sqlite = engine.dialect.name == "sqlite"
    if is_sqlite and loses_wal_data() and not options.allow_foreign_sqlite_writers:
        raise InvalidInput(
            "this SQLite can lose data when connections that Duly did not open write the file; "
            "use SQLite 3.51.3 or newer, or set allow_foreign_sqlite_writers after switching off "
            "their automatic checkpoints (PRAGMA wal_autocheckpoint=0)"
        )
    if not connection.in_transaction():
        raise InvalidInput(f"the {kind} has no transaction yet; begin one first")
    if is_sqlite and not getattr(connection.connection.driver_connection, "in_transaction", True):
        # The driver delays BEGIN until the first write; our savepoint would then be the outermost
        # transaction, and releasing it would commit.
        connection.exec_driver_sql("BEGIN")
    return connection


def _family(connection: Connection | Engine) -> str:
    name = connection.dialect.name
    return "mysql" if name == "mariadb" else name


def _is_session(transaction: object) -> bool:
    # A caller with a Session has imported the ORM; avoid the import for all others.
    orm = sys.modules.get("sqlalchemy.orm")
    return orm is not None and isinstance(transaction, orm.Session)
