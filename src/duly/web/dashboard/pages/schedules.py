"""Schedule pages: search over all owners, one schedule with times and ledger, and its actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import cast, get_args
from zoneinfo import ZoneInfo

import msgspec

from duly.engine.ids import new_id
from duly.errors import InvalidInput
from duly.model.run_options import RunOptions, options_of
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import HandOver, Policies, ScheduleState
from duly.operate.schedule_views import OccurrenceView, ScheduleView
from duly.triggers.words import clock_words
from duly.web.dashboard.calendar import planned_days, with_plans
from duly.web.dashboard.charts import Day, past_days
from duly.web.dashboard.pages.page import Done, Page, PageAction, PageRequest

PAGE_SIZE = 50
LEDGER_READ = 400
STRIP = 60
LEDGER_SHOWN = 25
NEXT_TIMES = 8


async def schedules(page_request: PageRequest) -> Page:
    """Show one page of schedules."""
    which = filter_of(page_request)
    after = page_request.word("after")
    found = await page_request.admin.schedules.search(which, after=after, limit=PAGE_SIZE + 1)
    page = found[:PAGE_SIZE]
    values = {
        "schedules": page,
        "which": which,
        "states": get_args(ScheduleState),
        "hand_overs": get_args(HandOver),
        "flows": sorted(each.name for each in page_request.app.flows),
        "following": page[-1].key if len(found) > PAGE_SIZE else None,
        "is_filtered": which != ScheduleFilter(),
    }
    return Page("schedules.html", "Schedules", "schedules", values, is_live=after is None)


def filter_of(page_request: PageRequest) -> ScheduleFilter:
    """Return the filter of a query."""
    return ScheduleFilter(
        flow=page_request.word("flow"),
        scope=page_request.word("scope"),
        state=cast(ScheduleState | None, _chosen(page_request, "state", get_args(ScheduleState))),
        name_prefix=page_request.word("name") or "",
        hand_over=cast(HandOver | None, _chosen(page_request, "hand_over", get_args(HandOver))),
    )


def _chosen(page_request: PageRequest, field: str, allowed: Sequence[str]) -> str | None:
    """Return a query field, or None; refuse values that are not allowed."""
    given = page_request.word(field)
    if given is not None and given not in allowed:
        raise InvalidInput(f"{field} {given[:30]!r}; allowed: {', '.join(allowed)}")
    return given


def key_of(page_request: PageRequest) -> ScheduleKey:
    """Return the key of a schedule from a query or form."""
    return ScheduleKey(
        page_request.need("flow"), page_request.need("scope"), page_request.need("name")
    )


async def schedule(page_request: PageRequest) -> Page:
    """Show one schedule."""
    key = key_of(page_request)
    detail = await page_request.admin.schedules.show(key, times=NEXT_TIMES, limit=LEDGER_READ)
    seen = detail.schedule
    zone = ZoneInfo(seen.zone)
    asked = page_request.word("at")
    rows = detail.occurrences
    policies = msgspec.convert(seen.policies, Policies)
    values = {
        "detail": detail,
        "seen": seen,
        "zone": zone,
        "key": {"flow": key.flow, "scope": key.scope, "name": key.name},
        "days": calendar(seen, rows, page_request.now),
        "today": page_request.now.astimezone(zone).date(),
        "marks": [mark(each, zone) for each in reversed(rows[:STRIP])],
        "ledger": rows[:LEDGER_SHOWN],
        "tally": tally(rows),
        "asked": asked,
        "answer": None
        if asked is None
        else await page_request.admin.why(key, instant(asked, zone)),
        "policies": policies,
        "runs": _run_options(page_request, seen, policies),
        "request_id": new_id("run_"),
        "audit": await page_request.admin.monitoring.audit(target=f"schedule:{seen.id}", limit=20),
    }
    return Page("schedule.html", f"{seen.name} · schedule", "schedules", values)


def _run_options(
    page_request: PageRequest, seen: ScheduleView, policies: Policies
) -> RunOptions | Policies:
    """Return the run options of its jobs; for an unknown action, only what the schedule sets."""
    name = f"{seen.flow}.{seen.action}"
    for flow in page_request.app.flows:
        for action in flow.actions.values():
            if action.name == name:
                return options_of(policies, action.options.run)
    return policies


def instant(text: str, zone: ZoneInfo) -> datetime:
    """Parse an ISO-8601 time; without an offset it is local time in `zone`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text[:40]!r} is not a time; write 2026-03-29T02:30") from None
    return found.replace(tzinfo=zone) if found.tzinfo is None else found


def calendar(
    seen: ScheduleView, rows: Sequence[OccurrenceView], now: datetime
) -> Mapping[date, Day]:
    """Return the past and planned days of a schedule."""
    zone = ZoneInfo(seen.zone)
    past = past_days(
        (each.nominal_at.astimezone(zone).date(), each.state.value, each.times) for each in rows
    )
    plans = planned_days(seen.trigger, now) if seen.state == "active" else {}
    return with_plans(past, plans)


def mark(each: OccurrenceView, zone: ZoneInfo) -> tuple[str, str]:
    """Return the state and label of an occurrence, for the strip."""
    at = each.nominal_at.astimezone(zone)
    times = f" ({each.times:,} times)" if each.times > 1 else ""
    return each.state.value, f"{at:%a %Y-%m-%d} {clock_words(at)}: {each.state}{times}"


def tally(rows: Sequence[OccurrenceView]) -> Mapping[str, int]:
    """Count occurrences by state."""
    found: dict[str, int] = {}
    for each in rows:
        found[each.state.value] = found.get(each.state.value, 0) + each.times
    return dict(sorted(found.items()))


def by(page_request: PageRequest) -> str:
    """Return an operator's name as recorded in the events of a schedule."""
    return f"operator:{page_request.operator.name}"


async def _pause(page_request: PageRequest) -> Done:
    key = key_of(page_request)
    await page_request.admin.schedules.pause(
        key, page_request.word("note") or "", by=by(page_request)
    )
    return Done(f"{key.name} is paused.")


async def _resume(page_request: PageRequest) -> Done:
    key = key_of(page_request)
    await page_request.admin.schedules.resume(key, by=by(page_request))
    return Done(f"{key.name} is active again.")


async def _run_now(page_request: PageRequest) -> Done:
    key = key_of(page_request)
    made = await page_request.admin.schedules.run_now(key, page_request.need("request"))
    return Done(f"Extra run of {key.name}: {made.state}.")


async def _backfill(page_request: PageRequest) -> Done:
    key = key_of(page_request)
    zone = ZoneInfo((await page_request.admin.schedules.get(key)).zone)
    since, until = (instant(page_request.need(each), zone) for each in ("from", "to"))
    found = await page_request.admin.schedules.backfill(key, since, until)
    return Done(f"{found.planned:,} past times will run, {found.left_alone:,} were left alone.")


async def _release(page_request: PageRequest) -> Done:
    key = key_of(page_request)
    found = await page_request.admin.schedules.release(key, by=by(page_request))
    return Done(f"{key.name} is {found.state}.")


async def _delete(page_request: PageRequest) -> Done:
    key = key_of(page_request)
    await page_request.admin.schedules.delete(key, by=by(page_request))
    return Done(f"{key.name} is deleted; its history stays.", "/schedules")


ACTIONS = {
    "/schedule/pause": PageAction("schedule.pause", _pause, "schedule:{id}"),
    "/schedule/resume": PageAction("schedule.resume", _resume, "schedule:{id}"),
    "/schedule/run": PageAction("schedule.run", _run_now, "schedule:{id}"),
    "/schedule/backfill": PageAction("schedule.backfill", _backfill, "schedule:{id}"),
    "/schedule/release": PageAction("schedule.release", _release, "schedule:{id}"),
    "/schedule/delete": PageAction("schedule.delete", _delete, "schedule:{id}"),
}
