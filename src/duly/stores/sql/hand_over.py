"""Station 5: from occurrences to ledger rows and jobs, inside the transaction that planned them.

The ledger decides first: an occurrence that it has already makes no second job. Then the running
marker of its schedule decides over those whose time has come. What is left becomes jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from duly.ids import new_id
from duly.jobs import DEFAULT_RETRY, JobId, NewJob
from duly.ledger import OccurrenceState
from duly.occurrences import policies_text
from duly.plan_store import BACKFILL, ActionDefaults, PlanSettings
from duly.planning import PlannedOccurrence, policies_of
from duly.schedules import Policies, Schedule, ScheduleId
from duly.stores.sql import ledger, turns
from duly.stores.sql.db import Db

_DEFAULTS = ActionDefaults()
_TIMEOUT_MS = Policies().timeout_ms
_WAITING = frozenset({"catch_up", BACKFILL})
"""Reasons of occurrences that are late already: they run one after another."""


class Source(NamedTuple):
    """What a job takes from its schedule."""

    schedule_id: ScheduleId
    flow: str
    scope: str
    name: str
    policies: str
    body: str
    """The definition."""


def source_of(schedule: Schedule) -> Source:
    """What jobs take from a schedule as it stands."""
    definition = schedule.definition
    return Source(
        schedule.id,
        schedule.flow,
        str(schedule.scope),
        schedule.name,
        policies_text(definition.policies),
        definition.to_json(),
    )


class Handing(NamedTuple):
    """An occurrence with its job, if it makes one."""

    occurrence: PlannedOccurrence
    job: NewJob | None
    whose: tuple[str, str, str]
    """Flow, scope and name."""
    claim_id: str | None = None


class HandedOver(NamedTuple):
    """What became of occurrences."""

    planned: int
    missed: int
    skipped: int


class _Body(msgspec.Struct):
    """What a job needs of a definition."""

    action: str
    input: msgspec.Raw = msgspec.Raw(b"null")
    workspace: str | None = None


_BODY = msgspec.json.Decoder(_Body)


def make_job(
    source: Source,
    occurrence: PlannedOccurrence,
    settings: PlanSettings,
    job_id: JobId | None = None,
) -> NewJob:
    """The job of an occurrence; InvalidInput or MsgspecError: no job can carry it."""
    body = _BODY.decode(source.body)
    policies = policies_of(source.policies)
    action = f"{source.flow}.{body.action}"
    usual = settings.actions.get(action, _DEFAULTS)
    turn = None
    if policies.overlap != "allow":
        turn = "waits" if occurrence.reason in _WAITING else "asks"
    return NewJob(
        id=JobId(new_id("job_")) if job_id is None else job_id,
        action=action,
        input=bytes(body.input).decode(),
        queue=usual.queue,
        # workspace_of(), without checking again what is stored.
        workspace=body.workspace or source.scope.removeprefix("workspace:"),
        scope=source.scope,
        priority=policies.priority,
        run_at_ms=occurrence.run_at_ms,
        # Where a schedule says nothing of its own, the action does.
        retry=usual.retry if policies.retry == DEFAULT_RETRY else policies.retry,
        timeout_ms=usual.timeout_ms if policies.timeout_ms == _TIMEOUT_MS else policies.timeout_ms,
        delivery=policies.delivery,
        schedule_id=source.schedule_id,
        nominal_ms=occurrence.nominal_ms,
        policies=source.policies,
        turn=turn,  # type: ignore[arg-type]
    )


def hand_over(
    db: Db, handings: Sequence[Handing], now_ms: int, *, over: Sequence[str] = ledger.REPLACEABLE
) -> HandedOver:
    """Write ledger rows and jobs. The clock of `db` is held at `now_ms`.

    `over`: states of ledger rows that may be written over.
    """
    entries = [
        ledger.values(each.occurrence, each.job, now_ms, each.whose, each.claim_id)
        for each in handings
    ]
    taken = ledger.write(db, entries, over)
    free = [
        each
        for each in handings
        if (each.occurrence.schedule_id, each.occurrence.nominal_ms) in taken
    ]
    jobs = [each.job for each in free if each.job is not None]
    asking = [_candidate(job) for job in jobs if job.turn and (job.run_at_ms or 0) <= now_ms]
    skipped = 0
    if asking:
        admission = turns.admit(db, asking)
        skipped = len(admission.skipped)
        if admission.skipped or admission.in_line:
            ledger.skip_unmade(db, admission.skipped)
            jobs = [
                msgspec.structs.replace(job, in_line=job.id in admission.in_line)
                for job in jobs
                if job.id not in admission.skipped
            ]
    if jobs:
        db.dialect.add_jobs(db, jobs)
        db.dialect.tell(db, {f"queue:{job.queue}" for job in jobs})
    is_missed = OccurrenceState.MISSED
    missed = sum(each.occurrence.count for each in free if each.occurrence.state is is_missed)
    return HandedOver(len(jobs), missed, skipped)


def _candidate(job: NewJob) -> turns.Candidate:
    assert job.schedule_id is not None
    assert job.turn is not None
    return turns.Candidate(
        job.schedule_id,
        job.run_at_ms or 0,
        job.nominal_ms or 0,
        job.id,
        job.turn,
        job.policies or "{}",
    )
