"""The port to a database, for planning: from due rows to jobs, and what became of each.

As in `store`: every verb is one step; times are integer milliseconds by the database's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from duly.ledger import Occurrence
from duly.schedules import Schedule, ScheduleId

MAX_PLAN = 5_000
NO_DEFINITION = "no definition is stored for it"
"""Why a row that has no schedule is quarantined: nobody can say what to run."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a planner asks for."""

    look_ahead_ms: int = 0
    """Rows whose run time comes so soon are planned too; their jobs wait for it."""
    limit: int = 1_000
    """Rows, not occurrences."""
    flows: tuple[str, ...] | None = None
    """Only these, where given: a node leaves alone what it does not know."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What one step of planning did."""

    rows: int = 0
    planned: int = 0
    """Jobs made."""
    missed: int = 0
    """Nominal times swallowed by misfire policies."""
    finished: int = 0
    quarantined: int = 0
    next_run_at_ms: int | None = None
    """Of the rows that are left, the first run time; None: there are none."""
    now_ms: int = 0


class PlanStore(Protocol):
    """What Duly asks of a database for planning."""

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        """Take due rows of hand-over `jobs`; write ledger, jobs and advance in one transaction.

        An occurrence that the ledger has already is left alone, unless it was withdrawn or
        quarantined: of any number of planners, and however often it is repeated, one makes the job.
        """

    async def list_occurrences(
        self, schedule_id: ScheduleId, *, before_ms: int | None = None, limit: int = 100
    ) -> list[Occurrence]:
        """One page of a schedule's ledger by nominal time, newest first, before an instant."""

    async def find_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        """Read one schedule by its id."""

    async def pause_failing(self, schedule_id: ScheduleId) -> Schedule | None:
        """Pause a schedule whose last runs all failed, as many as its policy says; else None."""
