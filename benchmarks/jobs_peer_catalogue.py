"""The peers: packages, number of jobs, configurations to try, and the query for completion.

Candidates are the best of a larger set that was tried; a quick run uses only the first one.
`{jobs}` in a query stands for the number of jobs. The queries check the newest jobs first, which
finish last, so that an early check is cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.jobs_peer_environments import (
    Program,
    node_program,
    own_program,
    python_program,
)

NODE_PACKAGES = ("graphile-worker@0.17.3", "pg-boss@10.4.2", "pg@8.23.1")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration: its description, number of processes and options of the script."""

    words: str
    processes: int
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Peer:
    """A job queue to compare with."""

    name: str
    version: str
    jobs: int
    program: Callable[[], Program]
    is_done: str
    candidates: tuple[Candidate, ...]


def _graphile(processes: int, concurrency: int, size: int) -> Candidate:
    return Candidate(
        f"local queue {size}, {concurrency} at once, batch delays 0",
        processes,
        {
            "concurrentJobs": concurrency,
            "maxPoolSize": 24,
            "localQueue": {"size": size},
            "completeJobBatchDelay": 0,
            "failJobBatchDelay": 0,
        },
    )


def _pgboss(processes: int, loops: int, size: int) -> Candidate:
    words = f"fetch and complete by {size}, {loops} at once"
    return Candidate(words, processes, {"batchSize": size, "loops": loops})


def _pgqueuer(processes: int, size: int) -> Candidate:
    return Candidate(f"batches of {size}, asyncpg, uvloop", processes, {"batch": size})


def _awa(processes: int, workers: int, claim: int | None = None) -> Candidate:
    words, options = f"workers {workers}", {"max_workers": workers, "connections": 20}
    if claim is not None:
        words += f", claims by {claim}"
        options["claim_batch_size"] = claim
    return Candidate(words, processes, options)


def _procrastinate(processes: int, concurrency: int, *, listen: bool = True) -> Candidate:
    options = {"concurrency": concurrency, "connections": 13, "listen_notify": listen}
    words = f"concurrency {concurrency}" + ("" if listen else ", no listening")
    return Candidate(words, processes, options)


def _huey(threads: int) -> Candidate:
    return Candidate(f"threads {threads}, fsync, results stored", 1, {"workers": threads})


GRAPHILE = Peer(
    "graphile-worker",
    "0.17.3",
    100_000,
    partial(node_program, "jobs_peer_graphile", NODE_PACKAGES),
    "SELECT NOT EXISTS (SELECT FROM (SELECT FROM graphile_worker._private_jobs "
    "ORDER BY id DESC LIMIT 1) AS youngest)",
    (
        _graphile(1, 24, 500),
        _graphile(1, 24, 2_000),
        _graphile(2, 24, 2_000),
        _graphile(2, 100, 2_000),
    ),
)
# As its documentation's benchmark runs it, in one process; the best of the others may be faster.
GRAPHILE_PRESET = replace(
    GRAPHILE, name="graphile-worker preset", candidates=GRAPHILE.candidates[:1]
)
PG_BOSS = Peer(
    "pg-boss",
    "10.4.2",
    50_000,
    partial(node_program, "jobs_peer_pgboss", NODE_PACKAGES),
    "SELECT NOT EXISTS (SELECT FROM pgboss.job WHERE state < 'completed')",
    (_pgboss(1, 2, 500), _pgboss(2, 2, 500), _pgboss(1, 2, 2_000), _pgboss(2, 1, 2_000)),
)
PGQUEUER = Peer(
    "pgqueuer",
    "1.6.0",
    30_000,
    partial(
        python_program,
        "pgqueuer",
        "jobs_peer_pgqueuer",
        ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
    ),
    "SELECT NOT EXISTS (SELECT FROM (SELECT FROM pgqueuer ORDER BY id DESC LIMIT 1) AS youngest) "
    "AND (SELECT count(*) FROM pgqueuer_log WHERE status = 'successful') >= {jobs}",
    (_pgqueuer(1, 500), _pgqueuer(1, 1_000), _pgqueuer(2, 1_000), _pgqueuer(2, 2_000)),
)
AWA = Peer(
    "awa-pg",
    "0.6.9",
    20_000,
    partial(python_program, "awa-pg", "jobs_peer_awa", ("awa-pg==0.6.9",)),
    "SELECT (SELECT coalesce(sum(pruned_completed_count), 0) FROM awa.queue_terminal_rollups) "
    "+ (SELECT count(*) FROM awa.done_entries WHERE state = 'completed') "
    "+ (SELECT coalesce(sum(cardinality(job_ids)), 0) FROM awa.receipt_completion_batches) "
    ">= {jobs}",
    (_awa(1, 200), _awa(1, 400, 512), _awa(2, 400, 512), _awa(1, 1_000, 1_024)),
)
PROCRASTINATE = Peer(
    "procrastinate",
    "3.10.0",
    2_000,
    partial(
        python_program,
        "procrastinate",
        "jobs_peer_procrastinate",
        ("procrastinate==3.10.0", "psycopg[binary]==3.3.8"),
    ),
    "SELECT NOT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
    (
        _procrastinate(1, 10),
        _procrastinate(1, 10, listen=False),
        _procrastinate(2, 10),
        _procrastinate(2, 4, listen=False),
    ),
)
HUEY = Peer(
    "huey",
    "3.5.4",
    3_000,
    partial(python_program, "huey", "jobs_peer_huey", ("huey==3.5.4",)),
    "SELECT count(*) >= {jobs} FROM kv",
    (_huey(1), _huey(2), _huey(4)),
)
DONE = (
    "SELECT NOT EXISTS (SELECT FROM (SELECT state FROM duly_jobs ORDER BY id DESC LIMIT 5000) "
    "AS youngest WHERE state <> 'succeeded') AND (SELECT count(*) FROM duly_jobs "
    "WHERE state = 'succeeded') >= {jobs}"
)


def _ours(processes: int, **options: object) -> Candidate:
    said = ", ".join(f"{name} {value}" for name, value in options.items())
    return Candidate(said or "defaults", processes, options)


OURS = Peer(
    "duly",
    "this",
    150_000,
    partial(own_program, "jobs_ours"),
    DONE,
    (_ours(1), _ours(2), _ours(4)),
)
BARE = Peer(
    "bare SQL",
    "psycopg",
    150_000,
    partial(own_program, "jobs_bare"),
    DONE,
    tuple(
        Candidate(f"batches of {size}", processes, {"batch": size})
        for processes in (1, 2, 4)
        for size in (500, 1_000)
    ),
)
OURS_ON_SQLITE = Peer(
    "duly",
    "this",
    20_000,
    partial(own_program, "jobs_ours"),
    "SELECT NOT EXISTS (SELECT 1 FROM duly_jobs WHERE state IN ('queued', 'processing'))",
    (_ours(1), _ours(2)),
)
POSTGRES_PEERS = {each.name: each for each in (GRAPHILE, PG_BOSS, PGQUEUER, AWA, PROCRASTINATE)}
