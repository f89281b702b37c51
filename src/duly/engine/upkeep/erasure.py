"""Erasure of an owner's data in bounded steps.

Kinds are walked one after another, page by page. Removed items do not reappear, so a step may be
repeated, and steps may run concurrently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from duly.engine.jobs.jobs import cancel_job
from duly.engine.jobs.moves import hold_markers
from duly.engine.kinds import (
    AUDIT,
    DOCUMENT,
    IDEMPOTENCY_KEY,
    JOB,
    JOB_EVENTS,
    LEDGER,
    OCCURRENCE,
    ROW,
    SCHEDULE,
    SCHEDULE_EVENTS,
    SCHEDULE_IDS,
    TOKEN,
    key_parts,
    row_key,
    schedule_key,
)
from duly.engine.schedules import ledger, withdrawals
from duly.engine.schedules.schedules import remove_schedule
from duly.engine.transaction import EVERY, Key, Tx
from duly.engine.upkeep.walks import (
    DOCUMENTS_OF,
    JOBS,
    KEYS_OF,
    OCCURRENCES,
    ROWS_OF,
    SCHEDULES_OF,
    TOKENS_OF,
)
from duly.errors import InvalidInput
from duly.model.jobs import FINAL, Job, JobState
from duly.model.summaries import AuditEntry
from duly.model.upkeep import (
    ERASED,
    MAX_ERASE,
    Erased,
    Owner,
    check_cursor,
    erased_target,
    target_id,
)
from duly.rules.checks import check_limit

_SCHEDULES = 100
"""Schedules per step; each is deleted together with its runs that have not begun."""
_WITHDRAWN = "its owner is erased"

Done = tuple[Erased, Key | None]
"""Counts of removed items, and the position at which this kind continues (None: it is done)."""


def erase(tx: Tx, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
    """Take one step; return its counts and the cursor of the next step (None: done)."""
    owner = Owner.of(scope)
    check_limit(limit, MAX_ERASE)
    kind, text = check_cursor(cursor, tuple(_KINDS))
    erased, place = _KINDS[kind](tx, owner, _place(text), limit)
    if place is not None:
        return replace(erased, cursor=f"{kind}:{json.dumps(place)}")
    kinds = list(_KINDS)
    following = kinds[kinds.index(kind) + 1 :]
    return replace(erased, cursor=f"{following[0]}:[]" if following else None)


def _place(text: str) -> Key:
    try:
        return tuple(json.loads(text or "[]"))
    except (TypeError, ValueError):
        raise InvalidInput(
            f"cursor {text[:80]!r} is invalid; pass that of the previous step"
        ) from None


def _audit(tx: Tx, owner: Owner, after: Key, limit: int) -> Done:
    """Remove names from audit entries; done first, while the owners of targets are still known."""
    page = tx.walk(AUDIT, after, limit)
    targets = {entry.target for entry in page}
    schedules = _own_schedules(tx, owner, {target_id(each, "schedule") for each in targets})
    jobs = tx.peek_many(JOB, [(each,) for each in _ids(target_id(t, "job") for t in targets)])
    own_jobs = {
        item.job.id for item in jobs.values() if owner.has_job(item.job.scope, item.job.workspace)
    }
    named = 0
    for entry in page:
        target = entry.target
        is_own = (
            owner.is_named_in(target)
            or target_id(target, "schedule") in schedules
            or target_id(target, "job") in own_jobs
        )
        clean = _without_names(entry, owner, is_own=is_own)
        if clean != entry:
            named += 1
            tx.rewrite(AUDIT, clean)
    return Erased(audit=named), (page[-1].seq,) if len(page) == limit else None


def _without_names(entry: AuditEntry, owner: Owner, *, is_own: bool) -> AuditEntry:
    if is_own and entry.detail != ERASED:
        entry = replace(entry, target=erased_target(entry.target), detail=ERASED)
    return replace(entry, by=ERASED) if entry.by == owner.scope else entry


def _ids(found: Iterable[str | None]) -> list[str]:
    return sorted({each for each in found if each is not None})


def _scopes(tx: Tx, ids: Collection[str]) -> dict[str, str]:
    """Return the scopes of the schedules that are stored, by id."""
    keys = tx.find_among(SCHEDULE_IDS, [(each,) for each in ids], limit=EVERY)
    found = tx.peek_many(SCHEDULE, keys).values()
    return {item.schedule.id: str(item.schedule.scope) for item in found}


def _own_schedules(tx: Tx, owner: Owner, named: Collection[str | None]) -> set[str]:
    """Return the owner's schedules: stored ones, and removed ones known by ledger or creator."""
    ids = _ids(named)
    scopes = _scopes(tx, ids)
    missing = [each for each in ids if each not in scopes]
    # Any ledger row shows the owner, since a schedule never changes its owner.
    fired = tx.peek_firsts(LEDGER, [(each,) for each in missing])
    scopes |= {str(each): item.occurrence.scope for (each,), item in fired.items()}
    made = {
        each
        for each, facts in tx.histories(SCHEDULE_EVENTS, missing, EVERY).items()
        if any(fact.kind == "created" and fact.by == owner.scope for fact in facts)
    }
    return made | {each for each, scope in scopes.items() if scope == owner.scope}


def _schedules(tx: Tx, owner: Owner, _after: Key, limit: int) -> Done:
    keys = tx.find(SCHEDULES_OF, owner.scope, limit=min(limit, _SCHEDULES))
    tx.get_many(ROW, keys)
    found = [item.schedule for item in tx.get_many(SCHEDULE, keys).values()]
    if not found:
        return Erased(), None
    events = _forget(tx, (each.id for each in found), limit)
    if events == limit:
        return Erased(events=events), ()
    withdrawals.unbegun_of(tx, found)
    for each in found:
        remove_schedule(tx, schedule_key(each), "system", is_notified=False)
    return Erased(schedules=len(found), events=events), ()


def _forget(tx: Tx, schedule_ids: Iterable[str | None], limit: int) -> int:
    """Remove up to `limit` events of schedules; return how many."""
    found = tx.histories(SCHEDULE_EVENTS, _ids(schedule_ids), limit)
    facts = [fact for own in found.values() for fact in own][:limit]
    tx.drop(SCHEDULE_EVENTS, facts)
    return len(facts)


def _rows(tx: Tx, owner: Owner, _after: Key, limit: int) -> Done:
    """Remove index rows of applications that store their definitions elsewhere."""
    keys = tx.find(ROWS_OF, owner.scope, limit=limit)
    found = tx.get_many(ROW, keys)
    for item in found.values():
        tx.delete(ROW, *key_parts(row_key(item.row)))
    return Erased(schedules=len(found)), () if len(keys) == limit else None


def _documents(tx: Tx, owner: Owner, _after: Key, limit: int) -> Done:
    keys = tx.find(DOCUMENTS_OF, owner.scope, limit=limit)
    found = tx.get_many(DOCUMENT, keys)
    for key in found:
        tx.delete(DOCUMENT, *key)
    return Erased(documents=len(found)), () if len(keys) == limit else None


def _jobs(tx: Tx, owner: Owner, since: Key, limit: int) -> Done:
    """Remove jobs; open ones are cancelled first, which updates the ledger and the marker."""
    keys = tx.find(JOBS, since=since, limit=limit + 1)
    page = [item.job for item in tx.peek_many(JOB, keys[:limit]).values()]
    own = [job for job in page if owner.has_job(job.scope, job.workspace)]
    events = _forget(tx, (job.schedule_id for job in own if job.scope == owner.scope), limit)
    if events == limit:
        return Erased(events=events), since
    tx.get_many(IDEMPOTENCY_KEY, [_key_of(job) for job in own if job.key is not None])
    held = [item.job for item in tx.get_many(JOB, [(job.id,) for job in own]).values()]
    ledger.hold_of_jobs(tx, held)
    hold_markers(tx, [job for job in held if job.state not in FINAL])
    erased = Erased(events=events)
    for job in held:
        erased += _remove_job(tx, job)
    return erased, keys[limit] if len(keys) > limit else None


def _remove_job(tx: Tx, job: Job) -> Erased:
    if job.state not in FINAL:
        ended = cancel_job(tx, job.id, reason=_WITHDRAWN)
        if ended.state is JobState.PROCESSING:
            return Erased(running=1)
    tx.delete(JOB, job.id)
    key = None if job.key is None else tx.get(IDEMPOTENCY_KEY, *_key_of(job))
    if key is None or key.job_id != job.id:
        return Erased(jobs=1)
    tx.delete(IDEMPOTENCY_KEY, *_key_of(job))
    return Erased(jobs=1, keys=1)


def _key_of(job: Job) -> Key:
    return job.workspace, job.action, job.key or ""


def _keys(tx: Tx, owner: Owner, _after: Key, limit: int) -> Done:
    if owner.workspace is None:
        return Erased(), None
    keys = tx.find(KEYS_OF, owner.workspace, limit=limit)
    found = tx.get_many(IDEMPOTENCY_KEY, keys)
    for key in found:
        tx.delete(IDEMPOTENCY_KEY, *key)
    return Erased(keys=len(found)), () if len(keys) == limit else None


def _occurrences(tx: Tx, owner: Owner, since: Key, limit: int) -> Done:
    keys = tx.find(OCCURRENCES, since=since, limit=limit + 1)
    page = tx.peek_many(OCCURRENCE, keys[:limit])
    own = [key for key, item in page.items() if item.occurrence.scope == owner.scope]
    events = _forget(tx, (str(schedule_id) for schedule_id, _ in own), limit)
    if events == limit:
        return Erased(events=events), since
    found = tx.get_many(OCCURRENCE, own)
    for key in found:
        tx.delete(OCCURRENCE, *key)
    following = keys[limit] if len(keys) > limit else None
    return Erased(occurrences=len(found), events=events), following


def _events(tx: Tx, owner: Owner, after: Key, limit: int) -> Done:
    """Remove the owner's events about removed schedules; remove its name from the others."""
    page = tx.walk(SCHEDULE_EVENTS, after, limit)
    own = [fact for fact in page if fact.by == owner.scope]
    standing = _scopes(tx, {fact.schedule_id for fact in own})
    # Of a removed schedule that never fired, only the "created" event still shows the owner.
    made = {fact.schedule_id for fact in own if fact.kind == "created"} - set(standing)
    events = _forget(tx, made, limit)
    if events == limit:
        return Erased(events=events), after
    left = [fact for fact in own if fact.schedule_id not in made]
    tx.drop(SCHEDULE_EVENTS, (fact for fact in left if fact.schedule_id not in standing))
    for fact in left:
        if fact.schedule_id in standing:
            tx.rewrite(SCHEDULE_EVENTS, replace(fact, by=ERASED))
    last = (page[-1].seq,) if len(page) == limit else None
    return Erased(events=events + len(left)), last


def _job_events(tx: Tx, owner: Owner, after: Key, limit: int) -> Done:
    """Remove the owner's name from events of other owners' jobs."""
    page = tx.walk(JOB_EVENTS, after, limit)
    own = [fact for fact in page if fact.actor == owner.scope]
    for fact in own:
        tx.rewrite(JOB_EVENTS, fact._replace(actor=ERASED))
    last = JOB_EVENTS.number(page[-1]) if len(page) == limit else None
    return Erased(events=len(own)), last


def _tokens(tx: Tx, owner: Owner, _after: Key, limit: int) -> Done:
    if owner.workspace is None:
        return Erased(), None
    keys = tx.find(TOKENS_OF, owner.workspace, limit=limit)
    for key in tx.get_many(TOKEN, keys):
        tx.delete(TOKEN, *key)
    return Erased(), () if len(keys) == limit else None


_KINDS: dict[str, Callable[[Tx, Owner, Key, int], Done]] = {
    "audit": _audit,
    "schedules": _schedules,
    "index_rows": _rows,
    "documents": _documents,
    "jobs": _jobs,
    "keys": _keys,
    "occurrences": _occurrences,
    "events": _events,
    "job_events": _job_events,
    "tokens": _tokens,
}
"""Steps in order: no step creates items that an earlier one removes."""
