"""From occurrences of one schedule to ledger rows and jobs, in memory.

The ledger decides first: a time that it has makes no second job. Then the running marker decides
over those whose time has come. What is left becomes jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from duly.clock import Clock
from duly.ids import new_ids
from duly.jobs import JobId, NewJob, Turn
from duly.ledger import Occurrence, OccurrenceState
from duly.occurrences import policies_text
from duly.plan_store import BACKFILL, PlanSettings
from duly.planning import PlannedOccurrence, policies_of
from duly.schedules import Definition, Policies, Schedule, ScheduleId
from duly.scopes import Scope, workspace_of
from duly.stores.memory import job_rows, ledger, turns
from duly.stores.memory.tables import Tables
from duly.stores.spans import free_of

_PLANNED, _MISSED = OccurrenceState.PLANNED, OccurrenceState.MISSED
_LATE = frozenset({"catch_up", BACKFILL})
"""Reasons of occurrences that are late already: they run one after another."""


@dataclass(frozen=True, slots=True)
class Source:
    """What occurrences and jobs take from their schedule."""

    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    policies: str
    definition: Definition


def source_of(schedule: Schedule) -> Source:
    """What jobs take from a schedule as it stands."""
    key = (schedule.id, schedule.flow, str(schedule.scope), schedule.name)
    return Source(*key, policies_text(schedule.definition.policies), schedule.definition)


@dataclass(slots=True)
class Step:
    """A hand-over in the making."""

    tables: Tables
    now_ms: int
    settings: PlanSettings
    clock: Clock
    ids: Iterator[str] = field(default_factory=lambda: iter(()))
    planned: int = 0
    missed: int = 0
    skipped: int = 0
    finished: int = 0
    quarantined: int = 0
    bodies: dict[str, str] = field(default_factory=dict)
    """Definitions by schedule id."""

    def reserve(self, count: int) -> None:
        """Make ids for so many jobs, in their order."""
        self.ids = iter(new_ids("job_", count, clock=self.clock))


def free_ones(
    tables: Tables, trigger: str, occurrences: Sequence[PlannedOccurrence]
) -> list[PlannedOccurrence]:
    """What the ledger does not have yet, or has as free; of a run of times, what is left."""
    if not occurrences:
        return []
    return free_of(trigger, occurrences, ledger.rows(tables, occurrences[0].schedule_id))


def new_job(
    step: Step, source: Source, occurrence: PlannedOccurrence, job_id: JobId | None = None
) -> NewJob:
    """Return the job of an occurrence."""
    policies = policies_of(source.policies)
    definition = source.definition
    action = f"{source.flow}.{definition.action}"
    options = step.settings.options(action, policies)
    return NewJob(
        id=JobId(next(step.ids)) if job_id is None else job_id,
        action=action,
        input=msgspec.json.encode(definition.input).decode(),
        queue=options.queue,
        workspace=definition.workspace or workspace_of(Scope.parse(source.scope)),
        scope=source.scope,
        priority=policies.priority,
        retry=options.retry,
        timeout_ms=options.timeout_ms,
        delivery=options.delivery,
        run_at_ms=occurrence.run_at_ms,
        schedule_id=source.schedule_id,
        nominal_ms=occurrence.nominal_ms,
        policies=source.policies,
        turn=_turn(policies, occurrence.reason),
    )


def _turn(policies: Policies, reason: str | None) -> Turn | None:
    if policies.overlap == "allow":
        return None
    return "waits" if reason in _LATE else "asks"


def hand_over(
    step: Step,
    source: Source,
    free: Iterable[PlannedOccurrence],
    jobs: dict[int, NewJob],
    claim_id: str | None = None,
) -> None:
    """Write rows, and the jobs by nominal time; let those whose time has come ask for it."""
    due = [job for job in jobs.values() if (job.run_at_ms or 0) <= step.now_ms]
    decided = turns.settle(step.tables, step.now_ms, due)
    for each in free:
        row = _row(source, each)
        job = jobs.get(each.nominal_ms)
        if job is not None and job.id in decided.skipped:
            step.skipped += 1
            reason = decided.skipped[job.id]
            row = replace(
                row, state=OccurrenceState.SKIPPED, reason=reason, ended_at_ms=step.now_ms
            )
        elif job is not None:
            step.planned += 1
            row = replace(row, job_id=job.id)
            in_line = replace(job, in_line=job.id in decided.in_line)
            job_rows.insert_one(step.tables, step.now_ms, in_line)
        elif each.state is _MISSED:
            step.missed += each.count
        ledger.put(step.tables, row, claim_id)


def _row(source: Source, planned: PlannedOccurrence) -> Occurrence:
    return Occurrence(
        schedule_id=source.schedule_id,
        nominal_ms=planned.nominal_ms,
        until_ms=planned.until_ms,
        count=planned.count,
        run_at_ms=planned.run_at_ms,
        state=planned.state,
        flow=source.flow,
        scope=source.scope,
        name=source.name,
        reason=planned.reason,
    )


def is_planned(occurrence: PlannedOccurrence) -> bool:
    """Whether it makes a job."""
    return occurrence.state is _PLANNED
