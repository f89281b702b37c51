"""Run each verb in its own transaction on a thread of the store.

A verb that lost a race is run again. Driver errors are translated here and never leave this
package.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from duly.clock import Clock
from duly.engine.ids import Ids
from duly.engine.transaction import Tx
from duly.errors import BackendUnavailable
from duly.stores.port import Wake
from duly.stores.sql.db import Db, LostRace
from duly.stores.sql.dialects.dialect import Dialect
from duly.stores.sql.failures import VALUE_ERRORS, translated
from duly.stores.sql.foreign import join_transaction
from duly.stores.sql.gaps.search import GapMemory
from duly.stores.sql.options import SqlOptions
from duly.stores.sql.schema import migrate
from duly.stores.sql.source import transact
from duly.triggers.instants import to_ms

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

RACES = 8
"""Maximum attempts of a verb that loses races."""
FIRST_PAUSE_S, MAX_PAUSE_S = 0.002, 0.5
"""Longest pause before the second repetition, doubled each time, and its limit: two transactions
that deadlocked must not meet again. The first repetition follows at once."""


class Transactions:
    """A database with its connection pool and threads."""

    def __init__(
        self,
        dialect: Dialect,
        url: URL,
        options: SqlOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._options = SqlOptions() if options is None else options
        self._dialect = dialect
        self._url = url
        self._clock = clock
        self._engine = dialect.engine(url, self._options)
        self._tables = dialect.tables(self._options.namespace)
        # One writer per process requests the database's only write lock; the others wait here
        # without polling.
        self._turn: AbstractContextManager[object] = (
            Lock() if dialect.has_one_writer else nullcontext()
        )
        self._threads = ThreadPoolExecutor(self._options.connections, "duly-store")
        self._listening = Lock()
        self._wakes: list[Wake] = []
        self._end_listening: Callable[[], None] | None = None
        self._gaps = GapMemory()
        self._prepare()

    @property
    def has_fast_paths(self) -> bool:
        """Whether plain jobs and rows are handled in set statements."""
        return self._options.fast_paths and self._dialect.has_fast_paths

    def _prepare(self) -> None:
        """Connect to the server, then upgrade or check the schema."""
        for fault in self._dialect.faults():
            log.warning(fault, extra={"event": "store.fault"})
        for attempt in range(1, self._options.connect_attempts + 1):
            try:
                self._in_transaction(self._prepare_schema)
            except BackendUnavailable as error:
                if not error.is_unreachable or attempt == self._options.connect_attempts:
                    self._release()
                    raise
                log.warning(
                    "database unreachable, trying again: %s",
                    error,
                    extra={"event": "store.unreachable", "attempt": attempt},
                )
                time.sleep(0.1 * 2**attempt)
            else:
                return

    def _prepare_schema(self, db: Db) -> None:
        if not self._options.skip_schema_init:
            migrate.upgrade(db.connection, self._dialect, self._tables)
        migrate.check(db.connection, self._tables)

    async def close(self) -> None:
        """Close connections and threads."""
        await asyncio.get_running_loop().run_in_executor(None, self._release)

    def _release(self) -> None:
        if self._end_listening is not None:
            self._end_listening()
        self._threads.shutdown(wait=True)
        self._engine.dispose()

    async def _run(
        self, verb: Callable[Concatenate[Db, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a verb in one transaction on a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, lambda: self._in_transaction(verb, *args, **kwargs)
        )

    async def _transact(
        self, use_case: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a use case of the engine in one transaction on a thread."""
        ids = Ids()
        return await self._run(lambda db: transact(db, ids, use_case, *args, **kwargs))

    async def _fast_or_engine(
        self,
        fast: Callable[Concatenate[Db, P], T],
        use_case: Callable[Concatenate[Tx, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run the fast path, or the equivalent use case if fast paths are disabled."""
        if self.has_fast_paths:
            return await self._run(fast, *args, **kwargs)
        return await self._transact(use_case, *args, **kwargs)

    async def _run_upkeep(
        self, verb: Callable[Concatenate[Db, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a verb with the upkeep deadline, as its statements may take minutes."""

        def extended(db: Db, /, *args: P.args, **kwargs: P.kwargs) -> T:
            self._dialect.extend_deadline(db.connection, self._options.upkeep_deadline_s)
            return verb(db, *args, **kwargs)

        return await self._run(extended, *args, **kwargs)

    async def _transact_upkeep(
        self, use_case: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a use case of the engine with the upkeep deadline."""
        ids = Ids()
        return await self._run_upkeep(lambda db: transact(db, ids, use_case, *args, **kwargs))

    def _in_transaction(
        self, verb: Callable[Concatenate[Db, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        for attempt in range(RACES):
            try:
                with self._turn, self._engine.begin() as connection:
                    db = self._db(connection, is_retry=attempt > 0)
                    result = verb(db, *args, **kwargs)
            except (SQLAlchemyError, LostRace, *VALUE_ERRORS) as error:
                if isinstance(error, DBAPIError) and error.connection_invalidated:
                    self._gaps.forget()
                if attempt + 1 < RACES and self._is_race(error):
                    _pause(attempt)
                    continue
                raise translated(error, self._dialect, self._url, RACES) from error
            self._dialect.after_commit(self._engine)
            return result
        raise AssertionError("the last attempt returns or raises")

    def _is_race(self, error: Exception) -> bool:
        if isinstance(error, DBAPIError):
            return self._dialect.is_race(error)
        return isinstance(error, LostRace)

    def _db(
        self, connection: Connection, *, is_foreign: bool = False, is_retry: bool = False
    ) -> Db:
        fixed = None if self._clock is None else to_ms(self._clock.now())
        return Db(
            connection,
            self._tables,
            self._dialect,
            fixed,
            is_foreign,
            is_retry,
            self._options.planning,
            self._gaps,
        )

    def _joined(
        self,
        transaction: Any,
        verb: Callable[Concatenate[Db, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a verb inside the caller's own transaction."""
        connection = join_transaction(transaction, self._engine, self._options)
        self._dialect.check_caller(connection)
        for attempt in range(RACES):
            try:
                # The savepoint keeps the caller's work if a race is lost.
                with connection.begin_nested():
                    db = self._db(connection, is_foreign=True, is_retry=attempt > 0)
                    return verb(db, *args, **kwargs)
            except (SQLAlchemyError, LostRace, *VALUE_ERRORS) as error:
                if attempt + 1 == RACES or not self._is_race(error):
                    raise translated(error, self._dialect, self._url, RACES) from error
                _pause(attempt)
        raise AssertionError("the last attempt returns or raises")


def _pause(attempt: int) -> None:
    """Wait for a random time before an attempt is repeated; the first repetition does not wait."""
    if attempt > 0:
        longest_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**attempt)
        time.sleep(random.uniform(0, longest_s))  # noqa: S311 - not a secret
