"""Everything that an owner left, in memory: one kind a step, until nothing is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from duly.jobs import JobState
from duly.store import ScheduleKey
from duly.stores.checks import SCHEDULES, check_limit
from duly.stores.memory import job_moves, schedules
from duly.stores.memory.tables import Tables
from duly.upkeep_store import (
    ERASED,
    MAX_ERASE,
    Erased,
    Owner,
    check_cursor,
    erased_target,
    target_id,
)

_WITHDRAWN = "its owner is erased"


def erase(tables: Tables, now_ms: int, scope: str, cursor: str | None, limit: int) -> Erased:
    """One step; the next one looks again from the beginning."""
    owner = Owner.of(scope)
    check_limit(limit, MAX_ERASE)
    check_cursor(cursor, ("again",))
    for kind in _KINDS:
        erased = kind(tables, now_ms, owner, limit)
        if erased != Erased():
            return replace(erased, cursor="again:")
    own = (job for job, _ in tables.jobs.values() if owner.has_job(job.scope, job.workspace))
    running = [job.id for job in own]
    for job_id in running:
        job_moves.cancel(tables, now_ms, job_id, None, _WITHDRAWN)
    return Erased(running=len(running))


def _audit(tables: Tables, _now_ms: int, owner: Owner, limit: int) -> Erased:
    """First, while it can be seen whose the things are that entries are about."""
    schedules, jobs = _own_ids(tables, owner), _own_jobs(tables, owner)
    named = 0
    for place, entry in enumerate(tables.audit):
        target = entry.target
        is_own = (
            owner.is_named_in(target)
            or target_id(target, "schedule") in schedules
            or target_id(target, "job") in jobs
        )
        clean = entry
        if is_own and entry.detail != ERASED:
            clean = replace(entry, target=erased_target(target), detail=ERASED)
        if entry.by == owner.scope:
            clean = replace(clean, by=ERASED)
        if clean != entry and named < limit:
            named += 1
            tables.audit[place] = clean
    return Erased(audit=named)


def _own_jobs(tables: Tables, owner: Owner) -> set[str]:
    jobs = (job for job, _ in tables.jobs.values())
    return {job.id for job in jobs if owner.has_job(job.scope, job.workspace)}


def _own_ids(tables: Tables, owner: Owner) -> set[str]:
    """Schedules of the owner: stored, or gone and known by their ledger or by who made them."""
    scopes = {each.id: str(each.scope) for each in tables.schedules()}
    own = {each for each, scope in scopes.items() if scope == owner.scope}
    ledger = (entry.occurrence for entry in tables.ledger.values())
    own |= {each.schedule_id for each in ledger if each.scope == owner.scope}
    made = (each for each in tables.events if each.kind == "created" and each.by == owner.scope)
    return {*own, *(each.schedule_id for each in made if each.schedule_id not in scopes)}


def _events_of_schedules(tables: Tables, _now_ms: int, owner: Owner, limit: int) -> Erased:
    """First, while it can still be seen which schedules were the owner's."""
    standing = {each.id: str(each.scope) for each in tables.schedules()}
    own = {schedule_id for schedule_id, scope in standing.items() if scope == owner.scope}
    ledger = (entry.occurrence for entry in tables.ledger.values())
    own |= {each.schedule_id for each in ledger if each.scope == owner.scope}
    jobs = (job for job, _ in tables.jobs.values())
    ids: set[str | None] = {*own, *(job.schedule_id for job in jobs if job.scope == owner.scope)}
    ids |= {
        event.schedule_id
        for event in tables.events
        if event.schedule_id not in standing and event.kind == "created" and event.by == owner.scope
    }
    gone = [place for place, event in enumerate(tables.events) if event.schedule_id in ids]
    return Erased(events=_drop_events(tables, gone[:limit]))


def _drop_events(tables: Tables, places: list[int]) -> int:
    gone = set(places)
    tables.events = [event for place, event in enumerate(tables.events) if place not in gone]
    return len(gone)


def _schedules(tables: Tables, now_ms: int, owner: Owner, limit: int) -> Erased:
    own = [each for each in tables.schedules() if str(each.scope) == owner.scope][:limit]
    for each in own:
        key = ScheduleKey(each.flow, owner.scope, each.name)
        schedules.remove(tables, now_ms, key, "system")
    ids = {each.id for each in own}
    tables.events = [event for event in tables.events if event.schedule_id not in ids]
    return Erased(schedules=len(own))


def _index_rows(tables: Tables, _now_ms: int, owner: Owner, limit: int) -> Erased:
    own = [key for key in tables.rows if key.scope == owner.scope][:limit]
    for key in own:
        tables.drop_row(key)
    return Erased(schedules=len(own))


def _documents(tables: Tables, _now_ms: int, owner: Owner, limit: int) -> Erased:
    own = [key for key in tables.documents if key[0] != SCHEDULES and key[1] == owner.scope]
    for key in own[:limit]:
        del tables.documents[key]
    return Erased(documents=len(own[:limit]))


def _jobs(tables: Tables, now_ms: int, owner: Owner, limit: int) -> Erased:
    jobs = (job for job, _ in tables.jobs.values())
    own = [
        job
        for job in jobs
        if owner.has_job(job.scope, job.workspace) and job.state != JobState.PROCESSING
    ][:limit]
    keys = 0
    for job in own:
        if job.finished_at_ms is None:
            # So that ledger and running marker follow as ever.
            job_moves.cancel(tables, now_ms, job.id, None, _WITHDRAWN)
        del tables.jobs[job.id], tables.job_events[job.id], tables.attempts[job.id]
        place = (job.workspace, job.action, job.key or "")
        if place in tables.keys and tables.keys[place].job_id == job.id:
            del tables.keys[place]
            keys += 1
    return Erased(jobs=len(own), keys=keys)


def _keys(tables: Tables, _now_ms: int, owner: Owner, limit: int) -> Erased:
    own = [key for key in tables.keys if key[0] == owner.workspace][:limit]
    for key in own:
        del tables.keys[key]
    return Erased(keys=len(own))


def _occurrences(tables: Tables, _now_ms: int, owner: Owner, limit: int) -> Erased:
    own = [key for key, entry in tables.ledger.items() if entry.occurrence.scope == owner.scope]
    for key in own[:limit]:
        del tables.ledger[key]
    return Erased(occurrences=len(own[:limit]))


def _events(tables: Tables, _now_ms: int, owner: Owner, limit: int) -> Erased:
    """Facts by the owner: gone with a schedule that is gone, else without the name."""
    own = [place for place, event in enumerate(tables.events) if event.by == owner.scope][:limit]
    standing = {each.id for each in tables.schedules()}
    for place in own:
        tables.events[place] = replace(tables.events[place], by=ERASED)
    gone = [place for place in own if tables.events[place].schedule_id not in standing]
    _drop_events(tables, gone)
    return Erased(events=len(own))


def _job_events(tables: Tables, _now_ms: int, owner: Owner, limit: int) -> Erased:
    """What the owner did to others' jobs stays, without the name."""
    named = 0
    for job_id, events in tables.job_events.items():
        own = sum(event.actor == owner.scope for event in events)
        if own and named + own <= max(limit, own):
            named += own
            tables.job_events[job_id] = tuple(
                event._replace(actor=ERASED) if event.actor == owner.scope else event
                for event in events
            )
    return Erased(events=named)


def _tokens(tables: Tables, _now_ms: int, owner: Owner, _limit: int) -> Erased:
    for key in [key for key in tables.tokens if key[1] == owner.workspace]:
        del tables.tokens[key]
    return Erased()


_KINDS: tuple[Callable[[Tables, int, Owner, int], Erased], ...] = (
    _audit,
    _events_of_schedules,
    _schedules,
    _index_rows,
    _documents,
    _jobs,
    _keys,
    _occurrences,
    _events,
    _job_events,
    _tokens,
)
