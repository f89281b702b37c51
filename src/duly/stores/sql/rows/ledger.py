"""The rows of the ledger, and their updates when jobs change state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec
from sqlalchemy import Row

from duly.engine.schedules.ledger import EXTRAS, FREE
from duly.model.events import AttemptStatus
from duly.model.jobs import JobId, JobState
from duly.model.ledger import BROKEN_OFF, Occurrence, OccurrenceState, follow
from duly.model.plans import BACKFILL, RUN_NOW
from duly.model.schedules import ScheduleId
from duly.rules.checks import check_limit
from duly.rules.planning import PlannedOccurrence
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db, LostRace, tuples

_PLANNED = OccurrenceState.PLANNED
FREE_STATES = "({})".format(", ".join(f"'{state}'" for state in sorted(FREE)))
"""SQL list of the states of a row that planning may overwrite."""
IS_RUN_NOW = f"LIKE '{RUN_NOW}:%'"
"""SQL condition on the claim id of a run-now occurrence."""


class Whose(Protocol):
    """An object with the key of a schedule."""

    @property
    def flow(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def name(self) -> str: ...


class Entry(msgspec.Struct, gc=False):
    """A new ledger row, with fields named like its columns.

    Not tracked by the garbage collector: a burst creates many, and they cannot form cycles.
    """

    schedule_id: str
    nominal_ms: int
    flow: str
    scope: str
    name: str
    run_at_ms: int
    state: OccurrenceState
    at_ms: int
    until_ms: int
    times: int
    job_id: JobId | None
    reason: str | None
    claim_id: str | None = None
    lease_until_ms: int | None = None
    tries: int | None = None
    delivery: str | None = None
    missed: int = 0
    row_version: int = 0
    position: int = 0


def write(db: Db, entries: Sequence[Entry]) -> set[tuple[str, int]]:
    """Store occurrences; return those that exist already, by schedule and nominal time.

    A single time never replaces a range of times, and a range is never dropped because of a single
    time: the rest of the range would be in no row.
    """
    if not entries:
        return set()
    ranges = [entry for entry in entries if entry.until_ms > entry.nominal_ms]
    if ranges:
        _clear(db, ranges)
    if db.fast.add_occurrences(db, entries):
        return set()
    table = db.tables.occurrences
    names = [column.name for column in table.c]
    changed = ", ".join(f"{name} = excluded.{name}" for name in names[2:])
    written = db.run(
        f"INSERT INTO {{p}}occurrences AS o ({', '.join(names)}) "
        f"SELECT {', '.join(names)} FROM {db.dialect.records(table)} WHERE 1 = 1 "
        f"ON CONFLICT (schedule_id, nominal_ms) DO UPDATE SET {changed} "
        f"WHERE o.state IN {FREE_STATES} "
        "AND COALESCE(o.until_ms, o.nominal_ms) <= excluded.until_ms "
        "RETURNING schedule_id, nominal_ms",
        rows=msgspec.json.encode(entries).decode(),
    )
    times = {(entry.schedule_id, entry.nominal_ms) for entry in entries}
    taken = times - {(row[0], row[1]) for row in tuples(written)}
    if any((each.schedule_id, each.nominal_ms) in taken for each in ranges):
        raise LostRace("another transaction took the first time of a range of times")
    return taken


def _clear(db: Db, ranges: Sequence[Entry]) -> None:
    """Remove rows in free states that a range of times covers."""
    db.run(
        "DELETE FROM {p}occurrences WHERE (schedule_id, nominal_ms) IN ("
        f"SELECT o.schedule_id, o.nominal_ms FROM {db.dialect.records(db.tables.occurrences)} "
        "JOIN {p}occurrences o ON o.schedule_id = r.schedule_id AND o.nominal_ms > r.nominal_ms "
        f"AND o.nominal_ms <= r.until_ms WHERE o.state IN {FREE_STATES})",
        rows=msgspec.json.encode(ranges).decode(),
    )


def entry_of(
    occurrence: PlannedOccurrence,
    whose: Whose,
    now_ms: int,
    job_id: JobId | None = None,
    claim_id: str | None = None,
) -> Entry:
    """Return the ledger row of an occurrence; only a planned one gets the job's id."""
    schedule_id, nominal_ms, until_ms, count, run_at_ms, state, reason = occurrence
    return Entry(
        schedule_id,
        nominal_ms,
        whose.flow,
        whose.scope,
        whose.name,
        run_at_ms,
        state,
        now_ms,
        until_ms,
        count,
        job_id if state is _PLANNED else None,
        reason,
        claim_id,
    )


def follow_jobs(
    db: Db, job_ids: Iterable[str], state: JobState, ended_as: AttemptStatus | None = None
) -> None:
    """Update the occurrences of jobs that moved to a state."""
    statement = _follow_statement(state, ended_as == "denied")
    ids = sorted(job_ids)
    if statement is not None and ids:
        for chunk in chunks(ids):
            db.run(statement, ids=list(chunk))


def skip_unmade(db: Db, reasons: Mapping[JobId, str]) -> None:
    """Mark planned occurrences as skipped, as their jobs were not created, each with its reason."""
    for job_id, reason in sorted(reasons.items()):
        db.run(
            "UPDATE {p}occurrences SET state = 'skipped', reason = :reason, job_id = NULL, "
            "ended_at_ms = {now} WHERE job_id = :id",
            id=job_id,
            reason=reason,
        )


@lru_cache(maxsize=16)
def _follow_statement(job: JobState, is_denied: bool) -> str | None:
    status: AttemptStatus | None = "denied" if is_denied else None
    moves = {state: follow(state, job, status) for state in OccurrenceState}
    moves = {state: target for state, target in moves.items() if state != target}
    if not moves:
        return None
    cases = " ".join(f"WHEN '{state}' THEN '{target}'" for state, target in moves.items())
    times = {
        JobState.PROCESSING: "fired_at_ms = COALESCE(fired_at_ms, {now})",
        JobState.QUEUED: "ended_at_ms = NULL",
    }.get(job, "ended_at_ms = {now}")
    why = ""
    if job in BROKEN_OFF and moves.get(OccurrenceState.FIRED) is OccurrenceState.FAILED:
        # Manually requested occurrences keep their reason: they are counted separately.
        extras = ", ".join(f"'{reason}'" for reason in sorted(EXTRAS))
        why = (
            f", reason = CASE WHEN state <> 'fired' OR reason IN ({extras}) "
            f"THEN reason ELSE '{job}' END"
        )
    states = ", ".join(f"'{state}'" for state in moves)
    return (
        f"UPDATE {{p}}occurrences SET state = CASE state {cases} END, {times}{why} "
        f"WHERE job_id IN :ids AND state IN ({states})"
    )


def list_occurrences(
    db: Db,
    schedule_id: ScheduleId,
    *,
    before_ms: int | None = None,
    since_ms: int | None = None,
    states: Collection[OccurrenceState] | None = None,
    limit: int = 100,
) -> list[Occurrence]:
    """Return one page of a schedule's ledger, newest first."""
    check_limit(limit)
    terms: dict[str, tuple[str, object]] = {}
    if before_ms is not None:
        terms["before_ms"] = ("nominal_ms < :before_ms", before_ms)
    if since_ms is not None:
        terms["since_ms"] = ("nominal_ms >= :since_ms", since_ms)
    if states is not None:
        terms["states"] = ("state IN :states", sorted(state.value for state in states))
    rows = db.run(
        "SELECT * FROM {p}occurrences WHERE "
        + " AND ".join(["schedule_id = :schedule_id", *(term for term, _ in terms.values())])
        + " ORDER BY nominal_ms DESC LIMIT :limit",
        schedule_id=schedule_id,
        limit=limit,
        **{name: value for name, (_, value) in terms.items()},
    )
    return [occurrence_of(row) for row in rows]


def runs(db: Db, schedule_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the number of runs, without extras, and the last covered time of each schedule."""
    found: dict[str, tuple[int, int]] = {}
    for chunk in chunks(schedule_ids):
        rows = db.run(
            f"SELECT schedule_id, SUM(CASE WHEN state = 'missed' OR reason = '{BACKFILL}' "
            f"OR claim_id {IS_RUN_NOW} THEN 0 ELSE 1 END), "
            f"MAX(CASE WHEN claim_id {IS_RUN_NOW} THEN NULL "
            "ELSE COALESCE(until_ms, nominal_ms) END) FROM {p}occurrences "
            f"WHERE schedule_id IN :ids AND state NOT IN {FREE_STATES} "
            "GROUP BY schedule_id",
            ids=list(chunk),
        )
        found |= {row[0]: (int(row[1]), row[2]) for row in tuples(rows) if row[2] is not None}
    return found


def occurrence_of(row: Row[Any]) -> Occurrence:
    """Return the occurrence stored in a row with all columns."""
    return Occurrence(
        schedule_id=row.schedule_id,
        nominal_ms=row.nominal_ms,
        until_ms=row.nominal_ms if row.until_ms is None else row.until_ms,
        count=row.times,
        run_at_ms=row.run_at_ms,
        state=OccurrenceState(row.state),
        flow=row.flow,
        scope=row.scope,
        name=row.name,
        job_id=row.job_id,
        reason=row.reason,
        fired_at_ms=row.fired_at_ms,
        ended_at_ms=row.ended_at_ms,
    )
