"""The memory store as a `Source` of the engine's port.

Items are stored in the dictionaries of `Tables`; one pair of functions per kind converts between
the two. An index is read by scanning all items of its kind with the functions in `engine.kinds`,
so it is correct by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from duly.engine import kinds
from duly.engine.transaction import EVERY, Index, Key, Kind, Log, Place, Reach, Tx
from duly.model.documents import Document
from duly.model.ledger import OccurrenceState
from duly.model.schedule_writes import ScheduleKey
from duly.rules.checks import SCHEDULES
from duly.stores.memory.logs import LOGS
from duly.stores.memory.tables import (
    LedgerEntry,
    Post,
    Stored,
    StoredKey,
    StoredToken,
    Tables,
    document_key,
    schedule_of,
)

T = TypeVar("T")


class Keeping(NamedTuple):
    """Access to the items of one kind in the tables."""

    keys: Callable[[Tables], Iterable[Key]]
    read: Callable[[Tables, Key], Any]
    """Return the item; None: it does not exist."""
    write: Callable[[Tables, Key, Any], None]
    """Store the item; None: remove it."""


class MemorySource:
    """One attempt of a transaction over the tables."""

    def __init__(self, tables: Tables, now_ms: int) -> None:
        self._tables = tables
        self._now_ms = now_ms
        self.guards: dict[str, int] = {}
        """Versions of guards when they were first named, by name."""
        self._taken: dict[Index[Any], set[Key]] = {}
        """Occupied partitions, cached by index."""

    def now_ms(self) -> int:
        """Return the time at which the transaction began."""
        return self._now_ms

    def load(self, kind: Kind[T], keys: Sequence[Key], *, hold: bool) -> Mapping[Key, T]:
        """Return the items that exist."""
        del hold  # the store's lock holds everything
        keeping = KEEPING[kind]
        found = {key: keeping.read(self._tables, key) for key in keys}
        return {key: item for key, item in found.items() if item is not None}

    def find(self, index: Index[T], partition: Key, reach: Reach) -> Sequence[Key]:
        """Return the keys of members in order."""
        return self.find_among(index, [partition], reach)

    def find_among(self, index: Index[T], partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
        """Return the keys of members of several partitions in one common order."""
        placed = [each for one in self._placed(index, partitions, reach).values() for each in one]
        return [key for _, key in sorted(placed, reverse=reach.is_reverse)][: reach.limit]

    def partitions(
        self, index: Index[T], prefix: Key, since: str = "", limit: int = EVERY
    ) -> Sequence[str]:
        """Return the last parts of non-empty partitions one part longer than `prefix`, in order."""
        found = {place.partition for place, _ in self._all_placed(index)}
        names = sorted(str(each[-1]) for each in found if each[:-1] == prefix)
        return [name for name in names if name >= since][:limit]

    def firsts(
        self, index: Index[T], partitions: Sequence[Key], *, is_reverse: bool
    ) -> Mapping[Key, Key]:
        """Return the key of the first or last member of each non-empty partition."""
        placed = self._placed(index, partitions, Reach())
        best = max if is_reverse else min
        return {each: best(found)[1] for each, found in placed.items() if found}

    def is_taken(self, index: Index[T], partition: Key) -> bool:
        """Return whether a partition is occupied."""
        if index not in self._taken:
            self._taken[index] = {place.partition for place, _ in self._all_placed(index)}
        return partition in self._taken[index]

    def count_many(self, index: Index[T], partitions: Sequence[Key]) -> Mapping[Key, int]:
        """Return the number of members by partition."""
        placed = self._placed(index, partitions, Reach())
        return {each: len(found) for each, found in placed.items()}

    def _placed(
        self, index: Index[T], partitions: Sequence[Key], reach: Reach
    ) -> dict[Key, list[tuple[Key, Key]]]:
        """Return sort keys and item keys of members by partition, in one scan of all items."""
        placed: dict[Key, list[tuple[Key, Key]]] = {each: [] for each in partitions}
        for place, key in self._all_placed(index):
            if place.partition in placed and reach.has(place.sort):
                placed[place.partition].append((place.sort, key))
        return placed

    def _all_placed(self, index: Index[T]) -> Iterator[tuple[Place, Key]]:
        keeping = KEEPING[index.kind]
        for key in keeping.keys(self._tables):
            item = keeping.read(self._tables, key)
            place = None if item is None else index.place(item)
            if place is not None:
                yield place, key

    def histories(
        self, log: Log[T], owners: Sequence[str], limit: int
    ) -> Mapping[str, Sequence[T]]:
        """Return the newest `limit` facts about each owner that has any, oldest first."""
        found: dict[str, list[T]] = {each: [] for each in owners}
        for fact in LOGS[log].read(self._tables):
            if log.owner(fact) in found:
                found[log.owner(fact)].append(fact)
        return {each: facts[-limit:] for each, facts in found.items() if facts}

    def walk(self, log: Log[T], after: Key, limit: int) -> Sequence[T]:
        """Return the first `limit` facts with numbers after `after`, in order."""
        facts = [fact for fact in LOGS[log].read(self._tables) if log.number(fact) > after]
        return sorted(facts, key=log.number)[:limit]

    def guard(self, name: str) -> None:
        """Record a guard; the store's lock already enforces it."""
        self.guards.setdefault(name, self._tables.guards.get(name, 0))

    def commit(self, tx: Tx) -> None:
        """Write the changes of a transaction to the tables."""
        for kind in tx.changed:
            for key, change in tx.changes(kind).items():
                KEEPING[kind].write(self._tables, key, change.after)
                if kind is kinds.JOB and change.before is None:
                    self._tables.job_events[_first(key)] = ()
                elif kind is kinds.JOB and change.after is None:
                    self._tables.job_events.pop(_first(key), None)
        for name in self.guards:
            self._tables.guards[name] = self._tables.guards.get(name, 0) + 1
        for log, keeping in LOGS.items():
            edits = {number: fact for (each, number), fact in tx.edited.items() if each is log}
            if edits:
                keeping.edit(self._tables, edits)
            for fact in tx.facts_of(log):
                keeping.append(self._tables, fact)
        for hint in sorted(tx.hints):
            self._tables.tell(hint)


def _plain(name: str, to_key: Callable[[Key], Any], from_key: Callable[[Any], Key]) -> Keeping:
    """Return the access to a dictionary that stores items unconverted."""

    def keys(tables: Tables) -> Iterable[Key]:
        return map(from_key, getattr(tables, name))

    def read(tables: Tables, key: Key) -> Any:
        return getattr(tables, name).get(to_key(key))

    def write(tables: Tables, key: Key, item: Any) -> None:
        if item is None:
            getattr(tables, name).pop(to_key(key), None)
        else:
            getattr(tables, name)[to_key(key)] = item

    return Keeping(keys, read, write)


def _first(key: Key) -> Any:
    return key[0]


def _single(name: Any) -> Key:
    return (name,)


def _marker(tables: Tables, key: Key) -> Any:
    job_id = tables.running.get(str(key[0]))
    return None if job_id is None else kinds.Marker(str(key[0]), job_id, 0)


def _write_marker(tables: Tables, key: Key, item: kinds.Marker | None) -> None:
    if item is None:
        tables.running.pop(str(key[0]), None)
    else:
        tables.running[item.schedule_id] = item.job_id


def _key(tables: Tables, key: Any) -> Any:
    stored = tables.keys.get(key)
    return None if stored is None else kinds.StoredKey._make((*key, *stored))


def _write_key(tables: Tables, key: Any, item: kinds.StoredKey | None) -> None:
    if item is None:
        tables.keys.pop(key, None)
    else:
        tables.keys[key] = StoredKey(item.job_id, item.digest, item.expires_at_ms)


def _token(tables: Tables, key: Any) -> Any:
    stored = tables.tokens.get(key)
    return None if stored is None else kinds.StoredToken._make((*key, *stored))


def _write_token(tables: Tables, key: Any, item: kinds.StoredToken | None) -> None:
    if item is None:
        tables.tokens.pop(key, None)
    else:
        tables.tokens[key] = StoredToken(*item[3:])


def _occurrence(tables: Tables, key: Any) -> Any:
    entry, post = tables.ledger.get(key), tables.posts.get(key)
    if entry is None:
        return None
    claimed = entry.claimed
    if post is None:
        return kinds.StoredOccurrence(
            entry.occurrence,
            claim_id=entry.claim_id,
            position=entry.position,
            missed=0 if claimed is None else claimed.missed,
            row_version=0 if claimed is None else claimed.version,
        )
    return kinds.StoredOccurrence(
        entry.occurrence,
        claim_id=post.claim_id,
        position=post.position,
        lease_until_ms=post.lease_until_ms,
        tries=post.tries,
        delivery=post.delivery,
    )


def _write_occurrence(tables: Tables, key: Any, item: kinds.StoredOccurrence | None) -> None:
    tables.posts.pop(key, None)
    if item is None:
        tables.ledger.pop(key, None)
        return
    own = item.occurrence
    is_claimed = item.claim_id is not None and item.row_version > 0
    claimed = kinds.claimed_of(item) if is_claimed else None
    claim_id = None if own.state is OccurrenceState.DISPATCHING else item.claim_id
    tables.ledger[key] = LedgerEntry(own, claimed, claim_id, item.position)
    if own.state is OccurrenceState.DISPATCHING:
        assert item.delivery is not None
        assert item.lease_until_ms is not None
        tables.posts[key] = Post(
            *(item.claim_id, item.position, item.tries or 0, item.delivery, item.lease_until_ms)
        )


def _row(tables: Tables, key: Any) -> Any:
    own = ScheduleKey(*key)
    row = tables.rows.get(own)
    if row is None:
        return None
    words = (tables.errors.get(own), tables.not_found.get(own, 0), tables.numbers.get(own, 0))
    return kinds.StoredRow(row, *words)


def _write_row(tables: Tables, key: Any, item: kinds.StoredRow | None) -> None:
    own = ScheduleKey(*key)
    if item is None:
        tables.drop_row(own)
        return
    tables.put_row(item.row)
    if item.error is not None:
        tables.errors[own] = item.error
    if item.not_found:
        tables.not_found[own] = item.not_found


def _schedule(tables: Tables, key: Any) -> Any:
    stored = tables.documents.get(document_key(ScheduleKey(*key)))
    if stored is None:
        return None
    return kinds.StoredSchedule(schedule_of(stored), stored.finished_at_ms)


def _write_schedule(tables: Tables, key: Any, item: kinds.StoredSchedule | None) -> None:
    place = document_key(ScheduleKey(*key))
    if item is None:
        tables.documents.pop(place, None)
        return
    own = item.schedule
    document = Document(
        *place,
        own.id,
        own.definition.to_json(),
        own.version,
        own.created_at_ms,
        own.updated_at_ms,
    )
    tables.documents[place] = Stored(
        document,
        state=own.state,
        error=own.error,
        runs_had=own.runs_had,
        finished_at_ms=item.finished_at_ms,
    )


def _schedule_keys(tables: Tables) -> Iterable[Key]:
    for collection, scope, name in tables.documents:
        if collection == SCHEDULES:
            flow, _, own = name.partition("/")
            yield flow, scope, own


def _document(tables: Tables, key: Any) -> Any:
    stored = tables.documents.get(key)
    if stored is None or key[0] == SCHEDULES:
        return None
    return kinds.StoredDocument(stored.document, stored.entries)


def _write_document(tables: Tables, key: Any, item: kinds.StoredDocument | None) -> None:
    if item is None:
        tables.documents.pop(key, None)
    else:
        tables.documents[key] = Stored(item.document, item.entries)


def _setting(tables: Tables, key: Key) -> Any:
    value = tables.settings.get(str(key[0]))
    return None if value is None else kinds.StoredSetting(str(key[0]), value)


def _write_setting(tables: Tables, key: Key, item: kinds.StoredSetting | None) -> None:
    assert item is not None, f"setting {key[0]} is never removed"
    tables.settings[item.name] = item.value


KEEPING: dict[Kind[Any], Keeping] = {
    kinds.LOCK: _plain("locks", _first, _single),
    kinds.SETTING: Keeping(lambda tables: map(_single, tables.settings), _setting, _write_setting),
    kinds.WORKER: _plain("workers", _first, _single),
    kinds.QUEUE: _plain("queues", _first, _single),
    kinds.IDEMPOTENCY_KEY: Keeping(lambda tables: tables.keys, _key, _write_key),
    kinds.TOKEN: Keeping(lambda tables: tables.tokens, _token, _write_token),
    kinds.JOB: _plain("jobs", _first, _single),
    kinds.MARKER: Keeping(lambda tables: map(_single, tables.running), _marker, _write_marker),
    kinds.OCCURRENCE: Keeping(lambda tables: tables.ledger, _occurrence, _write_occurrence),
    kinds.ROW: Keeping(lambda tables: map(kinds.key_parts, tables.rows), _row, _write_row),
    kinds.SCHEDULE: Keeping(_schedule_keys, _schedule, _write_schedule),
    kinds.DOCUMENT: Keeping(lambda tables: tables.documents, _document, _write_document),
}
