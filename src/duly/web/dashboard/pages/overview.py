"""Overview page: due rows, lateness, ended jobs, next fires and forecast."""

from __future__ import annotations

from duly.model.jobs import JobState
from duly.model.stored_jobs import JobFilter
from duly.web.dashboard.icons import tone
from duly.web.dashboard.pages.page import Page, PageRequest

_LATELY_DEAD = 5


async def overview(page_request: PageRequest) -> Page:
    """Show a summary of the whole system."""
    seen = await page_request.costly.overview.get()
    dead, _ = await page_request.admin.job_page(JobFilter(state=JobState.DEAD), limit=_LATELY_DEAD)
    states = [
        (state.value, seen.states.get(state, 0), tone(state))
        for state in JobState
        if state is not JobState.FAILED
    ]
    values = {
        "seen": seen,
        "forecast": await page_request.costly.forecast.try_now(),
        "states": states,
        "dead": dead,
        "late": {share: seen.late_ms(share / 100) for share in (50, 95, 99)},
        "per_minute": [each.ended for each in seen.minutes],
    }
    return Page("overview.html", "Overview", "overview", values)
