"""One PostgreSQL database for all tests of a module, emptied before each."""

import asyncio

import psycopg
from psycopg import sql

from duly.stores import open_store


class Emptied:
    """A database with the schema in it; emptying it is cheaper than a copy for every test."""

    def __init__(self, url: str) -> None:
        self.url = url
        asyncio.run(open_store(url).close())
        # One connection for all tests, and one round trip for each.
        self._connection = psycopg.connect(url, autocommit=True)
        names = self._connection.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE 'duly%' "
            "AND tablename <> 'duly_schema' ORDER BY tablename"
        ).fetchall()
        deletes = [sql.SQL("DELETE FROM {};").format(sql.Identifier(name)) for (name,) in names]
        self._statements = sql.SQL("").join(
            # Removing from the ledger leaves counts behind, which cancel out.
            [
                *deletes,
                sql.SQL("DELETE FROM duly_ledger_counts;"),
                sql.SQL("UPDATE duly_schema SET tz_version = NULL"),
            ]
        )

    def empty(self) -> str:
        """Its URL, with nothing in its tables."""
        self._connection.execute(self._statements)
        return self.url

    def close(self) -> None:
        self._connection.close()
