"""The ledger: the outcome of every occurrence.

An occurrence is one nominal time of one schedule, or a run of times that one policy or pause
swallowed. Every nominal time is covered by exactly one row; LEDGER_TRANSITIONS lists the allowed
transitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from duly.model.events import AttemptStatus
from duly.model.jobs import JobId, JobState
from duly.model.schedules import ScheduleId
from duly.triggers.instants import from_ms


class OccurrenceState(StrEnum):
    """The state of an occurrence."""

    PLANNED = "planned"
    """It has a job whose run time has not come, or that is not queued yet."""
    DISPATCHING = "dispatching"
    """A tick posts it."""
    FIRED = "fired"
    """Its job is queued or running."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """By overlap policy."""
    MISSED = "missed"
    """Swallowed by misfire policy or pause."""
    WITHDRAWN = "withdrawn"
    """Withdrawn by an edit."""
    DENIED = "denied"
    """By authorisation."""
    QUARANTINED = "quarantined"
    """Its index row could not be evaluated."""


_S = OccurrenceState
# States the planner or a tick may give a time, whether new or returned to it.
_COMES = frozenset({_S.PLANNED, _S.DISPATCHING, _S.MISSED, _S.SKIPPED})

LEDGER_TRANSITIONS: dict[OccurrenceState | None, frozenset[OccurrenceState]] = {
    None: _COMES | {_S.FIRED, _S.DENIED, _S.QUARANTINED},
    _S.PLANNED: frozenset({_S.FIRED, _S.SKIPPED, _S.MISSED, _S.WITHDRAWN, _S.DENIED}),
    # Dispatching again is a transition: it has a new lease. An endpoint's job may have to wait for
    # an earlier run; occurrences of a deleted schedule are withdrawn.
    _S.DISPATCHING: frozenset(
        {_S.PLANNED, _S.FIRED, _S.FAILED, _S.DISPATCHING, _S.SKIPPED, _S.WITHDRAWN, _S.DENIED}
    ),
    # Authorisation is checked when a worker is about to start it.
    _S.FIRED: frozenset({_S.SUCCEEDED, _S.FAILED, _S.DENIED}),
    # An operator may revive a dead job.
    _S.FAILED: frozenset({_S.FIRED}),
    _S.SUCCEEDED: frozenset(),
    _S.SKIPPED: frozenset({_S.PLANNED}),
    _S.MISSED: frozenset({_S.PLANNED}),
    _S.WITHDRAWN: _COMES | {_S.QUARANTINED},
    _S.DENIED: frozenset(),
    _S.QUARANTINED: _COMES,
}
"""Allowed transitions; None: a time without a row."""

OPEN = frozenset({_S.PLANNED, _S.DISPATCHING, _S.FIRED})
"""States of an occurrence that is still to run or is running."""
BACKFILLABLE = frozenset({_S.WITHDRAWN, _S.MISSED, _S.SKIPPED, _S.QUARANTINED})
"""States that a backfill may run again, besides times without a row.

A quarantined time did not run; the current definition decides whether it can run now.
"""


PAUSED_OUTCOME = "paused"
"""Outcome of a time missed during a pause, which was not expected to run."""
RAN = frozenset({_S.FIRED, _S.SUCCEEDED, _S.FAILED})
"""States of a time whose run started."""
LOST = frozenset({_S.MISSED, _S.SKIPPED})
"""States of a time that was swallowed by misfire or overlap policy."""
DECIDED = RAN | LOST | {_S.DENIED}
RECENT_TIMES = 10
"""Last decided ledger rows of a schedule that keeps_missing() is applied to."""
MIN_LOST = 3


def outcome_of(state: OccurrenceState, reason: str | None) -> str:
    """Return the label for metrics: the state, or `paused` for times missed during a pause."""
    return PAUSED_OUTCOME if state is _S.MISSED and reason == PAUSED_OUTCOME else state.value


def keeps_missing(states: Sequence[OccurrenceState]) -> bool:
    """Return whether at least three and at least half of these states are missed or skipped."""
    lost = sum(state in LOST for state in states)
    return lost >= MIN_LOST and 2 * lost >= len(states)


def may_go(state: OccurrenceState | None, target: OccurrenceState) -> bool:
    """Return whether the transition table allows it; only `dispatching` may follow itself."""
    return target in LEDGER_TRANSITIONS[state]


_FOLLOWS: dict[JobState, dict[OccurrenceState, OccurrenceState]] = {
    JobState.PROCESSING: {_S.PLANNED: _S.FIRED},
    JobState.SUCCEEDED: {_S.FIRED: _S.SUCCEEDED},
    JobState.DEAD: {_S.FIRED: _S.FAILED},
    # Removed before it started, it never ran; after that, it did not complete.
    JobState.CANCELLED: {_S.PLANNED: _S.SKIPPED, _S.FIRED: _S.FAILED},
    JobState.DELETED: {_S.PLANNED: _S.SKIPPED, _S.FIRED: _S.FAILED},
    JobState.QUEUED: {_S.FAILED: _S.FIRED},
}

BROKEN_OFF = frozenset({JobState.CANCELLED, JobState.DELETED})
"""Final job states that fail the occurrence because the job was cancelled or deleted."""


def follow(
    state: OccurrenceState, job: JobState, ended_as: AttemptStatus | None = None
) -> OccurrenceState:
    """Return the occurrence's state after a transition of its job; `ended_as`: of the attempt."""
    if job is JobState.CANCELLED and ended_as == "denied" and may_go(state, _S.DENIED):
        return _S.DENIED
    return _FOLLOWS.get(job, {}).get(state, state)


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the ledger, identified by (schedule_id, nominal_ms)."""

    schedule_id: ScheduleId
    nominal_ms: int
    until_ms: int
    """Last nominal time of a swallowed run of times; for a single time, that time."""
    count: int
    """Nominal times it covers; the planner's MAX_MISSED may mean "at least"."""
    run_at_ms: int
    state: OccurrenceState
    flow: str
    scope: str
    name: str
    job_id: JobId | None = None
    reason: str | None = None
    fired_at_ms: int | None = None
    """When its job first started; minus the run time, its lateness."""
    ended_at_ms: int | None = None

    @property
    def nominal_at(self) -> datetime:
        """Return the nominal time."""
        return from_ms(self.nominal_ms)

    @property
    def run_at(self) -> datetime:
        """Return the run time: nominal time plus spread, or later for a catch-up."""
        return from_ms(self.run_at_ms)

    @property
    def is_range(self) -> bool:
        """Return whether it covers more than one nominal time."""
        return self.until_ms > self.nominal_ms

    def covers(self, nominal_ms: int) -> bool:
        """Return whether this row covers a nominal time of its schedule."""
        return self.nominal_ms <= nominal_ms <= self.until_ms
