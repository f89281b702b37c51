"""Liveness and readiness probes.

They need no authentication, so they report check names and levels, never schedules or owners.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from duly.errors import DulyError
from duly.model.summaries import DueSummary
from duly.operate.alarms import alarms
from duly.web.dashboard.cached import Kept
from duly.web.dashboard.pages.page import MonitoredApp

WAIT_LIMIT_S = 3.0
_FRESH_S = 2.0


class Probes:
    """`/healthz` and `/readyz` of one application."""

    def __init__(self, app: MonitoredApp) -> None:
        self._app = app
        # The database is read every two seconds at most, however many probes come. A slow answer
        # is kept no longer than it took, since the database may have recovered.
        self._summary: Kept[tuple[DueSummary | None]] = Kept(
            self._look, for_s=_FRESH_S, rest_factor=1
        )
        self.routes = [Route("/healthz", self._is_alive), Route("/readyz", self._is_ready)]

    async def _is_alive(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _is_ready(self, request: Request) -> Response:
        # Longer than the timeout of `_look`: otherwise a hung store would repeat the last answer.
        (summary,) = await self._summary.get(WAIT_LIMIT_S + 1) or (None,)
        checks = {"store": "bad" if summary is None else "ok"}
        # Load balancers use only=store: the pages are needed most when schedules do not run.
        if summary is not None and request.query_params.get("only") != "store":
            checks |= {each.name.replace(" ", "_"): each.level for each in alarms(summary)}
        is_ready = "bad" not in checks.values()
        answer = {"status": "ok" if is_ready else "bad", "checks": checks}
        return JSONResponse(answer, 200 if is_ready else 503)

    async def _look(self) -> tuple[DueSummary | None]:
        """Read the store; None: it did not answer in time or accepts no writes."""
        try:
            async with asyncio.timeout(WAIT_LIMIT_S):
                await self._app.admin.monitoring.check_writable()
                return (await self._app.admin.monitoring.due_summary(),)
        except (DulyError, TimeoutError):
            return (None,)
