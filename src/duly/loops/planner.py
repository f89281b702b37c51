"""The planner: from rows whose time has come to jobs.

Drains what is due, then waits until the next row is, and never longer than its period: another
node may have stored an earlier one. Any number of planners may run; the store gives each row to
one of them.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from duly.errors import BackendUnavailable
from duly.loops.patience import Backoff, Signal, in_loop
from duly.plan_store import PlanReport, PlanRequest
from duly.store import Store

log = logging.getLogger(__name__)

_ROUND_S = 30.0
"""How long a round may go on taking full batches."""


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """How a planner plans."""

    period_s: float = 10.0
    """The longest wait between two looks."""
    quick_period_s: float = 1.0
    """The same where the backend sends no notices of new schedules."""
    look_ahead_s: float = 0.0
    """How long before its run time a job is made."""
    limit: int = 1_000
    """Rows in one transaction."""
    flows: tuple[str, ...] | None = None
    """Only these; None: all, or those of the application that makes the planner."""


class Planner:
    """The loop."""

    def __init__(self, store: Store, options: PlannerOptions | None = None) -> None:
        self._store = store
        self._options = options = PlannerOptions() if options is None else options
        has_notices = store.capabilities.notifies
        self._period_s = options.period_s if has_notices else options.quick_period_s
        self._request = PlanRequest(
            look_ahead_ms=int(self._options.look_ahead_s * 1000),
            limit=self._options.limit,
            flows=self._options.flows,
        )
        self._wake = Signal()
        self._is_stopping = False

    def stop(self) -> None:
        """End after the current step."""
        self._is_stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Plan until stopped."""
        backoff = Backoff()
        end_listening = self._store.listen(in_loop(asyncio.get_running_loop(), self._on_hint))
        try:
            while not self._is_stopping:
                try:
                    report = await self.run_once()
                    backoff.reset()
                    pause_s = self._pause_s(report)
                except BackendUnavailable as error:
                    log.warning("planner: %s", error, extra={"event": "planner.unavailable"})
                    pause_s = backoff.next()
                await self._wake.wait(pause_s)
        finally:
            end_listening()

    def _on_hint(self, hint: str) -> None:
        if hint in ("schedules:*", "queue:*"):
            self._wake.set()

    async def run_once(self) -> PlanReport:
        """Plan until nothing is left that is due, or for so long; gives the sum of the steps."""
        clock = asyncio.get_running_loop()
        until = clock.time() + _ROUND_S
        total = PlanReport()
        while True:
            step = await self._store.plan_occurrences(self._request)
            total = _sum(total, step)
            if not self._has_more(step) or self._is_stopping or clock.time() >= until:
                break
        if total.quarantined:
            log.warning(
                "planner: %d rows were quarantined",
                total.quarantined,
                extra={"event": "planner.quarantined"},
            )
        return total

    def _has_more(self, step: PlanReport) -> bool:
        """Whether another step would find rows; one may be due for longer than a plan reaches."""
        if step.rows == self._request.limit:
            return True
        return step.rows > 0 and (due_ms := self._due_in_ms(step)) is not None and due_ms <= 0

    def _due_in_ms(self, step: PlanReport) -> int | None:
        """How long until the next row may be planned."""
        if step.next_run_at_ms is None:
            return None
        return step.next_run_at_ms - self._request.look_ahead_ms - step.now_ms

    def _pause_s(self, report: PlanReport) -> float:
        due_ms = self._due_in_ms(report)
        # What is due still, after a round, is held by another planner or waits for a newer one.
        if due_ms is None or due_ms <= 0:
            return self._period_s
        return min(due_ms / 1000, self._period_s)


def _sum(total: PlanReport, step: PlanReport) -> PlanReport:
    """What both did; the times are those of the later one."""
    return replace(
        step,
        rows=total.rows + step.rows,
        planned=total.planned + step.planned,
        missed=total.missed + step.missed,
        finished=total.finished + step.finished,
        quarantined=total.quarantined + step.quarantined,
    )
