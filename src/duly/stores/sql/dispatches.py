"""Station 5: hand-over by HTTP: what a tick takes.

A claim plans due rows into the ledger as dispatches that nobody holds, and takes dispatches that
nobody holds: new ones, those whose delay has passed and those whose tick died are all found by one
index. So whatever a claim does not take stays there for the next. It passes rows that others hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select

from duly.dispatch_store import DispatchClaim, Dispatching
from duly.dispatching import decide_lapse
from duly.jobs import Delivery
from duly.ledger import OccurrenceState
from duly.occurrences import Moves
from duly.planning import PlannedOccurrence, plan_many
from duly.schedules import HandOver, ScheduleId
from duly.stores.checks import check_dispatch_claim
from duly.stores.sql import index, lanes, ledger
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.dispatch_rows import COLUMNS, change_of, stored_id, write_changes
from duly.stores.sql.hand_over import delivery_of
from duly.stores.sql.plans import charged, without_taken

_HAND_OVER: tuple[HandOver, ...] = ("http",)
_ROUNDS = 100
"""Batches that one claim may look through for something to post."""


def claim_dispatches(db: Db, claim: DispatchClaim) -> list[Dispatching]:
    """Take dispatches whose time has come, then due rows."""
    check_dispatch_claim(claim)
    claim_id = stored_id(claim.claim_id)
    db.dialect.guard_claim(db.connection, db.tables, claim_id)
    db = db.at(db.now_ms())
    taken = _standing(db, claim_id)
    if taken:
        return taken
    for _ in range(_ROUNDS):
        room = claim.limit - len(taken)
        lapsed = _lapsed(db, claim, room)
        if lapsed:
            taken += _take(db, claim, lapsed, len(taken))
        elif not _plan_due(db, claim, room):
            break
        if len(taken) == claim.limit:
            break
    return taken


def _standing(db: Db, claim_id: str) -> list[Dispatching]:
    """What an earlier call with this id took, and has not lost or ended."""
    found = db.run(
        f"SELECT {COLUMNS} FROM {{p}}occurrences WHERE claim_id = :claim_id "
        "AND state = 'dispatching' AND lease_until_ms > {now} ORDER BY position",
        claim_id=claim_id,
    )
    return list(map(Dispatching._make, tuples(found)))


def _lapsed(db: Db, claim: DispatchClaim, room: int) -> list[Dispatching]:
    """Dispatches that nobody holds, ours until the transaction ends; oldest run time first."""
    flows, given = _among(claim)
    found = db.run(
        f"SELECT {COLUMNS} FROM {{p}}occurrences WHERE state = 'dispatching' "
        f"AND lease_until_ms <= {{now}} {flows}"
        "ORDER BY run_at_ms, schedule_id, nominal_ms LIMIT :room {skip}",
        room=room,
        **given,
    )
    return list(map(Dispatching._make, tuples(found)))


def _among(claim: DispatchClaim) -> tuple[str, dict[str, list[str]]]:
    if claim.flows is None:
        return "", {}
    return "AND flow IN :flows ", {"flows": list(claim.flows)}


def _take(
    db: Db, claim: DispatchClaim, lapsed: Sequence[Dispatching], position: int
) -> list[Dispatching]:
    """Give dispatches to the claim, or end them."""
    deleted = _deleted(db, {each.schedule_id for each in lapsed})
    lease_until_ms = db.now_ms() + claim.lease_ms
    taken: list[Dispatching] = []
    changes = []
    for each in lapsed:
        fate = decide_lapse(each.delivery, each.tries, is_deleted=each.schedule_id in deleted)
        change = change_of(each, fate, db.now_ms())
        if fate.state is OccurrenceState.DISPATCHING:
            change["claim_id"] = stored_id(claim.claim_id)
            change["position"] = position + len(taken)
            change["tries"] = each.tries + 1
            change["lease_until_ms"] = lease_until_ms
            taken.append(each._replace(tries=each.tries + 1, lease_until_ms=lease_until_ms))
        changes.append(change)
    write_changes(db, changes)
    return taken


def _deleted(db: Db, schedule_ids: Iterable[str]) -> set[str]:
    """Which schedules are gone. One that has its row is not, nor is one that finished."""
    wanted = sorted(schedule_ids)
    gone: set[str] = set()
    for ids in chunks(wanted):
        standing = db.run(
            "SELECT schedule_id FROM {p}schedule_rules WHERE schedule_id IN :ids", ids=list(ids)
        )
        gone |= set(ids) - set(standing.scalars())
    if not gone:
        return gone
    found = db.run(
        "SELECT schedule_id FROM {p}schedule_events WHERE schedule_id IN :ids AND kind = 'deleted'",
        ids=sorted(gone),
    )
    return set(found.scalars())


class _Row(NamedTuple):
    """A due row with what it goes by."""

    row_id: int
    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    trigger: str
    policies: str
    body: str | None
    nominal_ms: int
    run_at_ms: int
    runs_left: int | None


def _plan_due(db: Db, claim: DispatchClaim, room: int) -> int:
    """Plan due rows into the ledger, and let them go on; gives how many there were."""
    due = _due(db, claim, room)
    _plan(db, due, db.now_ms())
    return len(due)


def plan_dispatches(db: Db, schedule_ids: Sequence[ScheduleId], now_ms: int) -> None:
    """Plan due rows that are ours already, for the writer of their schedules."""
    found = db.run(
        "SELECT i.row_id, i.nominal_ms, i.run_at_ms, i.runs_left FROM {p}schedule_index i "
        "JOIN {p}schedule_rules r ON r.row_id = i.row_id WHERE r.schedule_id IN :ids "
        "AND i.run_at_ms <= :now_ms AND i.hand_over = 'http' ORDER BY i.row_id",
        ids=list(schedule_ids),
        now_ms=now_ms,
    )
    _plan(db, _with_rules(db, {row[0]: row[1:] for row in tuples(found)}), now_ms)


def _plan(db: Db, due: Sequence[_Row], now_ms: int) -> None:
    """Write what is due of locked rows to the ledger, and let them go on."""
    if not due:
        return
    made = plan_many(due, now_ms, now_ms)
    plans = without_taken(db, due, made)
    entries = [
        entry
        for row, plan in zip(due, plans, strict=True)
        for entry in dispatch_entries(
            row, delivery_of(db, row.flow, row.policies, row.body), plan.occurrences, now_ms
        )
    ]
    plans = charged(db, due, made, entries, ledger.write(db, entries))
    moves = Moves(
        [plan.next_nominal_ms for plan in plans],
        [plan.next_run_at_ms for plan in plans],
        [plan.runs_left for plan in plans],
        [0] * len(plans),
        {i: plan.error for i, plan in enumerate(plans) if plan.error is not None},
    )
    numbers = [row.row_id for row in due]
    index.write_moves(db, numbers, [row.schedule_id for row in due], moves, now_ms)


def dispatch_entries(
    whose: ledger.Whose, delivery: Delivery, occurrences: Iterable[PlannedOccurrence], now_ms: int
) -> Iterable[ledger.Entry]:
    """Occurrences as ledger rows: dispatches that nobody holds, and what is missed."""
    for each in occurrences:
        entry = ledger.entry_of(each, whose, now_ms)
        if each.state is OccurrenceState.PLANNED:
            entry.state = OccurrenceState.DISPATCHING
            # Nobody has posted it: whoever claims from its run time on may.
            entry.lease_until_ms, entry.tries = each.run_at_ms, 0
            entry.delivery = delivery
        yield entry


def _due(db: Db, claim: DispatchClaim, room: int) -> list[_Row]:
    """Rows that are ours now, in order, with rules as they stand after that."""
    due = lanes.find(db, _HAND_OVER, claim.flows)
    *times, _ = lanes.lock_due(db, due, db.now_ms(), room)
    return _with_rules(db, {row[0]: row[1:] for row in zip(*times, strict=True)})


def _with_rules(db: Db, times: Mapping[int, tuple[Any, ...]]) -> list[_Row]:
    """Locked rows by their numbers, with what they go by."""
    rules, documents = db.tables.schedule_rules, db.tables.resources
    names = ("row_id", "schedule_id", "flow", "scope", "name", "trigger_json", "policies")
    if not times:
        return []
    statement = (
        select(*(rules.c[name] for name in names), documents.c.body)
        .select_from(rules.outerjoin(documents, documents.c.id == rules.c.schedule_id))
        .where(db.dialect.among(rules.c.row_id, list(times)))
    )
    found = {row[0]: row for row in tuples(db.connection.execute(statement))}
    return [_Row._make((*found[number], *time)) for number, time in times.items()]
