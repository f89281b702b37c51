"""Invariants of every store state, and of the step from one commit to the next.

A state is all items by kind and key, independent of where they are stored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

from duly.engine import kinds
from duly.engine.kinds import (
    StoredDocument,
    StoredKey,
    StoredLock,
    StoredOccurrence,
    StoredRow,
    StoredSchedule,
    StoredSetting,
    StoredToken,
)
from duly.engine.transaction import Key, Kind
from duly.engine.upkeep.zone_version import is_newer
from duly.model.events import JobEvent
from duly.model.jobs import FINAL, TRANSITIONS, Job, JobId, JobState
from duly.model.ledger import OccurrenceState
from duly.rules.quotas import is_counted

Items = Mapping[Kind[Any], Mapping[Key, Any]]

AT_WORK = frozenset({JobState.QUEUED, JobState.PROCESSING, JobState.RETRYING})
"""States in which a job holds the running marker of its schedule."""
_GONE = frozenset({JobState.CANCELLED, JobState.DELETED})
JOB_STATES: dict[OccurrenceState, frozenset[JobState]] = {
    OccurrenceState.PLANNED: frozenset({JobState.SCHEDULED, JobState.QUEUED}),
    OccurrenceState.FIRED: AT_WORK,
    OccurrenceState.SUCCEEDED: frozenset({JobState.SUCCEEDED, JobState.DELETED}),
    OccurrenceState.FAILED: _GONE | {JobState.DEAD},
    OccurrenceState.SKIPPED: _GONE,
    OccurrenceState.MISSED: _GONE,
    OccurrenceState.WITHDRAWN: _GONE,
    OccurrenceState.DENIED: _GONE,
}
"""Allowed job states, by the state of the occurrence."""


class Broken(AssertionError):
    """A violated invariant."""

    def __init__(self, promise: str, *found: object) -> None:
        super().__init__(f"{promise}: {', '.join(map(str, found))}")
        self.promise = promise


def _check(holds: bool, promise: str, *found: object) -> None:
    if not holds:
        raise Broken(promise, *found)


def check_state(
    items: Items,
    events: Mapping[JobId, Collection[JobEvent]],
    *,
    let_run: Collection[str] = (),
    limits: Mapping[str, int] | None = None,
) -> None:
    """Check the invariants of one state; raise Broken if one is violated.

    `let_run`: schedules for which an operator allowed a job to run in parallel with another.
    `limits`: maximum number of documents per scope, by collection (`schedules` for schedules).
    """
    jobs = {item.job.id: item.job for item in items[kinds.JOB].values()}
    _check_markers(items, jobs, let_run)
    _check_ledger(items, jobs)
    for job in jobs.values():
        _check_fences(job, events.get(job.id, ()))
    owned = Counter(key[:2] for key in items[kinds.DOCUMENT])
    schedules = (item.schedule for item in items[kinds.SCHEDULE].values())
    owned.update(("schedules", str(each.scope)) for each in schedules if is_counted(each))
    for (collection, scope), count in owned.items():
        limit = (limits or {}).get(str(collection), count)
        _check(count <= limit, "a scope keeps its limit", collection, scope, count)


def _check_markers(items: Items, jobs: Mapping[str, Job], let_run: Collection[str]) -> None:
    """Check that one job per schedule holds the marker, and that jobs in line wait for a holder."""
    holders = {item.schedule_id: item.job_id for item in items[kinds.MARKER].values()}
    for schedule_id, job_id in holders.items():
        is_live = job_id in jobs and jobs[job_id].state in AT_WORK
        _check(is_live, "a marker has a live job", schedule_id, jobs.get(job_id, job_id))
    live: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs.values():
        if job.in_line:
            _check(job.state is JobState.SCHEDULED, "a job in line is scheduled", job)
            _check(job.schedule_id in holders, "a job in line waits for a marker", job)
        if job.turn is not None and job.schedule_id and job.state in AT_WORK:
            live[job.schedule_id].append(job)
    for schedule_id, together in live.items():
        if schedule_id not in let_run:
            own = [job.id for job in together]
            _check(own == [holders.get(schedule_id)], "one live job for each marker", *together)


def _check_ledger(items: Items, jobs: Mapping[str, Job]) -> None:
    """Check that each time is covered and handed over once, and that its state matches its job."""
    rows: defaultdict[str, list[StoredOccurrence]] = defaultdict(list)
    for item in items[kinds.OCCURRENCE].values():
        rows[item.occurrence.schedule_id].append(item)
    named: Counter[str] = Counter()
    for own in rows.values():
        occurrences = sorted((item.occurrence for item in own), key=lambda each: each.nominal_ms)
        for one, other in pairwise(occurrences):
            _check(one.until_ms < other.nominal_ms, "a time is covered once", one, other)
        for occurrence in occurrences:
            job = jobs.get(occurrence.job_id or "")
            named.update([] if occurrence.job_id is None else [occurrence.job_id])
            wanted = JOB_STATES.get(occurrence.state, frozenset())
            if job is not None:
                _check(job.state in wanted, "ledger and job agree", occurrence, job)
            elif occurrence.job_id is not None:
                _check(not wanted & AT_WORK, "ledger and job agree", occurrence, "no job")
            else:
                is_planned = occurrence.state is OccurrenceState.PLANNED
                _check(not is_planned, "a planned occurrence has a job", occurrence)
    _check(max(named.values(), default=0) <= 1, "a job has one occurrence", named.most_common(1))
    _check_handed_over(items, jobs)


def _check_handed_over(items: Items, jobs: Mapping[str, Job]) -> None:
    began: Counter[Key] = Counter()
    for job in jobs.values():
        if job.schedule_id is None or job.nominal_ms is None:
            continue
        key = (job.schedule_id, job.nominal_ms)
        began[key] += job.fence > 0
        _check(began[key] <= 1, "an occurrence is handed over once", job)
        if job.state not in FINAL:
            item = items[kinds.OCCURRENCE].get(key)
            is_own = item is not None and item.occurrence.job_id == job.id
            _check(is_own, "a live job of a schedule has its occurrence", job, item)


def _check_fences(job: Job, events: Collection[JobEvent]) -> None:
    """Check that the events follow the transition table and each claim has its own fence."""
    fences = [event.attempt for event in events if event.state is JobState.PROCESSING]
    _check(fences == list(range(1, job.fence + 1)), "a fence is used once", job, fences)
    numbers = [event.seq for event in events]
    _check(numbers == list(range(1, job.events + 1)), "events are numbered", job, numbers)
    for earlier, later in pairwise(events):
        is_allowed = later.state in TRANSITIONS[earlier.state]
        _check(is_allowed, "events follow the table of states", job, earlier, later)


def check_step(before: Items, after: Items, now_ms: int) -> None:
    """Check the changes of one commit, made at `now_ms`; raise Broken on a violation."""
    for kind, check in _STEPS.items():
        earlier, later = before[kind], after[kind]
        for key, item in later.items():
            if key in earlier and earlier[key] != item:
                check(earlier[key], item, now_ms)


def _check_key(earlier: StoredKey, later: StoredKey, now_ms: int) -> None:
    is_free = earlier.expires_at_ms <= now_ms or earlier.job_id == later.job_id
    _check(is_free, "an idempotency key is taken once", earlier, later)


def _check_lock(earlier: StoredLock, later: StoredLock, now_ms: int) -> None:
    _check(later.fence >= earlier.fence, "a fence is used once", earlier, later)
    if later.owner == earlier.owner or later.owner is None:
        return
    is_free = earlier.owner is None or earlier.until_ms <= now_ms
    _check(is_free, "a lock has one owner", earlier, later)
    _check(later.fence > earlier.fence, "a fence is used once", earlier, later)


def _check_token(earlier: StoredToken, later: StoredToken, now_ms: int) -> None:
    _check(later.fence >= earlier.fence, "a fence is used once", earlier, later)
    if later.fence == earlier.fence:
        _check(later.owner == earlier.owner, "a token has one owner", earlier, later)
    else:
        is_free = earlier.leased_until_ms <= now_ms
        _check(is_free, "a token has one owner", earlier, later)


def _check_row(earlier: StoredRow, later: StoredRow, _now_ms: int) -> None:
    is_moved = earlier.row.schedule_id == later.row.schedule_id and earlier.row != later.row
    is_newer = later.row.version > earlier.row.version
    _check(is_newer or not is_moved, "a version is written once", earlier, later)


def _check_schedule(earlier: StoredSchedule, later: StoredSchedule, _now_ms: int) -> None:
    old, new = earlier.schedule, later.schedule
    is_edited = old.id == new.id and old.definition != new.definition
    is_newer = new.version > old.version
    _check(is_newer or not is_edited, "a version is written once", earlier, later)


def _check_occurrence(earlier: StoredOccurrence, later: StoredOccurrence, now_ms: int) -> None:
    is_held = earlier.claim_id is not None and (earlier.lease_until_ms or 0) > now_ms
    is_theirs = later.claim_id in (None, earlier.claim_id)
    _check(is_theirs or not is_held, "a dispatch has one owner", earlier, later)


def _check_document(earlier: StoredDocument, later: StoredDocument, _now_ms: int) -> None:
    versions = earlier.document.version, later.document.version
    _check(versions[1] == versions[0] + 1, "a version is written once", earlier, later)


def _check_setting(earlier: StoredSetting, later: StoredSetting, _now_ms: int) -> None:
    is_newer_one = is_newer(later.value, earlier.value)
    _check(is_newer_one, "zone rules are never older", earlier, later)


_STEPS: dict[Kind[Any], Any] = {
    kinds.ROW: _check_row,
    kinds.SCHEDULE: _check_schedule,
    kinds.DOCUMENT: _check_document,
    kinds.OCCURRENCE: _check_occurrence,
    kinds.IDEMPOTENCY_KEY: _check_key,
    kinds.LOCK: _check_lock,
    kinds.TOKEN: _check_token,
    kinds.SETTING: _check_setting,
}
