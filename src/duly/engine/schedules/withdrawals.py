"""Withdrawals: planned runs cancelled by an edit, pause or deletion, and times a pause swallowed.

A transaction that withdraws holds the schedule's index row, so that no planner plans it meanwhile,
and the jobs and occurrences that it withdraws.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from duly.engine.jobs.moves import hold_markers, move
from duly.engine.kinds import (
    MARKER,
    OCCURRENCE,
    SCHEDULE_EVENTS,
    UNBEGUN,
    UNPOSTED,
    StoredOccurrence,
)
from duly.engine.schedules import ledger
from duly.engine.transaction import PAGE, Tx
from duly.model.jobs import Job, JobState
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.plans import PAUSED
from duly.model.schedules import Schedule, ScheduleId
from duly.rules.rule_history import MAX_RULES, Change, Lost, lost_times
from duly.rules.runs import left_of
from duly.rules.spans import Row, in_the_way, spans_left


class Unbegun(NamedTuple):
    """Planned runs of a schedule that have not begun."""

    jobs: list[tuple[Job, Occurrence]]
    """Jobs with their occurrences."""
    posts: list[StoredOccurrence]
    """Dispatches that no tick has claimed; a claimed one counts as posted."""


class Why(NamedTuple):
    """Reason and actor of a withdrawal."""

    reason: str
    by: str


def unbegun_of(tx: Tx, schedules: Iterable[Schedule]) -> dict[ScheduleId, Unbegun]:
    """Return and hold the planned runs of schedules that have not begun, in one read per kind."""
    found = list(schedules)
    jobs = tx.members_many(UNBEGUN, [(each.id,) for each in found])
    ledger.hold_of_jobs(tx, [item.job for items in jobs.values() for item in items])
    posted = [(each.id,) for each in found if each.definition.hand_over == "http"]
    posts = tx.members_many(UNPOSTED, posted)
    hold_markers(tx, [item.job for items in jobs.values() for item in items])
    return {
        each.id: Unbegun(
            [
                (item.job, planned)
                for item in jobs[each.id,]
                if (planned := ledger.planned_of(tx, item.job)) is not None
            ],
            posts.get((each.id,), []),
        )
        for each in found
    }


def admitted(tx: Tx, unbegun: Unbegun) -> dict[int, str | None]:
    """Return the nominal times already due, with their reasons.

    They wait only for a worker, the running marker or a tick. If planned again, they keep their
    reasons and are not checked for misfire again.
    """
    found: dict[int, str | None] = {}
    for job, planned in unbegun.jobs:
        if job.state is JobState.QUEUED or job.in_line:
            found[planned.nominal_ms] = planned.reason
    for item in unbegun.posts:
        if item.occurrence.run_at_ms <= tx.now_ms:
            found[item.occurrence.nominal_ms] = item.occurrence.reason
    return found


def withdraw(
    tx: Tx, schedule_id: ScheduleId, unbegun: Unbegun, why: Why, *, extras: bool = False
) -> list[int]:
    """Withdraw a schedule's runs that have not begun; return the nominal times that are free again.

    Manually requested runs stay unless `extras` is true.
    """
    times = [_withdraw_post(tx, item, why) for item in unbegun.posts]
    marker = tx.peek(MARKER, schedule_id)
    holder = None if marker is None else marker.job_id
    # The marker's holder comes last, so that the marker does not pass to a job cancelled next.
    for job, planned in sorted(unbegun.jobs, key=lambda each: (each[0].id == holder, each[0].id)):
        is_extra = planned.reason in ledger.EXTRAS
        if is_extra and not extras:
            continue
        ledger.end_planned(tx, job, OccurrenceState.WITHDRAWN, why.reason)
        move(tx, job, [JobState.CANCELLED], actor=why.by, reason=why.reason)
        if not is_extra:
            times.append(planned.nominal_ms)
    return times


def _withdraw_post(tx: Tx, item: StoredOccurrence, why: Why) -> int:
    """Withdraw a dispatch that no tick has posted; return its nominal time."""
    own = replace(item.occurrence, state=OccurrenceState.WITHDRAWN, reason=why.reason)
    withdrawn = replace(item, occurrence=own, claim_id=None, position=0, lease_until_ms=None)
    tx.put(OCCURRENCE, withdrawn)
    return own.nominal_ms


def write_pause(tx: Tx, schedule: Schedule) -> None:
    """Record the nominal times of a pause that ends now as missed."""
    if schedule.definition.hand_over == "external":
        return  # an outside scheduler fires it
    if left_of(schedule) == 0:
        return  # no runs were left that the pause could have swallowed
    since_ms, changes = _rules_of_pause(tx, schedule)
    for lost in lost_times(schedule.definition.trigger, since_ms, changes, tx.now_ms):
        _write_lost(tx, schedule, lost)


def _rules_of_pause(tx: Tx, schedule: Schedule) -> tuple[int, list[Change]]:
    """Return when a schedule was paused, and its trigger changes since then."""
    facts = tx.history(SCHEDULE_EVENTS, schedule.id)
    # If the history is longer than a page, start at the oldest event read.
    since_ms = facts[0].at_ms if len(facts) == PAGE else schedule.created_at_ms
    changes: list[Change] = []
    for event in facts:
        if event.kind == "paused":
            since_ms, changes = event.at_ms, []
        elif event.kind == "changed" and "trigger" in event.detail:
            changes.append(Change(event.at_ms, event.detail["trigger"]))
    return since_ms, changes[-MAX_RULES:]


def _write_lost(tx: Tx, schedule: Schedule, lost: Lost) -> None:
    # Read per rule: rows written for one rule may reach into the next if spreads differ.
    rows = ledger.rows_between(tx, schedule.id, lost.whole.first_ms, lost.whole.last_ms)
    standing = [
        Row(item.occurrence.nominal_ms, item.occurrence.until_ms, ledger.is_taken(item))
        for item in rows
    ]
    for left in spans_left(lost.rule, lost.whole, in_the_way(lost.rule, standing)):
        missed = Occurrence(
            schedule_id=schedule.id,
            nominal_ms=left.first_ms,
            until_ms=left.last_ms,
            count=left.times,
            run_at_ms=left.first_ms + lost.offset_ms,
            state=OccurrenceState.MISSED,
            flow=schedule.flow,
            scope=str(schedule.scope),
            name=schedule.name,
            reason=PAUSED,
        )
        ledger.write(tx, StoredOccurrence(missed, at_ms=tx.now_ms))
