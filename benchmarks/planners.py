"""Planners that share one burst, compared with shards, partitions and time buckets.

Planner processes drain due schedules into jobs; in separate runs, claimer processes claim and
advance the same rows by one bare statement, in tables of several layouts. Prints a table, writes
planners.json and planners.png, and ends with one line per bar; exit status 1 means that a bar is
not met. With --million everything is also measured over a million stored schedules.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import monotonic, process_time
from typing import Any

import psycopg

# `python benchmarks/planners.py` puts this folder on the path, but not its parent.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers import NO_SERVER, find_binaries

from benchmarks.options import parse
from benchmarks.report import Bar, Chart, machine_facts, table, today, write_results
from benchmarks.scheduler_fill import fill
from benchmarks.scheduler_rows import FLOW, Desk, Lost, now_ms, opened
from benchmarks.servers import NoServer, durable_server, filesystem, fsync_ms, scratch_folder
from duly.model.plans import PlanRequest
from duly.runtime import Planner, PlannerOptions

COUNTS = (1, 2, 4, 8)
PARTS = 8  # shards, or partitions
MINUTES = 4  # which the run times of claimed rows spread over, so that there are several buckets
MILLION = "--million"
SCALE_AT_LEAST = 1.2  # four planners beside one, on two CPUs that the server shares

ORDER = "run_at_ms, priority DESC, row_id"
# Settings of Duly's sessions, and plans that use indexes, which are best for every layout.
SESSION = "-c plan_cache_mode=force_custom_plan -c jit=off -c enable_seqscan=off "
SESSION += "-c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off"
CLAIM = """
WITH due AS MATERIALIZED (
    SELECT row_id, version FROM {table} WHERE {condition}hand_over = 'jobs' AND flow = 'report'
    AND run_at_ms <= %(now_ms)s AND trigger_version <= 1
    ORDER BY {order} LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE {table} AS i SET nominal_ms = i.nominal_ms + 86400000, run_at_ms = i.run_at_ms + 86400000,
version = i.version + 1 FROM due WHERE i.row_id = due.row_id AND i.version = due.version
RETURNING i.row_id"""
TABLE = """CREATE TABLE {0.table} (LIKE duly_schedule_index INCLUDING DEFAULTS{1},
PRIMARY KEY (row_id, version)){0.partitioned}"""
PARTITION = """CREATE TABLE {0.table}_{part} PARTITION OF {0.table}
FOR VALUES WITH (MODULUS {parts}, REMAINDER {part})"""
# Besides the due index, the index and trigger that Duly's table has for rows that move.
COPY = """
INSERT INTO {0.table} SELECT * FROM duly_schedule_index;
CREATE INDEX {0.table}_due ON {0.table} ({1}hand_over, flow, {0.order})
    WHERE run_at_ms IS NOT NULL;
CREATE INDEX ON {0.table} ((hand_over || ''), (flow || ''), entered, (run_at_ms + 0))
    WHERE run_at_ms IS NOT NULL;
CREATE TRIGGER moved BEFORE UPDATE OF hand_over, flow, run_at_ms ON {0.table}
    FOR EACH ROW EXECUTE FUNCTION duly_note_entered()"""
MAKE_DUE = """UPDATE {0.table} SET nominal_ms = :ms - row_id % :minutes * 60000,
run_at_ms = :ms - row_id % :minutes * 60000 WHERE row_id <= :burst"""
MOVED = """SELECT sum(version), count(*) FILTER (WHERE run_at_ms > :ms) FROM {0.table}
WHERE row_id <= :burst"""
JOBS = "SELECT count(*), count(DISTINCT (schedule_id, nominal_ms)) FROM duly_jobs"
FETCHED = """SELECT coalesce(sum(s.idx_tup_fetch), 0) FROM pg_stat_user_indexes s
LEFT JOIN pg_inherits i ON i.inhrelid = s.indexrelid
WHERE coalesce(i.inhparent, s.indexrelid) = CAST('{0.table}_due' AS regclass)"""
# Waits until sessions have ended, since a session reports its reads when it ends.
END_SESSIONS = """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND datname = current_database()"""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    stored: tuple[int, ...]
    burst: int
    batch: int
    rounds: int


FULL = Size((100_000,), burst=40_000, batch=1_000, rounds=5)
QUICK = Size((2_000,), burst=800, batch=100, rounds=1)


@dataclass(frozen=True, slots=True)
class Layout:
    """A table of due rows; a claim takes from all of it or from one part after another."""

    name: str
    table: str
    part: str = ""  # the first column of the due index, generated from `source`
    source: str = ""
    order: str = ORDER
    partitioned: str = ""
    claimed: str = ""

    def claims(self, number: int, of: int, due_ms: int) -> tuple[str, ...]:
        """Return the statements of claimer `number`, one per part that it drains in turn."""
        parts = range(number, PARTS, of)  # each part has one owner
        if self is BUCKETS:  # shared by all claimers, the oldest first
            parts = range(due_ms // 60_000 - MINUTES + 1, due_ms // 60_000 + 1)
        condition = f"{self.part} = {{part}} AND " if self.part else ""
        words = {"table": self.claimed or self.table, "condition": condition}
        claims = [CLAIM.format(order=self.order, **words).format(part=part) for part in parts]
        return tuple(dict.fromkeys(claims))

    def create(self, desk: Desk) -> None:
        """Make the table as a copy of Duly's."""
        column = f", {self.part} bigint GENERATED ALWAYS AS ({self.source}) STORED"
        desk.run(TABLE.format(self, column if self.part else ""))
        for part in range(PARTS if self.partitioned else 0):
            desk.run(PARTITION.format(self, part=part, parts=PARTS))
        for statement in COPY.format(self, self.part and f"{self.part}, ").split(";"):
            desk.run(statement)

    def reset(self, desk: Desk, burst: int, due_ms: int) -> None:
        """Make rows due again, vacuum and checkpoint, so that runs do not pay for it."""
        desk.run(MAKE_DUE.format(self), ms=due_ms, burst=burst, minutes=MINUTES)
        desk.run(f"VACUUM ANALYZE {self.table}")
        desk.run("CHECKPOINT")


PLANNER = Layout("Duly's planner", "duly_schedule_index")
ONE_TABLE = Layout("one table", "bench_one")
SHARDS = Layout("own shards", "bench_shards", "shard", f"hashint8(row_id) & {PARTS - 1}")
HASHED = " PARTITION BY HASH (row_id)"
PARTITIONS = Layout("hash partitions", "bench_partitions", partitioned=HASHED)
OWN_PARTITIONS = replace(PARTITIONS, name="own partitions", claimed="bench_partitions_{part}")
BY_MINUTE = "run_at_ms / 60000"
BUCKETS = Layout("time buckets", "bench_buckets", "bucket", BY_MINUTE, "priority DESC, row_id")
LAYOUTS = (ONE_TABLE, SHARDS, PARTITIONS, OWN_PARTITIONS, BUCKETS)

Task = tuple[str, int, int, tuple[str, ...]]
"""A URL, rows per batch, the time at which they are due, and claims; without claims it plans."""


@dataclass(frozen=True, slots=True)
class Run:
    """One drained burst."""

    seconds: float
    client_cpu_s: float
    server_cpu_s: float
    passed_over: int  # rows that claims read but did not get, as others held or had moved them
    empty_claims: int
    duplicates: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Runs with one number of stored schedules, by layout and number of processes."""

    stored: int
    burst: int
    runs: dict[tuple[str, int], list[Run]]

    def rate(self, name: str, count: int) -> float:
        """Return rows per second, the median of the rounds."""
        return median(self.burst / run.seconds for run in self.runs[name, count])

    def ratio(self, name: str, count: int, than: str, than_count: int) -> float:
        """Return the rate relative to another one, the median over paired rounds."""
        pairs = zip(self.runs[name, count], self.runs[than, than_count], strict=True)
        return median(other.seconds / run.seconds for run, other in pairs)

    def rows(self) -> Iterator[dict[str, object]]:
        """Return the rows of the results, with CPU times in microseconds per row."""
        for (name, count), runs in self.runs.items():
            yield {
                "layout": name,
                "processes": count,
                "per_s": self.rate(name, count),
                "vs_one_table": self.ratio(name, count, ONE_TABLE.name, count),
                "vs_one_process": self.ratio(name, count, name, 1),
                "client_us": median(run.client_cpu_s for run in runs) / self.burst * 1e6,
                "server_us": median(run.server_cpu_s for run in runs) / self.burst * 1e6,
                "passed_over": median(run.passed_over for run in runs),
                "empty_claims": runs[0].empty_claims,
                "duplicates": sum(run.duplicates for run in runs),
                "rounds": [asdict(run) for run in runs],
            }


def start_crew() -> list[Connection]:
    """Start processes that wait for tasks, so that start-up is not part of a timed run."""
    context, pipes = get_context("spawn"), []
    for _ in range(max(COUNTS)):
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(theirs,), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    return pipes


def run_tasks(desk: Desk, pipes: Sequence[Connection], tasks: Sequence[Task]) -> tuple[Any, float]:
    """Run tasks concurrently; return what `_timed` sends for each, and the server's CPU seconds."""
    _exchange(pipes, tasks)
    before = _server_cpu_ns(desk)
    done = _exchange(pipes, [None] * len(tasks))
    after = _server_cpu_ns(desk)
    _exchange(pipes, [None] * len(tasks))
    desk.run(END_SESSIONS)
    return done, (after - before) / 1e9


def _exchange(pipes: Sequence[Connection], words: Sequence[Task | None]) -> list[Any]:
    try:
        for pipe, word in zip(pipes, words, strict=False):
            pipe.send(word)
        return [pipe.recv() for pipe in pipes[: len(words)]]
    except (EOFError, OSError):
        raise Lost("a process ended early; see its error above") from None


def _server_cpu_ns(desk: Desk) -> int:
    """Return the CPU time of all server processes; 0 without /proc."""
    pids = desk.run("SELECT pid FROM pg_stat_activity")
    files = [Path(f"/proc/{each.pid}/schedstat") for each in pids]
    return sum(int(file.read_text().split()[0]) for file in files if file.exists())


def serve(pipe: Connection) -> None:
    """Run tasks until the other end of the pipe is closed."""
    with contextlib.suppress(EOFError):
        while True:
            url, batch, due_ms, claims = pipe.recv()
            if claims:
                _claim(pipe, url, claims, {"now_ms": due_ms, "limit": batch})
            else:
                _plan(pipe, url, batch)
            pipe.send(None)


def _claim(pipe: Connection, url: str, claims: Sequence[str], given: dict[str, int]) -> None:
    with psycopg.connect(url, autocommit=True, options=SESSION) as session:

        def drain() -> None:
            for claim in claims:
                while session.execute(claim, given).fetchall():
                    pass

        for claim in claims:
            session.execute(claim, given | {"limit": 0})
        _timed(pipe, drain)


def _plan(pipe: Connection, url: str, batch: int) -> None:
    store = opened(url)
    planner = Planner(store, PlannerOptions(look_ahead_s=0, limit=batch, flows=(FLOW,)))
    with asyncio.Runner() as runner:
        runner.run(store.plan_occurrences(PlanRequest(flows=("absent",))))
        _timed(pipe, lambda: runner.run(planner.run_once()))
        runner.run(store.close())


def _timed(pipe: Connection, drain: Callable[[], object]) -> None:
    """Drain on a signal; send its start, end and CPU time in seconds."""
    pipe.send(None)
    pipe.recv()
    began_s, cpu_s = monotonic(), process_time()
    drain()
    pipe.send((began_s, monotonic(), process_time() - cpu_s))
    pipe.recv()  # the session stays open until the server's CPU time has been read


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parse("planners", __doc__, [each for each in given if each != MILLION])
    size = QUICK if options.quick else FULL
    if MILLION in given:
        size = replace(size, stored=(*size.stored, 1_000_000))
    try:
        facts, found = measure(size)
    except (Lost, NoServer) as error:
        print(f"benchmark: stopped, there are no figures: {error}", file=sys.stderr)
        return 1
    measured = bars(found)
    said = "\n".join(f"{name}: {fact}" for name, fact in facts.items())
    print(said, *map(text, found), sep="\n\n")
    results = {
        "benchmark": "planners",
        "date": today(),
        "machine": facts,
        "size": asdict(size),
        "tables": [{"stored": each.stored, "rows": list(each.rows())} for each in found],
        "bars": [bar.to_json() for bar in measured],
    }
    write_results(options, "planners", results)
    chart(found[0]).write_png(options.out / "planners.png")
    print("", *measured, sep="\n")
    return 0 if all(bar.is_met for bar in measured) else 1


def measure(size: Size) -> tuple[dict[str, str], list[Figures]]:
    """Measure every number of stored schedules on one server."""
    binaries = find_binaries()
    if binaries is None:
        raise NoServer(NO_SERVER)
    with scratch_folder() as folder, durable_server(folder, binaries) as server:
        facts = machine_facts("psycopg", "sqlalchemy", "msgspec") | {
            "disk": f"{filesystem(folder)}, fsync of a page {fsync_ms(folder):.2f} ms",
        }
        return facts, [_measure_stored(server.create(), stored, size) for stored in size.stored]


def _measure_stored(url: str, stored: int, size: Size) -> Figures:
    print(f"benchmark: {stored:,} stored schedules", file=sys.stderr)
    found, contestants = Figures(stored, size.burst, {}), [PLANNER, *LAYOUTS]
    with contextlib.closing(Desk(url)) as desk:
        store = opened(url)
        with asyncio.Runner() as runner:
            runner.run(fill(desk, store, stored))
            runner.run(store.close())
        for layout in (ONE_TABLE, SHARDS, PARTITIONS, BUCKETS):
            layout.create(desk)
        crew = start_crew()
        for layout in contestants:  # one run that is not counted: afterwards all are warm
            _drain(desk, crew, layout, max(COUNTS), size)
        for number in range(size.rounds):
            # What one leaves behind, the next one finds: the order rotates.
            for layout in contestants[number:] + contestants[:number]:
                for count in COUNTS:
                    run = _drain(desk, crew, layout, count, size)
                    found.runs.setdefault((layout.name, count), []).append(run)
    return found


def _drain(desk: Desk, crew: Sequence[Connection], layout: Layout, count: int, size: Size) -> Run:
    """Make the burst due and let `count` processes drain it."""
    due_ms, is_planner = now_ms(), layout is PLANNER
    if is_planner:
        desk.reset(due_ms, size.burst)
    else:
        layout.reset(desk, size.burst, due_ms)
    moved, given = MOVED.format(layout), {"ms": due_ms, "burst": size.burst}
    versions, fetched = desk.run(moved, **given)[0][0], desk.run(FETCHED.format(layout))[0][0]
    claims = [() if is_planner else layout.claims(n, count, due_ms) for n in range(count)]
    tasks = [(desk.url, size.batch, due_ms, each) for each in claims]
    done, server_cpu_s = run_tasks(desk, crew, tasks)
    after, advanced = desk.run(moved, **given)[0]
    taken, different = desk.run(JOBS)[0] if is_planner else (after - versions, advanced)
    if different != size.burst:
        raise Lost(f"{layout.name}: {size.burst} rows were due, {different} were taken")
    return Run(
        seconds=max(ended_s for _, ended_s, _ in done) - min(began_s for began_s, _, _ in done),
        client_cpu_s=sum(cpu_s for _, _, cpu_s in done),
        server_cpu_s=server_cpu_s,
        passed_over=int(desk.run(FETCHED.format(layout))[0][0] - fetched) - size.burst,
        empty_claims=sum(map(len, claims)),
        duplicates=int(taken) - size.burst,
    )


def bars(found: Sequence[Figures]) -> list[Bar]:
    """Return the bars to meet; scaling is judged at the first number of stored schedules."""
    planned = [each.runs[PLANNER.name, count] for each in found for count in COUNTS]
    duplicates = sum(run.duplicates for runs in planned for run in runs)
    scale = found[0].ratio(PLANNER.name, 4, PLANNER.name, 1)
    return [
        Bar("planner-duplicates", duplicates, 0, at_most=True),
        Bar("planners-scale", scale, SCALE_AT_LEAST, places=2),
    ]


def text(found: Figures) -> str:
    """Return the table to print, and the gain of each layout over one table for information."""
    rows = [{name: each for name, each in row.items() if name != "rounds"} for row in found.rows()]
    cells = [
        [f"{v:,.2f}" if isinstance(v, float) else f"{v}" for v in row.values()] for row in rows
    ]
    lines = [f"{found.burst:,} due of {found.stored:,}", table([list(rows[0]), *cells]), ""]
    for layout in LAYOUTS[1:]:
        ratios = [found.ratio(layout.name, count, ONE_TABLE.name, count) for count in COUNTS]
        lines.append(f"shards-gain {layout.name}: {', '.join(f'{each:.2f}' for each in ratios)}")
    return "\n".join(lines)


def chart(found: Figures) -> Chart:
    """Return the rates by number of processes."""
    names = [layout.name for layout in (PLANNER, *LAYOUTS)]
    groups = {f"{count}": {name: found.rate(name, count) for name in names} for count in COUNTS}
    title = f"{found.burst:,} due of {found.stored:,}: planned, or only claimed; by processes"
    return Chart(title, "rows per second", names, groups, better="more", is_log=False)


if __name__ == "__main__":
    sys.exit(main())
