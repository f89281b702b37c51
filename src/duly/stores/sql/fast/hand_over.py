"""Write ledger rows and jobs of occurrences, in the transaction that planned them.

The ledger is checked first: an occurrence that it already has gets no second job. Then the running
marker of the schedule decides about due ones. The rest become jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from duly.engine.ids import Ids
from duly.engine.schedules.hand_over import turn_of
from duly.engine.schedules.overlap import admit
from duly.model.jobs import JobId, NewJob, Turn
from duly.model.ledger import OccurrenceState
from duly.model.plans import PlanSettings
from duly.model.run_options import RunOptions
from duly.rules.planning import policies_of
from duly.stores.sql.db import Db
from duly.stores.sql.rows import ledger
from duly.stores.sql.source import transact


class HandedOver(NamedTuple):
    """The outcome of a hand-over, as counts."""

    planned: int
    missed: int
    skipped: int
    taken: Collection[tuple[str, int]] = ()
    """Schedule ids and times that the ledger already had."""


class _Body(msgspec.Struct, gc=False):
    """The fields of a definition that a job needs."""

    action: str
    input: msgspec.Raw = msgspec.Raw(b"null")
    workspace: str | None = None


_BODY = msgspec.json.Decoder(_Body)


class _Kind(NamedTuple):
    """The common settings of the jobs of one action under the same policies."""

    action: str
    priority: int
    options: RunOptions
    turn: Turn | None


class JobMaker:
    """A factory for the jobs of occurrences; it caches settings that jobs share."""

    def __init__(self, settings: PlanSettings) -> None:
        self._settings = settings
        self._kinds: dict[tuple[str, str, str, str | None], _Kind] = {}

    def make(self, entry: ledger.Entry, policies: str, body: str) -> NewJob:
        """Return the job of a ledger row.

        InvalidInput or MsgspecError: it cannot be converted to a job.
        """
        assert entry.job_id is not None
        parts = _BODY.decode(body)
        key = (entry.flow, parts.action, policies, entry.reason)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._kind(*key)
        options = kind.options
        return NewJob(
            id=entry.job_id,
            action=kind.action,
            input=bytes(parts.input).decode(),
            queue=options.queue,
            # workspace_of() without its checks, as the scope is stored already.
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

    def _kind(self, flow: str, action: str, text: str, reason: str | None) -> _Kind:
        policies = policies_of(text)
        name = f"{flow}.{action}"
        options = self._settings.options(name, policies)
        return _Kind(name, policies.priority, options, turn_of(policies, reason))


def hand_over(db: Db, entries: Sequence[ledger.Entry], jobs: Sequence[NewJob]) -> HandedOver:
    """Write ledger rows and their jobs; return the outcome. The clock of `db` must be fixed."""
    taken = ledger.write(db, entries)
    if taken:
        entries = [each for each in entries if (each.schedule_id, each.nominal_ms) not in taken]
        free = {each.job_id for each in entries}
        jobs = [job for job in jobs if job.id in free]
    skipped: dict[JobId, str] = {}
    asking = _asking(db, jobs)
    if asking:
        decision = transact(db, Ids(), admit, asking)
        # The job that gets the marker is queued: it is neither skipped nor in line.
        skipped, in_line = decision.skipped, set(decision.in_line)
        ledger.skip_unmade(db, skipped)
        jobs = [
            msgspec.structs.replace(job, in_line=job.id in in_line)
            for job in jobs
            if job.id not in skipped
        ]
    if jobs:
        db.fast.add_jobs(db, jobs)
        db.dialect.tell(db, {f"queue:{name}" for name in {job.queue for job in jobs}})
    missed = sum([each.times for each in entries if each.state is OccurrenceState.MISSED])
    return HandedOver(len(jobs), missed, len(skipped), taken)


def _asking(db: Db, jobs: Sequence[NewJob]) -> list[NewJob]:
    """Take free markers for schedules with one due job; return jobs for the engine to decide on."""
    now_ms = db.now_ms()
    due = [job for job in jobs if job.turn and (job.run_at_ms or 0) <= now_ms]
    if not due:
        return []
    many = Counter([job.schedule_id for job in due])
    alone = {job.schedule_id or "": job for job in due if many[job.schedule_id] == 1}
    # All callers take markers in the order of schedule ids, which prevents deadlocks.
    wanted = {each: alone[each].id for each in sorted(alone)}
    others = [job for job in due if many[job.schedule_id] > 1]
    decided = {job.schedule_id or "" for job in others}
    held = db.fast.add_markers(db, wanted, decided) if wanted else []
    return [*others, *(alone[each] for each in held)]
