"""Claim jobs, and start, renew and finish claimed ones.

A claim is one transaction: first it rescues jobs whose lease has ended and promotes due ones, then
it leases tokens if requested, then it takes jobs. The sweeps are skipped if an index shows that
there is nothing to sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Row

from duly.engine.ids import Ids
from duly.engine.jobs.jobs import finish as finish_jobs
from duly.engine.jobs.jobs import release_expired
from duly.model.claims import MAX_JOB_CLAIM, ClaimRequest, Claims, ProgressNote, Renewed
from duly.model.jobs import ALL_QUEUES, FINAL, JobId, JobState, LeasedJob, Token, WorkerId
from duly.model.queues import QueueSettings
from duly.rules.checks import check_job_claim
from duly.rules.outcomes import Finish, check_finish
from duly.rules.queue_settings import QueueRules
from duly.stores.sql.db import Db
from duly.stores.sql.dialects.dialect import Lease
from duly.stores.sql.fast import overlap, tokens
from duly.stores.sql.fast.moves import promote_due
from duly.stores.sql.gaps.ranges import HIGHEST, LOWEST, Gaps, Key, Segment
from duly.stores.sql.gaps.search import LINE, MARKS, WAITING, Ask, Wanted, search_alone
from duly.stores.sql.items.around import queue_of
from duly.stores.sql.rows import ledger, markers
from duly.stores.sql.source import transact

ANYWHERE = (Segment(LOWEST, HIGHEST),)


@dataclass(frozen=True, slots=True)
class Take:
    """The parameters of one claiming statement: up to `limit` jobs of one queue."""

    queue: str
    workspace: str | None
    limit: int
    segments: tuple[Segment, ...]
    """Parts of the line that held jobs a moment ago, in order."""
    lease_until_ms: int
    request: ClaimRequest

    @property
    def first_place(self) -> int:
        """Return the place of the first job a moment ago: there was none before it."""
        return self.segments[0].start.order


@dataclass(frozen=True, slots=True)
class _Look:
    """The state that a claim reads before it begins."""

    now_ms: int
    lease_ends_ms: int | None
    """Time to look for ended leases, of any queue."""
    due_ms: int | None
    """First run time of waiting jobs in the requested queues."""
    queues: dict[str, QueueSettings]
    """Requested queues that are not paused."""
    lines: dict[str, tuple[Segment, ...]]
    """Segments of the line that hold jobs, by queue."""

    @property
    def next_ms(self) -> int | None:
        """Return when there may be a job to claim; None: none is waiting or leased."""
        times = [each for each in (self.lease_ends_ms, self.due_ms) if each is not None]
        return min(times, default=None) if self.queues else None

    @property
    def is_over(self) -> bool:
        """Return whether a lease ended or a job became due; then the state must be read again."""
        return self.next_ms is not None and self.next_ms <= self.now_ms


def claim_jobs(db: Db, request: ClaimRequest) -> Claims:
    """Rescue and promote jobs, then claim queued ones."""
    check_job_claim(request)
    look = _look(db, request)
    if _has_come(look.lease_ends_ms, look):
        transact(db, Ids(), release_expired)
    if _has_come(look.due_ms, look):
        promote_due(db, queues=list(look.queues))
    if look.is_over:
        look = replace(look, lines=_lines_now(db, look))
    claim = _Claim(db, request, look)
    if request.fair:
        claim.by_pairs()
    else:
        claim.by_queues()
    claim.mark()
    wake_at_ms = None
    if not claim.jobs:
        after = _look(db, request) if look.is_over else look
        if after.lease_ends_ms is not None:
            first_ms = markers.first_lease(db, after.lease_ends_ms)
            after = replace(after, lease_ends_ms=first_ms)
        wake_at_ms = after.next_ms
    return Claims(claim.jobs, claim.holds, wake_at_ms, look.now_ms)


def _has_come(time_ms: int | None, look: _Look) -> bool:
    return time_ms is not None and time_ms <= look.now_ms


class _Claim:
    """The jobs that one claim has taken, and its remaining capacity."""

    def __init__(self, db: Db, request: ClaimRequest, look: _Look) -> None:
        self._db = db
        self._request = request
        self._look = look
        self._room = request.limit
        self._lease_until_ms = look.now_ms + request.lease_ms
        self._slots = {
            queue: tokens.free_slots(db, queue, look.now_ms)
            for queue, settings in sorted(look.queues.items())
            if settings.job_limit is not None
        }
        self.jobs: list[LeasedJob] = []
        self.holds: dict[JobId, tuple[Token, ...]] = {}

    def by_queues(self) -> None:
        """Take jobs queue by queue until the limit is reached."""
        look = self._look
        for queue in look.queues:
            if queue in look.lines:
                self._take(queue, None, (), MAX_JOB_CLAIM)

    def by_pairs(self) -> None:
        """Take jobs pair by pair, the longest unserved first, each under a token."""
        request = self._request
        queues = [each for each in self._look.queues.values() if self._slots.get(each.queue) != []]
        pairs = tokens.waiting_pairs(self._db, queues, request.actions)
        if len(pairs) == 1 and self._take_on(pairs[0]):
            return
        most, batch = request.shares(len(pairs))
        for pair in [each for each in pairs if each.is_free][:most]:
            if self._is_full(pair.queue):
                continue
            token = tokens.lease_pair(self._db, request, pair, self._look.now_ms)
            if token is None:  # another worker took it
                continue
            if not self._take(pair.queue, pair.workspace, (token,), batch):
                tokens.give_up(self._db, token, pair)

    def _take_on(self, pair: tokens.Pair) -> bool:
        """Take jobs of the only waiting pair under a token that the worker already holds."""
        for token, room in self._request.held:
            is_of_pair = (token.queue, token.workspace) == (pair.queue, pair.workspace)
            if is_of_pair and room > 0 and not self._is_full(pair.queue):
                now_ms = self._look.now_ms
                if tokens.keep_token(self._db, self._request, token, pair, now_ms):
                    return self._take(pair.queue, pair.workspace, (token,), room)
        return False

    def _is_full(self, queue: str) -> bool:
        return self._room <= 0 or self._slots.get(queue) == []

    def _take(self, queue: str, workspace: str | None, held: tuple[Token, ...], most: int) -> bool:
        """Take jobs of one queue, each under a slot if the queue has a limit; False: none."""
        free = self._slots.get(queue)
        most = most if free is None else min(most, len(free))
        if self._is_full(queue) or most == 0:
            return False
        jobs = self._take_from(queue, workspace, most)
        slots: list[Token] = []
        if free is not None:
            numbers, self._slots[queue] = free[: len(jobs)], free[len(jobs) :]
            slots = tokens.lease_slots(self._db, self._request, queue, numbers, self._look.now_ms)
        if held or slots:
            for position, job in enumerate(jobs):
                self.holds[job.id] = held + tuple(slots[position : position + 1])
        self._room -= len(jobs)
        scheduled = [job.id for job in jobs if job.schedule_id is not None]
        ledger.follow_jobs(self._db, scheduled, JobState.PROCESSING)
        self.jobs += jobs
        return bool(jobs)

    def _take_from(self, queue: str, workspace: str | None, most: int) -> list[LeasedJob]:
        """Take up to `most` jobs of one queue, within the limit of the claim."""
        look = self._look
        take = Take(
            queue,
            workspace,
            min(self._room, most),
            look.lines.get(queue, ANYWHERE),
            self._lease_until_ms,
            self._request,
        )
        return list(map(_as_leased, self._db.fast.take_jobs(self._db, take)))

    def mark(self) -> None:
        """Add a `job_marks` row for the end of the leases."""
        taken = [job.id for job in self.jobs]
        markers.add(self._db, JobState.PROCESSING, self._lease_until_ms, taken)


_as_leased = partial(tuple.__new__, LeasedJob)
"""LeasedJob._make() without its length check, which is a large part of its cost."""


def _look(db: Db, request: ClaimRequest) -> _Look:
    """Read the time, the due sweeps and the queue settings in one query.

    It reads the first entries of indexes in their order: a planner that misestimates the number of
    due jobs may read them all.
    """
    queues = list(dict.fromkeys(request.queues))
    asked = [*queues, ALL_QUEUES]

    def ask(columns: str, given: dict[str, Any]) -> Sequence[Row[Any]]:
        return db.run(_look_statement(columns), queues=asked, **given).all()

    rows, heads = _heads(db, queues, ask)
    rules = QueueRules(queue_of(row) for row in rows if row.queue is not None)
    served = {queue: each for queue in queues if not (each := rules.of(queue)).is_paused}
    due = [ms for queue, ms in heads.due_ms.items() if ms is not None and queue in served]
    return _Look(
        int(rows[0].now_ms), heads.lease_ends_ms, min(due, default=None), served, heads.lines
    )


class _Heads(NamedTuple):
    """The first entries of the indexes that a claim uses."""

    lines: dict[str, tuple[Segment, ...]]
    due_ms: dict[str, int | None]
    lease_ends_ms: int | None


def _heads(db: Db, queues: Sequence[str], ask: Ask) -> tuple[Sequence[Row[Any]], _Heads]:
    """Return the heads and the rows of the statement, which also reads other columns."""
    if db.dialect.tracks_entries:
        leases: Wanted = (MARKS, (JobState.PROCESSING.value,))
        wanted = [(ordered, (queue,)) for ordered in (LINE, WAITING) for queue in queues]
        rows, found = db.gaps.search([*wanted, leases], ask)
        due_ms = {queue: found[WAITING, (queue,)].first for queue in queues}
        return rows, _Heads(_lines(found), due_ms, found[leases].first)
    columns = f"{markers.FIRST_LOOK} AS lease_ends_ms"
    for number in range(len(queues)):
        columns += (
            ", (SELECT run_at_ms FROM {p}jobs WHERE waits = 1 "
            f"AND queue = :queue_{number} ORDER BY run_at_ms LIMIT 1) AS due_{number}, "
            f"(SELECT place FROM {{p}}job_line WHERE queue = :queue_{number} "
            f"ORDER BY place, id LIMIT 1) AS line_{number}"
        )
    rows = ask(columns, {f"queue_{number}": queue for number, queue in enumerate(queues)})
    places = {queue: getattr(rows[0], f"line_{n}") for n, queue in enumerate(queues)}
    lines: dict[str, tuple[Segment, ...]] = {
        queue: (Segment(Key(place, ""), HIGHEST),)
        for queue, place in places.items()
        if place is not None
    }
    due_ms = {queue: getattr(rows[0], f"due_{n}") for n, queue in enumerate(queues)}
    return rows, _Heads(lines, due_ms, rows[0].lease_ends_ms)


def _lines_now(db: Db, look: _Look) -> dict[str, tuple[Segment, ...]]:
    """Return where jobs are queued after this claim has queued some."""
    if not db.dialect.tracks_entries:
        return dict.fromkeys(look.queues, ANYWHERE)
    return _lines(search_alone(db, [(LINE, (queue,)) for queue in look.queues]))


def _lines(found: Mapping[Wanted, Gaps]) -> dict[str, tuple[Segment, ...]]:
    return {
        parts[0]: gaps.segments
        for (ordered, parts), gaps in found.items()
        if ordered is LINE and gaps.segments
    }


@lru_cache(maxsize=256)
def _look_statement(columns: str) -> str:
    return (
        f"SELECT {{now}} AS now_ms, {columns}, q.* "
        "FROM (SELECT 1 AS one) AS always LEFT JOIN {p}queues q ON q.queue IN :queues"
    )


def start_jobs(db: Db, worker: WorkerId, leases: Sequence[tuple[JobId, int]]) -> Renewed:
    """Record that handlers are about to be called, and charge the attempts.

    Needs one statement in the normal case, because slots wait for it.
    """
    fences = dict(leases)
    started = db.run(
        "UPDATE {p}jobs SET unstarted = NULL, attempts = attempts + 1 WHERE id IN :ids AND id IN ("
        "SELECT id FROM {p}jobs WHERE id IN :ids AND id || ' ' || fence IN :leases "
        "AND worker = :worker AND state = 'processing' AND unstarted = fence AND cancel_asked = 0 "
        "ORDER BY id {lock}) RETURNING id",
        ids=sorted(fences),
        leases=[f"{job_id} {fence}" for job_id, fence in sorted(fences.items())],
        worker=worker,
    )
    rest = fences.keys() - set(started.scalars())
    if not rest:
        return Renewed([], [])
    rows = db.run(
        "SELECT id, fence, cancel_asked FROM {p}jobs WHERE id IN :ids "
        "AND worker = :worker AND state = 'processing'",
        ids=sorted(rest),
        worker=worker,
    )
    held = {row.id: row.cancel_asked for row in rows if row.fence == fences[row.id]}
    return Renewed(
        [job_id for job_id in fences if job_id in rest and job_id not in held],
        [job_id for job_id in fences if held.get(job_id)],
    )


def renew(
    db: Db,
    worker: WorkerId,
    leases: Sequence[tuple[JobId, int]],
    lease_ms: int,
    held: Sequence[Token] = (),
    token_lease_ms: int = 10_000,
) -> Renewed:
    """Extend tokens and the leases that are still held."""
    tokens.renew_tokens(db, worker, held, lease_ms, token_lease_ms)
    if not leases:
        return Renewed([], [])
    fences = dict(leases)
    held_rows = db.run(
        "SELECT id, fence, cancel_asked FROM {p}jobs WHERE id IN :ids AND worker = :worker "
        "AND state = 'processing' ORDER BY id {lock}",
        ids=sorted(fences),
        worker=worker,
    )
    asked = {row.id: row.cancel_asked for row in held_rows if row.fence == fences[row.id]}
    renewed = db.run(
        "UPDATE {p}jobs SET lease_until_ms = {now} + :lease_ms WHERE id IN :ids "
        "RETURNING lease_until_ms",
        ids=list(asked),
        lease_ms=lease_ms,
    ).all()
    if renewed:
        markers.add(db, JobState.PROCESSING, renewed[0].lease_until_ms, asked)
    lost = [job_id for job_id in fences if job_id not in asked]
    return Renewed(lost, [job_id for job_id in fences if asked.get(job_id)])


def finish(db: Db, finishes: Sequence[Finish]) -> list[JobId]:
    """Store the results of attempts, one statement per shape; return ids with a void fence."""
    void: set[Lease] = set()
    # An attempt ends once: of two results the first counts.
    newest_first = finishes[::-1]
    first_words = dict(zip(map(_lease, newest_first), newest_first, strict=True))
    shapes = _by_shape(first_words.values())
    if len(shapes) > 1:
        _hold(db, [each.job_id for each in first_words.values()])
    ended: list[tuple[str | None, str]] = []
    for alike in shapes:
        check_finish(alike[0])
        refused_here, released = _end(db, alike)
        void.update(refused_here)
        ended += released
    overlap.give_back(db, ended)
    if any(alike[0].state not in FINAL for alike in shapes):
        db.dialect.tell(db, {"queue:*"})  # the jobs wait again
    if not void and len(first_words) == len(finishes):
        return []
    void -= _finish_others(db, [each for each in finishes if _lease(each) in void])
    refused: list[JobId] = []
    for each in finishes:
        if _lease(each) in void:
            refused.append(each.job_id)
        void.add(_lease(each))
    return refused


def _hold(db: Db, ids: Sequence[str]) -> None:
    """Lock jobs in the order of their ids, as renewals do; several statements would mix it."""
    if not db.dialect.has_one_writer:
        db.run("SELECT id FROM {p}jobs WHERE id IN :ids ORDER BY id {lock}", ids=sorted(ids)).all()


def _end(db: Db, alike: Sequence[Finish]) -> tuple[set[Lease], list[tuple[str | None, str]]]:
    """Store results of one shape and update the ledger.

    Return the leases that were void, and the ended jobs as (schedule id, job id).
    """
    void = set(db.fast.end_jobs(db, sorted(alike, key=_lease)))
    planned = [each for each in alike if each.schedule_id and _lease(each) not in void]
    if alike[0].status != "released":
        ids = [each.job_id for each in planned]
        ledger.follow_jobs(db, ids, alike[0].state, alike[0].status)
    if alike[0].state not in FINAL:
        return void, []
    return void, [(each.schedule_id, each.job_id) for each in planned]


def _finish_others(db: Db, left: Sequence[Finish]) -> set[Lease]:
    """Let the engine store non-final results that a statement skipped; return those stored."""
    going_on = [each for each in left if each.state not in FINAL]
    if not going_on:
        return set()
    void = set(transact(db, Ids(), finish_jobs, going_on))
    return {_lease(each) for each in going_on if each.job_id not in void}


def _by_shape(finishes: Iterable[Finish]) -> list[list[Finish]]:
    """Group results that one statement can store."""
    shapes: dict[tuple[str, str, int, str, bool, bool], list[Finish]] = {}
    for (state, status, charge, via, delay_ms, isolate), run in groupby(finishes, key=_shape):
        shape = (state, status, charge, via or "", delay_ms is None, isolate)
        shapes.setdefault(shape, []).extend(run)
    return [shapes[shape] for shape in sorted(shapes)]


def _fields(*names: str) -> itemgetter[Any]:
    return itemgetter(*map(Finish._fields.index, names))


# Called for each of thousands of results; access by name takes three times as long.
_lease: Callable[[Finish], Lease] = _fields("job_id", "fence")
_shape = _fields("state", "status", "charge", "via", "delay_ms", "isolate")


def note_progress(db: Db, notes: Sequence[ProgressNote]) -> list[JobId]:
    """Store progress of running jobs; return the ids whose fence is void."""
    fences = {note.job_id: note.fence for note in notes}
    rows = db.run(
        "SELECT id, fence FROM {p}jobs WHERE id IN :ids AND state = 'processing' "
        "ORDER BY id {lock}",
        ids=sorted(fences),
    )
    held = {row.id for row in rows if row.fence == fences[row.id]}
    db.fast.write_progress(db, [note for note in notes if note.job_id in held])
    return [note.job_id for note in notes if note.job_id not in held]
