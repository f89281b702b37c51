"""Health page: checks that distinguish a broken scheduler from an idle one."""

from __future__ import annotations

from duly.operate.alarms import alarms
from duly.web.dashboard.pages.page import Page, PageRequest


async def health(page_request: PageRequest) -> Page:
    """Show the current alarms and the latest cached findings."""
    summary = await page_request.admin.monitoring.due_summary()
    counted = await page_request.costly.health.try_now()
    values = {
        "alarms": alarms(summary),
        "findings": () if counted is None else counted.findings,
        "is_counted": counted is not None,
        "age_s": page_request.costly.health.age_s,
        "due_summary": summary,
        "database": page_request.app.safe_url,
    }
    return Page("health.html", "Health", "health", values)
