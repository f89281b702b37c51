"""Compares the schedule index with the bare driver and APScheduler, on PostgreSQL and SQLite.

Prints tables, writes index.json and index.png, and ends with one line per bar; exit status 1 means
that a bar is not met. Ratios are medians of paired rounds. Both databases commit durably.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# `python benchmarks/index.py` puts this folder on the path, but not its parent.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers import NO_SERVER, find_binaries

from benchmarks.index_apscheduler import Peer
from benchmarks.index_claims import Contest, Disagreement, first_drain, measure_drains
from benchmarks.index_places import Database, Place
from benchmarks.index_postgresql import PostgresDatabase
from benchmarks.index_report import (
    Figures,
    drains_text,
    facts_text,
    peers_text,
    rates_chart,
    ticks_chart,
    ticks_text,
)
from benchmarks.index_rows import Backlog, backlog
from benchmarks.index_sqlite import SqliteDatabase
from benchmarks.index_ticks import measure_ticks
from benchmarks.options import parse
from benchmarks.report import Bar, machine_facts, today, write_png, write_results
from benchmarks.servers import NoServer, durable_server, filesystem, fsync_ms, scratch_folder
from benchmarks.trigger_rows import RULES

VS_BARE_AT_LEAST = 0.7
VS_APSCHEDULER_AT_LEAST = {"PostgreSQL": 30, "SQLite": 100}
GROWTH_AT_MOST = 1.5
SEED = 2026


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. The bars apply to the first batch size."""

    rows: int
    batches: tuple[int, ...]
    rounds: int
    jobs: int
    ticks: int
    stored: tuple[int, ...]


FULL = Size(
    20_000, (10_000, 1_000, 100), 5, jobs=400, ticks=150, stored=(1_000, 100_000, 1_000_000)
)
QUICK = Size(400, (400, 100), 2, jobs=20, ticks=3, stored=(1_000, 2_000))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit status."""
    options = parse("index", __doc__, arguments)
    size = QUICK if options.quick else FULL
    # The store would warn about an old SQLite for every file.
    logging.getLogger("duly.stores").setLevel(logging.ERROR)
    try:
        facts, rows, figures = _measure(size)
    except (Disagreement, NoServer) as error:
        print(f"benchmark: stopped, there are no figures: {error}", file=sys.stderr)
        return 1
    bars = _bars(figures)
    text = [
        facts_text(facts, figures),
        drains_text(figures, len(rows), len(rows.texts)),
        peers_text(figures, size.jobs),
        ticks_text(figures),
    ]
    print("\n\n".join(text))
    results = {
        "benchmark": "index",
        "date": today(),
        "machine": facts,
        "size": asdict(size) | {"rules": RULES, "triggers": len(rows.texts)},
        "databases": [each.to_json() for each in figures],
        "bars": [bar.to_json() for bar in bars],
    }
    write_results(options, "index", results)
    write_png(options.out / "index.png", [rates_chart(figures), ticks_chart(figures)], (3, 2))
    print("", *bars, sep="\n")
    return 0 if all(bar.is_met for bar in bars) else 1


def _measure(size: Size) -> tuple[dict[str, str], Backlog, list[Figures]]:
    binaries = find_binaries()
    if binaries is None:
        raise NoServer(NO_SERVER)
    rows = backlog(size.rows, SEED)
    with scratch_folder() as folder, durable_server(folder, binaries) as server:
        facts = machine_facts("apscheduler", "psycopg", "sqlalchemy") | {
            "disk": f"{filesystem(folder)}, fsync of a page {fsync_ms(folder):.2f} ms",
        }
        databases: list[Database] = [PostgresDatabase(server), SqliteDatabase(folder)]
        figures = [_measure_one(each, rows, size) for each in databases]
    return facts, rows, figures


def _measure_one(database: Database, rows: Backlog, size: Size) -> Figures:
    name = database.name
    with contextlib.ExitStack() as open_places:

        def place(purpose: str) -> Place:
            made = database.place(purpose)
            open_places.callback(made.close)
            return made

        print(f"benchmark: {name}, {size.rows:,} due rows", file=sys.stderr)
        ours, bare = place("ours"), place("bare")
        peers = {
            said: Peer(engine, database.tidy, rows.expressions, size.jobs)
            for said, engine in database.peer_engines().items()
        }
        for peer in peers.values():
            open_places.callback(peer.close)
        first_rate = asyncio.run(first_drain(ours, rows, size.batches[0]))
        moves = ours.moves()
        contest = Contest(ours, bare, peers, rows, size.rounds)
        drains = []
        for i, batch in enumerate(size.batches):
            print(f"benchmark: {name}, batches of {batch:,}", file=sys.stderr)
            drains.append(asyncio.run(measure_drains(contest, batch, moves, with_peers=i == 0)))
        places = {}
        for stored in size.stored:
            print(f"benchmark: {name}, storing {stored:,} schedules", file=sys.stderr)
            places[stored] = place(f"stored-{stored}")
            places[stored].fill_waiting(stored, rows.texts[:RULES])
        print(f"benchmark: {name}, ticks", file=sys.stderr)
        ticks = asyncio.run(measure_ticks(places, size.ticks, SEED))
        return Figures(name, ours.settings(), first_rate, tuple(drains), ticks)


def _bars(figures: Sequence[Figures]) -> list[Bar]:
    server = figures[0]
    largest, smallest = _short(max(server.ticks.ms)), _short(min(server.ticks.ms))
    return [
        Bar("postgresql-claim-vs-bare", server.vs_bare, VS_BARE_AT_LEAST, places=2),
        *(
            Bar(f"{each.name.lower()}-vs-apscheduler", each.vs_peer(), limit)
            for each in figures
            for limit in [VS_APSCHEDULER_AT_LEAST[each.name]]
        ),
        Bar(
            f"tick-{largest}-vs-{smallest}",
            server.ticks.growth(),
            GROWTH_AT_MOST,
            at_most=True,
            places=2,
        ),
    ]


def _short(count: int) -> str:
    """1k, 1m."""
    return f"{count // 1_000_000}m" if count >= 1_000_000 else f"{count // 1_000}k"


if __name__ == "__main__":
    sys.exit(main())
