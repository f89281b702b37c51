"""Stations 3 to 5: taking back what was planned and has not begun, and what a pause swallowed.

The writer of a schedule holds its index row, so no planner and no tick plans it; then come the jobs
by their ids, then the ledger: the lock order everywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from duly.dispatch_store import Dispatching
from duly.dispatching import Fate
from duly.jobs import JobId, JobState
from duly.ledger import OccurrenceState
from duly.occurrences import trigger_text
from duly.plan_store import BACKFILL, PAUSED, RUN_NOW
from duly.planning import PlannedOccurrence
from duly.schedules import Schedule, ScheduleId
from duly.store import ScheduleKey
from duly.stores.spans import in_the_way, span_until, spans_left
from duly.stores.sql import ledger, turns
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.dispatch_rows import COLUMNS, change_of, write_changes
from duly.stores.sql.job_events import move

Withdrawn = dict[ScheduleId, list[int]]
"""Nominal times by schedule."""


class Why(NamedTuple):
    """Why something is withdrawn, and by whom."""

    reason: str
    by: str


def withdraw(
    db: Db,
    schedules: Mapping[ScheduleId, Why],
    *,
    posted: Collection[ScheduleId] = (),
    extras: bool = False,
) -> Withdrawn:
    """Cancel unstarted jobs of schedules; gives the times that are open again.

    Of those that ticks post, `posted`, also what no tick has posted yet. What somebody asked for
    by hand stays, unless `extras` are to go too.
    """
    # Before the jobs: who fires a dispatch holds its row, and may then ask for a job's.
    times = _withdraw_posts(db, schedules, posted)
    found: list[tuple[JobId, ScheduleId, int, str | None]] = []
    for chunk in chunks(sorted(schedules)):
        rows = db.run(
            "SELECT j.id, j.schedule_id, j.nominal_ms, o.reason FROM {p}jobs j "
            "JOIN {p}occurrences o ON o.job_id = j.id WHERE j.schedule_id IN :ids "
            "AND j.state IN ('scheduled', 'queued') AND o.state = 'planned' ORDER BY j.id {lock}",
            ids=list(chunk),
        )
        found += [row for row in tuples(rows) if extras or row[3] not in (RUN_NOW, BACKFILL)]
    by_why: dict[Why, list[JobId]] = defaultdict(list)
    for job_id, schedule_id, nominal_ms, reason in found:
        by_why[schedules[schedule_id]].append(job_id)
        if reason not in (RUN_NOW, BACKFILL):
            times[schedule_id].append(nominal_ms)
    for why, ids in sorted(by_why.items()):
        for part in chunks(ids):
            move(db, part, [JobState.CANCELLED], actor=why.by, reason=why.reason)
        ledger.end_planned(db, ids, OccurrenceState.WITHDRAWN, why.reason)
    for ended in chunks([(each[1], each[0]) for each in found]):
        turns.give_back(db, ended)
    return times


def _withdraw_posts(
    db: Db, schedules: Mapping[ScheduleId, Why], posted: Collection[ScheduleId]
) -> Withdrawn:
    """Take back dispatches that nobody has posted: a claim is counted as a post."""
    times: Withdrawn = defaultdict(list)
    changes = []
    for chunk in chunks(sorted(posted)):
        found = db.run(
            f"SELECT {COLUMNS} FROM {{p}}occurrences WHERE schedule_id IN :ids "
            "AND state = 'dispatching' AND tries = 0 ORDER BY schedule_id, nominal_ms {lock}",
            ids=list(chunk),
        )
        for each in map(Dispatching._make, tuples(found)):
            fate = Fate(OccurrenceState.WITHDRAWN, schedules[each.schedule_id].reason)
            changes.append(change_of(each, fate, 0))
            times[each.schedule_id].append(each.nominal_ms)
    write_changes(db, changes)
    return times


def write_pause(db: Db, paused: Schedule, now_ms: int) -> None:
    """Say of the times that came during a pause, which ends now, that they were missed."""
    since_ms = db.run(
        "SELECT MAX(at_ms) FROM {p}schedule_events WHERE schedule_id = :id AND kind = 'paused'",
        id=paused.id,
    ).scalar()
    since_ms = paused.created_at_ms if since_ms is None else int(since_ms)
    trigger = paused.definition.trigger
    rule = trigger_text(trigger)
    offset_ms = trigger.offset_ms
    until_ms = now_ms - offset_ms  # a time whose run time is still to come is not lost
    first_ms = trigger.next_after_ms(max(0, since_ms - offset_ms))
    if first_ms is None or first_ms > until_ms or paused.definition.hand_over == "external":
        return
    standing = ledger.rows_since(db, {paused.id: first_ms}).get(paused.id, [])
    whole = span_until(rule, first_ms, until_ms + 1)
    spans = spans_left(rule, whole, in_the_way(rule, standing))
    state = OccurrenceState.MISSED
    key = ScheduleKey(paused.flow, str(paused.scope), paused.name)
    entries = []
    for span in spans:
        run_at_ms = span.first_ms + offset_ms
        missed = PlannedOccurrence(paused.id, *span, run_at_ms, state, PAUSED)
        entries.append(ledger.entry_of(missed, key, now_ms))
    ledger.write(db, entries)
