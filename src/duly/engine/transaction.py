"""The port between use cases and a database: a transaction that reads, holds and writes items.

Use cases are functions of a transaction (`Tx`). They read items, apply the rules, and put what
changes. Nothing is written before the function returns, so a database may run it again from the
start after a conflict. A database implements `Source` and writes `Tx.changes`, `Tx.facts` and
`Tx.edited`; it makes no decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from duly.engine.ids import Ids
from duly.model.plans import PlanSettings

T = TypeVar("T")
Key = tuple[str | int, ...]
_LOOKS = 10
"""Attempts to hold a first member while other transactions remove it."""
PAGE = 1_000
"""Default limit of `find`, `members` and `history`."""
EVERY = 2**31 - 1
"""Limit that stands for all members."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind(Generic[T]):
    """A kind of item: its key and its rank in the lock order."""

    name: str
    rank: int
    """Transactions lock kinds in order of rank, and items of a kind in order of key."""
    key: Callable[[T], Key]


class Place(NamedTuple):
    """Position of an item in an index."""

    partition: Key
    sort: Key


@dataclass(frozen=True, slots=True, eq=False)
class Index(Generic[T]):
    """A partitioned order of some items of a kind; `place` defines it for every database."""

    name: str
    kind: Kind[T]
    place: Callable[[T], Place | None]
    """None: the item is not in the index."""
    guard: str | None = None
    """The item that a transaction must hold for exact `members`; None: reads are only hints."""


@dataclass(frozen=True, slots=True, eq=False)
class Log(Generic[T]):
    """An append-only log of facts; upkeep may remove old ones and rewrite one to erase a name."""

    name: str
    owner: Callable[[T], str]
    """Return the id of the object that a fact is about."""
    number: Callable[[T], Key]
    """Return the fact's position in the log, assigned when it is stored."""


class Change(NamedTuple):
    """An item before and after a transaction; None: it does not exist."""

    before: Any
    after: Any


class Reach(NamedTuple):
    """A requested part of a partition."""

    since: Key = ()
    upto: Key | None = None
    """Upper bound, inclusive; compared with as many parts of the sort key as it has; None: none."""
    limit: int = PAGE
    is_reverse: bool = False
    """Return the last members first."""

    def has(self, sort: Key) -> bool:
        """Return whether a sort key is in this part."""
        if sort < self.since:
            return False
        return self.upto is None or sort[: len(self.upto)] <= self.upto


class Source(Protocol):
    """Reads of a database for one attempt of a transaction."""

    def now_ms(self) -> int:
        """Return the time of the clock that decides; the same for the whole attempt.

        It is read at the first use. A use case that asks after it has held an item is not earlier
        than the transactions that changed that item.
        """

    def load(self, kind: Kind[T], keys: Sequence[Key], *, hold: bool) -> Mapping[Key, T]:
        """Return the items that exist.

        `hold`: of two transactions that hold the same existing item, one waits or is run again,
        even if neither writes the item: what it guards may differ.
        """

    def find(self, index: Index[T], partition: Key, reach: Reach) -> Sequence[Key]:
        """Return the keys of members in order.

        Without a guard this is a hint: members may be missing, or already removed.
        """

    def find_among(self, index: Index[T], partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
        """Return the keys of members of several partitions in one common order, as find()."""

    def partitions(
        self, index: Index[T], prefix: Key, since: str = "", limit: int = EVERY
    ) -> Sequence[str]:
        """Return the last parts of non-empty partitions one part longer than `prefix`: a hint."""

    def firsts(
        self, index: Index[T], partitions: Sequence[Key], *, is_reverse: bool
    ) -> Mapping[Key, Key]:
        """Return the key of the first or last member of each non-empty partition, as find()."""

    def is_taken(self, index: Index[T], partition: Key) -> bool:
        """Return whether a partition of at most one item is occupied.

        If the commit enforces this, the first attempt may return False and the next one True.
        """

    def count_many(self, index: Index[T], partitions: Sequence[Key]) -> Mapping[Key, int]:
        """Return the number of stored members by partition; empty partitions may be left out."""

    def histories(
        self, log: Log[T], owners: Sequence[str], limit: int
    ) -> Mapping[str, Sequence[T]]:
        """Return the newest `limit` facts about each owner that has any, oldest first."""

    def walk(self, log: Log[T], after: Key, limit: int) -> Sequence[T]:
        """Return the first `limit` facts of a log with numbers after `after`."""

    def guard(self, name: str) -> None:
        """Let no other transaction with this guard commit between this call and the commit."""


@dataclass(slots=True)
class Tx:
    """One attempt of one transaction."""

    source: Source
    planning: PlanSettings = field(default_factory=PlanSettings)
    ids: Ids = field(default_factory=Ids)
    facts: list[tuple[Log[Any], Any]] = field(default_factory=list)
    edited: dict[tuple[Log[Any], Key], Any] = field(default_factory=dict)
    """New values of stored facts, by log and number; None: to be removed."""
    hints: set[str] = field(default_factory=set)
    locked: list[str] = field(default_factory=list)
    """Names of kinds in the order in which they were held; tests compare it with the ranks."""
    _seen: dict[tuple[Kind[Any], Key], Any] = field(default_factory=dict)
    _held: set[tuple[Kind[Any], Key]] = field(default_factory=set)
    _after: dict[tuple[Kind[Any], Key], Any] = field(default_factory=dict)
    _drawn: Counter[str] = field(default_factory=Counter)
    _touched: dict[Index[Any], dict[Key, dict[Key, None]]] = field(default_factory=dict)
    """Keys of written items that are or were in a partition, by index and partition."""

    @property
    def now_ms(self) -> int:
        """Return the current time of the store's clock; the same for the whole attempt."""
        return self.source.now_ms()

    def get(self, kind: Kind[T], *key: str | int) -> T | None:
        """Return an item and hold it: no other transaction that holds it commits in between."""
        return self.get_many(kind, [key]).get(key)

    def get_many(self, kind: Kind[T], keys: Iterable[Key]) -> dict[Key, T]:
        """Return existing items, and hold all keys in key order, even those without an item."""
        return self._read(kind, list(dict.fromkeys(keys)), hold=True)

    def peek(self, kind: Kind[T], *key: str | int) -> T | None:
        """Return an item without holding it: it is guarded by a held item, or only a hint."""
        return self.peek_many(kind, [key]).get(key)

    def peek_many(self, kind: Kind[T], keys: Iterable[Key]) -> dict[Key, T]:
        """Return existing items without holding them."""
        return self._read(kind, list(dict.fromkeys(keys)), hold=False)

    def _read(self, kind: Kind[T], keys: Sequence[Key], *, hold: bool) -> dict[Key, T]:
        known = self._held if hold else self._seen
        wanted = sorted(key for key in keys if (kind, key) not in known)
        if wanted:
            found = self.source.load(kind, wanted, hold=hold)
            if hold:
                self.locked.append(kind.name)
                self._held.update((kind, key) for key in wanted)
            for key in wanted:
                self._seen[kind, key] = found.get(key)
        items: dict[Key, T] = {}
        for key in keys:
            place = (kind, key)
            item = self._after[place] if place in self._after else self._seen[place]
            if item is not None:
                items[key] = item
        return items

    def find(
        self,
        index: Index[T],
        *partition: str | int,
        since: Key = (),
        upto: Key | None = None,
        limit: int = PAGE,
        is_reverse: bool = False,
    ) -> list[Key]:
        """Return keys of stored members in order. They are hints: `get` before deciding."""
        return list(self.source.find(index, partition, Reach(since, upto, limit, is_reverse)))

    def find_among(
        self,
        index: Index[T],
        partitions: Sequence[Key],
        *,
        upto: Key | None = None,
        limit: int = PAGE,
    ) -> list[Key]:
        """Return keys of stored members of several partitions in one common order, as hints."""
        if not partitions:
            return []
        return list(self.source.find_among(index, partitions, Reach((), upto, limit)))

    def members(
        self,
        index: Index[T],
        *partition: str | int,
        since: Key = (),
        upto: Key | None = None,
        limit: int = PAGE,
        is_reverse: bool = False,
        hold: bool = True,
    ) -> list[T]:
        """Return the members of a guarded index in order, including own writes.

        Exact while the transaction holds the guard of the index. If there are more than `limit`
        stored members, own writes that sort after them are still included.
        """
        assert index.guard is not None, f"{index.name} has no guard; use find() and get()"
        reach = Reach(since, upto, limit, is_reverse)
        keys = self.source.find(index, partition, reach)
        return self._members(index, [partition], keys, reach, hold=hold)

    def all_members(
        self, index: Index[T], *partition: str | int, since: Key = (), upto: Key | None = None
    ) -> list[T]:
        """Return all members of a part of a guarded index, read in pages, without holding them."""
        assert index.guard is not None, f"{index.name} has no guard; use find() and get()"
        reach = Reach(since, upto)
        keys: dict[Key, None] = {}
        start = reach
        while True:
            page = self.source.find(index, partition, start)
            self._read(index.kind, page, hold=False)
            keys |= dict.fromkeys(page)
            last = index.place(self._seen[index.kind, page[-1]]) if page else None
            if len(page) < start.limit or last is None or last.sort == start.since:
                return self._members(index, [partition], list(keys), reach, hold=False)
            start = start._replace(since=last.sort)

    def _members(
        self,
        index: Index[T],
        partitions: Sequence[Key],
        keys: Sequence[Key],
        reach: Reach,
        *,
        hold: bool,
    ) -> list[T]:
        """Return the items of `keys` and own writes that are members of the part, in order."""
        among = set(partitions)
        own = (key for each in among for key in self._touched_in(index, each))
        items = self._read(index.kind, list(dict.fromkeys([*keys, *own])), hold=hold)
        placed: list[tuple[Key, T]] = []
        for item in items.values():
            place = index.place(item)
            if place is not None and place.partition in among and reach.has(place.sort):
                placed.append((place.sort, item))
        placed.sort(key=lambda each: each[0], reverse=reach.is_reverse)
        return [item for _, item in placed]

    def members_many(
        self, index: Index[T], partitions: Iterable[Key], *, hold: bool = True
    ) -> dict[Key, list[T]]:
        """Return all members of several partitions in one read, by partition; as members()."""
        assert index.guard is not None, f"{index.name} has no guard; use find_among() and get()"
        among = list(dict.fromkeys(partitions))
        found: dict[Key, list[T]] = {each: [] for each in among}
        every = Reach(limit=EVERY)
        keys = self.source.find_among(index, among, every) if among else []
        for item in self._members(index, among, keys, every, hold=hold):
            place = index.place(item)
            assert place is not None
            found[place.partition].append(item)
        return found

    def _touched_in(self, index: Index[T], partition: Key) -> Iterable[Key]:
        """Return the keys of written items that are or were in a partition."""
        if index not in self._touched:
            self._touched[index] = {}
            for kind, key in self._after:
                if kind is index.kind:
                    self._touch(index, key)
        return self._touched[index].get(partition, ())

    def _touch(self, index: Index[Any], key: Key) -> None:
        for item in (self._seen[index.kind, key], self._after[index.kind, key]):
            place = None if item is None else index.place(item)
            if place is not None:
                self._touched[index].setdefault(place.partition, {})[key] = None

    def first(
        self,
        index: Index[T],
        *partition: str | int,
        since: Key = (),
        upto: Key | None = None,
        is_reverse: bool = False,
        hold: bool = True,
    ) -> T | None:
        """Return the first member of a partition of a guarded index; None: it is empty."""
        assert index.guard is not None, f"{index.name} has no guard; use peek_first()"
        return self._first(index, [partition], Reach(since, upto, 1, is_reverse), hold=hold)

    def peek_first(self, index: Index[T], *partition: str | int) -> T | None:
        """Return the first member of a partition, including own writes: a hint."""
        return self._first(index, [partition], Reach(limit=1), hold=False)

    def peek_first_among(self, index: Index[T], partitions: Sequence[Key]) -> T | None:
        """Return the first member of several partitions in their common order, as peek_first()."""
        return self._first(index, partitions, Reach(limit=1), hold=False)

    def _first(
        self, index: Index[T], partitions: Sequence[Key], reach: Reach, *, hold: bool
    ) -> T | None:
        for _ in range(_LOOKS if partitions else 0):
            keys = self._find_some(index, partitions, reach)
            if any((index.kind, key) in self._after for key in keys):
                # The source still returns what this transaction moved or removed: read past it.
                changed = sum(len([*self._touched_in(index, each)]) for each in partitions)
                keys = self._find_some(index, partitions, reach._replace(limit=changed + 1))
            found = self._members(index, partitions, keys, reach, hold=hold)
            if found:
                return found[0]
            if all((index.kind, key) in self._after for key in keys):
                return None
            # Another transaction removed it while this one waited to hold it: retry.
        return None

    def _find_some(self, index: Index[T], partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
        if len(partitions) == 1:
            return self.source.find(index, partitions[0], reach)
        return self.source.find_among(index, partitions, reach)

    def peek_firsts(
        self, index: Index[T], partitions: Iterable[Key], *, is_reverse: bool = False
    ) -> dict[Key, T]:
        """Return the first or last stored member of each partition; own inserts are not found."""
        among = list(dict.fromkeys(partitions))
        keys = self.source.firsts(index, among, is_reverse=is_reverse) if among else {}
        items = self.peek_many(index.kind, keys.values())
        return {each: items[key] for each, key in keys.items() if key in items}

    def partitions(
        self, index: Index[T], *prefix: str | int, since: str = "", limit: int = EVERY
    ) -> list[str]:
        """Return the last parts of partitions with stored members, in order: a hint."""
        return list(self.source.partitions(index, prefix, since, limit))

    def is_taken(self, index: Index[T], *partition: str | int) -> bool:
        """Return whether a stored item has a unique value, such as an id."""
        return self.source.is_taken(index, partition)

    def count(self, index: Index[T], *partition: str | int) -> int:
        """Return the number of members of a partition, including own writes."""
        return self.count_many(index, [partition])[partition]

    def count_many(self, index: Index[T], partitions: Iterable[Key]) -> dict[Key, int]:
        """Return the number of members by partition, as count()."""
        among = list(dict.fromkeys(partitions))
        stored = self.source.count_many(index, among) if among else {}
        counts: dict[Key, int] = {}
        for each in among:
            counts[each] = stored.get(each, 0)
            for key in self._touched_in(index, each):
                place = (index.kind, key)
                counts[each] += _is_in(index, each, self._after[place])
                counts[each] -= _is_in(index, each, self._seen[place])
        return counts

    def put(self, kind: Kind[T], item: T) -> None:
        """Write an item, new or existing, whose key this transaction holds."""
        place = (kind, kind.key(item))
        assert place in self._held, f"{kind.name} {place[1]} was not read by get()"
        self._write(kind, place[1], item)

    def add(self, kind: Kind[T], item: T) -> None:
        """Write a new item under a key that no other transaction creates; no read is needed."""
        place = (kind, kind.key(item))
        self._seen.setdefault(place, None)
        self._held.add(place)
        self._write(kind, place[1], item)

    def delete(self, kind: Kind[T], *key: str | int) -> None:
        """Remove an item that this transaction holds."""
        assert (kind, key) in self._held, f"{kind.name} {key} was not read by get()"
        self._write(kind, key, None)

    def _write(self, kind: Kind[Any], key: Key, item: Any) -> None:
        self._after[kind, key] = item
        for index in self._touched:
            if index.kind is kind:
                self._touch(index, key)

    def history(self, log: Log[T], owner: str, limit: int = PAGE) -> list[T]:
        """Return the newest facts about an owner, oldest first, including own appends."""
        own = [fact for fact in self.facts_of(log) if log.owner(fact) == owner]
        stored = self.source.histories(log, [owner], limit).get(owner, ())
        return [*stored, *own][-limit:]

    def histories(self, log: Log[T], owners: Iterable[str], limit: int) -> dict[str, list[T]]:
        """Return the newest stored facts about each owner that has any, oldest first."""
        among = list(dict.fromkeys(owners))
        return {k: list(facts) for k, facts in self.source.histories(log, among, limit).items()}

    def walk(self, log: Log[T], after: Key, limit: int) -> list[T]:
        """Return the first `limit` stored facts with numbers after `after`."""
        return list(self.source.walk(log, after, limit))

    def append(self, log: Log[T], *facts: T) -> None:
        """Append facts to a log."""
        self.facts += [(log, fact) for fact in facts]

    def drop(self, log: Log[T], facts: Iterable[T]) -> None:
        """Remove stored facts; facts already removed are no conflict."""
        self.edited |= {(log, log.number(fact)): None for fact in facts}

    def rewrite(self, log: Log[T], fact: T) -> None:
        """Replace the stored fact that has the same number."""
        self.edited[log, log.number(fact)] = fact

    def guard(self, name: str) -> None:
        """Let no other transaction with this guard commit between this call and the commit."""
        self.source.guard(name)

    def tell(self, hint: str) -> None:
        """Send a hint to listeners after the commit."""
        self.hints.add(hint)

    def new_ids(self, prefix: str, count: int) -> list[str]:
        """Return new ids in ascending order; the same ones when the function is run again."""
        drawn = self.ids.draw(prefix, self._drawn[prefix], count)
        self._drawn[prefix] += count
        return drawn

    def before(self, kind: Kind[T], *key: str | int) -> T | None:
        """Return an item as it was before this transaction, which must have read it."""
        return cast("T | None", self._seen[kind, key])

    def changes(self, kind: Kind[T]) -> dict[Key, Change]:
        """Return the changed items of a kind, by key."""
        return {
            key: Change(self._seen[each, key], item)
            for (each, key), item in self._after.items()
            if each is kind and self._seen[each, key] is not item
        }

    def facts_of(self, log: Log[T]) -> list[T]:
        """Return the facts that this transaction appends to a log."""
        return [cast("T", fact) for each, fact in self.facts if each is log]

    @property
    def changed(self) -> list[Kind[Any]]:
        """Return the kinds that this transaction writes, by rank."""
        kinds = {kind for (kind, _), item in self._after.items()}
        return sorted(kinds, key=lambda kind: kind.rank)


def _is_in(index: Index[T], partition: Key, item: T | None) -> bool:
    place = None if item is None else index.place(item)
    return place is not None and place.partition == partition
