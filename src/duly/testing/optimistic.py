"""The memory store without its lock: what a database sees that checks only when it commits.

A use case of the engine reads without a lock. The commit fails when something that it held has
changed or was held by another commit meanwhile, and the use case is run again from the start.
Faults at the port are injected by chance. Verbs that are not use cases of the engine yet behave
as in the memory store.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from duly.clock import Clock
from duly.engine import kinds
from duly.engine.ids import Ids
from duly.engine.transaction import EVERY, Index, Key, Kind, Log, Reach, Tx
from duly.errors import BackendUnavailable
from duly.model.plans import PlanSettings
from duly.stores.memory import MemoryStore
from duly.stores.memory.source import KEEPING, MemorySource
from duly.stores.memory.tables import Tables
from duly.triggers.instants import to_ms

P = ParamSpec("P")
T = TypeVar("T")

MAX_TRIES = 30
"""Attempts of one use case before it is given up."""
BY_ID: tuple[Index[Any], ...] = (kinds.SCHEDULE_IDS, kinds.DOCUMENT_IDS, kinds.ROW_IDS)
"""Indexes of one member each: every database answers them exactly."""


class AnswerLost(BackendUnavailable):
    """The transaction is committed, and the caller does not know."""


class TooManyConflicts(BackendUnavailable):
    """Other transactions were first each time."""


@dataclass(frozen=True, slots=True)
class PortFaults:
    """What goes wrong at the port, as probabilities."""

    refused: float = 0.0
    """Of a commit: it is refused although nothing has changed."""
    stale: float = 0.0
    """Of a `find`: it answers with what it could have answered the last time."""
    missing: float = 0.0
    """Of each key that a `find` returns: it is left out."""
    lost: float = 0.0
    """Of a commit that wrote something: its answer is lost."""


NO_FAULTS = PortFaults()


class OptimisticStore(MemoryStore):
    """The memory store, whose use cases read without a lock and are checked when they commit."""

    def __init__(
        self,
        clock: Clock | None = None,
        planning: PlanSettings | None = None,
        faults: PortFaults = NO_FAULTS,
        seed: int = 0,
    ) -> None:
        super().__init__(clock, planning)
        self.faults = faults
        self.chance = random.Random(seed)  # noqa: S311
        self.in_vain = 0
        """Attempts that lost to other transactions."""
        self.versions: Counter[tuple[Kind[Any], Key]] = Counter()
        """How often an item was held by a transaction that committed."""
        self.unported = 0
        """Transactions of verbs that are no use cases yet: each one holds everything."""
        self.earlier: dict[tuple[str, Key], list[tuple[Key, Key]]] = {}
        """What each partition held when it was last asked for, for stale answers."""

    def pause(self, *, is_commit: bool = False) -> None:
        """Let others run: called before each read and before the commit."""

    def _transact(
        self, use_case: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a use case until no other transaction comes in between."""
        ids = Ids(self._clock)
        for _ in range(MAX_TRIES):
            source = OptimisticSource(self, self._clock)
            tx = Tx(source, self._planning, ids)
            try:
                answer = use_case(tx, *args, **kwargs)
            except Exception:
                # What was read at different times may not go together.
                if not self.conflicts(source):
                    raise
                self.in_vain += 1
                continue
            self.pause(is_commit=True)
            if self._commit(source, tx):
                if tx.changed and self.happens(self.faults.lost):
                    raise AnswerLost("the answer to a commit is lost")
                return answer
            self.in_vain += 1
        raise TooManyConflicts(f"other transactions were first {MAX_TRIES} times in a row")

    def _commit(self, source: OptimisticSource, tx: Tx) -> bool:
        unported = self.unported
        with self._transaction():
            if self.happens(self.faults.refused) or self.conflicts(source, tx):
                return False
            source.commit(tx)
            written = {(kind, key) for kind in tx.changed for key in tx.changes(kind)}
            held = {place for place, item in source.held.items() if item is not None}
            self.versions.update(held | written)
        self.unported = unported
        return True

    def conflicts(self, source: OptimisticSource, tx: Tx | None = None) -> list[str]:
        """Return names of kinds and guards of which something is not as the attempt read it."""
        return source.changed() if tx is None else [*source.changed(), *source.taken(tx)]

    def happens(self, share: float) -> bool:
        """Return whether a fault happens now."""
        return share > 0 and self.chance.random() < share

    @property
    def tables(self) -> Tables:
        """The tables as they stand: a verb that fails puts those before it back."""
        return self._tables


class OptimisticSource(MemorySource):
    """One attempt: each read sees what stands at that moment."""

    def __init__(self, store: OptimisticStore, clock: Clock) -> None:
        super().__init__(store.tables, 0)
        self._store = store
        self._clock = clock
        self._read_ms: int | None = None
        self.held: dict[tuple[Kind[Any], Key], Any] = {}
        """What was read to be held; None: it did not exist."""
        self._versions: dict[tuple[Kind[Any], Key], int] = {}
        self._unported = store.unported

    def now_ms(self) -> int:
        """Return the time of the first use: no earlier than what was read and held before it."""
        if self._read_ms is None:
            self._read_ms = to_ms(self._clock.now())
        return self._read_ms

    def _let_others_run(self) -> None:
        self._store.pause()
        self._tables = self._store.tables

    def load(self, kind: Kind[T], keys: Sequence[Key], *, hold: bool) -> Mapping[Key, T]:
        """Read items."""
        self._let_others_run()
        found = super().load(kind, keys, hold=hold)
        if hold:
            for key in keys:
                self.held.setdefault((kind, key), found.get(key))
                self._versions.setdefault((kind, key), self._store.versions[kind, key])
        return found

    def find_among(self, index: Index[T], partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
        """Return keys of members in order; of an index without a guard, perhaps old ones."""
        self._let_others_run()
        if index.guard is not None or index in BY_ID:
            return super().find_among(index, partitions, reach)
        store = self._store
        shown: list[tuple[Key, Key]] = []
        for partition, placed in self._placed(index, partitions, Reach()).items():
            place = (index.name, partition)
            earlier = store.earlier.get(place, [])
            store.earlier[place] = placed
            shown += earlier if store.happens(store.faults.stale) else placed
        keys = [key for sort, key in sorted(shown, reverse=reach.is_reverse) if reach.has(sort)]
        return [key for key in keys if not store.happens(store.faults.missing)][: reach.limit]

    def partitions(
        self, index: Index[T], prefix: Key, since: str = "", limit: int = EVERY
    ) -> Sequence[str]:
        """Return the last parts of partitions, some of which may be missing."""
        self._let_others_run()
        store = self._store
        found = super().partitions(index, prefix, since, limit)
        return [each for each in found if not store.happens(store.faults.missing)]

    def firsts(
        self, index: Index[T], partitions: Sequence[Key], *, is_reverse: bool
    ) -> Mapping[Key, Key]:
        """Return the key of the first or last member of each partition."""
        self._let_others_run()
        return super().firsts(index, partitions, is_reverse=is_reverse)

    def count_many(self, index: Index[T], partitions: Sequence[Key]) -> Mapping[Key, int]:
        """Count the members of partitions."""
        self._let_others_run()
        return super().count_many(index, partitions)

    def is_taken(self, index: Index[T], partition: Key) -> bool:
        """Return whether a partition has an item; the commit refuses a second one."""
        self._let_others_run()
        self._taken.clear()
        return super().is_taken(index, partition)

    def histories(
        self, log: Log[T], owners: Sequence[str], limit: int
    ) -> Mapping[str, Sequence[T]]:
        """Return the newest facts about each owner."""
        self._let_others_run()
        return super().histories(log, owners, limit)

    def walk(self, log: Log[T], after: Key, limit: int) -> Sequence[T]:
        """Return facts in the order of their numbers."""
        self._let_others_run()
        return super().walk(log, after, limit)

    def guard(self, name: str) -> None:
        """Remember the version of a guard."""
        self._let_others_run()
        super().guard(name)

    def changed(self) -> list[str]:
        """Return kinds of held items, and guards, that are not as they were read."""
        tables, store = self._store.tables, self._store
        found = [
            kind.name
            for (kind, key), item in self.held.items()
            if KEEPING[kind].read(tables, key) != item
            or store.versions[kind, key] != self._versions[kind, key]
        ]
        found += [
            f"guard {name}"
            for name, version in self.guards.items()
            if tables.guards.get(name, 0) != version
        ]
        return found if store.unported == self._unported else [*found, "anything"]

    def taken(self, tx: Tx) -> list[str]:
        """Return kinds of items that a transaction adds and that stand already, or their ids."""
        self._taken.clear()
        added = [
            (kind, key, change.after)
            for kind in tx.changed
            for key, change in tx.changes(kind).items()
            if change.before is None and change.after is not None
        ]
        found = [
            kind.name
            for kind, key, _ in added
            if (kind, key) not in self.held
            and KEEPING[kind].read(self._store.tables, key) is not None
        ]
        for index in BY_ID:
            for kind, _, item in added:
                place = index.place(item) if kind is index.kind else None
                if place is not None and super().is_taken(index, place.partition):
                    found.append(index.name)
        return found

    def commit(self, tx: Tx) -> None:
        """Write what a transaction changed."""
        self._tables = self._store.tables
        super().commit(tx)
