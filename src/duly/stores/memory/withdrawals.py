"""Withdrawals in memory: what an edit, a pause or a deletion takes back, and what a pause hid."""

from __future__ import annotations

from msgspec.structs import replace

from duly.jobs import JobState
from duly.ledger import Occurrence, OccurrenceState
from duly.plan_store import PAUSED
from duly.runs import left_of
from duly.schedules import Schedule, ScheduleId
from duly.stores.memory import ledger
from duly.stores.memory.job_moves import move
from duly.stores.memory.tables import Tables
from duly.stores.reigns import MAX_RULES, Change, Lost, lost_times
from duly.stores.spans import in_the_way, spans_left
from duly.triggers import Trigger

_NOT_BEGUN = frozenset({JobState.SCHEDULED, JobState.QUEUED})


def withdraw(
    tables: Tables, now_ms: int, schedule_id: ScheduleId, by: str, *, because: str
) -> list[Occurrence]:
    """Take back planned occurrences that have not begun; extras too, when it is `deleted`."""
    reason = f"withdrawn: schedule {because}"
    jobs = [
        stored.job
        for stored in tables.jobs.values()
        if stored.job.schedule_id == schedule_id and stored.job.state in _NOT_BEGUN
    ]
    # Who holds the marker comes last, so that it goes to nobody who is about to be taken back.
    holder = tables.running.get(schedule_id)
    withdrawn = _withdraw_posts(tables, schedule_id, reason)
    for job in sorted(jobs, key=lambda job: (job.id == holder, job.id)):
        planned = ledger.planned_of(tables, job)
        if planned is None or (planned.reason in ledger.EXTRAS and because != "deleted"):
            continue
        ledger.end_planned(tables, job, OccurrenceState.WITHDRAWN, reason)
        move(tables, now_ms, job, [JobState.CANCELLED], actor=by, reason=reason)
        withdrawn.append(planned)
    return withdrawn


def _withdraw_posts(tables: Tables, schedule_id: ScheduleId, reason: str) -> list[Occurrence]:
    """Take back dispatches that nobody has posted: a claim is counted as a post."""
    withdrawn: list[Occurrence] = []
    for key in [each for each, post in tables.posts.items() if not post.tries]:
        if key[0] == schedule_id:
            del tables.posts[key]
            planned = tables.ledger[key].occurrence
            ledger.put(tables, replace(planned, state=OccurrenceState.WITHDRAWN, reason=reason))
            withdrawn.append(planned)
    return withdrawn


def still_had(withdrawn: list[Occurrence], trigger: Trigger) -> list[int]:
    """Those of the withdrawn times that a rule still has, in order."""
    times = sorted(each.nominal_ms for each in withdrawn)
    return [ms for ms in times if trigger.next_after_ms(ms - 1) == ms]


def write_pause(tables: Tables, now_ms: int, schedule: Schedule) -> None:
    """Write down the times whose run time came between the pause of a schedule and now."""
    if schedule.definition.hand_over == "external":
        return  # its times are an outside scheduler's
    if left_of(schedule) == 0:
        return  # it had no times any more that a pause could have swallowed
    since_ms, changes = schedule.created_at_ms, list[Change]()
    for event in (each for each in tables.events if each.schedule_id == schedule.id):
        if event.kind == "paused":
            since_ms, changes = event.at_ms, []
        elif event.kind == "changed" and "trigger" in event.detail:
            changes.append(Change(event.at_ms, event.detail["trigger"]))
    trigger = schedule.definition.trigger
    for lost in lost_times(trigger, since_ms, changes[-MAX_RULES:], now_ms):
        _write_lost(tables, schedule, lost)


def _write_lost(tables: Tables, schedule: Schedule, lost: Lost) -> None:
    standing = ledger.rows(tables, schedule.id)
    for left in spans_left(lost.rule, lost.whole, in_the_way(lost.rule, standing)):
        hidden = Occurrence(
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
        ledger.put(tables, hidden)
