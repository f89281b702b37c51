"""SQL searches for the members of the engine's indexes.

Sweeps skip rows locked by other transactions. Results are hints, or exact under the guard of the
index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Row, select

from duly.engine import kinds
from duly.engine.transaction import Index, Key, Reach
from duly.model.jobs import JobState
from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import HandOver
from duly.stores.sql import walks
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.fast import lanes
from duly.stores.sql.fast.waiting import waiting_queues, waiting_since
from duly.stores.sql.rows import index_rows as rows
from duly.stores.sql.rows import ledger, markers
from duly.stores.sql.walks import ALWAYS, keys, schedule_keys

Find = Callable[[Db, Key, Reach], Sequence[Key]]


def _line(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    return keys(
        db,
        "SELECT id FROM {p}job_line WHERE queue = :queue AND run_at_ms <= {now} "
        "ORDER BY place, id LIMIT {limit :limit} {skip}",
        queue=partition[0],
        limit=reach.limit,
    )


def _waiting(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    first = waiting_since(db, [str(partition[0])])
    if not first:
        return []
    return keys(
        db,
        "SELECT id FROM {p}jobs WHERE waits = 1 AND queue = :queue AND run_at_ms >= :from_ms "
        "AND run_at_ms <= :upto ORDER BY run_at_ms, id LIMIT {limit :limit} {skip}",
        queue=partition[0],
        from_ms=first[str(partition[0])],
        upto=_first_part(reach.upto),
        limit=reach.limit,
    )


def _leases(db: Db, _: Key, reach: Reach) -> Sequence[Key]:
    """Return running jobs by lease end; drop the `job_marks` entries of expired leases."""
    if reach.upto is not None:
        rows = markers.take(db, {JobState.PROCESSING: 0}, "id", reach.limit)
        return [(row.id,) for row in rows]
    first_ms = markers.first_lease(db, 0)
    if first_ms is None:
        return []
    return keys(
        db,
        "SELECT j.id FROM (SELECT e.value AS id FROM {p}job_marks m {each_of_ids} "
        "WHERE m.state = 'processing' AND m.at_ms = :at_ms) AS k {job_of_k} "
        "WHERE j.state = 'processing' AND j.lease_until_ms = :at_ms ORDER BY j.id LIMIT :limit",
        at_ms=first_ms,
        limit=reach.limit,
    )


def _ended(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    """Return ended jobs by the time they ended, and drop their `job_marks` entries."""
    state = JobState(str(partition[0]))
    kept_ms = db.now_ms() - _first_part(reach.upto)
    return [(row.id,) for row in markers.take(db, {state: kept_ms}, "id", reach.limit)]


def _expired_keys(db: Db, _: Key, reach: Reach) -> Sequence[Key]:
    return keys(
        db,
        "SELECT workspace, action, idempotency_key FROM {p}idempotency "
        "WHERE expires_at_ms <= :upto ORDER BY expires_at_ms LIMIT :limit {skip}",
        upto=_first_part(reach.upto),
        limit=reach.limit,
    )


def _unbegun_among(db: Db, partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
    return keys(
        db,
        "SELECT id FROM {p}jobs WHERE schedule_id IN :ids AND state IN ('scheduled', 'queued') "
        "ORDER BY id LIMIT :limit",
        ids=_firsts(partitions),
        limit=reach.limit,
    )


def _unposted_among(db: Db, partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
    return keys(
        db,
        "SELECT schedule_id, nominal_ms FROM {p}occurrences WHERE schedule_id IN :ids "
        "AND state = 'dispatching' AND tries = 0 ORDER BY schedule_id, nominal_ms LIMIT :limit",
        ids=_firsts(partitions),
        limit=reach.limit,
    )


def _firsts(partitions: Sequence[Key]) -> list[str]:
    return sorted({str(partition[0]) for partition in partitions})


def _ended_runs(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    upto = reach.upto or (ALWAYS, ALWAYS)
    return keys(
        db,
        "SELECT schedule_id, nominal_ms FROM {p}occurrences WHERE schedule_id = :id "
        "AND state IN ('succeeded', 'failed') AND ended_at_ms >= :since "
        "AND (ended_at_ms < :upto OR (ended_at_ms = :upto AND nominal_ms <= :nominal)) "
        "ORDER BY ended_at_ms DESC, nominal_ms DESC LIMIT :limit",
        id=partition[0],
        since=reach.since[0],
        upto=upto[0],
        nominal=upto[1],
        limit=reach.limit,
    )


def _turns(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    return keys(
        db,
        "SELECT id FROM {p}jobs WHERE in_line = 1 AND schedule_id = :id "
        "ORDER BY run_at_ms, nominal_ms, id LIMIT :limit",
        id=partition[0],
        limit=reach.limit,
    )


def _ledger(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    order = "DESC" if reach.is_reverse else "ASC"
    return keys(
        db,
        "SELECT schedule_id, nominal_ms FROM {p}occurrences WHERE schedule_id = :id "
        f"AND nominal_ms >= :since AND nominal_ms <= :upto ORDER BY nominal_ms {order} "
        "LIMIT :limit",
        id=partition[0],
        since=reach.since[0] if reach.since else -ALWAYS,
        upto=_first_part(reach.upto),
        limit=reach.limit,
    )


def _ledger_among(db: Db, partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
    # Sorted here: PostgreSQL before 17 would read all of them to sort a few.
    found = keys(
        db,
        "SELECT schedule_id, nominal_ms FROM {p}occurrences WHERE schedule_id IN :ids "
        "AND nominal_ms <= :upto LIMIT :limit",
        ids=_firsts(partitions),
        upto=_first_part(reach.upto),
        limit=reach.limit,
    )
    return sorted(found)


def _claimed(db: Db, partition: Key, reach: Reach) -> Sequence[Key]:
    # A run-now occurrence is also searched by its schedule.
    own = "AND schedule_id = :schedule_id " if len(reach.since) > 1 else ""
    given = {"schedule_id": reach.since[1]} if own else {}
    return keys(
        db,
        f"SELECT schedule_id, nominal_ms FROM {{p}}occurrences WHERE claim_id = :claim_id {own}"
        "ORDER BY position, schedule_id, nominal_ms LIMIT :limit",
        claim_id=partition[0],
        limit=reach.limit,
        **given,
    )


def _silence(db: Db, _: Key, reach: Reach) -> Sequence[Key]:
    return keys(
        db,
        "SELECT id FROM {p}workers WHERE beat_at_ms <= :upto ORDER BY id LIMIT :limit {skip}",
        upto=_first_part(reach.upto),
        limit=reach.limit,
    )


def _document_ids(db: Db, partition: Key, _: Reach) -> Sequence[Key]:
    return keys(
        db,
        "SELECT collection, scope, name FROM {p}resources WHERE id = :id "
        "AND collection <> 'schedules'",
        id=partition[0],
    )


def _schedule_ids_among(db: Db, partitions: Sequence[Key], _: Reach) -> Sequence[Key]:
    found: list[Key] = []
    for ids in chunks(_firsts(partitions)):
        found += schedule_keys(
            db,
            "SELECT scope, name FROM {p}resources WHERE id IN :ids AND collection = 'schedules' "
            "ORDER BY id",
            ids=list(ids),
        )
    return found


def _row_ids_among(db: Db, partitions: Sequence[Key], _: Reach) -> Sequence[Key]:
    found: list[Key] = []
    for ids in chunks(_firsts(partitions)):
        found += keys(
            db,
            "SELECT flow, scope, name FROM {p}schedule_rules WHERE schedule_id IN :ids "
            "ORDER BY schedule_id",
            ids=list(ids),
        )
    return found


def lock_due(db: Db, partitions: Sequence[Key], reach: Reach) -> list[Row[Any]]:
    """Lock due rows and return them in order; skip rows locked by other transactions."""
    assert reach.upto is not None
    found = _lanes(db, partitions)
    if not found:
        return []
    numbers, _, _, _, versions = lanes.lock_due(db, found, int(reach.upto[0]), reach.limit)
    return rows.at_versions(db, numbers, versions)


def _lanes(db: Db, partitions: Sequence[Key]) -> list[lanes.Lane]:
    flows: dict[HandOver, list[str]] = {}
    for hand_over, flow in partitions:
        flows.setdefault(cast("HandOver", hand_over), []).append(str(flow))
    return [lane for each, named in flows.items() for lane in lanes.find(db, [each], named)]


def _due_among(db: Db, partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
    """Return the keys of the first rows with a next time."""
    rules = db.tables.schedule_rules
    statement = select(rules.c.row_id, rules.c.flow, rules.c.scope, rules.c.name)
    while True:
        places = lanes.first_places(db, _lanes(db, partitions), lanes.ALWAYS_MS, reach.limit)
        numbers = [place.row_id for place in places]
        if not numbers:
            return []
        found = db.connection.execute(statement.where(db.dialect.among(rules.c.row_id, numbers)))
        by_number: dict[int, Key] = {row[0]: tuple(row[1:]) for row in tuples(found)}
        # Others may have removed rows since the first statement; look again if none is left.
        if by_number:
            return [by_number[number] for number in numbers if number in by_number]


def _dispatches_among(db: Db, partitions: Sequence[Key], reach: Reach) -> Sequence[Key]:
    return keys(
        db,
        "SELECT schedule_id, nominal_ms FROM {p}occurrences WHERE state = 'dispatching' "
        "AND lease_until_ms <= :upto AND flow IN :flows "
        "ORDER BY lease_until_ms, schedule_id, nominal_ms LIMIT :limit {skip}",
        upto=_first_part(reach.upto),
        flows=sorted(str(flow) for (flow,) in partitions),
        limit=reach.limit,
    )


def _not_found_among(db: Db, partitions: Sequence[Key], _: Reach) -> Sequence[Key]:
    rules = db.tables.schedule_rules
    names = [ScheduleKey(*map(str, partition)) for partition in partitions]
    statement = select(rules.c.flow, rules.c.scope, rules.c.name)
    found: list[Key] = []
    for chunk in chunks(names):
        counted = statement.where(rows.under(db, chunk), rules.c.not_found > 0)
        found += tuples(db.connection.execute(counted))
    return found


def _dispatch_flows(db: Db, _: Key) -> Sequence[str]:
    found = db.run(
        "SELECT DISTINCT flow FROM {p}occurrences WHERE state = 'dispatching' "
        "AND lease_until_ms <= {now} ORDER BY flow"
    )
    return list(found.scalars())


def _due_flows(db: Db, prefix: Key) -> Sequence[str]:
    return [lane.flow for lane in lanes.find(db, [cast("HandOver", prefix[0])])]


def _waiting_queues(db: Db, _: Key) -> Sequence[str]:
    return waiting_queues(db)


def _count_documents(db: Db, partitions: Sequence[Key]) -> Mapping[Key, int]:
    return {
        (collection, scope): db.run(
            "SELECT count(*) FROM {p}resources WHERE collection = :collection AND scope = :scope",
            collection=collection,
            scope=scope,
        ).scalar_one()
        for collection, scope in partitions
    }


# The condition must match the partial index of counted schedules literally, or SQLite ignores it.
_COUNTED = (
    "SELECT scope, count(*) FROM {p}resources "
    "WHERE state IN ('active', 'paused', 'quarantined') AND scope IN :scopes "
)


def _count_schedules(db: Db, partitions: Sequence[Key]) -> Mapping[Key, int]:
    counts: dict[Key, int] = {}
    for scopes in chunks(_firsts(partitions)):
        found = db.run(f"{_COUNTED}GROUP BY scope", scopes=list(scopes))
        counts |= {(scope,): count for scope, count in tuples(found)}
    return counts


def _count_schedules_of_flows(db: Db, partitions: Sequence[Key]) -> Mapping[Key, int]:
    counts: dict[Key, int] = {}
    for flow in sorted({str(each) for _, each in partitions}):
        own = [partition for partition in partitions if partition[1] == flow]
        for scopes in chunks(_firsts(own)):
            found = db.run(
                f"{_COUNTED}AND name >= :first AND name < :behind GROUP BY scope",
                scopes=list(scopes),
                first=f"{flow}/",
                behind=f"{flow}0",  # "0" is what follows "/"
            )
            counts |= {(scope, flow): count for scope, count in tuples(found)}
    return counts


def _count_charged(db: Db, partitions: Sequence[Key]) -> Mapping[Key, int]:
    found = ledger.runs(db, _firsts(partitions))
    return {(schedule_id,): runs for schedule_id, (runs, _) in found.items()}


def _first_part(upto: Key | None) -> int:
    return ALWAYS if not upto else int(upto[0])


FINDS: dict[Index[Any], Find] = {
    kinds.LINE: _line,
    kinds.WAITING: _waiting,
    kinds.LEASES: _leases,
    kinds.ENDED: _ended,
    kinds.EXPIRED_KEYS: _expired_keys,
    kinds.WAITING_RUNS: _turns,
    kinds.LEDGER: _ledger,
    kinds.CLAIMED: _claimed,
    kinds.ENDED_RUNS: _ended_runs,
    kinds.SILENCE: _silence,
    kinds.DOCUMENT_IDS: _document_ids,
    **walks.WALKS,
}
FINDS_AMONG: dict[Index[Any], Callable[[Db, Sequence[Key], Reach], Sequence[Key]]] = {
    kinds.DUE: _due_among,
    kinds.DISPATCHES: _dispatches_among,
    kinds.NOT_FOUND: _not_found_among,
    kinds.UNBEGUN: _unbegun_among,
    kinds.UNPOSTED: _unposted_among,
    kinds.SCHEDULE_IDS: _schedule_ids_among,
    kinds.ROW_IDS: _row_ids_among,
    kinds.LEDGER: _ledger_among,
}
PARTITIONS: dict[Index[Any], Callable[[Db, Key], Sequence[str]]] = {
    kinds.WAITING: _waiting_queues,
    kinds.DUE: _due_flows,
    kinds.DISPATCHES: _dispatch_flows,
}
COUNTS: dict[Index[Any], Callable[[Db, Sequence[Key]], Mapping[Key, int]]] = {
    kinds.IN_SCOPE: _count_documents,
    kinds.COUNTED: _count_schedules,
    kinds.COUNTED_OF_FLOW: _count_schedules_of_flows,
    kinds.CHARGED: _count_charged,
}
