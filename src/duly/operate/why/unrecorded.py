"""Explanations of instants without a ledger row, from the rule, the events and the index row."""

from __future__ import annotations

from datetime import datetime

from duly.model.index_rows import IndexRow
from duly.model.plans import LEDGER_MS
from duly.operate.why.history import Stretch, count_times, is_time, last_before
from duly.operate.why.wording import Telling, Told, Verdict
from duly.triggers import Trigger
from duly.triggers.durations import duration_text
from duly.triggers.instants import END_MS, from_ms
from duly.triggers.words import clock_words

_DAY_MS = 86_400_000


def unrecorded(telling: Telling, lost: datetime | None) -> Told:
    """Explain why the ledger has no row; `lost` is the requested wall time if it does not exist."""
    here = telling.here
    if here is None:
        return _before(telling)
    rule = here.trigger
    if here.state == "deleted":
        telling.note_event(here.since)
        return Verdict.DELETED, (
            f"It did not fire at {telling.at}: {telling.who(here.since, 'deleted')}."
        )
    if rule is None:
        telling.note_event(telling.life[-1].since)
        return Verdict.DELETED, (
            f"Unknown: the schedule is deleted, the ledger has no row for {telling.at}, and "
            "the rule of that time is no longer stored."
        )
    if here.is_external:
        return _external(telling, here, rule)
    end_ms = rule.limits.end_ms
    if end_ms is not None and telling.at_ms > end_ms:
        telling.note("end_at", telling.iso(end_ms))
        return Verdict.FINISHED, (
            f"{telling.at} is after its end: there is no time after {telling.said(end_ms)}."
        )
    if not is_time(rule, telling.at_ms):
        return _not_a_time(telling, rule, lost)
    return _of_state(telling, here, rule)


def _external(telling: Telling, here: Stretch, rule: Trigger) -> Told:
    """Explain a time of a schedule that an outside scheduler fires."""
    if here.state == "active":
        return Verdict.EXTERNAL, (
            "Its hand-over is external: an outside scheduler decides when it fires, and no "
            f"dispatch for {telling.at} arrived."
        )
    verdict, text = _of_state(telling, here, rule)
    return verdict, f"{text} Dispatches of an outside scheduler are refused meanwhile."


def _of_state(telling: Telling, here: Stretch, rule: Trigger) -> Told:
    """Explain a time of the rule in force then."""
    match here.state:
        case "paused":
            telling.note_event(here.since)
            until = "and it still is"
            if here.to_ms < END_MS:
                until = f"until {telling.said(here.to_ms)}"
            return Verdict.PAUSED, (
                f"It did not fire at {telling.at}: {telling.who(here.since, 'paused')}, {until}."
            )
        case "finished":
            return _finished(telling, here)
        case "quarantined":
            telling.note_event(here.since)
            schedule = telling.stored.schedule
            error = None if schedule is None else schedule.error
            if here.since is not None:
                error = here.since.detail.get("error", error)
            when = "" if here.since is None else f" since {telling.said(here.since.at_ms)}"
            return Verdict.QUARANTINED, (
                f"It did not fire at {telling.at}: its row cannot be evaluated and is quarantined"
                f"{when}: {error or 'no error is stored'}. Fix the schedule, or release it with "
                "`duly schedules release`."
            )
        case _:
            return _active(telling, rule)


def _active(telling: Telling, rule: Trigger) -> Told:
    """Explain a time of an active schedule: still to come, not yet planned, or lost."""
    run_at_ms = telling.at_ms + rule.offset_ms
    row = telling.stored.row
    telling.note("run_at", telling.iso(run_at_ms))
    if row is not None:
        telling.note("next_time", telling.iso(row.nominal_ms))
    if row is None and telling.here == telling.life[-1]:
        return Verdict.NOT_YET_PLANNED, (
            f"{telling.at} is a time of this schedule, which is active but has no index row, so no "
            "planner sees it. `duly doctor` shows how many rows are missing, and `duly doctor "
            "--repair` restores them."
        )
    if run_at_ms > telling.now_ms:
        return _to_come(telling, rule, run_at_ms, row)
    if row is not None and row.nominal_ms <= telling.at_ms:
        is_post = row.hand_over == "http"
        done, runner = ("posted", "tick") if is_post else ("planned", "planner")
        return Verdict.NOT_YET_PLANNED, (
            f"{telling.at} was due {duration_text(telling.now_ms - run_at_ms)} ago and is not "
            f"{done} yet: the index row still stands at {telling.said(row.nominal_ms)}. No "
            f"{runner} runs for this flow, or it is behind; `duly health` shows what is due."
        )
    return _no_record(telling)


def _to_come(telling: Telling, rule: Trigger, run_at_ms: int, row: IndexRow | None) -> Told:
    left = None if row is None else row.runs_left
    if row is not None and left is not None:
        telling.note("runs_left", str(left))
        if count_times(rule, row.nominal_ms, telling.at_ms) >= left:
            return Verdict.FINISHED, (
                f"It will not fire at {telling.at}: {left} runs are left, and earlier times take "
                "them."
            )
    is_post = row is not None and row.hand_over == "http"
    then = (
        "A tick posts it when it comes." if is_post else "A planner makes its job shortly before."
    )
    return Verdict.WILL_FIRE, (
        f"It has not come yet: {telling.at} is a time of this schedule, in "
        f"{duration_text(run_at_ms - telling.now_ms)}. {then}"
    )


def _no_record(telling: Telling) -> Told:
    event = telling.next_event()
    if telling.at_ms < telling.now_ms - LEDGER_MS:
        because = f"the ledger is kept for {LEDGER_MS // _DAY_MS} days, and this is older"
    elif event is not None:
        telling.note_event(event)
        because = f"{telling.who(event, event.kind)}, and its times were recomputed from there"
    else:
        because = "a claim that keeps no ledger took it, or the row was removed"
    return Verdict.NO_RECORD, (
        f"{telling.at} was a time of this schedule, but the ledger has no row for it: {because}."
    )


def _finished(telling: Telling, here: Stretch) -> Told:
    telling.note_event(here.since)
    schedule = telling.stored.schedule
    most = None if schedule is None else schedule.definition.max_runs
    because = "there was no next time" if most is None else f"its {most} runs were used up"
    when = "" if here.since is None else f" on {telling.said(here.since.at_ms)}"
    return Verdict.FINISHED, (
        f"It did not fire at {telling.at}: the schedule had finished{when}, since {because}."
    )


def _before(telling: Telling) -> Told:
    made_ms = telling.life[0].from_ms if telling.life else telling.now_ms
    created = next((each for each in telling.stored.events if each.kind == "created"), None)
    by = "" if created is None else f" by {created.by}"
    telling.note("created_at", telling.iso(made_ms))
    return Verdict.BEFORE_CREATION, (
        f"{telling.at} is before the schedule, which was created on {telling.said(made_ms)}{by}."
    )


def _not_a_time(telling: Telling, rule: Trigger, lost: datetime | None) -> Told:
    neighbours = []
    for side, ms in (
        ("before", last_before(rule, telling.at_ms)),
        ("after", rule.next_after_ms(telling.at_ms)),
    ):
        if ms is not None:
            telling.note(side, telling.iso(ms))
            (time,) = rule.explain(1, from_ms(ms - 1)).times
            remark = "" if time.remark is None else f" ({time.remark})"
            neighbours.append(f"the one {side} is {telling.said(ms)}{remark}")
    named = f"; {', '.join(neighbours)}" if neighbours else ""
    return Verdict.NOT_A_TIME, (
        f"{_lost_words(telling, rule, lost)}{telling.at} is not a time of this schedule "
        f"({telling.rule(rule)}){named}."
    )


def _lost_words(telling: Telling, rule: Trigger, lost: datetime | None) -> str:
    """Return a sentence if the requested wall time does not exist, with the gap policy's effect."""
    core = rule.core
    if lost is None or core is None:
        return ""
    missing = f"{clock_words(lost)} does not exist on {lost:%Y-%m-%d} in {telling.zone}"
    wall = _seconds(lost)
    if core.is_open_hour or core.next_wall(wall - 1) != wall:
        return f"{missing}. "
    if core.gap == "skip":
        return f"{missing}; gap=skip leaves it out. "
    moved = last_before(rule, telling.at_ms + 1)
    to = "" if moved is None else f" to {clock_words(telling.local(moved))}"
    return f"{missing}; gap={core.gap} moved it{to}. "


def _seconds(wall: datetime) -> int:
    """Return a wall time in seconds since 1970, as the triggers count it."""
    days = wall.toordinal() - datetime(1970, 1, 1).toordinal()  # noqa: DTZ001 - a wall, no zone
    return days * 86_400 + wall.hour * 3_600 + wall.minute * 60 + wall.second
