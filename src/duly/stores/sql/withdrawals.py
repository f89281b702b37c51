"""Stations 3 to 5: taking back what was planned and has not begun, and what a pause swallowed.

The writer of a schedule holds its index row, so no planner and no tick plans it; then come the jobs
by their ids, then the ledger: the lock order everywhere.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from duly.dispatch_store import Dispatching
from duly.dispatching import Fate
from duly.jobs import JobId, JobState
from duly.ledger import OccurrenceState
from duly.plan_store import BACKFILL, PAUSED, RUN_NOW
from duly.planning import PlannedOccurrence
from duly.runs import left_of
from duly.schedules import Schedule, ScheduleId
from duly.store import ScheduleKey
from duly.stores.reigns import MAX_RULES, Change, lost_times
from duly.stores.spans import in_the_way, spans_left
from duly.stores.sql import ledger, turns
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.dispatch_rows import COLUMNS, change_of, write_changes
from duly.stores.sql.events import WITH_RULE
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
    if paused.definition.hand_over == "external":
        return  # its times are an outside scheduler's
    if left_of(paused) == 0:
        return  # it had no times any more that a pause could have swallowed
    key = ScheduleKey(paused.flow, str(paused.scope), paused.name)
    since_ms, changes = _changes(db, paused)
    for lost in lost_times(paused.definition.trigger, since_ms, changes, now_ms):
        # Asked for each rule, since the rows of one may reach into the next where spreads differ.
        standing = ledger.rows_since(db, {paused.id: lost.whole.first_ms}).get(paused.id, [])
        entries = []
        for span in spans_left(lost.rule, lost.whole, in_the_way(lost.rule, standing)):
            run_at_ms = span.first_ms + lost.offset_ms
            state = OccurrenceState.MISSED
            missed = PlannedOccurrence(paused.id, *span, run_at_ms, state, PAUSED)
            entries.append(ledger.entry_of(missed, key, now_ms))
        ledger.write(db, entries)


def _changes(db: Db, paused: Schedule) -> tuple[int, list[Change]]:
    """When a schedule was paused, and the changes of its rule since then."""
    last = db.run(
        "SELECT seq, at_ms FROM {p}schedule_events WHERE schedule_id = :id AND kind = 'paused' "
        "ORDER BY seq DESC LIMIT 1",
        id=paused.id,
    ).first()
    rows = db.run(
        "SELECT at_ms, detail FROM {p}schedule_events WHERE schedule_id = :id "
        "AND kind = 'changed' AND seq > :seq AND detail LIKE :rule ORDER BY seq DESC LIMIT :most",
        id=paused.id,
        seq=0 if last is None else last.seq,
        rule=WITH_RULE,
        most=MAX_RULES,
    ).all()
    changes = [Change(row.at_ms, json.loads(row.detail)["trigger"]) for row in reversed(rows)]
    return paused.created_at_ms if last is None else last.at_ms, changes
