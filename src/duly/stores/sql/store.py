"""The relational store: the async port, one thread hop per verb.

Verbs are plain functions of a connection; this module gives each its transaction, runs it again
when it lost a race, and translates driver errors, which never leave this package.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from duly.clock import Clock
from duly.errors import BackendUnavailable
from duly.occurrences import Claimed, IndexRow
from duly.schedules import Schedule, ScheduleId
from duly.store import (
    CLAIM_LIMIT,
    Capabilities,
    Document,
    DocumentWrite,
    IndexHealth,
    Quarantined,
    ReconcileReport,
    Refused,
    ScheduleEvent,
    ScheduleKey,
    ScheduleWrite,
    ScheduleWritten,
    Written,
)
from duly.stores.sql import documents, events, index, migrate, reconcile, schedules
from duly.stores.sql.db import Db
from duly.stores.sql.dialect import Dialect
from duly.stores.sql.foreign import join_transaction
from duly.stores.sql.options import SqlOptions
from duly.triggers.instants import to_ms

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

RACES = 5
"""How often a verb that lost a race is run again."""


class SqlStore:
    """Every verb of the port on one relational database."""

    def __init__(
        self,
        dialect: Dialect,
        url: URL,
        options: SqlOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._options = SqlOptions() if options is None else options
        self._dialect = dialect
        self._clock = clock
        self._engine = dialect.engine(url, self._options)
        self._tables = dialect.tables(self._options.namespace)
        self._threads = ThreadPoolExecutor(self._options.connections, "duly-store")
        self._prepare()

    @property
    def capabilities(self) -> Capabilities:
        """Relational databases can all of it."""
        return Capabilities(joins_transaction=True, many_processes=True, has_clock=True)

    def _prepare(self) -> None:
        """Reach the server, then bring the schema up to date or check it."""
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
        """Let go of connections and threads."""
        await asyncio.get_running_loop().run_in_executor(None, self._release)

    def _release(self) -> None:
        self._threads.shutdown(wait=True)
        self._engine.dispose()

    async def _run(
        self, verb: Callable[Concatenate[Db, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """One hop to a thread, one transaction there."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, lambda: self._in_transaction(verb, *args, **kwargs)
        )

    def _in_transaction(
        self, verb: Callable[Concatenate[Db, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        for attempt in range(RACES):
            try:
                with self._engine.begin() as connection:
                    result = verb(self._db(connection), *args, **kwargs)
            except DBAPIError as error:
                if attempt + 1 < RACES and self._dialect.is_race(error):
                    continue
                raise unavailable(error) from error
            except SQLAlchemyError as error:
                raise unavailable(error) from error
            self._dialect.after_commit(self._engine)
            return result
        raise AssertionError("the last attempt returns or raises")

    def _db(self, connection: Connection) -> Db:
        fixed = None if self._clock is None else to_ms(self._clock.now())
        return Db(connection, self._tables, self._dialect, fixed)

    async def now_ms(self) -> int:
        """The clock that decides."""
        return await self._run(Db.now_ms)

    async def get_document(self, collection: str, scope: str, name: str) -> Document | None:
        """Read one document."""
        return await self._run(documents.get_document, collection, scope, name)

    async def put_document(self, write: DocumentWrite) -> Written | Refused:
        """Store one document and its index entries."""
        return await self._run(documents.put_document, write)

    async def delete_document(
        self, collection: str, scope: str, name: str, expected_version: int | None = None
    ) -> Document | Refused:
        """Remove one document and its index entries."""
        return await self._run(documents.delete_document, collection, scope, name, expected_version)

    async def list_documents(
        self, collection: str, scope: str, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[Document]:
        """One page of a scope's documents by name."""
        return await self._run(
            documents.list_documents, collection, scope, prefix=prefix, after=after, limit=limit
        )

    async def count_documents(self, collection: str, scope: str) -> int:
        """How many documents a scope holds."""
        return await self._run(documents.count_documents, collection, scope)

    async def find_documents(
        self, collection: str, attribute: str, value: str, limit: int = 100
    ) -> list[Document]:
        """Documents of any scope by an indexed attribute."""
        return await self._run(documents.find_documents, collection, attribute, value, limit)

    async def get_schedule(self, key: ScheduleKey) -> Schedule | None:
        """Read one schedule."""
        return await self._run(schedules.get_schedule, key)

    async def list_schedules(
        self, flow: str, scope: str, *, after: str = "", limit: int = 100
    ) -> list[Schedule]:
        """One page of a scope's schedules by name."""
        return await self._run(schedules.list_schedules, flow, scope, after=after, limit=limit)

    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        """Store definitions with their index rows and events, in one transaction."""
        return await self._run(schedules.put_schedules, writes)

    def put_schedules_in(
        self, transaction: Any, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        """The same inside the caller's own transaction."""
        connection = join_transaction(transaction, self._engine, self._options)
        for attempt in range(RACES):
            try:
                # A savepoint, so that losing a race cannot abort what the caller has done.
                with connection.begin_nested():
                    return schedules.put_schedules(self._db(connection), writes)
            except DBAPIError as error:
                if attempt + 1 == RACES or not self._dialect.is_race(error):
                    raise unavailable(error) from error
        raise AssertionError("the last attempt returns or raises")

    async def delete_schedule(
        self, key: ScheduleKey, *, expected_version: int | None = None, by: str = "system"
    ) -> Schedule | Refused:
        """Remove a schedule, its row and its document."""
        return await self._run(
            schedules.delete_schedule, key, expected_version=expected_version, by=by
        )

    async def schedule_events(
        self, schedule_id: ScheduleId, limit: int = 100
    ) -> list[ScheduleEvent]:
        """The newest facts about a schedule, oldest first."""
        return await self._run(events.schedule_events, schedule_id, limit)

    async def upsert(self, row: IndexRow) -> None:
        """Store the row of its key."""
        await self._run(index.upsert, row)

    async def claim_due(
        self,
        now_ms: int | None = None,
        limit: int = CLAIM_LIMIT,
        flow: str | None = None,
        claim_id: str | None = None,
    ) -> list[Claimed]:
        """Take due rows and advance them in one transaction."""
        return await self._run(index.claim_due, now_ms, limit, flow, claim_id)

    async def remove(self, key: ScheduleKey) -> None:
        """Remove the row of a key."""
        await self._run(index.remove, key)

    async def list_rows(
        self, *, flow: str | None = None, until_ms: int | None = None, limit: int = 100
    ) -> list[IndexRow]:
        """Index rows in the order they will be claimed."""
        return await self._run(index.list_rows, flow=flow, until_ms=until_ms, limit=limit)

    async def list_quarantined(self, limit: int = 100) -> list[Quarantined]:
        """Rows that cannot be evaluated."""
        return await self._run(index.list_quarantined, limit)

    async def reconcile(self, flows: Sequence[str] | None = None) -> ReconcileReport:
        """Rebuild the index from documents and ledger, a page per transaction."""
        total = ReconcileReport()
        declared: set[str] = set(flows or ())
        after: tuple[str, str] | None = ("", "")
        while after is not None:
            page = await self._run(reconcile.reconcile_page, flows, after)
            total, after = total + page.report, page.after
            declared |= page.flows
        while declared and (gone := await self._run(reconcile.remove_orphans, sorted(declared))):
            total += ReconcileReport(removed=gone)
        return total

    async def index_health(self) -> IndexHealth:
        """Count what is stored against what is indexed."""
        return await self._run(reconcile.index_health)


def unavailable(error: SQLAlchemyError) -> BackendUnavailable:
    """A driver's error as ours, without its SQL and parameters, which may hold secrets."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    lost = isinstance(error, DBAPIError) and (error.connection_invalidated or not error.statement)
    first_line = str(cause).strip().split("\n", 1)[0][:300]
    return BackendUnavailable(f"the database said: {first_line}", is_unreachable=lost)
