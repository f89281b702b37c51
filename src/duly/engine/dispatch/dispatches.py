"""HTTP hand-over: claims of dispatches by a tick, and the outcomes of its posts.

A claim writes due rows to the ledger as unclaimed dispatches, and takes unclaimed dispatches: new
ones, those whose delay has passed, and those whose lease has expired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from duly.engine.kinds import (
    CLAIMED,
    DISPATCHES,
    NOT_FOUND,
    OCCURRENCE,
    ROW,
    SCHEDULE,
    SCHEDULE_EVENTS,
    StoredOccurrence,
    StoredRow,
    dispatching_of,
    key_parts,
    row_key,
)
from duly.engine.schedules import ledger
from duly.engine.schedules.hand_over import Source, Whose, occurrence_of, source_of_row
from duly.engine.schedules.planning import (
    RowPlan,
    advance_of,
    definitions_of,
    hold_ending,
    hold_free,
)
from duly.engine.schedules.rows import due_rows, in_order, lanes, move_row
from duly.engine.transaction import EVERY, Key, Tx
from duly.model.dispatches import (
    MAX_DISPATCHES,
    MAX_REASON,
    DispatchAnswer,
    DispatchClaim,
    DispatchEnd,
    Dispatching,
)
from duly.model.index_rows import Advance, IndexRow
from duly.model.jobs import Delivery
from duly.model.ledger import OccurrenceState
from duly.model.schedules import Definition
from duly.rules.checks import check_answers, check_dispatch_claim
from duly.rules.dispatches import (
    NOT_FOUND_LIMIT,
    RowState,
    count_not_found,
    decide_answer,
    decide_lapse,
    not_found_error,
)
from duly.rules.planning import PlannedOccurrence, plan_many, policies_or_usual
from duly.rules.runs import settle

_S = OccurrenceState
_ROUNDS = 100
"""Batches that one claim reads at most."""


def stored_id(claim_id: str) -> str:
    """Return the stored form of a tick's claim id, distinct from those of claim_due()."""
    return f"tick:{claim_id}"


def claim_dispatches(tx: Tx, asked: DispatchClaim) -> list[Dispatching]:
    """Claim due dispatches, then due rows; a repeated claim id returns what it still holds."""
    check_dispatch_claim(asked)
    claim_id = stored_id(asked.claim_id)
    tx.guard(claim_id)
    standing = tx.members(CLAIMED, claim_id, limit=MAX_DISPATCHES, hold=False)
    answered = [dispatching_of(item) for item in standing if _is_held(tx, item)]
    if answered:
        return answered
    taken: list[Dispatching] = []
    for _ in range(_ROUNDS):
        room = asked.limit - len(taken)
        if room == 0:
            break
        lapsed = _lapsed(tx, asked, room)
        if lapsed:
            taken += _take(tx, asked, lapsed, len(taken))
            continue
        due = due_rows(tx, lanes(tx, "http", asked.flows), tx.now_ms, room)
        if not due:
            break
        plan_dispatches(tx, due)
    return taken


def _is_held(tx: Tx, item: StoredOccurrence) -> bool:
    """Return whether the lease of a dispatch has not ended."""
    is_open = item.occurrence.state is _S.DISPATCHING
    return is_open and item.lease_until_ms is not None and item.lease_until_ms > tx.now_ms


def _lapsed(tx: Tx, asked: DispatchClaim, room: int) -> list[StoredOccurrence]:
    """Return up to `room` unclaimed dispatches, those free for longest, in order of run time."""
    flows = tx.partitions(DISPATCHES) if asked.flows is None else list(dict.fromkeys(asked.flows))
    changed = tx.changes(OCCURRENCE)
    keys = tx.find_among(
        DISPATCHES,
        [(flow,) for flow in flows],
        upto=(tx.now_ms,),
        # The database still returns what this claim has already taken.
        limit=room + len(changed),
    )
    items = tx.get_many(OCCURRENCE, [*keys, *changed]).values()
    lapsed = [
        item
        for item in items
        if item.occurrence.state is _S.DISPATCHING
        and not _is_held(tx, item)
        and (asked.flows is None or item.occurrence.flow in asked.flows)
    ]
    lapsed.sort(key=lambda item: (item.lease_until_ms or 0, *_by_run_time(item)[1:]))
    return sorted(lapsed[:room], key=_by_run_time)


def _by_run_time(item: StoredOccurrence) -> tuple[int, str, int]:
    own = item.occurrence
    return own.run_at_ms, own.schedule_id, own.nominal_ms


def _take(
    tx: Tx, asked: DispatchClaim, lapsed: Sequence[StoredOccurrence], position: int
) -> list[Dispatching]:
    """Lease dispatches to the claim, or end them; return those to be posted."""
    deleted = _deleted(tx, lapsed)
    taken: list[Dispatching] = []
    for item in lapsed:
        assert item.delivery is not None
        tries = item.tries or 0
        is_deleted = item.occurrence.schedule_id in deleted
        decision = decide_lapse(item.delivery, tries, is_deleted=is_deleted)
        if decision.state is not _S.DISPATCHING:
            _end(tx, item, decision)
            continue
        held = replace(
            item,
            claim_id=stored_id(asked.claim_id),
            position=position + len(taken),
            tries=tries + 1,
            lease_until_ms=tx.now_ms + asked.lease_ms,
        )
        tx.put(OCCURRENCE, held)
        taken.append(dispatching_of(held))
    return taken


def _deleted(tx: Tx, items: Iterable[StoredOccurrence]) -> set[str]:
    """Return the ids of schedules that were deleted.

    A schedule with a row or a definition was not. One with neither may have finished, if its
    definition is stored elsewhere, so its last event decides.
    """
    keys = {item.occurrence.schedule_id: _key_of(item) for item in items}
    rows, definitions = tx.peek_many(ROW, keys.values()), tx.peek_many(SCHEDULE, keys.values())
    standing = {item.row.schedule_id for item in rows.values()}
    standing |= {item.schedule.id for item in definitions.values()}
    deleted: set[str] = set()
    for schedule_id in sorted(set(keys) - standing):
        facts = tx.history(SCHEDULE_EVENTS, schedule_id, limit=1)
        if facts and facts[-1].kind == "deleted":
            deleted.add(schedule_id)
    return deleted


def _key_of(item: StoredOccurrence) -> Key:
    own = item.occurrence
    return own.flow, own.scope, own.name


def plan_dispatches(tx: Tx, items: Iterable[StoredRow]) -> None:
    """Write the due occurrences of held rows to the ledger, and advance the rows."""
    items = in_order(items)
    definitions = definitions_of(tx, items)
    plans = plan_many([item.row for item in items], tx.now_ms, tx.now_ms)
    steps: list[RowPlan] = []
    for item, plan in zip(items, plans, strict=True):
        stored = definitions.get(key_parts(row_key(item.row)))
        source = stored and source_of_row(item, stored.schedule.definition)
        edited_at_ms = stored and stored.schedule.updated_at_ms
        steps.append(RowPlan(item, plan, source, edited_at_ms=edited_at_ms))
    hold_ending(tx, steps)
    hold_free(tx, steps)
    for step in steps:
        definition = None if step.source is None else step.source.definition
        posts = _write(tx, step.row, delivery_of(tx, step.row, definition), step.free)
        move_row(tx, step.item, advance_of(step.row, settle(step.row, step.plan, posts)))


def write_free(tx: Tx, source: Source, free: Iterable[PlannedOccurrence]) -> int:
    """Write occurrences that the ledger lacks; return the number of dispatches.

    The caller must hold the schedule's row.
    """
    policies = policies_or_usual(source.policies)
    return _write(tx, source, tx.planning.options(source.action, policies).delivery, free)


def delivery_of(tx: Tx, row: IndexRow, definition: Definition | None) -> Delivery:
    """Return the delivery guarantee of a row's occurrences; without a definition, no action's."""
    action = f"{row.flow}.{'' if definition is None else definition.action}"
    # A row whose policies cannot be read is quarantined and posts nothing.
    return tx.planning.options(action, policies_or_usual(row.policies)).delivery


def _write(tx: Tx, whose: Whose, delivery: Delivery, free: Iterable[PlannedOccurrence]) -> int:
    """Write unclaimed dispatches and missed times; return the number of dispatches."""
    posts = 0
    for each in free:
        occurrence = occurrence_of(whose, each)
        if each.state is not _S.PLANNED:
            ledger.write(tx, StoredOccurrence(occurrence, at_ms=tx.now_ms))
            continue
        posts += 1
        dispatch = StoredOccurrence(
            replace(occurrence, state=_S.DISPATCHING),
            at_ms=tx.now_ms,
            # Any tick may claim it from its run time on.
            lease_until_ms=each.run_at_ms,
            tries=0,
            delivery=delivery,
        )
        ledger.write(tx, dispatch)
    return posts


def _end(tx: Tx, item: StoredOccurrence, decision: RowState) -> None:
    """Move a dispatch to a final state."""
    ended = replace(
        item.occurrence,
        state=decision.state,
        reason=decision.reason or item.occurrence.reason,
        fired_at_ms=tx.now_ms if decision.state is _S.SUCCEEDED else None,
        ended_at_ms=None if decision.state is _S.WITHDRAWN else tx.now_ms,
    )
    tx.put(OCCURRENCE, StoredOccurrence(ended, at_ms=item.at_ms))


def end_dispatches(tx: Tx, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
    """Store the outcomes of posts; return how many dispatches this claim still held."""
    check_answers(claim_id, answers)
    keys = [(answer.schedule_id, answer.nominal_ms) for answer in answers]
    held = _hold_counted(tx, answers)
    tx.get_many(OCCURRENCE, keys)
    stood = 0
    counted: dict[Key, list[DispatchAnswer]] = defaultdict(list)
    for answer in answers:
        item = tx.get(OCCURRENCE, answer.schedule_id, answer.nominal_ms)
        # Only the first answer for an occurrence counts; later ones no longer find the claim.
        is_ours = (
            item is not None
            and item.occurrence.state is _S.DISPATCHING
            and item.claim_id == stored_id(claim_id)
        )
        if item is not None and is_ours:
            stood += 1
            _answer(tx, item, answer)
        if item is not None and (is_ours or answer.end == "closed"):
            counted[_key_of(item)].append(answer)
    for key, own in counted.items():
        if key in held:
            _count(tx, key, own)
    return stood


def _answer(tx: Tx, item: StoredOccurrence, answer: DispatchAnswer) -> None:
    assert item.delivery is not None
    reason = None if answer.reason is None else answer.reason[:MAX_REASON]
    decision = decide_answer(answer.end, item.delivery, item.tries or 0, reason)
    if decision.state is not _S.DISPATCHING:
        _end(tx, item, decision)
        return
    occurrence = replace(item.occurrence, reason=decision.reason or item.occurrence.reason)
    lease_until_ms = tx.now_ms + answer.delay_ms
    again = replace(
        item, occurrence=occurrence, claim_id=None, position=0, lease_until_ms=lease_until_ms
    )
    tx.put(OCCURRENCE, again)


def _hold_counted(tx: Tx, answers: Sequence[DispatchAnswer]) -> set[Key]:
    """Hold the rows whose not-found count may change: rows are locked before the ledger."""
    ends: dict[Key, set[DispatchEnd]] = defaultdict(set)
    found = tx.peek_many(OCCURRENCE, [(each.schedule_id, each.nominal_ms) for each in answers])
    for answer in answers:
        item = found.get((answer.schedule_id, answer.nominal_ms))
        if item is not None:
            ends[_key_of(item)].add(answer.end)
    closed = [key for key, own in ends.items() if "closed" in own]
    held = {key for key, own in ends.items() if "not_found" in own}
    held |= set(tx.find_among(NOT_FOUND, closed, limit=EVERY))
    tx.get_many(ROW, held)
    return held


def _count(tx: Tx, key: Key, answers: Sequence[DispatchAnswer]) -> None:
    """Update a row's count of consecutive not-found answers; quarantine it at NOT_FOUND_LIMIT."""
    item = tx.peek(ROW, *key)
    if item is None or item.error is not None or item.row.schedule_id != answers[0].schedule_id:
        return
    times = count_not_found(item.not_found, [answer.end for answer in answers])
    if times == item.not_found:
        return
    counted = item._replace(not_found=times)
    if times < NOT_FOUND_LIMIT:
        tx.put(ROW, counted)
        return
    reasons = [answer.reason for answer in answers if answer.end == "not_found"]
    error = not_found_error(times, reasons[-1])
    row = counted.row
    move_row(tx, counted, Advance(row.schedule_id, None, None, row.runs_left, 0, error))
