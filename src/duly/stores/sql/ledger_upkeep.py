"""Retention of the ledger and of facts about schedules, without an index of their own.

The ledger's key begins with the schedule, so its old rows are found by stepping from schedule to
schedule: planning pays nothing for it. Facts are numbered in order of time and walked from the
oldest. Both walks are long and cheap, and made once a day.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete

from duly.job_store import MAX_SWEEP
from duly.rules.checks import check_limit
from duly.stores.sql.audit_upkeep import prune_audit
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.events import WITH_RULE
from duly.upkeep_store import LedgerPruned, LedgerRetention, check_cursor

_TOGETHER = 20
_OLD = (
    "SELECT o.schedule_id, o.nominal_ms FROM {p}occurrences o WHERE o.schedule_id IN :ids "
    "AND o.nominal_ms < :edge_ms AND COALESCE(o.until_ms, o.nominal_ms) < :edge_ms "
    "AND o.run_at_ms < :edge_ms AND COALESCE(o.ended_at_ms, 0) < :edge_ms "
    # Closed; what a claim took has no job that could close it.
    "AND o.state NOT IN ('planned', 'dispatching') AND (o.state <> 'fired' OR o.job_id IS NULL) "
)
# reconcile() goes on after the newest; an extra says nothing about the schedule's own times. With
# its limit the question stays one look at the key, whatever the database thinks of joins.
_HAS_NEWER = (
    "AND o.nominal_ms < (SELECT n.nominal_ms FROM {p}occurrences n "
    "WHERE n.schedule_id = o.schedule_id AND n.state NOT IN ('withdrawn', 'quarantined') "
    "AND COALESCE(n.claim_id, '') NOT LIKE 'run_now:%' "
    "ORDER BY n.nominal_ms DESC LIMIT 1) "
)


def prune_ledger(
    db: Db, retention: LedgerRetention, limit: int, cursor: str | None
) -> LedgerPruned:
    """One step: occurrences first, then facts, then the audit."""
    check_limit(limit, MAX_SWEEP)
    kind, place = check_cursor(cursor, ("ledger", "events", "audit"))
    if kind == "ledger":
        return _prune_occurrences(db, retention, limit, place)
    if kind == "audit":
        return prune_audit(db, retention, limit, int(place or 0))
    return _prune_events(db, retention, limit, int(place or 0))


def _prune_occurrences(db: Db, retention: LedgerRetention, limit: int, first: str) -> LedgerPruned:
    page = _schedules_from(db, first, limit + 1)
    ids = [schedule_id for schedule_id, _ in page]
    edge_ms = db.now_ms() - retention.ledger_ms
    with_old = [schedule_id for schedule_id, oldest_ms in page[:limit] if oldest_ms < edge_ms]
    gone, aged = _prunable(db, with_old, edge_ms)
    removed = _remove(db, gone, "", edge_ms, limit)
    removed += _remove(db, aged, _HAS_NEWER, edge_ms, limit - removed)
    if removed == limit:  # some schedule may have more, so begin with the first of them
        return LedgerPruned(removed, 0, f"ledger:{ids[0]}")
    following = f"ledger:{ids[limit]}" if len(ids) > limit else "events:0"
    return LedgerPruned(removed, 0, following)


def _prunable(db: Db, ids: list[str], edge_ms: int) -> tuple[list[str], list[str]]:
    """Schedules that do not exist, and those that do and may lose what is old."""
    if not ids:
        return [], []
    # Runs that an earlier release did not count are counted in the ledger. That the words may
    # stand in an input as well only keeps more.
    counting = db.run(
        "SELECT id, runs_had IS NULL AND body LIKE '%\"max_runs\"%' FROM {p}resources "
        "WHERE id IN :ids",
        ids=ids,
    )
    kept = {row[0]: bool(row[1]) for row in tuples(counting)}
    # A row that stands before the edge: the planner could make what comes after it again.
    rows = db.run(
        "SELECT r.schedule_id, (SELECT i.nominal_ms FROM {p}schedule_index i "
        "WHERE i.row_id = r.row_id) FROM {p}schedule_rules r WHERE r.schedule_id IN :ids",
        ids=ids,
    )
    for schedule_id, next_ms in tuples(rows):
        is_behind = next_ms is not None and next_ms < edge_ms
        kept[schedule_id] = is_behind or kept.get(schedule_id, False)
    aged = [each for each in ids if each in kept and not kept[each]]
    return [each for each in ids if each not in kept], aged


def _remove(db: Db, ids: list[str], which: str, edge_ms: int, limit: int) -> int:
    """Remove old rows of schedules, at most so many."""
    gone = 0
    # Of a few schedules at a time: all old rows of those in one statement may be looked up.
    for start in range(0, len(ids), _TOGETHER):
        if gone < limit:
            gone += db.run(
                "DELETE FROM {p}occurrences WHERE (schedule_id, nominal_ms) IN ("
                f"WITH old AS MATERIALIZED ({_OLD}{which}LIMIT :limit {{skip}}) SELECT * FROM old)",
                ids=ids[start : start + _TOGETHER],
                edge_ms=edge_ms,
                limit=limit - gone,
            ).rowcount
    return gone


def _schedules_from(db: Db, first: str, limit: int) -> list[tuple[str, int]]:
    """Schedules that the ledger knows, by id, and the oldest time of each: a step for each."""
    found = db.run(
        "WITH RECURSIVE found(id, place) AS ("
        "SELECT (SELECT schedule_id FROM {p}occurrences WHERE schedule_id >= :first "
        "ORDER BY schedule_id LIMIT 1), 1 "
        "UNION ALL SELECT (SELECT o.schedule_id FROM {p}occurrences o "
        "WHERE o.schedule_id > found.id ORDER BY o.schedule_id LIMIT 1), found.place + 1 "
        "FROM found WHERE found.id IS NOT NULL AND found.place < :limit) "
        "SELECT id, (SELECT o.nominal_ms FROM {p}occurrences o WHERE o.schedule_id = found.id "
        "ORDER BY o.nominal_ms LIMIT 1) FROM found WHERE id IS NOT NULL ORDER BY id",
        first=first,
        limit=limit,
    )
    return [(row[0], row[1]) for row in tuples(found)]


def _prune_events(db: Db, retention: LedgerRetention, limit: int, after: int) -> LedgerPruned:
    edge_ms = db.now_ms() - retention.events_ms
    page = db.run(
        "SELECT e.seq, e.schedule_id, e.at_ms, (SELECT MAX(n.seq) FROM {p}schedule_events n "
        "WHERE n.schedule_id = e.schedule_id AND n.kind = e.kind "
        # One that changed the rule is not outlived by words alone: reconcile() asks when it was.
        "AND (e.detail NOT LIKE :rule OR n.detail LIKE :rule)) AS newest "
        "FROM {p}schedule_events e WHERE e.seq > :after ORDER BY e.seq LIMIT :limit",
        after=after,
        limit=limit,
        rule=WITH_RULE,
    ).all()
    old = [row for row in page if row.at_ms < edge_ms]
    standing = existing(db, {row.schedule_id for row in old})
    gone = [row.seq for row in old if row.seq < row.newest or row.schedule_id not in standing]
    table = db.tables.schedule_events
    for chunk in chunks(gone):
        db.connection.execute(delete(table).where(table.c.seq.in_(chunk)))
    is_over = len(page) < limit or len(old) < len(page)
    return LedgerPruned(0, len(gone), "audit:0" if is_over else f"events:{page[-1].seq}")


def existing(db: Db, schedule_ids: Iterable[str]) -> set[str]:
    """Those that are stored."""
    found: set[str] = set()
    for chunk in chunks(sorted(schedule_ids)):
        found |= set(
            db.run("SELECT id FROM {p}resources WHERE id IN :ids", ids=list(chunk)).scalars()
        )
    return found
