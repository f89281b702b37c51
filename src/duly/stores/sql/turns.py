"""Station 5: who of a schedule's jobs may run, under the lock of its running marker.

The database decides who was first: taking the marker is an insert that leaves an existing row
alone. Whoever finds it taken holds its row until the transaction ends, and so does whoever gives it
back: nobody can get in line behind the back of a hand-over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from sqlalchemy import select

from duly.errors import BackendUnavailable
from duly.jobs import JobId, JobState, Turn
from duly.ledger import OccurrenceState
from duly.planning import policies_or_usual
from duly.stores.sql import ledger
from duly.stores.sql.db import Db, tuples
from duly.stores.sql.job_events import move
from duly.turns import Asking, Turns, decide_turns

_ROUNDS = 10
"""How often a marker may come and go while we reach for it."""


class Candidate(NamedTuple):
    """A job with a turn whose time has come; stored or about to be."""

    schedule_id: str
    run_at_ms: int
    nominal_ms: int
    job_id: JobId
    turn: Turn
    policies: str

    @property
    def asking(self) -> Asking:
        """How it asks."""
        return Asking(self.job_id, self.turn, policies_or_usual(self.policies).overlap)


@dataclass(slots=True)
class Admission:
    """What becomes of the candidates: those in neither place are to be queued."""

    in_line: set[JobId] = field(default_factory=set)
    skipped: dict[JobId, str] = field(default_factory=dict)


def admit(db: Db, candidates: Sequence[Candidate]) -> Admission:
    """Let jobs ask for their schedules' markers; who was in the way is dealt with."""
    ordered = sorted(candidates)
    # The first of each schedule is the one that asks.
    wanted = {each.schedule_id: each.job_id for each in reversed(ordered)}
    holders = _take(db, wanted)
    admission = Admission()
    if not holders and len(wanted) == len(ordered):
        return admission  # nearly always: nobody is in the way
    by_schedule: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in ordered:
        by_schedule[candidate.schedule_id].append(candidate)
    line = _line(db, sorted(holders))
    for schedule_id, group in by_schedule.items():
        holder = holders.get(schedule_id)
        if holder is None and len(group) == 1:
            continue
        _settle(db, admission, group, holder, line[schedule_id])
    return admission


def _settle(
    db: Db,
    admission: Admission,
    group: Sequence[Candidate],
    holder: JobId | None,
    standing: Sequence[Candidate],
) -> None:
    """Let jobs of one schedule ask for its marker, whose row is ours."""
    turns = _decide(db, group, holder, standing)
    asked = {each.job_id: each for each in group}
    admission.in_line.update(turns.in_line)
    for job_id, why in turns.skipped.items():
        if job_id in asked:
            admission.skipped[job_id] = why
        else:  # it stood in line, and was overtaken
            skip(db, [job_id], why)
    if turns.is_new and turns.holder is not None and turns.holder != group[0].job_id:
        _hand_over(db, asked[turns.holder])
    if turns.cancels is not None and not _asked_to_stop(db, turns.cancels):
        left = [each for each in standing if each.job_id not in turns.skipped]
        first = min(left + [asked[job_id] for job_id in turns.in_line])
        _hand_over(db, first)
        if first.job_id in asked:
            admission.in_line.discard(first.job_id)
        else:
            queue(db, [first.job_id])


def _decide(
    db: Db, group: Sequence[Candidate], holder: JobId | None, standing: Sequence[Candidate]
) -> Turns:
    """Whose turn it is; who came first is looked up where it matters."""
    asking, line = [each.asking for each in group], [each.asking for each in standing]
    if holder is None or all(each.overlap != "cancel_running" for each in asking):
        return decide_turns(asking, holder, line)
    # The ledger knows: a job may be made late, and a retry moves its time.
    came = _came_at_ms(db, [*group, *standing])
    asking = [each._replace(run_at_ms=came[each.job_id]) for each in asking]
    line = [each._replace(run_at_ms=came[each.job_id]) for each in line]
    return decide_turns(asking, holder, line, _held_at_ms(db, holder))


def _came_at_ms(db: Db, candidates: Sequence[Candidate]) -> dict[JobId, int]:
    """The run times of the occurrences of one schedule's jobs, by job."""
    table = db.tables.occurrences
    statement = select(table.c.nominal_ms, table.c.run_at_ms).where(
        table.c.schedule_id == candidates[0].schedule_id,
        table.c.nominal_ms.in_([each.nominal_ms for each in candidates]),
    )
    came: dict[int, int] = dict(tuples(db.connection.execute(statement)))
    return {each.job_id: came.get(each.nominal_ms, each.run_at_ms) for each in candidates}


def _held_at_ms(db: Db, holder: JobId) -> int | None:
    """The run time of a holder's occurrence, if it did not wait for its turn."""
    found = db.run(
        "SELECT o.run_at_ms FROM {p}jobs j JOIN {p}occurrences o "
        "ON o.schedule_id = j.schedule_id AND o.nominal_ms = j.nominal_ms "
        "WHERE j.id = :id AND j.turn = 'asks'",
        id=holder,
    ).scalar()
    return None if found is None else int(found)


def _asked_to_stop(db: Db, holder: JobId) -> bool:
    """Ask a running job to stop; one that has not begun, or not again, ends here: False."""
    state = db.run("SELECT state FROM {p}jobs WHERE id = :id {lock}", id=holder).scalar()
    if state == JobState.PROCESSING:
        db.run("UPDATE {p}jobs SET cancel_asked = 1 WHERE id = :id", id=holder)
        db.dialect.tell(db, {f"cancel:{holder}"})
        return True
    move(db, [holder], [JobState.CANCELLED], reason="cancel_running: a later run came")
    ledger.follow_jobs(db, [holder], JobState.CANCELLED)
    return False


def _hand_over(db: Db, job: Candidate) -> None:
    """Give a marker, whose row is ours, to another job."""
    db.run(
        "UPDATE {p}running SET job_id = :id, since_ms = {now} WHERE schedule_id = :schedule_id",
        id=job.job_id,
        schedule_id=job.schedule_id,
    )


def _take(db: Db, wanted: dict[str, JobId]) -> dict[str, JobId]:
    """Take the markers that are free; gives the holders of the others, whose rows are ours now."""
    holders: dict[str, JobId] = {}
    for _ in range(_ROUNDS):
        # In order of ids, as everybody does: so no two wait for each other's markers.
        wanted = dict(sorted(wanted.items()))
        others = db.dialect.add_markers(db, wanted)
        if others:
            held = db.run(
                "SELECT schedule_id, job_id FROM {p}running WHERE schedule_id IN :ids "
                "ORDER BY schedule_id {lock}",
                ids=others,
            )
            holders |= {row[0]: row[1] for row in tuples(held)}
        wanted = {each: wanted[each] for each in others if each not in holders}
        if not wanted:
            return holders
    raise BackendUnavailable("the running markers of some schedules are never at rest")


def _line(db: Db, schedule_ids: Sequence[str]) -> dict[str, list[Candidate]]:
    """Who stands in line, first come first."""
    line: dict[str, list[Candidate]] = defaultdict(list)
    if schedule_ids:
        rows = db.run(
            f"SELECT {', '.join(_COLUMNS)} FROM {{p}}jobs WHERE in_line = 1 "
            "AND schedule_id IN :ids ORDER BY schedule_id, run_at_ms, nominal_ms, id {lock}",
            ids=list(schedule_ids),
        )
        for row in tuples(rows):
            line[row[0]].append(Candidate._make(row))
    return line


_COLUMNS = ("schedule_id", "run_at_ms", "nominal_ms", "id", "turn", "policies")


def skip(db: Db, job_ids: Sequence[JobId], reason: str) -> None:
    """Take away stored jobs that their overlap policy skips."""
    move(db, job_ids, [JobState.CANCELLED], reason=reason)
    ledger.end_planned(db, job_ids, OccurrenceState.SKIPPED, reason)


def take_if_free(db: Db, schedule_id: str, job_id: JobId) -> None:
    """Take the marker for a job that runs in any case."""
    db.run(
        "INSERT INTO {p}running (schedule_id, job_id, since_ms) VALUES (:schedule_id, :id, {now}) "
        "ON CONFLICT (schedule_id) DO NOTHING",
        schedule_id=schedule_id,
        id=job_id,
    )


def give_back(db: Db, ended: Iterable[tuple[str | None, str]]) -> None:
    """Give back the markers of jobs that ended, each to the first in line.

    Takes schedule and job ids: the marker may be another job's.
    """
    pairs = [pair for pair in ended if pair[0] is not None]
    if not pairs:
        return
    freed = db.run(
        "DELETE FROM {p}running WHERE schedule_id IN (SELECT schedule_id FROM {p}running "
        "WHERE schedule_id IN :schedule_ids AND job_id IN :ids ORDER BY schedule_id {lock}) "
        "RETURNING schedule_id",
        schedule_ids=sorted({pair[0] or "" for pair in pairs}),
        ids=[pair[1] for pair in pairs],
    )
    firsts = _firsts(db, sorted(freed.scalars()))
    if firsts:
        _take(db, firsts)
        queue(db, list(firsts.values()))


def _firsts(db: Db, schedule_ids: Sequence[str]) -> dict[str, JobId]:
    """The first in line of each schedule that has a line, however long it is.

    Asked for one by one inside the statement: of a first that goes while we wait for its row, the
    next takes the place.
    """
    if not schedule_ids:
        return {}
    rows = db.run(
        "SELECT r.schedule_id, (SELECT j.id FROM {p}jobs j WHERE j.in_line = 1 "
        "AND j.schedule_id = r.schedule_id ORDER BY j.run_at_ms, j.nominal_ms, j.id LIMIT 1 "
        f"{{lock}}) FROM {db.dialect.records(db.tables.running)}",
        rows=msgspec.json.encode([{"schedule_id": each} for each in schedule_ids]).decode(),
    )
    return {row[0]: row[1] for row in tuples(rows) if row[1] is not None}


def queue(db: Db, job_ids: Sequence[JobId]) -> None:
    """Queue jobs whose turn it is."""
    if not job_ids:
        return
    queues = move(db, job_ids, [JobState.QUEUED])
    db.dialect.tell(db, {f"queue:{name}" for name in queues})
