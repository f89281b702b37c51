"""Planning requests, reports and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duly.model.run_options import DEFAULTS, RunOptions, options_of
from duly.model.schedules import Policies, ScheduleId

MAX_PLAN = 5_000
NO_DEFINITION = "no definition is stored for it"
"""Quarantine reason of a row without a schedule."""
RUN_NOW, BACKFILL, PAUSED = "run_now", "backfill", "paused"
"""Reasons in the ledger: an extra run; a backfilled time; times during a pause."""
LEDGER_MS = 90 * 86_400_000
"""How long the ledger is kept; whether older times have run is unknown."""


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """Settings of every verb that makes jobs of schedules; fixed when the store is opened."""

    look_ahead_ms: int = 60_000
    """A write plans a next time within this look-ahead in its own transaction."""
    actions: Mapping[str, RunOptions] = field(default_factory=dict)
    """Options that actions declare, by full name; other actions have the defaults."""

    def options(self, action: str, policies: Policies) -> RunOptions:
        """Return the options of a schedule's jobs; `action` is the full name."""
        return options_of(policies, self.actions.get(action, DEFAULTS))


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A planner's request."""

    look_ahead_ms: int = 0
    """Rows with a run time within this look-ahead are planned too; their jobs wait for it."""
    limit: int = 1_000
    """Rows, not occurrences."""
    flows: tuple[str, ...] | None = None
    """Plan only these; None: all. A node skips flows it does not know."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The result of one planning step."""

    rows: int = 0
    planned: int = 0
    """Jobs created."""
    missed: int = 0
    """Nominal times swallowed by misfire policies."""
    skipped: int = 0
    """Occurrences skipped because an earlier one had not ended."""
    finished: int = 0
    quarantined: int = 0
    next_run_at_ms: int | None = None
    """First run time of the remaining rows; None: there are none."""
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Backfill:
    """A request to run past times."""

    schedule_id: ScheduleId
    from_ms: int
    to_ms: int
    """Exclusive."""
    limit: int = 1_000
    """Nominal times per step."""


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """The result of one backfill step."""

    planned: int
    """Jobs created."""
    left_alone: int
    """Times that have run or are about to."""
    next_from_ms: int | None
    """Start of the next step; None: done."""
