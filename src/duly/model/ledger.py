"""Stations 4 to 7: the ledger, what became of every occurrence.

An occurrence is one nominal time of one schedule, or a run of times that one policy or pause
swallowed. The table says which states may follow which; every nominal time is covered by exactly
one row.
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
    """What became of an occurrence so far."""

    PLANNED = "planned"
    """It has a job, whose time has not come or has not been noticed."""
    DISPATCHING = "dispatching"
    """A tick posts it."""
    FIRED = "fired"
    """Its job is queued or at work."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """By overlap policy."""
    MISSED = "missed"
    """Swallowed by misfire policy or pause."""
    WITHDRAWN = "withdrawn"
    """Taken back by an edit."""
    DENIED = "denied"
    """By authorisation."""
    QUARANTINED = "quarantined"
    """Its index row could not be evaluated."""


_S = OccurrenceState
# What the planner or a tick may make of a time that comes to it, be it new or given back.
_COMES = frozenset({_S.PLANNED, _S.DISPATCHING, _S.MISSED, _S.SKIPPED})

LEDGER_TRANSITIONS: dict[OccurrenceState | None, frozenset[OccurrenceState]] = {
    None: _COMES | {_S.FIRED, _S.DENIED, _S.QUARANTINED},
    _S.PLANNED: frozenset({_S.FIRED, _S.SKIPPED, _S.MISSED, _S.WITHDRAWN, _S.DENIED}),
    # Posted again is a transition of its own: it has a new lease.
    # An endpoint's job may have to wait its turn; what nobody will know any more is withdrawn.
    _S.DISPATCHING: frozenset(
        {_S.PLANNED, _S.FIRED, _S.FAILED, _S.DISPATCHING, _S.SKIPPED, _S.WITHDRAWN, _S.DENIED}
    ),
    # Authorisation is asked when a worker is about to start it.
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
"""One table; None is a time that has no row yet."""

OPEN = frozenset({_S.PLANNED, _S.DISPATCHING, _S.FIRED})
"""States in which something is still to come."""
BACKFILLABLE = frozenset({_S.WITHDRAWN, _S.MISSED, _S.SKIPPED, _S.QUARANTINED})
"""States that a backfill may take up, besides times that have no row.

A time in quarantine did not run; whether it can now, the definition as it stands decides.
"""


PAUSED_OUTCOME = "paused"
"""Of a missed time that came during a pause: nobody expected it to run."""
RAN = frozenset({_S.FIRED, _S.SUCCEEDED, _S.FAILED})
"""States of a time that began to run."""
LOST = frozenset({_S.MISSED, _S.SKIPPED})
"""States of a time that was swallowed by misfire or overlap policy."""
DECIDED = RAN | LOST | {_S.DENIED}
RECENT_TIMES = 10
"""So many of a schedule's last decided ledger rows say whether it keeps missing its times."""
MIN_LOST = 3


def outcome_of(state: OccurrenceState, reason: str | None) -> str:
    """Return the label that figures go by: the state, with what a pause swallowed apart."""
    return PAUSED_OUTCOME if state is _S.MISSED and reason == PAUSED_OUTCOME else state.value


def keeps_missing(states: Sequence[OccurrenceState]) -> bool:
    """Return whether at least three and at least half of these states are missed or skipped."""
    lost = sum(state in LOST for state in states)
    return lost >= MIN_LOST and 2 * lost >= len(states)


def may_go(state: OccurrenceState | None, target: OccurrenceState) -> bool:
    """Whether the transition table has it; staying is one for `dispatching` alone."""
    return target in LEDGER_TRANSITIONS[state]


_FOLLOWS: dict[JobState, dict[OccurrenceState, OccurrenceState]] = {
    JobState.PROCESSING: {_S.PLANNED: _S.FIRED},
    JobState.SUCCEEDED: {_S.FIRED: _S.SUCCEEDED},
    JobState.DEAD: {_S.FIRED: _S.FAILED},
    # Taken away before it began, it never ran; after that, it did not come to its end.
    JobState.CANCELLED: {_S.PLANNED: _S.SKIPPED, _S.FIRED: _S.FAILED},
    JobState.DELETED: {_S.PLANNED: _S.SKIPPED, _S.FIRED: _S.FAILED},
    JobState.QUEUED: {_S.FAILED: _S.FIRED},
}

BROKEN_OFF = frozenset({JobState.CANCELLED, JobState.DELETED})
"""Ends of a job that are the reason why its occurrence failed: it did not die, it was taken."""


def follow(
    state: OccurrenceState, job: JobState, ended_as: AttemptStatus | None = None
) -> OccurrenceState:
    """What becomes of an occurrence when its job goes to a state, and how its attempt ended."""
    if job is JobState.CANCELLED and ended_as == "denied" and may_go(state, _S.DENIED):
        return _S.DENIED
    return _FOLLOWS.get(job, {}).get(state, state)


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the ledger. Its identity is (schedule_id, nominal_ms), whatever the run time."""

    schedule_id: ScheduleId
    nominal_ms: int
    until_ms: int
    """Last nominal time of a swallowed run of times; for a single time, that time."""
    count: int
    """How many nominal times it covers; the planner's MAX_MISSED may mean "at least"."""
    run_at_ms: int
    state: OccurrenceState
    flow: str
    scope: str
    name: str
    job_id: JobId | None = None
    reason: str | None = None
    fired_at_ms: int | None = None
    """When its job began first; with the run time, its lateness."""
    ended_at_ms: int | None = None

    @property
    def nominal_at(self) -> datetime:
        """The instant the trigger names."""
        return from_ms(self.nominal_ms)

    @property
    def run_at(self) -> datetime:
        """When it was to run: the nominal time and the spread, or later where it was caught up."""
        return from_ms(self.run_at_ms)

    @property
    def is_range(self) -> bool:
        """Whether it stands for more than one nominal time."""
        return self.until_ms > self.nominal_ms

    def covers(self, nominal_ms: int) -> bool:
        """Whether a nominal time of this schedule is accounted for here."""
        return self.nominal_ms <= nominal_ms <= self.until_ms
