"""Hand-over of one schedule's occurrences as ledger rows and jobs.

The ledger decides first: a nominal time that it has makes no second job. The overlap policy then
decides about due occurrences. The rest become jobs.
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
"""Reasons of occurrences that are already late: their jobs run one after another."""


class Whose(Protocol):
    """Schedule of a ledger row, as named by an index row or a Source."""

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
    """Fields that occurrences and jobs take from their schedule."""

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
        """Return the workspace of the jobs."""
        return self.definition.workspace or workspace_of(Scope.parse(self.scope))


class HandedOver(NamedTuple):
    """Outcome counts of a hand-over."""

    planned: int = 0
    """Jobs made."""
    missed: int = 0
    """Nominal times swallowed by the misfire policy."""
    skipped: int = 0
    """Occurrences skipped by the overlap policy."""


def source_of(schedule: Schedule) -> Source:
    """Return the source for a stored schedule."""
    key = (schedule.id, schedule.flow, str(schedule.scope), schedule.name)
    return Source(*key, policies_text(schedule.definition.policies), schedule.definition)


def source_of_row(item: StoredRow, definition: Definition) -> Source:
    """Return the source for an index row; the row's policies take precedence."""
    row = item.row
    return Source(row.schedule_id, row.flow, row.scope, row.name, row.policies, definition)


def is_planned(occurrence: PlannedOccurrence) -> bool:
    """Return whether an occurrence makes a job."""
    return occurrence.state is OccurrenceState.PLANNED


def new_job(tx: Tx, source: Source, occurrence: PlannedOccurrence, job_id: JobId) -> NewJob:
    """Return the job of an occurrence; raise InvalidInput if it cannot be converted to a job."""
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
    """Return the jobs of planned occurrences by nominal time, each with the next of `ids`."""
    planned = filter(is_planned, occurrences)
    return {
        each.nominal_ms: new_job(tx, source, each, JobId(job_id))
        for each, job_id in zip(planned, ids, strict=False)
    }


def turn_of(policies: Policies, reason: str | None) -> Turn | None:
    """Return how an occurrence's job obtains the running marker; None: it needs none."""
    if policies.overlap == "allow":
        return None
    return "waits" if reason in _LATE else "asks"


def hold_markers(tx: Tx, jobs: Iterable[NewJob]) -> None:
    """Hold the running markers that due jobs of several schedules need, in one read."""
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
    """Write ledger rows and their jobs (by nominal time); apply the overlap policy to due jobs."""
    decision = overlap.settle(tx, [job for job in jobs.values() if _is_due(tx, job)])
    planned = missed = skipped = 0
    for each in free:
        row = occurrence_of(source, each)
        job = jobs.get(each.nominal_ms)
        if job is not None and job.id in decision.skipped:
            skipped += 1
            why = decision.skipped[job.id]
            row = replace(row, state=OccurrenceState.SKIPPED, reason=why, ended_at_ms=tx.now_ms)
        elif job is not None:
            planned += 1
            row = replace(row, job_id=job.id)
            job_cases.add(tx, replace(job, in_line=job.id in decision.in_line))
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
