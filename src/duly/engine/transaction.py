"""The port to a database: a transaction that reads, holds and writes items.

Use cases are functions of a transaction (`Tx`). They read the items they need, ask the rules, and
put what changes. Nothing is written before the function returns, so a database may run it again
from the start when another transaction was faster. A database implements `Source` and writes
`Tx.changes`, `Tx.facts` and `Tx.edited`; it decides nothing.
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
"""How often a first member may be taken out by others before it is held."""
PAGE = 1_000
"""Members that one call of `find` or `members` returns, unless it says otherwise."""
EVERY = 2**31 - 1
"""As a limit: all members."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind(Generic[T]):
    """A kind of item: what identifies it, and when it is locked."""

    name: str
    rank: int
    """Transactions lock kinds in the order of their ranks, and items of a kind by their keys."""
    key: Callable[[T], Key]


class Place(NamedTuple):
    """Where an index has an item."""

    partition: Key
    sort: Key


@dataclass(frozen=True, slots=True, eq=False)
class Index(Generic[T]):
    """An order of some items of a kind; the same function places them in every database."""

    name: str
    kind: Kind[T]
    place: Callable[[T], Place | None]
    """None: the item is not in the index."""
    guard: str | None = None
    """The item that a transaction holds while `members` is exact; None: the index gives hints."""


@dataclass(frozen=True, slots=True, eq=False)
class Log(Generic[T]):
    """Facts of one sort: appended, then only removed by age or rid of a name."""

    name: str
    owner: Callable[[T], str]
    """The id of what a fact is about."""
    number: Callable[[T], Key]
    """Its place in the log, given when it is stored."""


class Change(NamedTuple):
    """An item before and after a transaction; None where there is none."""

    before: Any
    after: Any


class Reach(NamedTuple):
    """Which part of a partition is asked for."""

    since: Key = ()
    upto: Key | None = None
    """Compared with as many parts of the order as it has; None: to the end."""
    limit: int = PAGE
    is_reverse: bool = False
    """Begin at the end."""

    def has(self, sort: Key) -> bool:
        """Return whether a place of the partition is in this part."""
        if sort < self.since:
            return False
        return self.upto is None or sort[: len(self.upto)] <= self.upto


class Source(Protocol):
    """What a database gives to one attempt of a transaction."""

    def now_ms(self) -> int:
        """Return the time of the clock that decides; the same for the whole attempt.

        It is read at the first use. A use case that asks after it has held an item is not earlier
        than the transactions that changed that item.
        """

    def load(self, kind: Kind[T], keys: Sequence[Key], *, hold: bool) -> Mapping[Key, T]:
        """Read items; `hold`: of two transactions that hold one that exists, one waits or reruns.

        Also where neither writes it: what it guards may differ.
        """

    def find(self, index: Index[T], partition: Key, reach: Reach) -> Sequence[Key]:
        """Return the keys of members in order.

        A hint where the index has no guard: members may be missing, or gone since.
        """

    def find_among(self, index: Index[T], partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
        """Return the keys of members of several partitions, in one order; as find()."""

    def partitions(
        self, index: Index[T], prefix: Key, since: str = "", limit: int = EVERY
    ) -> Sequence[str]:
        """Return the last parts of the partitions that have one part more than a prefix: a hint."""

    def firsts(
        self, index: Index[T], partitions: Sequence[Key], *, is_reverse: bool
    ) -> Mapping[Key, Key]:
        """Return the key of the first or last member of each partition that has one; as find()."""

    def is_taken(self, index: Index[T], partition: Key) -> bool:
        """Return whether a partition that holds one item at most has it.

        Where the commit refuses a second one, the first attempt may say False and the next True.
        """

    def count_many(self, index: Index[T], partitions: Sequence[Key]) -> Mapping[Key, int]:
        """Return how many stored members partitions have; those without any may be left out."""

    def histories(
        self, log: Log[T], owners: Sequence[str], limit: int
    ) -> Mapping[str, Sequence[T]]:
        """Return the newest facts about each owner that has any, oldest first."""

    def walk(self, log: Log[T], after: Key, limit: int) -> Sequence[T]:
        """Return the first facts of a log whose numbers come after one."""

    def guard(self, name: str) -> None:
        """Let no other transaction that names this guard commit in between."""


@dataclass(slots=True)
class Tx:
    """One attempt of one transaction."""

    source: Source
    planning: PlanSettings = field(default_factory=PlanSettings)
    ids: Ids = field(default_factory=Ids)
    facts: list[tuple[Log[Any], Any]] = field(default_factory=list)
    edited: dict[tuple[Log[Any], Key], Any] = field(default_factory=dict)
    """Stored facts by number as they are to be; None: removed."""
    hints: set[str] = field(default_factory=set)
    locked: list[str] = field(default_factory=list)
    """Names of kinds in the order in which they were held: tests compare it with the ranks."""
    _seen: dict[tuple[Kind[Any], Key], Any] = field(default_factory=dict)
    _held: set[tuple[Kind[Any], Key]] = field(default_factory=set)
    _after: dict[tuple[Kind[Any], Key], Any] = field(default_factory=dict)
    _drawn: Counter[str] = field(default_factory=Counter)
    _touched: dict[Index[Any], dict[Key, dict[Key, None]]] = field(default_factory=dict)
    """By index and partition: the keys of written items that are there, or were before."""

    @property
    def now_ms(self) -> int:
        """Return the time of the clock that decides."""
        return self.source.now_ms()

    def get(self, kind: Kind[T], *key: str | int) -> T | None:
        """Read an item and hold it: no other transaction that holds it commits in between."""
        return self.get_many(kind, [key]).get(key)

    def get_many(self, kind: Kind[T], keys: Iterable[Key]) -> dict[Key, T]:
        """Read items and hold them, in the order of their keys; those that do not exist too."""
        return self._read(kind, list(dict.fromkeys(keys)), hold=True)

    def peek(self, kind: Kind[T], *key: str | int) -> T | None:
        """Read an item without holding it: one that another held item guards, or a hint."""
        return self.peek_many(kind, [key]).get(key)

    def peek_many(self, kind: Kind[T], keys: Iterable[Key]) -> dict[Key, T]:
        """Read items without holding them."""
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
        """Return keys of stored members in order. They are hints: decide only after `get`."""
        return list(self.source.find(index, partition, Reach(since, upto, limit, is_reverse)))

    def find_among(
        self,
        index: Index[T],
        partitions: Sequence[Key],
        *,
        upto: Key | None = None,
        limit: int = PAGE,
    ) -> list[Key]:
        """Return keys of stored members of several partitions, in one order: hints."""
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
        """Return the members of a guarded index in order, with what this transaction has put.

        Exact while the transaction holds the guard of the index. If the index has more than
        `limit`, what this transaction has put behind them is among the answer.
        """
        assert index.guard is not None, f"{index.name} gives hints; use find() and get()"
        reach = Reach(since, upto, limit, is_reverse)
        keys = self.source.find(index, partition, reach)
        return self._members(index, [partition], keys, reach, hold=hold)

    def all_members(
        self, index: Index[T], *partition: str | int, since: Key = (), upto: Key | None = None
    ) -> list[T]:
        """Return the members of a part of a guarded index, however many, and hold none of them."""
        assert index.guard is not None, f"{index.name} gives hints; use find() and get()"
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
        """Return what is a member of those found and of those that this transaction has put."""
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
        """Return all members of several partitions in one read, each in order; as members()."""
        assert index.guard is not None, f"{index.name} gives hints; use find_among() and get()"
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
        """Return the keys of written items that are in a partition, or were before."""
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
        """Return the first member of a guarded index, however long it is."""
        assert index.guard is not None, f"{index.name} gives hints; use peek_first()"
        return self._first(index, [partition], Reach(since, upto, 1, is_reverse), hold=hold)

    def peek_first(self, index: Index[T], *partition: str | int) -> T | None:
        """Return the first member of an index, with what this transaction has put: a hint."""
        return self._first(index, [partition], Reach(limit=1), hold=False)

    def peek_first_among(self, index: Index[T], partitions: Sequence[Key]) -> T | None:
        """Return the first member of several partitions, as peek_first()."""
        return self._first(index, partitions, Reach(limit=1), hold=False)

    def _first(
        self, index: Index[T], partitions: Sequence[Key], reach: Reach, *, hold: bool
    ) -> T | None:
        for _ in range(_LOOKS if partitions else 0):
            keys = self._find_some(index, partitions, reach)
            if any((index.kind, key) in self._after for key in keys):
                # What this transaction moved or took out still stands there: look behind it.
                changed = sum(len([*self._touched_in(index, each)]) for each in partitions)
                keys = self._find_some(index, partitions, reach._replace(limit=changed + 1))
            found = self._members(index, partitions, keys, reach, hold=hold)
            if found:
                return found[0]
            if all((index.kind, key) in self._after for key in keys):
                return None
            # Another transaction took it out while this one waited to hold it: look again.
        return None

    def _find_some(self, index: Index[T], partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
        if len(partitions) == 1:
            return self.source.find(index, partitions[0], reach)
        return self.source.find_among(index, partitions, reach)

    def peek_firsts(
        self, index: Index[T], partitions: Iterable[Key], *, is_reverse: bool = False
    ) -> dict[Key, T]:
        """Return the first or last stored member of each partition, without own writes."""
        among = list(dict.fromkeys(partitions))
        keys = self.source.firsts(index, among, is_reverse=is_reverse) if among else {}
        items = self.peek_many(index.kind, keys.values())
        return {each: items[key] for each, key in keys.items() if key in items}

    def partitions(
        self, index: Index[T], *prefix: str | int, since: str = "", limit: int = EVERY
    ) -> list[str]:
        """Return the last parts of partitions that have stored members, in order: a hint."""
        return list(self.source.partitions(index, prefix, since, limit))

    def is_taken(self, index: Index[T], *partition: str | int) -> bool:
        """Return whether a stored item has a unique value, such as an id."""
        return self.source.is_taken(index, partition)

    def count(self, index: Index[T], *partition: str | int) -> int:
        """Return how many members a partition has, with what this transaction has put."""
        return self.count_many(index, [partition])[partition]

    def count_many(self, index: Index[T], partitions: Iterable[Key]) -> dict[Key, int]:
        """Return how many members each of several partitions has, as count()."""
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
        """Write an item, new or not, whose key this transaction holds."""
        place = (kind, kind.key(item))
        assert place in self._held, f"{kind.name} {place[1]} was not read by get()"
        self._write(kind, place[1], item)

    def add(self, kind: Kind[T], item: T) -> None:
        """Write a new item, whose key no other transaction makes; it need not be read before."""
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
        """Return the newest facts about an owner, oldest first, with those appended here."""
        own = [fact for fact in self.facts_of(log) if log.owner(fact) == owner]
        stored = self.source.histories(log, [owner], limit).get(owner, ())
        return [*stored, *own][-limit:]

    def histories(self, log: Log[T], owners: Iterable[str], limit: int) -> dict[str, list[T]]:
        """Return the newest stored facts about each owner that has any, oldest first."""
        among = list(dict.fromkeys(owners))
        return {k: list(facts) for k, facts in self.source.histories(log, among, limit).items()}

    def walk(self, log: Log[T], after: Key, limit: int) -> list[T]:
        """Return the first stored facts whose numbers come after one."""
        return list(self.source.walk(log, after, limit))

    def append(self, log: Log[T], *facts: T) -> None:
        """Append facts."""
        self.facts += [(log, fact) for fact in facts]

    def drop(self, log: Log[T], facts: Iterable[T]) -> None:
        """Remove stored facts; those that are gone are no conflict."""
        self.edited |= {(log, log.number(fact)): None for fact in facts}

    def rewrite(self, log: Log[T], fact: T) -> None:
        """Store a fact in place of the one that has its number."""
        self.edited[log, log.number(fact)] = fact

    def guard(self, name: str) -> None:
        """Let no other transaction that names this guard commit between reading and commit."""
        self.source.guard(name)

    def tell(self, hint: str) -> None:
        """Pass a hint to listeners after the commit."""
        self.hints.add(hint)

    def new_ids(self, prefix: str, count: int) -> list[str]:
        """Return new ids, in order; the same when the function is run again."""
        drawn = self.ids.draw(prefix, self._drawn[prefix], count)
        self._drawn[prefix] += count
        return drawn

    def before(self, kind: Kind[T], *key: str | int) -> T | None:
        """Return an item as it was before this transaction, which has read it."""
        return cast("T | None", self._seen[kind, key])

    def changes(self, kind: Kind[T]) -> dict[Key, Change]:
        """Return what the transaction changes of a kind, by key."""
        return {
            key: Change(self._seen[each, key], item)
            for (each, key), item in self._after.items()
            if each is kind and self._seen[each, key] is not item
        }

    def facts_of(self, log: Log[T]) -> list[T]:
        """Return the facts that the transaction appends to a log."""
        return [cast("T", fact) for each, fact in self.facts if each is log]

    @property
    def changed(self) -> list[Kind[Any]]:
        """Return the kinds that the transaction changes, by rank."""
        kinds = {kind for (kind, _), item in self._after.items()}
        return sorted(kinds, key=lambda kind: kind.rank)


def _is_in(index: Index[T], partition: Key, item: T | None) -> bool:
    place = None if item is None else index.place(item)
    return place is not None and place.partition == partition
