"""The memory store with optimistic concurrency: reads without a lock, validation at commit.

The commit of an engine use case fails if an item it held has changed, or was held by another
commit, since it was read; the use case is then retried from the start. Faults at the port are
injected at random. Verbs that are not engine use cases yet behave as in the memory store.
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
"""Attempts of one use case before it fails with TooManyConflicts."""
BY_ID: tuple[Index[Any], ...] = (kinds.SCHEDULE_IDS, kinds.DOCUMENT_IDS, kinds.ROW_IDS)
"""Indexes with at most one member per partition: every database answers these exactly."""


class AnswerLost(BackendUnavailable):
    """The transaction was committed, but its answer was lost."""


class TooManyConflicts(BackendUnavailable):
    """A use case lost to other transactions in every attempt."""


@dataclass(frozen=True, slots=True)
class PortFaults:
    """Probabilities of faults at the port."""

    refused: float = 0.0
    """A commit is refused although nothing has changed."""
    stale: float = 0.0
    """A `find` returns a stale result: what the partition held at the previous `find`."""
    missing: float = 0.0
    """A `find` omits a key, per key."""
    lost: float = 0.0
    """The answer to a commit that wrote something is lost."""


NO_FAULTS = PortFaults()


class OptimisticStore(MemoryStore):
    """A memory store whose use cases read without a lock and are validated at commit."""

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
        """Attempts lost to other transactions."""
        self.versions: Counter[tuple[Kind[Any], Key]] = Counter()
        """Committed transactions that held or wrote an item, by item."""
        self.unported = 0
        """Transactions of verbs that are not use cases yet; each conflicts with everything."""
        self.earlier: dict[tuple[str, Key], list[tuple[Key, Key]]] = {}
        """Members of each partition at its last `find`, for stale answers."""

    def pause(self, *, is_commit: bool = False) -> None:
        """Allow interleaving; called before each read and before the commit. Does nothing here."""

    def _transact(
        self, use_case: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a use case, and retry it while other transactions conflict with it."""
        ids = Ids(self._clock)
        for _ in range(MAX_TRIES):
            source = OptimisticSource(self, self._clock)
            tx = Tx(source, self._planning, ids)
            try:
                answer = use_case(tx, *args, **kwargs)
            except Exception:
                # Reads at different times may be inconsistent; an error without a conflict is real.
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
        raise TooManyConflicts(
            f"gave up after {MAX_TRIES} attempts: other transactions conflicted each time"
        )

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
        """Return names of kinds and guards that changed since the attempt read them."""
        return source.changed() if tx is None else [*source.changed(), *source.taken(tx)]

    def happens(self, share: float) -> bool:
        """Return True with probability `share`."""
        return share > 0 and self.chance.random() < share

    @property
    def tables(self) -> Tables:
        """The current tables; a failed verb replaces them with the earlier ones."""
        return self._tables


class OptimisticSource(MemorySource):
    """The source of one attempt; each read sees the tables as they are at that moment."""

    def __init__(self, store: OptimisticStore, clock: Clock) -> None:
        super().__init__(store.tables, 0)
        self._store = store
        self._clock = clock
        self._read_ms: int | None = None
        self.held: dict[tuple[Kind[Any], Key], Any] = {}
        """Items read with `hold`. None: the item did not exist."""
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
        """Return items by key, and remember held ones for the check at commit."""
        self._let_others_run()
        found = super().load(kind, keys, hold=hold)
        if hold:
            for key in keys:
                self.held.setdefault((kind, key), found.get(key))
                self._versions.setdefault((kind, key), self._store.versions[kind, key])
        return found

    def find_among(self, index: Index[T], partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
        """Return keys of members in order; possibly stale for an index without a guard."""
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
        """Return the last parts of partition keys; some may be missing."""
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
        """Return whether a partition has an item; the commit refuses a duplicate."""
        self._let_others_run()
        self._taken.clear()
        return super().is_taken(index, partition)

    def histories(
        self, log: Log[T], owners: Sequence[str], limit: int
    ) -> Mapping[str, Sequence[T]]:
        """Return the newest log entries of each owner."""
        self._let_others_run()
        return super().histories(log, owners, limit)

    def walk(self, log: Log[T], after: Key, limit: int) -> Sequence[T]:
        """Return log entries in the order of their numbers."""
        self._let_others_run()
        return super().walk(log, after, limit)

    def guard(self, name: str) -> None:
        """Remember the version of a guard."""
        self._let_others_run()
        super().guard(name)

    def changed(self) -> list[str]:
        """Return kinds of held items, and guards, that changed since they were read."""
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
        """Return kinds and id indexes in which an item added by a transaction already exists."""
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
        """Write the changes of a transaction."""
        self._tables = self._store.tables
        super().commit(tx)
