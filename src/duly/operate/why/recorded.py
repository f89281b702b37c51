"""Explanations of instants that have a ledger row: the row decides."""

from __future__ import annotations

from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.plans import BACKFILL, PAUSED, RUN_NOW
from duly.operate.why.wording import Inquiry, Told, Verdict
from duly.triggers.durations import duration_text

_ASKED_FOR = {
    RUN_NOW: " It was requested with run_now.",
    BACKFILL: " It was requested by a backfill.",
}


def recorded(inquiry: Inquiry, row: Occurrence) -> Told:
    """Explain an instant by its ledger row."""
    inquiry.note("state", row.state.value)
    for name, value in (("job", row.job_id), ("reason", row.reason)):
        if value is not None:
            inquiry.note(name, value)
    moments = (
        ("run_at", row.run_at_ms),
        ("fired_at", row.fired_at_ms),
        ("ended_at", row.ended_at_ms),
    )
    for name, ms in moments:
        if ms is not None:
            inquiry.note(name, inquiry.iso(ms))
    verdict, text = _of_state(inquiry, row)
    return verdict, text + _ASKED_FOR.get(row.reason or "", "")


def _of_state(inquiry: Inquiry, row: Occurrence) -> Told:
    match row.state:
        case OccurrenceState.PLANNED:
            return _planned(inquiry, row)
        case OccurrenceState.DISPATCHING:
            return Verdict.DISPATCHING, (
                f"{inquiry.at} is being posted: a tick has claimed it, and the endpoint has not "
                "accepted it."
            )
        case OccurrenceState.FIRED | OccurrenceState.SUCCEEDED | OccurrenceState.FAILED:
            return _fired(inquiry, row)
        case OccurrenceState.SKIPPED:
            because = row.reason or "its job was cancelled before it began"
            return Verdict.SKIPPED, f"{inquiry.at} was skipped: {because}."
        case OccurrenceState.MISSED:
            return _missed(inquiry, row)
        case OccurrenceState.WITHDRAWN:
            return _withdrawn(inquiry, row)
        case OccurrenceState.DENIED:
            because = "" if row.reason is None else f" ({row.reason})"
            return Verdict.DENIED, (
                f"{inquiry.at} was denied: when its time came, its principal was not allowed to "
                f"run it{because}."
            )
        case OccurrenceState.QUARANTINED:
            return Verdict.QUARANTINED, (
                f"{inquiry.at} did not fire: its row could not be evaluated and was quarantined: "
                f"{row.reason or 'no error is stored'}. Once the schedule is released with "
                "`duly schedules release`, or fixed without a change of its timing, the misfire "
                "policy decides about this time; a backfill can also run it."
            )


def _planned(inquiry: Inquiry, row: Occurrence) -> Told:
    if row.run_at_ms > inquiry.now_ms:
        return Verdict.WILL_FIRE, (
            f"It is planned: job {row.job_id} waits for {inquiry.said(row.run_at_ms)}, in "
            f"{duration_text(row.run_at_ms - inquiry.now_ms)}."
        )
    return Verdict.LATE, (
        f"It is late: job {row.job_id} was due {duration_text(inquiry.now_ms - row.run_at_ms)} ago "
        "and has not begun. Either no worker serves its queue, or all are busy, or an earlier run "
        f"has not ended; `duly jobs show {row.job_id}` and `duly workers` show which."
    )


def _fired(inquiry: Inquiry, row: Occurrence) -> Told:
    job = "" if row.job_id is None else f" as job {row.job_id}"
    began = ""
    if row.fired_at_ms is not None:
        late_ms = row.fired_at_ms - row.run_at_ms
        inquiry.note("late_ms", str(late_ms))
        began = f", which began {duration_text(max(0, late_ms))} after its run time"
    ended = "" if row.ended_at_ms is None else f" on {inquiry.said(row.ended_at_ms)}"
    if row.state is OccurrenceState.FAILED:
        because = "" if row.reason is None else f" ({row.reason})"
        return Verdict.FAILED, f"{inquiry.at} ran{job}{began}, and failed for good{ended}{because}."
    end = f", and succeeded{ended}" if row.state is OccurrenceState.SUCCEEDED else ""
    if row.state is OccurrenceState.FIRED and began:
        end = ", and has not ended"
    return Verdict.FIRED, f"It fired: {inquiry.at} ran{job}{began}{end}."


def _missed(inquiry: Inquiry, row: Occurrence) -> Told:
    what = f"{inquiry.at} was"
    if row.is_range:
        inquiry.note("first", inquiry.iso(row.nominal_ms))
        inquiry.note("last", inquiry.iso(row.until_ms))
        inquiry.note("times", str(row.count))
        what = (
            f"{inquiry.at} is one of {row.count} times, from {inquiry.said(row.nominal_ms)} to "
            f"{inquiry.said(row.until_ms)}, that were"
        )
    if row.reason == PAUSED:
        return Verdict.PAUSED, f"{what} swallowed by a pause{_pause(inquiry)}."
    schedule = inquiry.stored.schedule
    grace = "the grace"
    if schedule is not None:
        grace_ms = schedule.definition.policies.grace_ms
        inquiry.note("grace_ms", str(grace_ms))
        grace = f"the grace of {duration_text(grace_ms)}"
    return Verdict.MISSED, (
        f"{what} missed: no planner or tick claimed it within {grace}, and the misfire policy "
        f"{row.reason or 'skip'} swallowed it. A backfill can run it."
    )


def _pause(inquiry: Inquiry) -> str:
    paused = inquiry.here
    if paused is None or paused.state != "paused":
        return ""
    inquiry.note_event(paused.since)
    return f": {inquiry.who(paused.since, 'paused')}"


def _withdrawn(inquiry: Inquiry, row: Occurrence) -> Told:
    because = "" if row.reason is None else f" ({row.reason})"
    event = inquiry.next_event()
    inquiry.note_event(event)
    who = "" if event is None else f": {inquiry.who(event, event.kind)}"
    return Verdict.WITHDRAWN, f"{inquiry.at} was planned and then taken back{because}{who}."
