"""The port to a database, for planning: from due rows to jobs, and what became of each.

As in `store`: every verb is one step; times are integer milliseconds by the database's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from duly.ledger import Occurrence, OccurrenceState
from duly.run_options import DEFAULTS, RunOptions, options_of
from duly.schedules import Policies, Schedule, ScheduleId

MAX_PLAN = 5_000
NO_DEFINITION = "no definition is stored for it"
"""Why a row that has no schedule is quarantined: nobody can say what to run."""
RUN_NOW, BACKFILL, PAUSED = "run_now", "backfill", "paused"
"""Reasons in the ledger: somebody asked for an extra; for a past time; times during a pause."""
LEDGER_MS = 90 * 86_400_000
"""How long the ledger is kept: what lies before may have run."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What every verb that makes jobs of schedules goes by; fixed when the store is opened."""

    look_ahead_ms: int = 60_000
    """A write whose next time comes so soon plans it in its own transaction."""
    actions: Mapping[str, RunOptions] = field(default_factory=dict)
    """What the actions declare, by full name; an action that is not named has the defaults."""

    def options(self, action: str, policies: Policies) -> RunOptions:
        """Return the options of a schedule's jobs; `action` is the full name."""
        return options_of(policies, self.actions.get(action, DEFAULTS))


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
    skipped: int = 0
    """Occurrences that came while an earlier one had not ended."""
    finished: int = 0
    quarantined: int = 0
    next_run_at_ms: int | None = None
    """Of the rows that are left, the first run time; None: there are none."""
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Backfill:
    """Past times that shall run after all."""

    schedule_id: ScheduleId
    from_ms: int
    to_ms: int
    """Not included."""
    limit: int = 1_000
    """Nominal times in one step."""


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """What one step of a backfill did."""

    planned: int
    """Jobs made."""
    left_alone: int
    """Times that had run, or are about to."""
    next_from_ms: int | None
    """Where the next step begins; None: done."""


class PlanStore(Protocol):
    """What Duly asks of a database for planning."""

    async def plan_occurrences(self, request: PlanRequest) -> PlanReport:
        """Take due rows of hand-over `jobs`; write ledger, jobs and advance in one transaction.

        An occurrence that the ledger has already is left alone, unless it was withdrawn or
        quarantined: of any number of planners, and however often it is repeated, one makes the job.
        """

    async def list_occurrences(
        self,
        schedule_id: ScheduleId,
        *,
        before_ms: int | None = None,
        since_ms: int | None = None,
        states: Collection[OccurrenceState] | None = None,
        limit: int = 100,
    ) -> list[Occurrence]:
        """One page of a schedule's ledger by nominal time, newest first, before an instant.

        `since_ms` ends the pages at an instant, which is included; `states` names what to list.
        """

    async def find_schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        """Read one schedule by its id."""

    async def run_now(self, schedule_id: ScheduleId, request_id: str) -> Occurrence | None:
        """Make one extra occurrence; None: there is no such schedule.

        The same request gives the same occurrence. The overlap policy decides, so it may be
        skipped. Misfires, pauses and the runs that are left do not concern it.
        """

    async def backfill(self, request: Backfill) -> BackfillReport | None:
        """Plan past times that are withdrawn, missed, skipped, quarantined or not in the ledger.

        Idempotent. None: there is no such schedule. InvalidInput: the range reaches behind
        LEDGER_MS or into the future, or no job can carry the definition.
        """

    async def pause_failing(self, schedule_id: ScheduleId) -> Schedule | None:
        """Pause a schedule whose last runs all failed, as many as its policy says; else None."""
