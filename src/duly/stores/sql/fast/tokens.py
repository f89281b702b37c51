"""Fairness: tokens of (queue, workspace) pairs, and slots, which are tokens of a whole queue.

A token is a row with an owner and a lease. It is taken by an upsert that succeeds only after the
lease has ended, so two workers can never hold it at once. Releasing it keeps the row, which records
when the pair was last served.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import tuple_, update

from duly.model.claims import ClaimRequest
from duly.model.jobs import Token, WorkerId
from duly.model.queues import QueueSettings
from duly.stores.sql.db import Db

QUEUE_ITSELF = ""

_PAIRS = """
WITH RECURSIVE pair(workspace) AS (
    SELECT (SELECT workspace FROM {p}job_line WHERE queue = :queue
            ORDER BY workspace LIMIT 1)
    UNION ALL
    SELECT (SELECT j.workspace FROM {p}job_line j WHERE j.queue = :queue
            AND j.workspace > pair.workspace ORDER BY j.workspace LIMIT 1)
    FROM pair WHERE pair.workspace IS NOT NULL
), held AS (
    SELECT workspace, MAX(served_at_ms) AS served_at_ms,
           SUM(CASE WHEN leased_until_ms > {now} AND number <= :tokens_each
               THEN 1 ELSE 0 END) AS held
    FROM {p}queue_tokens WHERE queue = :queue GROUP BY workspace
)
SELECT pair.workspace, COALESCE(held.served_at_ms, 0) AS served_at_ms, <place> AS place,
       COALESCE(held.held, 0) < :tokens_each AS is_free
FROM pair LEFT JOIN held ON held.workspace = pair.workspace
WHERE pair.workspace IS NOT NULL
"""
_FIRST_PLACE = """(SELECT place FROM {p}job_line j WHERE j.queue = :queue
        AND j.workspace = pair.workspace <actions> ORDER BY place LIMIT 1)"""


class Pair(NamedTuple):
    """A (queue, workspace) pair with jobs to claim; pairs sort in the order of service."""

    served_at_ms: int
    place: int
    queue: str
    workspace: str
    tokens: int
    is_free: bool
    """At least one of its tokens is not leased."""


def waiting_pairs(
    db: Db, queues: Sequence[QueueSettings], actions: Sequence[str] | None
) -> list[Pair]:
    """Return the pairs that have jobs to claim, with a few index probes for each."""
    pairs: list[Pair] = []
    values = {} if actions is None else {"actions": list(actions)}
    for settings in queues:
        rows = db.run(
            _pairs_statement(actions is not None),
            queue=settings.queue,
            tokens_each=settings.workspace_limit,
            **values,
        )
        for row in rows:
            if row.place is not None:
                names = (settings.queue, row.workspace, settings.workspace_limit)
                pairs.append(Pair(row.served_at_ms, row.place, *names, bool(row.is_free)))
    return sorted(pairs)


@lru_cache(maxsize=2)
def _pairs_statement(by_action: bool) -> str:
    actions = "AND j.action IN :actions" if by_action else ""
    return _PAIRS.replace("<place>", _FIRST_PLACE.replace("<actions>", actions))


def lease_pair(db: Db, request: ClaimRequest, pair: Pair, now_ms: int) -> Token | None:
    """Lease a free token of a pair; None: another worker took it."""
    free = [1]
    if pair.tokens > 1:  # for a single token the upsert checks whether it is free
        taken = _taken(db, pair.queue, pair.workspace, now_ms)
        free = [number for number in range(1, pair.tokens + 1) if number not in taken]
    until_ms = now_ms + request.token_lease_ms
    times = (now_ms, until_ms)
    leased = _lease(db, request.worker, (pair.queue, pair.workspace), free[:1], times)
    return leased[0] if leased else None


def keep_token(db: Db, request: ClaimRequest, token: Token, pair: Pair, now_ms: int) -> bool:
    """Renew a token to continue claiming; False: it is lost, or jobs for other workers come first.

    The first job of the pair may have an action that this worker does not know. Then the token must
    become free for a worker that does.
    """
    kept = db.run(
        "UPDATE {p}queue_tokens SET leased_until_ms = :until_ms, served_at_ms = :now_ms "
        "WHERE queue = :queue AND workspace = :workspace AND number = :number "
        "AND fence = :fence AND owner = :owner AND leased_until_ms > :now_ms "
        "AND number <= :tokens_each AND :place <= (SELECT place FROM {p}job_line "
        "WHERE queue = :queue AND workspace = :workspace ORDER BY place LIMIT 1)",
        until_ms=now_ms + request.token_lease_ms,
        now_ms=now_ms,
        owner=request.worker,
        tokens_each=pair.tokens,
        place=pair.place,
        **token._asdict(),
    )
    return kept.rowcount > 0


def give_up(db: Db, token: Token, pair: Pair) -> None:
    """Undo the lease of a token that yielded no jobs."""
    db.run(
        "UPDATE {p}queue_tokens SET leased_until_ms = 0, served_at_ms = :served_at_ms "
        "WHERE queue = :queue AND workspace = :workspace AND number = :number",
        queue=token.queue,
        workspace=token.workspace,
        number=token.number,
        served_at_ms=pair.served_at_ms,
    )


def free_slots(db: Db, queue: str, now_ms: int) -> list[int]:
    """Return the free slots of a queue with a limit; other claims on it wait for this one."""
    limit = db.run("SELECT job_limit FROM {p}queues WHERE queue = :queue {lock}", queue=queue)
    taken = _taken(db, queue, QUEUE_ITSELF, now_ms)
    return [number for number in range(1, (limit.scalar() or 0) + 1) if number not in taken]


def lease_slots(
    db: Db, request: ClaimRequest, queue: str, numbers: Sequence[int], now_ms: int
) -> list[Token]:
    """Lease slots returned by free_slots()."""
    times = (now_ms, now_ms + request.lease_ms)
    return _lease(db, request.worker, (queue, QUEUE_ITSELF), numbers, times)


def _taken(db: Db, queue: str, workspace: str, now_ms: int) -> set[int]:
    taken = db.run(
        "SELECT number FROM {p}queue_tokens WHERE queue = :queue AND workspace = :workspace "
        "AND leased_until_ms > :now_ms",
        queue=queue,
        workspace=workspace,
        now_ms=now_ms,
    )
    return set(taken.scalars())


def _lease(
    db: Db, worker: WorkerId, pair: tuple[str, str], numbers: Sequence[int], times: tuple[int, int]
) -> list[Token]:
    """Take and return tokens whose lease has ended; skip those taken meanwhile."""
    if not numbers:
        return []
    now_ms, until_ms = times
    table = db.tables.queue_tokens
    mine = {"owner": worker, "leased_until_ms": until_ms, "served_at_ms": now_ms}
    key = {"queue": pair[0], "workspace": pair[1]}
    statement = db.fast.insert(table).values(
        [key | mine | {"number": number, "fence": 1} for number in numbers]
    )
    statement = statement.on_conflict_do_update(
        index_elements=["queue", "workspace", "number"],
        set_=mine | {"fence": table.c.fence + 1},
        where=table.c.leased_until_ms <= now_ms,
    ).returning(table.c.number, table.c.fence)
    rows = db.connection.execute(statement)
    return sorted(Token(*pair, row.number, row.fence) for row in rows)


def renew_tokens(
    db: Db, worker: WorkerId, held: Sequence[Token], slot_ms: int, pair_ms: int
) -> None:
    """Extend a worker's tokens; a slot is leased as long as its job."""
    for token in sorted(held):
        lease_ms = slot_ms if token.workspace == QUEUE_ITSELF else pair_ms
        db.run(
            "UPDATE {p}queue_tokens SET leased_until_ms = {now} + :lease_ms "
            "WHERE queue = :queue AND workspace = :workspace AND number = :number "
            "AND fence = :fence AND owner = :owner",
            lease_ms=lease_ms,
            owner=worker,
            **token._asdict(),
        )


def release_tokens(db: Db, worker: WorkerId, held: Sequence[Token]) -> None:
    """Release the worker's tokens; ignore tokens of other workers."""
    table = db.tables.queue_tokens
    key = tuple_(table.c.queue, table.c.workspace, table.c.number, table.c.fence)
    if held:
        db.connection.execute(
            update(table)
            .where(key.in_([tuple(token) for token in sorted(held)]), table.c.owner == worker)
            .values(leased_until_ms=db.clock())
        )
