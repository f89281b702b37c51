"""Runs two verbs on PostgreSQL in overlapping transactions: the second waits for the first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from duly.stores.sql.db import Db
from duly.stores.sql.store import SqlStore

WAIT_LIMIT_S = 30.0
WAITS = (
    "SELECT count(*) FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
A = TypeVar("A")
B = TypeVar("B")


def overlapping(
    store: SqlStore,
    first: Callable[[Db], A],
    second: Callable[[Db], B],
    look: Callable[[], None] = lambda: None,
) -> tuple[A, B]:
    """Run one verb, then another until it waits or ends; then look, and commit the first."""
    with ThreadPoolExecutor(1) as threads:
        with store._engine.begin() as connection:
            answer = first(store._db(connection))
            other = threads.submit(store._in_transaction, second)
            _until_it_waits(store, other)
            look()
        return answer, other.result(WAIT_LIMIT_S)


def _until_it_waits(store: SqlStore, other: Future[Any]) -> None:
    with store._engine.connect() as connection:
        while not other.done():
            with connection.begin():  # pg_stat_activity is read once per transaction
                if connection.exec_driver_sql(WAITS).scalar():
                    return
