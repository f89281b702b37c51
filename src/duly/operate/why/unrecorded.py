"""Explanations of instants without a ledger row, from the rule, the events and the index row."""

from __future__ import annotations

from datetime import datetime

from duly.model.index_rows import IndexRow
from duly.model.plans import LEDGER_MS
from duly.operate.why.history import Stretch, count_times, is_time, last_before
from duly.operate.why.wording import Inquiry, Told, Verdict
from duly.triggers import Trigger
from duly.triggers.durations import duration_text
from duly.triggers.instants import END_MS, from_ms
from duly.triggers.words import clock_words

_DAY_MS = 86_400_000


def unrecorded(inquiry: Inquiry, lost: datetime | None) -> Told:
    """Explain why the ledger has no row; `lost` is the requested wall time if it does not exist."""
    here = inquiry.here
    if here is None:
        return _before(inquiry)
    rule = here.trigger
    if here.state == "deleted":
        inquiry.note_event(here.since)
        return Verdict.DELETED, (
            f"It did not fire at {inquiry.at}: {inquiry.who(here.since, 'deleted')}."
        )
    if rule is None:
        inquiry.note_event(inquiry.life[-1].since)
        return Verdict.DELETED, (
            f"Unknown: the schedule is deleted, the ledger has no row for {inquiry.at}, and "
            "the rule of that time is no longer stored."
        )
    if here.is_external:
        return _external(inquiry, here, rule)
    end_ms = rule.limits.end_ms
    if end_ms is not None and inquiry.at_ms > end_ms:
        inquiry.note("end_at", inquiry.iso(end_ms))
        return Verdict.FINISHED, (
            f"{inquiry.at} is after its end: there is no time after {inquiry.said(end_ms)}."
        )
    if not is_time(rule, inquiry.at_ms):
        return _not_a_time(inquiry, rule, lost)
    return _of_state(inquiry, here, rule)


def _external(inquiry: Inquiry, here: Stretch, rule: Trigger) -> Told:
    """Explain a time of a schedule that an outside scheduler fires."""
    if here.state == "active":
        return Verdict.EXTERNAL, (
            "Its hand-over is external: an outside scheduler decides when it fires, and no "
            f"dispatch for {inquiry.at} arrived."
        )
    verdict, text = _of_state(inquiry, here, rule)
    return verdict, f"{text} Dispatches of an outside scheduler are refused meanwhile."


def _of_state(inquiry: Inquiry, here: Stretch, rule: Trigger) -> Told:
    """Explain a time of the rule in force then."""
    match here.state:
        case "paused":
            inquiry.note_event(here.since)
            until = "and it still is"
            if here.to_ms < END_MS:
                until = f"until {inquiry.said(here.to_ms)}"
            return Verdict.PAUSED, (
                f"It did not fire at {inquiry.at}: {inquiry.who(here.since, 'paused')}, {until}."
            )
        case "finished":
            return _finished(inquiry, here)
        case "quarantined":
            inquiry.note_event(here.since)
            schedule = inquiry.stored.schedule
            error = None if schedule is None else schedule.error
            if here.since is not None:
                error = here.since.detail.get("error", error)
            when = "" if here.since is None else f" since {inquiry.said(here.since.at_ms)}"
            return Verdict.QUARANTINED, (
                f"It did not fire at {inquiry.at}: its row cannot be evaluated and is quarantined"
                f"{when}: {error or 'no error is stored'}. Fix the schedule, or release it with "
                "`duly schedules release`."
            )
        case _:
            return _active(inquiry, rule)


def _active(inquiry: Inquiry, rule: Trigger) -> Told:
    """Explain a time of an active schedule: still to come, not yet planned, or lost."""
    run_at_ms = inquiry.at_ms + rule.offset_ms
    row = inquiry.stored.row
    inquiry.note("run_at", inquiry.iso(run_at_ms))
    if row is not None:
        inquiry.note("next_time", inquiry.iso(row.nominal_ms))
    if row is None and inquiry.here == inquiry.life[-1]:
        return Verdict.NOT_YET_PLANNED, (
            f"{inquiry.at} is a time of this schedule, which is active but has no index row, so no "
            "planner sees it. `duly doctor` shows how many rows are missing, and `duly doctor "
            "--repair` restores them."
        )
    if run_at_ms > inquiry.now_ms:
        return _to_come(inquiry, rule, run_at_ms, row)
    if row is not None and row.nominal_ms <= inquiry.at_ms:
        is_post = row.hand_over == "http"
        done, runner = ("posted", "tick") if is_post else ("planned", "planner")
        return Verdict.NOT_YET_PLANNED, (
            f"{inquiry.at} was due {duration_text(inquiry.now_ms - run_at_ms)} ago and is not "
            f"{done} yet: the index row still stands at {inquiry.said(row.nominal_ms)}. No "
            f"{runner} runs for this flow, or it is behind; `duly health` shows what is due."
        )
    return _no_record(inquiry)


def _to_come(inquiry: Inquiry, rule: Trigger, run_at_ms: int, row: IndexRow | None) -> Told:
    left = None if row is None else row.runs_left
    if row is not None and left is not None:
        inquiry.note("runs_left", str(left))
        if count_times(rule, row.nominal_ms, inquiry.at_ms) >= left:
            return Verdict.FINISHED, (
                f"It will not fire at {inquiry.at}: {left} runs are left, and earlier times take "
                "them."
            )
    is_post = row is not None and row.hand_over == "http"
    then = (
        "A tick posts it when it comes." if is_post else "A planner makes its job shortly before."
    )
    return Verdict.WILL_FIRE, (
        f"It has not come yet: {inquiry.at} is a time of this schedule, in "
        f"{duration_text(run_at_ms - inquiry.now_ms)}. {then}"
    )


def _no_record(inquiry: Inquiry) -> Told:
    event = inquiry.next_event()
    if inquiry.at_ms < inquiry.now_ms - LEDGER_MS:
        because = f"the ledger is kept for {LEDGER_MS // _DAY_MS} days, and this is older"
    elif event is not None:
        inquiry.note_event(event)
        because = f"{inquiry.who(event, event.kind)}, and its times were recomputed from there"
    else:
        because = "a claim that keeps no ledger took it, or the row was removed"
    return Verdict.NO_RECORD, (
        f"{inquiry.at} was a time of this schedule, but the ledger has no row for it: {because}."
    )


def _finished(inquiry: Inquiry, here: Stretch) -> Told:
    inquiry.note_event(here.since)
    schedule = inquiry.stored.schedule
    most = None if schedule is None else schedule.definition.max_runs
    because = "there was no next time" if most is None else f"its {most} runs were used up"
    when = "" if here.since is None else f" on {inquiry.said(here.since.at_ms)}"
    return Verdict.FINISHED, (
        f"It did not fire at {inquiry.at}: the schedule had finished{when}, since {because}."
    )


def _before(inquiry: Inquiry) -> Told:
    made_ms = inquiry.life[0].from_ms if inquiry.life else inquiry.now_ms
    created = next((each for each in inquiry.stored.events if each.kind == "created"), None)
    by = "" if created is None else f" by {created.by}"
    inquiry.note("created_at", inquiry.iso(made_ms))
    return Verdict.BEFORE_CREATION, (
        f"{inquiry.at} is before the schedule, which was created on {inquiry.said(made_ms)}{by}."
    )


def _not_a_time(inquiry: Inquiry, rule: Trigger, lost: datetime | None) -> Told:
    neighbours = []
    for side, ms in (
        ("before", last_before(rule, inquiry.at_ms)),
        ("after", rule.next_after_ms(inquiry.at_ms)),
    ):
        if ms is not None:
            inquiry.note(side, inquiry.iso(ms))
            (time,) = rule.explain(1, from_ms(ms - 1)).times
            remark = "" if time.remark is None else f" ({time.remark})"
            neighbours.append(f"the one {side} is {inquiry.said(ms)}{remark}")
    named = f"; {', '.join(neighbours)}" if neighbours else ""
    return Verdict.NOT_A_TIME, (
        f"{_lost_words(inquiry, rule, lost)}{inquiry.at} is not a time of this schedule "
        f"({inquiry.rule(rule)}){named}."
    )


def _lost_words(inquiry: Inquiry, rule: Trigger, lost: datetime | None) -> str:
    """Return a sentence if the requested wall time does not exist, with the gap policy's effect."""
    core = rule.core
    if lost is None or core is None:
        return ""
    missing = f"{clock_words(lost)} does not exist on {lost:%Y-%m-%d} in {inquiry.zone}"
    wall = _seconds(lost)
    if core.is_open_hour or core.next_wall(wall - 1) != wall:
        return f"{missing}. "
    if core.gap == "skip":
        return f"{missing}; gap=skip leaves it out. "
    moved = last_before(rule, inquiry.at_ms + 1)
    to = "" if moved is None else f" to {clock_words(inquiry.local(moved))}"
    return f"{missing}; gap={core.gap} moved it{to}. "


def _seconds(wall: datetime) -> int:
    """Return a wall time in seconds since 1970, as the triggers count it."""
    days = wall.toordinal() - datetime(1970, 1, 1).toordinal()  # noqa: DTZ001 - a wall, no zone
    return days * 86_400 + wall.hour * 3_600 + wall.minute * 60 + wall.second
