"""Hand-over by HTTP in memory: what a tick takes, and how its posts end."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from duly.dispatch_store import (
    MAX_REASON,
    DispatchAnswer,
    DispatchClaim,
    Dispatching,
)
from duly.dispatching import (
    NOT_FOUND_LIMIT,
    Fate,
    count_not_found,
    decide_answer,
    decide_lapse,
    not_found_error,
)
from duly.jobs import Delivery
from duly.ledger import Occurrence, OccurrenceState
from duly.occurrences import TRIGGER_VERSION, Advance, IndexRow
from duly.plan_store import PlanSettings
from duly.planning import Plan, PlannedOccurrence, plan_many, policies_or_usual
from duly.runs import settle
from duly.schedules import ScheduleId, action_in
from duly.stores.checks import check_answers, check_dispatch_claim
from duly.stores.memory import ledger
from duly.stores.memory.hand_over import free_ones
from duly.stores.memory.index import in_order, move_row
from duly.stores.memory.tables import Post, Tables, document_key, row_key

_S = OccurrenceState


def claim(
    tables: Tables, now_ms: int, asked: DispatchClaim, settings: PlanSettings
) -> list[Dispatching]:
    """Take dispatches whose time has come, then due rows."""
    check_dispatch_claim(asked)
    standing = [
        (post.position, key)
        for key, post in tables.posts.items()
        if post.claim_id == asked.claim_id and post.lease_until_ms > now_ms
    ]
    if standing:
        return [_dispatching(tables, key) for _, key in sorted(standing)]
    taken: list[Dispatching] = []
    while len(taken) < asked.limit:
        lapsed = _lapsed(tables, now_ms, asked)[: asked.limit - len(taken)]
        rows = [] if lapsed else _due(tables, now_ms, asked)[: asked.limit - len(taken)]
        if not lapsed and not rows:
            break
        for row, planned in zip(rows, plan_many(rows, now_ms, now_ms), strict=True):
            _plan_row(tables, now_ms, row, planned, settings)
        for key in lapsed:
            if _post(tables, now_ms, key, asked, len(taken)):
                taken.append(_dispatching(tables, key))
    return taken


def _lapsed(tables: Tables, now_ms: int, asked: DispatchClaim) -> list[tuple[ScheduleId, int]]:
    """Dispatches that nobody holds, oldest run time first."""
    found = [
        (tables.ledger[key].occurrence.run_at_ms, key)
        for key, post in tables.posts.items()
        if post.lease_until_ms <= now_ms
        and (asked.flows is None or tables.ledger[key].occurrence.flow in asked.flows)
    ]
    return [key for _, key in sorted(found)]


def _due(tables: Tables, now_ms: int, asked: DispatchClaim) -> list[IndexRow]:
    return [
        row
        for row in in_order(tables)
        if row.hand_over == "http"
        and row.run_at_ms <= now_ms
        and row.trigger_version <= TRIGGER_VERSION
        and (asked.flows is None or row.flow in asked.flows)
    ]


def _plan_row(
    tables: Tables, now_ms: int, row: IndexRow, planned: Plan, settings: PlanSettings
) -> None:
    """Write what the ledger does not have, and let the row go on."""
    planned = settle(row, planned, put_free(tables, row, planned.occurrences, settings))
    move = Advance(
        row.schedule_id,
        planned.next_nominal_ms,
        planned.next_run_at_ms,
        planned.runs_left,
        0,
        planned.error,
    )
    move_row(tables, row, move, now_ms)


def plan_dispatches(tables: Tables, now_ms: int, row: IndexRow, settings: PlanSettings) -> None:
    """Plan a due row for the writer of its schedule."""
    (planned,) = plan_many([row], now_ms, now_ms)
    _plan_row(tables, now_ms, row, planned, settings)


def put_free(
    tables: Tables,
    row: IndexRow,
    occurrences: Sequence[PlannedOccurrence],
    settings: PlanSettings,
) -> int:
    """Write what the ledger does not have: dispatches that nobody holds, and what is missed.

    Gives how many dispatches there are.
    """
    posts = 0
    for each in free_ones(tables, row.trigger, occurrences):
        key = (each.schedule_id, each.nominal_ms)
        if each.state is _S.PLANNED:
            delivery = _delivery_of(tables, row, settings)
            # Nobody has posted it: whoever claims from its run time on may.
            tables.posts[key] = Post(None, 0, 0, delivery, each.run_at_ms)
            posts += 1
            each = each._replace(state=_S.DISPATCHING)  # noqa: PLW2901
        ledger.put(tables, _occurrence(row, each))
    return posts


def _delivery_of(tables: Tables, row: IndexRow, settings: PlanSettings) -> Delivery:
    """Return how an occurrence is posted; a row without a stored body has no known action."""
    key = document_key(row_key(row))
    stored = tables.documents.get(key)
    is_own = stored is not None and stored.document.id == row.schedule_id
    action = f"{row.flow}.{action_in(stored.document.body if stored and is_own else None)}"
    # A row whose policies cannot be read is quarantined and posts nothing.
    return settings.options(action, policies_or_usual(row.policies)).delivery


def _occurrence(row: IndexRow, planned: PlannedOccurrence) -> Occurrence:
    return Occurrence(
        schedule_id=row.schedule_id,
        nominal_ms=planned.nominal_ms,
        until_ms=planned.until_ms,
        count=planned.count,
        run_at_ms=planned.run_at_ms,
        state=planned.state,
        flow=row.flow,
        scope=row.scope,
        name=row.name,
        reason=planned.reason,
    )


def _post(
    tables: Tables, now_ms: int, key: tuple[ScheduleId, int], asked: DispatchClaim, position: int
) -> bool:
    """Give a dispatch to a claim, or end it; whether it is to be posted."""
    post = tables.posts[key]
    is_deleted = any(
        event.schedule_id == key[0] and event.kind == "deleted" for event in tables.events
    )
    fate = decide_lapse(post.delivery, post.tries, is_deleted=is_deleted)
    if fate.state is not _S.DISPATCHING:
        _end(tables, now_ms, key, fate)
        return False
    lease_until_ms = now_ms + asked.lease_ms
    tables.posts[key] = Post(
        asked.claim_id, position, post.tries + 1, post.delivery, lease_until_ms
    )
    return True


def _dispatching(tables: Tables, key: tuple[ScheduleId, int]) -> Dispatching:
    row, post = tables.ledger[key].occurrence, tables.posts[key]
    whose = (row.schedule_id, row.flow, row.scope, row.name)
    times = (row.nominal_ms, row.run_at_ms)
    return Dispatching(*whose, *times, post.tries, post.delivery, post.lease_until_ms)


def _end(tables: Tables, now_ms: int, key: tuple[ScheduleId, int], fate: Fate) -> None:
    """Let a dispatch go to the state where it rests."""
    occurrence = tables.ledger[key].occurrence
    is_closed = fate.state is _S.SUCCEEDED
    ended = replace(
        occurrence,
        state=fate.state,
        reason=fate.reason,
        fired_at_ms=now_ms if is_closed else None,
        ended_at_ms=None if fate.state is _S.WITHDRAWN else now_ms,
    )
    ledger.put(tables, ended)
    del tables.posts[key]


def end(tables: Tables, now_ms: int, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
    """Store how posts ended; gives how many stood under the claim."""
    check_answers(claim_id, answers)
    stood = 0
    for answer in answers:
        key = (answer.schedule_id, answer.nominal_ms)
        post = tables.posts.get(key)
        is_ours = post is not None and post.claim_id == claim_id
        if post is not None and is_ours:
            stood += 1
            _answer(tables, now_ms, key, post, answer)
        if is_ours or answer.end == "closed":
            _count(tables, now_ms, answer)
    return stood


def _answer(
    tables: Tables,
    now_ms: int,
    key: tuple[ScheduleId, int],
    post: Post,
    answer: DispatchAnswer,
) -> None:
    reason = None if answer.reason is None else answer.reason[:MAX_REASON]
    fate = decide_answer(answer.end, post.delivery, post.tries, reason)
    if fate.state is not _S.DISPATCHING:
        _end(tables, now_ms, key, fate)
        return
    tables.posts[key] = post._replace(claim_id=None, lease_until_ms=now_ms + answer.delay_ms)
    earlier = tables.ledger[key].occurrence
    ledger.put(tables, replace(earlier, reason=fate.reason or earlier.reason))


def _count(tables: Tables, now_ms: int, answer: DispatchAnswer) -> None:
    """Count how often in a row the endpoint did not know the schedule of a row."""
    row = next((r for r in in_order(tables) if r.schedule_id == answer.schedule_id), None)
    if row is None:
        return
    times = count_not_found(tables.not_found.get(row_key(row), 0), [answer.end])
    tables.not_found[row_key(row)] = times
    if times >= NOT_FOUND_LIMIT:
        error = not_found_error(times, answer.reason)
        move_row(tables, row, Advance(row.schedule_id, None, None, row.runs_left, 0, error), now_ms)
