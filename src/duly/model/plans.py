"""Planning requests and reports, and the settings that planning goes by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from duly.model.run_options import DEFAULTS, RunOptions, options_of
from duly.model.schedules import Policies, ScheduleId

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
