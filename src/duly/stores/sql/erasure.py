"""Everything that an owner left, removed in bounded steps.

One kind after another. Where a key begins with the owner the rows are found by it; cold tables,
which have no index on owners, are walked by their keys, so many rows a step. What is removed does
not come again, so a step may be repeated, and two may run at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import delete, select, tuple_, update

from duly.engine.draws import Ids
from duly.engine.jobs import cancel_job
from duly.engine.schedules import remove_schedule
from duly.jobs import FINAL, JobId, JobState
from duly.rules.checks import SCHEDULES, check_limit
from duly.store import ScheduleKey
from duly.stores.sql import job_marks, rows
from duly.stores.sql.audit_upkeep import forget_in_audit
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db
from duly.stores.sql.ledger_upkeep import existing
from duly.stores.sql.source import transact
from duly.upkeep_store import ERASED, MAX_ERASE, Erased, Owner, check_cursor

_SCHEDULES = 100
"""Schedules in one step: each is deleted by a handful of statements."""
_WITHDRAWN = "its owner is erased"

Place = list[Any]
"""Where a kind goes on: the last key that was looked at, or nothing."""
Done = tuple[Erased, Place | None]
"""What was removed, and where this kind goes on; None: there is no more of it."""


def erase(db: Db, scope: str, cursor: str | None, limit: int) -> Erased:
    """One step."""
    owner = Owner.of(scope)
    check_limit(limit, MAX_ERASE)
    kind, place = check_cursor(cursor, tuple(_KINDS))
    erased, after = _KINDS[kind](db, owner, json.loads(place or "[]"), limit)
    if after is not None:
        return erased + Erased(cursor=f"{kind}:{json.dumps(after)}")
    kinds = list(_KINDS)
    following = kinds[kinds.index(kind) + 1 :]
    return erased + Erased(cursor=f"{following[0]}:[]" if following else None)


def _audit(db: Db, owner: Owner, after: Place, limit: int) -> Done:
    """First, while it can be seen whose the things are that entries are about."""
    named, last = forget_in_audit(db, owner, after[0] if after else 0, limit)
    return Erased(audit=named), None if last is None else [last]


def _schedules(db: Db, owner: Owner, _: Place, limit: int) -> Done:
    table = db.tables.resources
    found = db.connection.execute(
        select(table.c.id, table.c.name)
        .where(table.c.collection == SCHEDULES, table.c.scope == owner.scope)
        .order_by(table.c.name)
        .limit(min(limit, _SCHEDULES))
    ).all()
    ids = [row.id for row in found]
    events = _forget(db, ids, limit)
    if events == limit or not found:
        return Erased(events=events), [] if found else None
    for row in found:
        flow, _, name = row.name.partition("/")
        key = ScheduleKey(flow, owner.scope, name)
        transact(db, Ids(), remove_schedule, key, "system")
    _forget(db, ids, MAX_ERASE)  # the facts of these deletions
    return Erased(schedules=len(found), events=events), []


def _index_rows(db: Db, owner: Owner, after: Place, limit: int) -> Done:
    """Rows of applications that keep their definitions elsewhere, a flow at a time."""
    rules = db.tables.schedule_rules
    flow = _next(db, "schedule_rules", "flow", after)
    if flow is None:
        return Erased(), None
    statement = (
        rows.whole(db)
        .with_only_columns(rules.c.row_id)
        .where(rules.c.flow == flow, rules.c.scope == owner.scope)
        .order_by(rules.c.row_id)
        .limit(limit)
        .with_for_update(of=db.tables.schedule_index)
    )
    numbers = db.connection.execute(statement).scalars().all()
    rows.remove(db, numbers)
    return Erased(schedules=len(numbers)), after if len(numbers) == limit else [flow]


def _documents(db: Db, owner: Owner, after: Place, limit: int) -> Done:
    """A collection at a time."""
    table, entries = db.tables.resources, db.tables.resource_index
    collection = _next(db, "resources", "collection", after)
    if collection is None:
        return Erased(), None
    if collection == SCHEDULES:
        return Erased(), [collection]
    found = (
        select(table.c.name)
        .where(table.c.collection == collection, table.c.scope == owner.scope)
        .order_by(table.c.name)
        .limit(limit)
        .with_for_update()
    )
    names = db.connection.execute(found).scalars().all()
    for chunk in chunks(names):
        for each in (table, entries):
            db.connection.execute(
                delete(each).where(
                    each.c.collection == collection,
                    each.c.scope == owner.scope,
                    each.c.name.in_(chunk),
                )
            )
    return Erased(documents=len(names)), after if len(names) == limit else [collection]


def _jobs(db: Db, owner: Owner, after: Place, limit: int) -> Done:
    """What waits is cancelled first, so that ledger and running marker follow as ever."""
    found = db.run(
        "SELECT id, scope, workspace, action, idempotency_key, state, schedule_id FROM {p}jobs "
        "WHERE id > :after ORDER BY id LIMIT :limit",
        after=after[0] if after else "",
        limit=limit,
    ).all()
    own = [row for row in found if owner.has_job(row.scope, row.workspace)]
    events = _forget(db, {row.schedule_id for row in own if row.scope == owner.scope}, limit)
    if events == limit:
        return Erased(events=events), after
    running = 0
    ended: list[Any] = []
    for row in own:
        if row.state not in FINAL:
            job = transact(db, Ids(), cancel_job, JobId(row.id), reason=_WITHDRAWN)
            if job.state is JobState.PROCESSING:
                running += 1
                continue
        ended.append(row)
    erased = Erased(events=events, running=running)
    for chunk in chunks(ended):
        erased += _remove_jobs(db, chunk)
    return erased, [found[-1].id] if len(found) == limit else None


def _remove_jobs(db: Db, jobs: Sequence[Any]) -> Erased:
    """Remove ended jobs, their events and the keys that stand for them."""
    ended = db.run(
        "SELECT state, finished_at_ms AS at_ms, id FROM {p}jobs WHERE id IN :ids "
        "AND finished_at_ms IS NOT NULL",
        ids=[row.id for row in jobs],
    )
    job_marks.strike(db, map(job_marks.Ended._make, ended))
    # One that an operator revived meanwhile is left to the next time.
    gone = db.run(
        "DELETE FROM {p}jobs WHERE id IN :ids AND finished_at_ms IS NOT NULL RETURNING id",
        ids=[row.id for row in jobs],
    )
    ids = list(gone.scalars())
    db.run("DELETE FROM {p}job_events WHERE job_id IN :ids", ids=ids)
    keys = [
        (row.workspace, row.action, row.idempotency_key)
        for row in jobs
        if row.idempotency_key is not None
    ]
    if not keys:
        return Erased(jobs=len(ids))
    table = db.tables.idempotency
    own = tuple_(table.c.workspace, table.c.action, table.c.idempotency_key).in_(keys)
    statement = delete(table).where(own, table.c.job_id.in_(ids))
    return Erased(jobs=len(ids), keys=db.connection.execute(statement).rowcount)


def _keys(db: Db, owner: Owner, _: Place, limit: int) -> Done:
    gone = db.run(
        "DELETE FROM {p}idempotency WHERE (workspace, action, idempotency_key) IN ("
        "WITH own AS MATERIALIZED (SELECT workspace, action, idempotency_key FROM {p}idempotency "
        "WHERE workspace = :workspace ORDER BY action, idempotency_key LIMIT :limit {lock}) "
        "SELECT * FROM own)",
        workspace=owner.workspace,
        limit=limit,
    ).rowcount
    return Erased(keys=gone), [] if gone == limit else None


def _occurrences(db: Db, owner: Owner, after: Place, limit: int) -> Done:
    found = db.run(
        "SELECT schedule_id, nominal_ms, scope FROM {p}occurrences "
        "WHERE (schedule_id, nominal_ms) > (:schedule_id, :nominal_ms) "
        "ORDER BY schedule_id, nominal_ms LIMIT :limit",
        schedule_id=after[0] if after else "",
        nominal_ms=after[1] if after else 0,
        limit=limit,
    ).all()
    # In the order of the key, the rows of one schedule stand together.
    spans: dict[str, tuple[int, int]] = {}
    for row in found:
        if row.scope == owner.scope:
            first_ms, _ = spans.get(row.schedule_id, (row.nominal_ms, 0))
            spans[row.schedule_id] = first_ms, row.nominal_ms
    events = _forget(db, spans, limit)
    if events == limit:
        return Erased(events=events), after
    gone = sum(
        db.run(
            "DELETE FROM {p}occurrences WHERE schedule_id = :id AND scope = :scope "
            "AND nominal_ms BETWEEN :first_ms AND :last_ms",
            id=schedule_id,
            scope=owner.scope,
            first_ms=first_ms,
            last_ms=last_ms,
        ).rowcount
        for schedule_id, (first_ms, last_ms) in spans.items()
    )
    last = list(found[-1][:2]) if len(found) == limit else None
    return Erased(occurrences=gone, events=events), last


def _events(db: Db, owner: Owner, after: Place, limit: int) -> Done:
    """Facts by the owner: gone with a schedule that is gone, else without the name."""
    table = db.tables.schedule_events
    found = db.run(
        "SELECT seq, schedule_id, kind, actor FROM {p}schedule_events "
        "WHERE seq > :after ORDER BY seq LIMIT :limit",
        after=after[0] if after else 0,
        limit=limit,
    ).all()
    own = [row for row in found if row.actor == owner.scope]
    standing = existing(db, {row.schedule_id for row in own})
    # A schedule that is gone and never fired: who made it is the last trace of whose it was.
    made = {row.schedule_id for row in own if row.kind == "created"} - standing
    events = _forget(db, made, limit)
    if events == limit:
        return Erased(events=events), after
    left = [row for row in own if row.schedule_id not in made]
    for chunk in chunks([row.seq for row in left if row.schedule_id not in standing]):
        db.connection.execute(delete(table).where(table.c.seq.in_(chunk)))
    for chunk in chunks([row.seq for row in left if row.schedule_id in standing]):
        db.connection.execute(update(table).where(table.c.seq.in_(chunk)).values(actor=ERASED))
    last = [found[-1].seq] if len(found) == limit else None
    return Erased(events=events + len(left)), last


def _job_events(db: Db, owner: Owner, after: Place, limit: int) -> Done:
    """What the owner did to others' jobs stays, without the name."""
    found = db.run(
        "SELECT job_id, seq, actor FROM {p}job_events WHERE (job_id, seq) > (:job_id, :seq) "
        "ORDER BY job_id, seq LIMIT :limit",
        job_id=after[0] if after else "",
        seq=after[1] if after else 0,
        limit=limit,
    ).all()
    table = db.tables.job_events
    own = [(row.job_id, row.seq) for row in found if row.actor == owner.scope]
    for chunk in chunks(own):
        here = tuple_(table.c.job_id, table.c.seq).in_(chunk)
        db.connection.execute(update(table).where(here).values(actor=ERASED))
    last = list(found[-1][:2]) if len(found) == limit else None
    return Erased(events=len(own)), last


def _tokens(db: Db, owner: Owner, after: Place, _: int) -> Done:
    """A queue at a time: of one pair there are few."""
    queue = _next(db, "queue_tokens", "queue", after)
    if queue is None:
        return Erased(), None
    table = db.tables.queue_tokens
    db.connection.execute(
        delete(table).where(table.c.queue == queue, table.c.workspace == owner.workspace)
    )
    return Erased(), [queue]


def _next(db: Db, table: str, column: str, after: Place) -> str | None:
    """The next of the few values that a key begins with."""
    found: str | None = db.run(
        f"SELECT MIN({column}) FROM {{p}}{table} WHERE {column} > :after",
        after=after[0] if after else "",
    ).scalar()
    return found


def _forget(db: Db, schedule_ids: Iterable[str | None], limit: int) -> int:
    """Remove facts about schedules, at most so many."""
    ids = sorted(each for each in schedule_ids if each is not None)
    gone = 0
    for chunk in chunks(ids):
        if gone < limit:
            gone += db.run(
                "DELETE FROM {p}schedule_events WHERE seq IN ("
                "WITH first AS MATERIALIZED (SELECT seq FROM {p}schedule_events "
                "WHERE schedule_id IN :ids ORDER BY seq LIMIT :limit) SELECT seq FROM first)",
                ids=list(chunk),
                limit=limit - gone,
            ).rowcount
    return gone


_KINDS: dict[str, Callable[[Db, Owner, Place, int], Done]] = {
    "audit": _audit,
    "schedules": _schedules,
    "index_rows": _index_rows,
    "documents": _documents,
    "jobs": _jobs,
    "keys": _keys,
    "occurrences": _occurrences,
    "events": _events,
    "job_events": _job_events,
    "tokens": _tokens,
}
"""In this order: what is gone is not made again by what comes later."""
