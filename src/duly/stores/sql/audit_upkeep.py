"""The audit as it ages, and without the names of an owner who is erased.

Entries are numbered in order of time and walked by their numbers, so many a step. Whose thing an
entry is about is looked up while the thing is still there: so an owner's entries come before all
else that is the owner's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import delete, update

from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db
from duly.upkeep_store import (
    ERASED,
    LedgerPruned,
    LedgerRetention,
    Owner,
    erased_target,
    target_id,
)


def prune_audit(db: Db, retention: LedgerRetention, limit: int, after: int) -> LedgerPruned:
    """Remove entries kept long enough, from the oldest on."""
    now_ms = db.now_ms()
    page = _page(db, after, limit)
    aged = [row for row in page if row.at_ms < now_ms - retention.audit_ms]
    old = [row.seq for row in aged if retention.is_audit_over(row.action, row.at_ms, now_ms)]
    table = db.tables.audit
    for chunk in chunks(old):
        db.connection.execute(delete(table).where(table.c.seq.in_(chunk)))
    is_over = len(aged) < limit
    return LedgerPruned(0, 0, None if is_over else f"audit:{page[-1].seq}", audit=len(old))


def forget_in_audit(db: Db, owner: Owner, after: int, limit: int) -> tuple[int, int | None]:
    """Take the owner's names out of entries; gives how many, and where to go on."""
    page = _page(db, after, limit)
    schedules = _own_schedules(db, owner, _ids(page, "schedule"))
    jobs = _own_jobs(db, owner, _ids(page, "job"))
    table, named = db.tables.audit, 0
    for row in page:
        values: dict[str, str] = {}
        is_own = target_id(row.target, "schedule") in schedules or (
            target_id(row.target, "job") in jobs
        )
        if row.detail != ERASED and (is_own or owner.is_named_in(row.target)):
            values = {"target": erased_target(row.target), "detail": ERASED}
        if row.actor == owner.scope:
            values["actor"] = ERASED
        if values:
            named += 1
            db.connection.execute(update(table).where(table.c.seq == row.seq).values(values))
    return named, page[-1].seq if len(page) == limit else None


def _page(db: Db, after: int, limit: int) -> Sequence[Any]:
    return db.run(
        "SELECT seq, at_ms, actor, action, target, detail FROM {p}audit "
        "WHERE seq > :after ORDER BY seq LIMIT :limit",
        after=after,
        limit=limit,
    ).all()


def _ids(page: Sequence[Any], kind: str) -> list[str]:
    return sorted({found for row in page if (found := target_id(row.target, kind)) is not None})


def _own_schedules(db: Db, owner: Owner, ids: Collection[str]) -> set[str]:
    """Those of the owner: stored, or gone and known by who made them or by their ledger."""
    own: set[str] = set()
    for chunk in chunks(sorted(ids)):
        stored = db.run("SELECT id, scope FROM {p}resources WHERE id IN :ids", ids=list(chunk))
        scopes = {row.id: row.scope for row in stored}
        gone = sorted(set(chunk) - set(scopes))
        made = db.run(
            "SELECT schedule_id FROM {p}schedule_events WHERE schedule_id IN :ids "
            "AND kind = 'created' AND actor = :scope",
            ids=gone,
            scope=owner.scope,
        )
        own.update(each for each, scope in scopes.items() if scope == owner.scope)
        own.update(made.scalars())
        own.update(each for each in gone if _fired_for(db, each) == owner.scope)
    return own


def _fired_for(db: Db, schedule_id: str) -> str | None:
    """Whose a schedule was, by any row of its ledger: it has one owner for all of its life."""
    found: str | None = db.run(
        "SELECT scope FROM {p}occurrences WHERE schedule_id = :id LIMIT 1", id=schedule_id
    ).scalar()
    return found


def _own_jobs(db: Db, owner: Owner, ids: Collection[str]) -> set[str]:
    own: set[str] = set()
    for chunk in chunks(sorted(ids)):
        found = db.run("SELECT id, scope, workspace FROM {p}jobs WHERE id IN :ids", ids=list(chunk))
        own |= {row.id for row in found if owner.has_job(row.scope, row.workspace)}
    return own
