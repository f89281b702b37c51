"""Hand-over: from occurrences of one schedule to ledger rows and jobs.

The ledger decides first: a time that it has makes no second job. Then the running marker decides
over those whose time has come. What is left becomes jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from duly.engine.jobs import jobs as job_cases
from duly.engine.kinds import MARKER, StoredOccurrence, StoredRow
from duly.engine.schedules import ledger, overlap
from duly.engine.transaction import Tx
from duly.model.index_rows import policies_text
from duly.model.jobs import JobId, NewJob, Turn
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.plans import BACKFILL
from duly.model.schedules import Definition, Policies, Schedule, ScheduleId
from duly.model.scopes import Scope, workspace_of
from duly.rules.planning import PlannedOccurrence, policies_of

_LATE = frozenset({"catch_up", BACKFILL})
"""Reasons of occurrences that are late already: they run one after another."""


class Whose(Protocol):
    """Names the schedule of a ledger row: an index row does, and so does a Source."""

    @property
    def schedule_id(self) -> ScheduleId: ...
    @property
    def flow(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class Source:
    """What occurrences and jobs take from their schedule."""

    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    policies: str
    definition: Definition

    @cached_property
    def action(self) -> str:
        """Return the full name of the action."""
        return f"{self.flow}.{self.definition.action}"

    @cached_property
    def input(self) -> str:
        """Return the input as JSON text."""
        return msgspec.json.encode(self.definition.input).decode()

    @cached_property
    def workspace(self) -> str:
        """Return the workspace that the jobs count in."""
        return self.definition.workspace or workspace_of(Scope.parse(self.scope))


class HandedOver(NamedTuple):
    """How many occurrences became what."""

    planned: int = 0
    """Jobs made."""
    missed: int = 0
    """Nominal times swallowed by misfire policies."""
    skipped: int = 0
    """By overlap policy."""


def source_of(schedule: Schedule) -> Source:
    """Return what jobs take from a schedule as it stands."""
    key = (schedule.id, schedule.flow, str(schedule.scope), schedule.name)
    return Source(*key, policies_text(schedule.definition.policies), schedule.definition)


def source_of_row(item: StoredRow, definition: Definition) -> Source:
    """Return the same for an index row, whose policies count."""
    row = item.row
    return Source(row.schedule_id, row.flow, row.scope, row.name, row.policies, definition)


def is_planned(occurrence: PlannedOccurrence) -> bool:
    """Return whether an occurrence makes a job."""
    return occurrence.state is OccurrenceState.PLANNED


def new_job(tx: Tx, source: Source, occurrence: PlannedOccurrence, job_id: JobId) -> NewJob:
    """Return the job of an occurrence; InvalidInput: it cannot be converted to a job."""
    policies = policies_of(source.policies)
    options = tx.planning.options(source.action, policies)
    return NewJob(
        id=job_id,
        action=source.action,
        input=source.input,
        queue=options.queue,
        workspace=source.workspace,
        scope=source.scope,
        priority=policies.priority,
        retry=options.retry,
        timeout_ms=options.timeout_ms,
        delivery=options.delivery,
        run_at_ms=occurrence.run_at_ms,
        schedule_id=source.schedule_id,
        nominal_ms=occurrence.nominal_ms,
        policies=source.policies,
        turn=turn_of(policies, occurrence.reason),
    )


def new_jobs(
    tx: Tx, source: Source, occurrences: Iterable[PlannedOccurrence], ids: Iterable[str]
) -> dict[int, NewJob]:
    """Return the jobs of those occurrences that make one, by nominal time, each with a new id."""
    planned = filter(is_planned, occurrences)
    return {
        each.nominal_ms: new_job(tx, source, each, JobId(job_id))
        for each, job_id in zip(planned, ids, strict=False)
    }


def turn_of(policies: Policies, reason: str | None) -> Turn | None:
    """Return how the job of an occurrence comes by the running marker; None: it needs none."""
    if policies.overlap == "allow":
        return None
    return "waits" if reason in _LATE else "asks"


def hold_markers(tx: Tx, jobs: Iterable[NewJob]) -> None:
    """Hold the running markers that jobs of several schedules will ask for, in one read."""
    tx.get_many(
        MARKER,
        [(job.schedule_id,) for job in jobs if job.turn and job.schedule_id and _is_due(tx, job)],
    )


def _is_due(tx: Tx, job: NewJob) -> bool:
    return (job.run_at_ms or 0) <= tx.now_ms


def hand_over(
    tx: Tx,
    source: Source,
    free: Sequence[PlannedOccurrence],
    jobs: dict[int, NewJob],
    claim_id: str | None = None,
) -> HandedOver:
    """Write ledger rows, and the jobs by nominal time; those whose time has come ask to run."""
    turns = overlap.settle(tx, [job for job in jobs.values() if _is_due(tx, job)])
    planned = missed = skipped = 0
    for each in free:
        row = occurrence_of(source, each)
        job = jobs.get(each.nominal_ms)
        if job is not None and job.id in turns.skipped:
            skipped += 1
            why = turns.skipped[job.id]
            row = replace(row, state=OccurrenceState.SKIPPED, reason=why, ended_at_ms=tx.now_ms)
        elif job is not None:
            planned += 1
            row = replace(row, job_id=job.id)
            job_cases.add(tx, replace(job, in_line=job.id in turns.in_line))
        elif each.state is OccurrenceState.MISSED:
            missed += each.count
        ledger.write(tx, StoredOccurrence(row, claim_id=claim_id, at_ms=tx.now_ms))
    return HandedOver(planned, missed, skipped)


def occurrence_of(whose: Whose, planned: PlannedOccurrence) -> Occurrence:
    """Return the ledger row of a planned occurrence."""
    return Occurrence(
        schedule_id=whose.schedule_id,
        nominal_ms=planned.nominal_ms,
        until_ms=planned.until_ms,
        count=planned.count,
        run_at_ms=planned.run_at_ms,
        state=planned.state,
        flow=whose.flow,
        scope=whose.scope,
        name=whose.name,
        reason=planned.reason,
    )
