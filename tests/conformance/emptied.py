"""One PostgreSQL database for all tests of a module, emptied before each test."""

import asyncio

import psycopg
from psycopg import sql

from duly.stores import open_store


class Emptied:
    """A database with the schema; emptying it is cheaper than creating one per test."""

    def __init__(self, url: str) -> None:
        self.url = url
        asyncio.run(open_store(url).close())
        # One connection for all tests and one round trip per test.
        self._connection = psycopg.connect(url, autocommit=True)
        names = self._connection.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE 'duly%' "
            "AND tablename <> 'duly_schema' ORDER BY tablename"
        ).fetchall()
        deletes = [sql.SQL("DELETE FROM {};").format(sql.Identifier(name)) for (name,) in names]
        self._statements = sql.SQL("").join(
            # Deleting from the ledger adds negative counts, which must be deleted too.
            [
                *deletes,
                sql.SQL("DELETE FROM duly_ledger_counts;"),
                sql.SQL("UPDATE duly_schema SET tz_version = NULL"),
            ]
        )

    def empty(self) -> str:
        """Empty all tables and return the URL."""
        self._connection.execute(self._statements)
        return self.url

    def close(self) -> None:
        self._connection.close()
