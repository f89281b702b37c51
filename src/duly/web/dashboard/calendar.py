"""Upcoming days of a schedule's calendar: fires of its rule per day. Pure and bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from duly.errors import DulyError
from duly.triggers import parse_trigger
from duly.triggers.instants import from_ms, to_ms
from duly.web.dashboard.charts import Day

DAYS = 98
MAX_TIMES = 1_000
_DAY_MS = 86_400_000


def planned_days(stored: Mapping[str, Any], now: datetime, days: int = DAYS) -> dict[date, int]:
    """Return upcoming fires by day in the rule's zone; empty if the rule cannot be read."""
    try:
        trigger = parse_trigger(stored)
    except DulyError:
        return {}
    if not trigger.is_bound:
        return {}
    zone, found = ZoneInfo(trigger.tz), Counter[date]()
    start_ms = last_ms = to_ms(now)
    until_ms = start_ms + days * _DAY_MS
    count = 0
    while (following := trigger.next_after_ms(last_ms)) is not None and following <= until_ms:
        last_ms, count = following, count + 1
        found[from_ms(following).astimezone(zone).date()] += 1
        if count == MAX_TIMES:
            # Very frequent rule: extrapolate the remaining days from those counted.
            each = round(count * _DAY_MS / (last_ms - start_ms))
            for ms in range(last_ms + _DAY_MS, until_ms, _DAY_MS):
                found[from_ms(ms).astimezone(zone).date()] = each
            break
    return dict(found)


def with_plans(past: Mapping[date, Day], plans: Mapping[date, int]) -> dict[date, Day]:
    """Merge past days with planned fires."""
    days = dict(past)
    for day, fires in plans.items():
        before = days.get(day)
        if before is None:
            days[day] = Day(fires, "wait", f"{fires:,} planned")
        else:
            words = f"{before.words}; {fires:,} to come"
            days[day] = Day(before.fires + fires, before.tone, words)
    return days
