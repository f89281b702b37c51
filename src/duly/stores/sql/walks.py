"""SQL searches for the indexes that upkeep walks over (`engine.walks`).

A walk reads each page through a key or an index, independent of the number of rows. Where a key
begins with one of few values (flows, collections, queues), the rows of an owner are searched value
by value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from duly.engine import kinds
from duly.engine.transaction import Index, Key, Reach
from duly.engine.upkeep import walks
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.rows.ledger import FREE_STATES, IS_RUN_NOW

ALWAYS = 2**62
"""Greater than every stored number."""


def keys(db: Db, statement: str, **values: Any) -> list[Key]:
    """Return the rows of a statement as keys."""
    return list(tuples(db.run(statement, **values)))


def schedule_keys(db: Db, statement: str, **values: Any) -> list[Key]:
    """Return the schedule keys for the documents (scope, name) that a statement finds."""
    return [
        (name.partition("/")[0], scope, name.partition("/")[2])
        for scope, name in tuples(db.run(statement, **values))
    ]


def _schedules(db: Db, _: Key, reach: Reach) -> Sequence[Key]:
    scope, name = reach.since or ("", "")
    return schedule_keys(
        db,
        "SELECT scope, name FROM {p}resources WHERE collection = 'schedules' "
        f"AND {db.following('scope', 'name')} ORDER BY scope, name LIMIT :limit",
        scope=scope,
        name=name,
        limit=reach.limit,
    )


def _schedules_of(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    return schedule_keys(
        db,
        "SELECT scope, name FROM {p}resources WHERE collection = 'schedules' "
        "AND scope = :scope ORDER BY name LIMIT :limit",
        scope=partition[0],
        limit=reach.limit,
    )


def _ended(which: str) -> Callable[[Db, Key, Reach], Sequence[Key]]:
    def find(db: Db, _: Key, reach: Reach) -> Sequence[Key]:
        at_ms, last_id = reach.since
        return schedule_keys(
            db,
            f"SELECT scope, name FROM {{p}}resources WHERE {which} "
            "AND finished_at_ms IS NOT NULL AND finished_at_ms <= :upto "
            f"AND {db.following('finished_at_ms', 'id')} "
            "ORDER BY finished_at_ms, id LIMIT :limit {skip}",
            upto=ALWAYS if reach.upto is None else reach.upto[0],
            finished_at_ms=at_ms,
            id=last_id,
            limit=reach.limit,
        )

    return find


def _rows(db: Db, _: Key, reach: Reach) -> Sequence[Key]:
    return keys(
        db,
        "SELECT flow, scope, name FROM {p}schedule_rules WHERE schedule_id >= :since "
        "ORDER BY schedule_id LIMIT :limit",
        since=reach.since[0] if reach.since else "",
        limit=reach.limit,
    )


def _jobs(db: Db, _: Key, reach: Reach) -> Sequence[Key]:
    return keys(
        db,
        "SELECT id FROM {p}jobs WHERE id >= :since ORDER BY id LIMIT :limit",
        since=reach.since[0] if reach.since else "",
        limit=reach.limit,
    )


def _occurrences(db: Db, _: Key, reach: Reach) -> Sequence[Key]:
    schedule_id, nominal_ms = reach.since or ("", 0)
    return keys(
        db,
        "SELECT schedule_id, nominal_ms FROM {p}occurrences "
        f"WHERE {db.following('schedule_id', 'nominal_ms')} "
        "ORDER BY schedule_id, nominal_ms LIMIT :limit",
        schedule_id=schedule_id,
        nominal_ms=nominal_ms,
        limit=reach.limit,
    )


def _keys_of(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    return keys(
        db,
        "SELECT workspace, action, idempotency_key FROM {p}idempotency "
        "WHERE workspace = :workspace ORDER BY action, idempotency_key LIMIT :limit",
        workspace=partition[0],
        limit=reach.limit,
    )


def _rows_of(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    return _value_by_value(
        db,
        _values(db, "schedule_rules", "flow"),
        "SELECT flow, scope, name FROM {p}schedule_rules "
        "WHERE flow = :value AND scope = :owner ORDER BY name LIMIT :limit",
        partition,
        reach,
    )


def _documents_of(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    collections = (each for each in _values(db, "resources", "collection") if each != "schedules")
    return _value_by_value(
        db,
        collections,
        "SELECT collection, scope, name FROM {p}resources "
        "WHERE collection = :value AND scope = :owner ORDER BY name LIMIT :limit",
        partition,
        reach,
    )


def _tokens_of(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    return _value_by_value(
        db,
        _values(db, "queue_tokens", "queue"),
        "SELECT queue, workspace, number FROM {p}queue_tokens "
        "WHERE queue = :value AND workspace = :owner ORDER BY number LIMIT :limit",
        partition,
        reach,
    )


def _value_by_value(
    db: Db, values: Iterator[str], statement: str, partition: Key, reach: Reach
) -> Sequence[Key]:
    found: list[Key] = []
    for value in values:
        left = reach.limit - len(found)
        found += keys(db, statement, value=value, owner=partition[0], limit=left)
        if len(found) >= reach.limit:
            break
    return found


def _values(db: Db, table: str, column: str, since: str = "") -> Iterator[str]:
    """Yield the few distinct first values of a key: one index probe for each."""
    found = db.run(f"SELECT MIN({column}) FROM {{p}}{table} WHERE {column} >= :since", since=since)
    value = found.scalar()
    while value is not None:
        yield value
        found = db.run(f"SELECT MIN({column}) FROM {{p}}{table} WHERE {column} > :last", last=value)
        value = found.scalar()


def ledger_schedules(db: Db, since: str, limit: int) -> Sequence[str]:
    """Return the ids of the schedules in the ledger: one index probe for each."""
    found = db.run(
        "WITH RECURSIVE found(id, place) AS ("
        "SELECT (SELECT schedule_id FROM {p}occurrences WHERE schedule_id >= :since "
        "ORDER BY schedule_id LIMIT 1), 1 "
        "UNION ALL SELECT (SELECT o.schedule_id FROM {p}occurrences o "
        "WHERE o.schedule_id > found.id ORDER BY o.schedule_id LIMIT 1), found.place + 1 "
        "FROM found WHERE found.id IS NOT NULL AND found.place < :limit) "
        "SELECT id FROM found WHERE id IS NOT NULL ORDER BY id",
        since=since,
        limit=limit,
    )
    return list(found.scalars())


def _first_times(condition: str) -> Callable[[Db, Sequence[str], bool], Mapping[Key, Key]]:
    """Return a search for the first or last times of schedules: one index probe for each."""

    def find(db: Db, ids: Sequence[str], is_reverse: bool) -> Mapping[Key, Key]:
        order = "DESC" if is_reverse else "ASC"
        # LIMIT 1 keeps this an index probe, whatever the planner estimates.
        found = db.run(
            "SELECT e.value, (SELECT o.nominal_ms FROM {p}occurrences o "
            f"WHERE o.schedule_id = e.value {condition} ORDER BY o.nominal_ms {order} LIMIT 1) "
            "FROM (SELECT CAST(:ids AS {text}) AS ids) AS m {each_of_ids}",
            ids=json.dumps(ids),
        )
        return {(own,): (own, at_ms) for own, at_ms in tuples(found) if at_ms is not None}

    return find


def _posted(db: Db, ids: Sequence[str], is_reverse: bool) -> Mapping[Key, Key]:
    found = db.run(
        f"SELECT schedule_id, {_first(is_reverse)}(nominal_ms) FROM {{p}}occurrences "
        "WHERE schedule_id IN :ids AND state = 'dispatching' GROUP BY schedule_id",
        ids=list(ids),
    )
    return {(own,): (own, at_ms) for own, at_ms in tuples(found)}


def _live_jobs(db: Db, ids: Sequence[str], is_reverse: bool) -> Mapping[Key, Key]:
    found = db.run(
        f"SELECT schedule_id, {_first(is_reverse)}(id) FROM {{p}}jobs WHERE schedule_id IN :ids "
        "AND state IN ('scheduled', 'queued', 'processing', 'retrying') GROUP BY schedule_id",
        ids=list(ids),
    )
    return {(own,): (job_id,) for own, job_id in tuples(found)}


def _first(is_reverse: bool) -> str:
    return "MAX" if is_reverse else "MIN"


def firsts(
    db: Db, index: Index[Any], partitions: Sequence[Key], *, is_reverse: bool
) -> Mapping[Key, Key]:
    """Return the key of the first or last member of each partition that has one."""
    found: dict[Key, Key] = {}
    for chunk in chunks(sorted({str(partition[0]) for partition in partitions})):
        found |= FIRSTS[index](db, list(chunk), is_reverse)
    return found


FIRSTS: dict[Index[Any], Callable[[Db, Sequence[str], bool], Mapping[Key, Key]]] = {
    kinds.LEDGER: _first_times(""),
    walks.TAKEN: _first_times(
        f"AND o.state NOT IN {FREE_STATES} AND COALESCE(o.claim_id, '') NOT {IS_RUN_NOW}"
    ),
    walks.POSTED: _posted,
    walks.LIVE_JOBS: _live_jobs,
}
WALKS: dict[Index[Any], Callable[[Db, Key, Reach], Sequence[Key]]] = {
    walks.SCHEDULES: _schedules,
    walks.SCHEDULES_OF: _schedules_of,
    walks.FINISHED: _ended("state = 'finished'"),
    walks.TEMPORARY: _ended("temporary IS NOT NULL"),
    walks.ROWS: _rows,
    walks.ROWS_OF: _rows_of,
    walks.DOCUMENTS_OF: _documents_of,
    walks.JOBS: _jobs,
    walks.KEYS_OF: _keys_of,
    walks.OCCURRENCES: _occurrences,
    walks.TOKENS_OF: _tokens_of,
}
