"""Station 5: from occurrences to ledger rows and jobs, inside the transaction that planned them.

The ledger decides first: an occurrence that it has already makes no second job. Then the running
marker of its schedule decides over those whose time has come. What is left becomes jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from duly.jobs import Delivery, NewJob, Turn
from duly.ledger import OccurrenceState
from duly.occurrences import policies_text
from duly.plan_store import BACKFILL, PlanSettings
from duly.planning import policies_of, policies_or_usual
from duly.run_options import RunOptions
from duly.schedules import Schedule, action_in
from duly.store import ScheduleKey
from duly.stores.sql import ledger, turns
from duly.stores.sql.db import Db

_WAITING = frozenset({"catch_up", BACKFILL})
"""Reasons of occurrences that are late already: they run one after another."""


class HandedOver(NamedTuple):
    """What became of occurrences."""

    planned: int
    missed: int
    skipped: int
    taken: Collection[tuple[str, int]] = ()
    """Times that the ledger had already, by schedule."""


class _Body(msgspec.Struct, gc=False):
    """What a job needs of a definition."""

    action: str
    input: msgspec.Raw = msgspec.Raw(b"null")
    workspace: str | None = None


_BODY = msgspec.json.Decoder(_Body)


class _Kind(NamedTuple):
    """What the jobs of one action have in common, under the same policies."""

    action: str
    priority: int
    options: RunOptions
    turn: Turn | None


class JobMaker:
    """Makes the jobs of occurrences; what many have in common it finds out once."""

    def __init__(self, settings: PlanSettings) -> None:
        self._settings = settings
        self._kinds: dict[tuple[str, str, str, bool], _Kind] = {}

    def make(self, entry: ledger.Entry, policies: str, body: str) -> NewJob:
        """The job of a ledger row; InvalidInput or MsgspecError: no job can carry it."""
        assert entry.job_id is not None
        parts = _BODY.decode(body)
        key = (entry.flow, parts.action, policies, entry.reason in _WAITING)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._kind(*key)
        options = kind.options
        return NewJob(
            id=entry.job_id,
            action=kind.action,
            input=bytes(parts.input).decode(),
            queue=options.queue,
            # workspace_of(), without checking again what is stored.
            workspace=parts.workspace or entry.scope.removeprefix("workspace:"),
            scope=entry.scope,
            priority=kind.priority,
            run_at_ms=entry.run_at_ms,
            retry=options.retry,
            timeout_ms=options.timeout_ms,
            delivery=options.delivery,
            schedule_id=entry.schedule_id,
            nominal_ms=entry.nominal_ms,
            policies=policies,
            turn=kind.turn,
        )

    def _kind(self, flow: str, action: str, text: str, waits: bool) -> _Kind:
        policies = policies_of(text)
        name = f"{flow}.{action}"
        turn: Turn | None = None
        if policies.overlap != "allow":
            turn = "waits" if waits else "asks"
        return _Kind(name, policies.priority, self._settings.options(name, policies), turn)


def delivery_of(db: Db, flow: str, policies: str, body: str | None) -> Delivery:
    """Return how an occurrence is posted; a row without a stored body has no known action."""
    action = f"{flow}.{action_in(body)}"
    # A row whose policies cannot be read is quarantined and posts nothing.
    return db.planning.options(action, policies_or_usual(policies)).delivery


def key_of(schedule: Schedule) -> ScheduleKey:
    """Where a schedule stands."""
    return ScheduleKey(schedule.flow, str(schedule.scope), schedule.name)


def jobs_of(db: Db, schedule: Schedule, entries: Sequence[ledger.Entry]) -> list[NewJob]:
    """The jobs of a schedule's ledger rows, of those that have one."""
    maker, definition = JobMaker(db.planning), schedule.definition
    policies, body = policies_text(definition.policies), definition.to_json()
    return [maker.make(each, policies, body) for each in entries if each.job_id is not None]


def hand_over(
    db: Db,
    entries: Sequence[ledger.Entry],
    jobs: Sequence[NewJob],
    *,
    over: Sequence[str] = ledger.REPLACEABLE,
) -> HandedOver:
    """Write ledger rows and their jobs. The clock of `db` is held.

    `over`: states of ledger rows that may be written over.
    """
    taken = ledger.write(db, entries, over)
    if taken:
        entries = [each for each in entries if (each.schedule_id, each.nominal_ms) not in taken]
        free = {each.job_id for each in entries}
        jobs = [job for job in jobs if job.id in free]
    now_ms = db.now_ms()
    asking = [
        turns.Candidate(
            job.schedule_id or "",
            job.run_at_ms or 0,
            job.nominal_ms or 0,
            job.id,
            job.turn,
            job.policies or "{}",
        )
        for job in jobs
        if job.turn and (job.run_at_ms or 0) <= now_ms
    ]
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
        db.dialect.tell(db, {f"queue:{name}" for name in {job.queue for job in jobs}})
    missed = sum([each.times for each in entries if each.state is OccurrenceState.MISSED])
    return HandedOver(len(jobs), missed, skipped, taken)
