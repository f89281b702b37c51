"""Health page: checks that distinguish a broken scheduler from an idle one."""

from __future__ import annotations

from duly.operate.alarms import alarms
from duly.web.dashboard.pages.page import Page, Visit


async def health(visit: Visit) -> Page:
    """Show the current alarms and the latest cached findings."""
    summary = await visit.admin.monitoring.due_summary()
    counted = await visit.costly.health.glimpse()
    values = {
        "alarms": alarms(summary),
        "findings": () if counted is None else counted.findings,
        "is_counted": counted is not None,
        "age_s": visit.costly.health.age_s,
        "due_summary": summary,
        "database": visit.app.safe_url,
    }
    return Page("health.html", "Health", "health", values)
