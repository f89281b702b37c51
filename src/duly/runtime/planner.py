"""The planner: makes jobs from due index rows.

Plans all rows that come due within its look-ahead, then sleeps until more do, and never longer than
its period. A schedule written with a time inside the look-ahead is planned by its writer, so
sleeping makes nothing late. Any number of planners may run; the store gives each row to one.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from duly.errors import InvalidInput
from duly.model.plans import MAX_PLAN, PlanReport, PlanRequest
from duly.runtime.backoff import STORE_FAILURES, Backoff, Signal
from duly.stores.port import Store

log = logging.getLogger(__name__)

LOOK_AHEAD_S = 60.0
_ROUND_S = 30.0
"""Seconds for which a round may go on taking full batches."""


@dataclass(frozen=True, slots=True)
class PlannerOptions:
    """Options of a planner."""

    period_s: float = 10.0
    """Longest wait, in seconds, between two rounds; shorter than the look-ahead."""
    look_ahead_s: float | None = None
    """Seconds before its run time that a job is made; None: the application's `look_ahead_s`."""
    limit: int = 1_000
    """Rows planned in one transaction."""
    flows: tuple[str, ...] | None = None
    """Flows to plan; None: those of the application that makes the planner, else all."""

    def __post_init__(self) -> None:
        for name in ("period_s", "look_ahead_s"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds >= 0:
                raise InvalidInput(f"{name} is {seconds} s; allowed: 0 s or more")
        if not 1 <= self.limit <= MAX_PLAN:
            raise InvalidInput(f"limit is {self.limit}; allowed: 1 to {MAX_PLAN}")


class Planner:
    """A loop that plans due rows until it is stopped."""

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
        """Stop after the current step."""
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
        """Plan until no row is due, or the round's time is up; return the sum of the steps."""
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
        """Return whether another step would find rows; a row may stay due after one plan."""
        if step.rows == self._request.limit:
            return True
        return step.rows > 0 and (due_ms := self._due_in_ms(step)) is not None and due_ms <= 0

    def _due_in_ms(self, step: PlanReport) -> int | None:
        """Return the milliseconds until the next row may be planned; None: there is no row."""
        if step.next_run_at_ms is None:
            return None
        return step.next_run_at_ms - self._request.look_ahead_ms - step.now_ms

    def _pause_s(self, report: PlanReport) -> float:
        """Return the pause after which the next row is planned half a look-ahead before its time.

        Waking for each row as it enters the look-ahead would need one transaction per row.
        """
        due_ms = self._due_in_ms(report)
        # A row that is still due after a round is locked by a planner or needs a newer release.
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
    """Return the sum of two reports, with the times of the later one."""
    return replace(
        step,
        rows=total.rows + step.rows,
        planned=total.planned + step.planned,
        missed=total.missed + step.missed,
        skipped=total.skipped + step.skipped,
        finished=total.finished + step.finished,
        quarantined=total.quarantined + step.quarantined,
    )
