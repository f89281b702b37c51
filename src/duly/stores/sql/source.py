"""The engine's port on a relational database.

An engine transaction is one database transaction. Held items are locked rows; all changes are
written at the end, kind by kind, in lock order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from sqlalchemy import Row

from duly.engine import kinds
from duly.engine.ids import Ids
from duly.engine.transaction import EVERY, Index, Key, Kind, Log, Reach, Tx
from duly.model.schedules import ScheduleId
from duly.stores.sql import logs, walks
from duly.stores.sql.db import Db
from duly.stores.sql.finds import COUNTS, FINDS, FINDS_AMONG, PARTITIONS, lock_due
from duly.stores.sql.items import around, ledger
from duly.stores.sql.items.documents import DOCUMENTS
from duly.stores.sql.items.jobs import JOBS
from duly.stores.sql.items.mapped import Mapped
from duly.stores.sql.items.rows import ROWS
from duly.stores.sql.items.schedules import SCHEDULES
from duly.stores.sql.rows import schedule_events

P = ParamSpec("P")
T = TypeVar("T")

ITEMS: dict[Kind[Any], Mapped[Any]] = {
    each.kind: each
    for each in (
        ROWS,
        SCHEDULES,
        DOCUMENTS,
        around.KEYS,
        JOBS,
        ledger.OCCURRENCES,
        ledger.MARKERS,
        around.QUEUES,
        around.TOKENS,
        around.WORKERS,
        around.LOCKS,
        around.SETTINGS,
    )
}


class SqlSource:
    """One attempt of a transaction."""

    def __init__(self, db: Db) -> None:
        self.db = db
        self._now_ms = db.fixed_now_ms
        self._job_rows: dict[Key, Row[Any]] = {}
        """Jobs as they were read: some events are stored in the job's row only."""
        self._locked_rows: dict[Key, Row[Any]] = {}
        """Index rows locked and read by a search for due rows."""

    def now_ms(self) -> int:
        """Return the database's time, read once per transaction."""
        if self._now_ms is None:
            self._now_ms = self.db.now_ms()
        return self._now_ms

    def load(self, kind: Kind[T], keys: Sequence[Key], *, hold: bool) -> Mapping[Key, T]:
        """Return items by key; lock them if `hold`."""
        if kind is kinds.JOB:
            rows = JOBS.rows(self.db, keys, hold=hold)
            self._job_rows |= rows
            return cast("dict[Key, T]", {key: JOBS.read(row) for key, row in rows.items()})
        known = self._locked_rows if kind is kinds.ROW and hold else {}
        locked = {key: ITEMS[kind].read(known[key]) for key in keys if key in known}
        others = [key for key in keys if key not in locked]
        return locked | ITEMS[kind].load(self.db, others, hold=hold) if others else locked

    def find(self, index: Index[T], partition: Key, reach: Reach) -> Sequence[Key]:
        """Return the keys of members; sweeps skip rows locked by other transactions."""
        if index not in FINDS:
            return self.find_among(index, [partition], reach)
        return FINDS[index](self.db.at(self.now_ms()), partition, reach)

    def find_among(self, index: Index[T], partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
        """Return the keys of members of several partitions, in one order."""
        db = self.db.at(self.now_ms())
        if index is kinds.DUE and reach.upto is not None:
            rows: dict[Key, Row[Any]] = {
                (row.flow, row.scope, row.name): row for row in lock_due(db, partitions, reach)
            }
            self._locked_rows |= rows
            return list(rows)
        return FINDS_AMONG[index](db, partitions, reach)

    def partitions(
        self, index: Index[T], prefix: Key, since: str = "", limit: int = EVERY
    ) -> Sequence[str]:
        """Return the last key parts of the partitions under a prefix."""
        if index is kinds.LEDGER:
            return walks.ledger_schedules(self.db, since, limit)
        assert (since, limit) == ("", EVERY), f"{index.name} is not walked by its partitions"
        return PARTITIONS[index](self.db.at(self.now_ms()), prefix)

    def histories(
        self, log: Log[T], owners: Sequence[str], limit: int
    ) -> Mapping[str, Sequence[T]]:
        """Return the newest events of schedules."""
        assert log is kinds.SCHEDULE_EVENTS, f"{log.name} are read by pages only"
        if len(owners) == 1:
            known = schedule_events.newest_events(self.db, ScheduleId(owners[0]), limit)
            return cast("Mapping[str, Sequence[T]]", {owners[0]: known} if known else {})
        return cast("Mapping[str, Sequence[T]]", logs.histories(self.db, owners, limit))

    def walk(self, log: Log[T], after: Key, limit: int) -> Sequence[T]:
        """Return log entries in the order of their numbers."""
        return logs.walk(self.db, log, after, limit)

    def firsts(
        self, index: Index[T], partitions: Sequence[Key], *, is_reverse: bool
    ) -> Mapping[Key, Key]:
        """Return the key of the first or last member of each partition."""
        return walks.firsts(self.db, index, partitions, is_reverse=is_reverse)

    def is_taken(self, index: Index[T], partition: Key) -> bool:
        """Return whether a partition has an item; False until a unique index refuses an attempt."""
        return self.db.is_retry and bool(self.find(index, partition, Reach(limit=1)))

    def count_many(self, index: Index[T], partitions: Sequence[Key]) -> Mapping[Key, int]:
        """Return the number of members of each partition."""
        return COUNTS[index](self.db, partitions)

    def guard(self, name: str) -> None:
        """Take a lock on a name until the end of the transaction."""
        kind, _, scope = name.partition(":")
        if kind == "scope":
            self.db.dialect.guard_scopes(self.db.connection, self.db.tables, [scope])
            return
        self.db.dialect.guard_claim(self.db.connection, self.db.tables, name)

    def commit(self, tx: Tx) -> None:
        """Write the changes of the transaction."""
        db = self.db.at(self.now_ms()) if tx.changed else self.db
        for kind in tx.changed:
            if kind is kinds.JOB:
                job_events = tx.facts_of(kinds.JOB_EVENTS)
                JOBS.write_jobs(db, tx.changes(kind), job_events, self._job_rows)
            else:
                ITEMS[kind].write(db, tx.changes(kind))
        logs.edit(db, tx.edited)
        schedule_events.append(db, tx.facts_of(kinds.SCHEDULE_EVENTS))
        if tx.hints:
            db.dialect.tell(db, tx.hints)


def transact(
    db: Db, ids: Ids, use_case: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run a use case of the engine in an open transaction."""
    source = SqlSource(db)
    tx = Tx(source, db.planning, ids)
    answer = use_case(tx, *args, **kwargs)
    source.commit(tx)
    return answer
