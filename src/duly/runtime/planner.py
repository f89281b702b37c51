"""The planner: from rows whose time has come to jobs.

Drains what comes due within its look-ahead, then rests until more does, and never longer than its
period. What is stored with a time inside the look-ahead is planned by its writer, so resting makes
nothing late. Any number of planners may run; the store gives each row to one of them.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from duly.model.plans import PlanReport, PlanRequest
from duly.runtime.backoff import STORE_FAILURES, Backoff, Signal
from duly.stores.port import Store

log = logging.getLogger(__name__)

LOOK_AHEAD_S = 60.0
_ROUND_S = 30.0
"""How long a round may go on taking full batches."""


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """How a planner plans."""

    period_s: float = 10.0
    """The longest wait between two looks; shorter than the look-ahead."""
    look_ahead_s: float | None = None
    """How long before its run time a job is made; None: as long as the application says."""
    limit: int = 1_000
    """Rows in one transaction."""
    flows: tuple[str, ...] | None = None
    """Only these; None: all, or those of the application that makes the planner."""


class Planner:
    """The loop."""

    def __init__(self, store: Store, options: PlannerOptions | None = None) -> None:
        self._store = store
        self._options = PlannerOptions() if options is None else options
        self._request = PlanRequest(
            look_ahead_ms=int(_look_ahead_s(self._options) * 1000),
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
        while not self._is_stopping:
            try:
                report = await self.run_once()
                backoff.reset()
                pause_s = self._pause_s(report)
            except STORE_FAILURES as error:
                log.warning("planner: %s", error, extra={"event": "planner.unavailable"})
                pause_s = backoff.next()
            await self._wake.wait(pause_s)

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
        if total.rows:
            _tell(total)
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
        """As long as the next row is planned half a look-ahead before its time, or earlier.

        Waking for each row as it comes into reach would make a transaction of every row.
        """
        due_ms = self._due_in_ms(report)
        # What is due still, after a round, is held by another planner or waits for a newer one.
        if due_ms is None or due_ms <= 0:
            return self._options.period_s
        return min((due_ms + self._request.look_ahead_ms / 2) / 1000, self._options.period_s)


def _tell(total: PlanReport) -> None:
    names = ("rows", "planned", "missed", "skipped", "finished", "quarantined")
    counts = {name: getattr(total, name) for name in names}
    log.info(
        "planner: %d jobs of %d schedules",
        total.planned,
        total.rows,
        extra={"event": "planner.planned", **counts},
    )


def _look_ahead_s(options: PlannerOptions) -> float:
    return LOOK_AHEAD_S if options.look_ahead_s is None else options.look_ahead_s


def _sum(total: PlanReport, step: PlanReport) -> PlanReport:
    """What both did; the times are those of the later one."""
    return replace(
        step,
        rows=total.rows + step.rows,
        planned=total.planned + step.planned,
        missed=total.missed + step.missed,
        skipped=total.skipped + step.skipped,
        finished=total.finished + step.finished,
        quarantined=total.quarantined + step.quarantined,
    )
