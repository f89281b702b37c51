"""Jobs per second beside other queues, the bare driver and huey; bulk enqueue; idle cost.

First every candidate runs once and each contender's best is kept; then ours and theirs alternate,
and a bar is the median ratio of those pairs. Databases commit durably; Duly keeps its full history,
the others what they keep. Writes jobs.json and jobs.png; exit status 1 means that a bar is not met.
A peer that cannot be measured here does not meet its bar, and the reason is reported.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

# `python benchmarks/jobs.py` puts this folder on the path, but not its parent.
sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers import NO_SERVER, PostgresServer, find_binaries

from benchmarks.jobs_bulk import Bulk, measure_bulk
from benchmarks.jobs_idle import Idle, measure_idle
from benchmarks.jobs_peer_catalogue import (
    BARE,
    GRAPHILE_PRESET,
    HUEY,
    OURS,
    OURS_ON_SQLITE,
    POSTGRES_PEERS,
    Peer,
)
from benchmarks.jobs_peer_places import Places, PostgresPlaces, SqlitePlaces
from benchmarks.jobs_peers import PeerResult, all_results, best_of
from benchmarks.jobs_pressure import Pressure, measure_pressure, pressure_bars, pressure_text
from benchmarks.jobs_snapshot import HeldSnapshot, measure_held_snapshot
from benchmarks.options import parse
from benchmarks.report import Bar, Chart, machine_facts, table, today, write_results
from benchmarks.servers import NoServer, durable_server, filesystem, fsync_ms, scratch_folder

LIMITS = {
    "graphile-worker": 1.0,
    "graphile-worker preset": 1.0,
    "pgqueuer": 2.5,
    "awa-pg": 2.5,
    "procrastinate": 30.0,
    "bare SQL": 0.6,
}
HUEY_AT_LEAST = 1.0
BULK_AT_LEAST = 0.6
QUERIES_AT_MOST = 2.0
HELD_SNAPSHOT_AT_MOST = 2.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    pairs: int
    bulk: int
    idle_seconds: float
    pickups: int
    pressure: int
    passed: int


FULL = Size(pairs=3, bulk=50_000, idle_seconds=20, pickups=200, pressure=4_000, passed=300_000)
QUICK = Size(pairs=1, bulk=2_000, idle_seconds=1, pickups=5, pressure=320, passed=30_000)


@dataclass(frozen=True, slots=True)
class Pairing:
    """Ours and one contender in alternating turns, each in its best configuration."""

    name: str
    theirs: PeerResult
    ours: tuple[float, ...]
    others: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Return the median ratio of the turns; 0 if the contender could not be measured."""
        pairs = zip(self.ours, self.others, strict=True)
        return median([ours / other for ours, other in pairs] or [0.0])

    @property
    def rate(self) -> float | None:
        """Return the contender's median rate."""
        return median(self.others) if self.others else None


class Race:
    """Measures contenders in one kind of place."""

    def __init__(self, ours: Peer, places: Places, folder: Path, size: Size, quick: bool) -> None:
        self._places = places
        self._folder = folder
        self._size = size
        self._quick = quick
        self.ours = list(self._all(ours))
        self.best = best_of(self.ours)
        self._our_peer = self._only(ours, self.best)

    def _all(self, peer: Peer) -> Sequence[PeerResult]:
        print(f"benchmark: {peer.name}", file=sys.stderr)
        return list(all_results(peer, self._places, self._folder, self._quick))

    def _only(self, peer: Peer, result: PeerResult) -> Peer:
        """Return the peer with only the configuration of a result."""
        kept = [
            each
            for each in peer.candidates
            if (f"{peer.version}, {each.words}", each.processes)
            == (result.configuration, result.processes)
        ]
        return replace(peer, candidates=tuple(kept) or peer.candidates[:1])

    def beside(self, peer: Peer) -> Pairing:
        """Find the peer's best configuration, then alternate it with ours."""
        theirs = best_of(self._all(peer))
        if theirs.jobs_per_second is None:
            return Pairing(peer.name, theirs, (), ())
        rival = self._only(peer, theirs)
        ours, others = [], []
        for turn in range(self._size.pairs):
            print(f"benchmark: {peer.name} and ours, turn {turn + 1}", file=sys.stderr)
            first, second = (rival, self._our_peer) if turn % 2 else (self._our_peer, rival)
            rates = {id(each): self._rate(each) for each in (first, second)}
            mine, other = rates[id(self._our_peer)], rates[id(rival)]
            if mine is not None and other is not None:
                ours.append(mine)
                others.append(other)
        return Pairing(peer.name, theirs, tuple(ours), tuple(others))

    def _rate(self, peer: Peer) -> float | None:
        return best_of(all_results(peer, self._places, self._folder, self._quick)).jobs_per_second


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures."""

    facts: dict[str, str]
    ours: Sequence[PeerResult]
    ours_on_sqlite: PeerResult
    pairings: Sequence[Pairing]
    huey: Pairing
    bulk: Bulk
    idle: Idle
    pressure: Sequence[Pressure]
    held: HeldSnapshot


def measure(size: Size, quick: bool, with_peers: bool = True) -> Figures:
    """Run all measurements on one server."""
    binaries = find_binaries()
    if binaries is None:
        raise NoServer(NO_SERVER)
    with scratch_folder() as folder, durable_server(folder, binaries) as server:
        facts = machine_facts("psycopg", "sqlalchemy", "msgspec") | {
            "disk": f"{filesystem(folder)}, fsync of a page {fsync_ms(folder):.2f} ms",
        }
        race = Race(OURS, PostgresPlaces(server.url), folder, size, quick)
        peers = [*POSTGRES_PEERS.values(), GRAPHILE_PRESET]
        pairings = [race.beside(BARE)]
        pairings += [race.beside(each) if with_peers else _left_out(each) for each in peers]
        on_file = Race(OURS_ON_SQLITE, SqlitePlaces(folder), folder, size, quick)
        huey = on_file.beside(HUEY) if with_peers else _left_out(HUEY)
        print("benchmark: bulk enqueue", file=sys.stderr)
        bulk = measure_bulk(server, size.bulk, size.pairs)
        print("benchmark: an idle worker", file=sys.stderr)
        idle = _idle(server, size)
        print("benchmark: under pressure", file=sys.stderr)
        pressure = measure_pressure(server, size.pressure, size.pairs)
        print("benchmark: claims under a held snapshot", file=sys.stderr)
        held = measure_held_snapshot(server, size.passed)
    return Figures(facts, race.ours, on_file.best, pairings, huey, bulk, idle, pressure, held)


def _left_out(peer: Peer) -> Pairing:
    nothing = PeerResult(peer.name, None, 0, 0, peer.version, "left out")
    return Pairing(peer.name, nothing, (), ())


def _idle(server: PostgresServer, size: Size) -> Idle:
    url = server.create()
    try:
        return measure_idle(url, size.idle_seconds, size.pickups)
    finally:
        server.drop(url)


def bars(figures: Figures) -> list[Bar]:
    """Return the bars to meet."""
    return [
        *(
            Bar(
                f"vs-{each.name.lower().replace(' ', '-')}", each.ratio, LIMITS[each.name], places=2
            )
            for each in figures.pairings
            if each.name in LIMITS
        ),
        Bar("sqlite-vs-huey", figures.huey.ratio, HUEY_AT_LEAST),
        Bar("bulk-enqueue-vs-bare", figures.bulk.ratio, BULK_AT_LEAST, places=2),
        Bar(
            "idle-queries-per-second",
            figures.idle.queries_per_second,
            QUERIES_AT_MOST,
            at_most=True,
        ),
        *pressure_bars(figures.pressure),
        Bar(
            "held-snapshot-claim",
            figures.held.ratio,
            HELD_SNAPSHOT_AT_MOST,
            at_most=True,
            places=2,
        ),
    ]


def text(figures: Figures) -> str:
    """Return the tables to print."""
    rows = [["PostgreSQL, no-op jobs", "processes", "jobs/s", "ours beside", "ratio", "how"]]
    rows += [
        ["duly, once", str(each.processes), _number(each.jobs_per_second), "", "", ""]
        for each in figures.ours
    ]
    rows += [_pairing_row(each) for each in figures.pairings]
    files = [["SQLite, no-op jobs", "processes", "jobs/s", "ours beside", "ratio", "how"]]
    files.append(_pairing_row(figures.huey))
    idle, bulk = figures.idle, figures.bulk
    return "\n\n".join(
        [
            "\n".join(f"{name}: {fact}" for name, fact in figures.facts.items()),
            table(rows),
            table(files),
            f"bulk enqueue: {median(bulk.ours):,.0f} jobs/s, bare COPY {median(bulk.bare):,.0f}",
            f"idle worker: {idle.queries_per_second:.2f} queries/s, {idle.cpu_percent:.2f} % CPU",
            f"pickup: p50 {idle.pickup_p50_ms:.1f} ms, p99 {idle.pickup_p99_ms:.1f} ms",
            pressure_text(figures.pressure),
            f"held snapshot: {figures.held}",
        ]
    )


def _pairing_row(each: Pairing) -> list[str]:
    ours = median(each.ours) if each.ours else None
    how = each.theirs.why_absent or each.theirs.configuration
    ratio = f"{each.ratio:.2f}" if each.ours else ""
    processes = str(each.theirs.processes)
    return [each.name, processes, _number(each.rate), _number(ours), ratio, how]


def _number(rate: float | None) -> str:
    return "absent" if rate is None else f"{rate:,.0f}"


def chart(figures: Figures) -> Chart:
    """Return a chart of jobs per second, ours and theirs in the same turns."""
    groups = {
        each.name: {"Duly, in the same turns": median(each.ours), each.name: each.rate}
        for each in (*figures.pairings, figures.huey)
        if each.ours
    }
    shown = {
        name: {
            "Duly, in the same turns": rates["Duly, in the same turns"],
            "the other": rates[name],
        }
        for name, rates in groups.items()
    }
    return Chart(
        "No-op jobs: Duly with its full history beside others (huey: SQLite)",
        "jobs per second",
        ["Duly, in the same turns", "the other"],
        shown,
        better="more",
    )


def to_json(figures: Figures, size: Size, measured: Sequence[Bar]) -> dict[str, object]:
    """Return all figures for later comparison."""
    return {
        "benchmark": "jobs",
        "date": today(),
        "machine": figures.facts,
        "size": asdict(size),
        "ours": [asdict(each) for each in figures.ours],
        "pairings": [asdict(each) for each in (*figures.pairings, figures.huey)],
        "bulk": asdict(figures.bulk),
        "idle": figures.idle.to_json(),
        "pressure": [each.to_json() for each in figures.pressure],
        "held_snapshot": asdict(figures.held),
        "bars": [bar.to_json() for bar in measured],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit status."""
    options = parse("jobs", __doc__, arguments)
    size = QUICK if options.quick else FULL
    logging.getLogger("duly.stores").setLevel(logging.ERROR)
    try:
        figures = measure(size, options.quick, options.with_peers)
    except NoServer as error:
        print(f"benchmark: stopped, there are no figures: {error}", file=sys.stderr)
        return 1
    measured = bars(figures)
    print(text(figures))
    write_results(options, "jobs", to_json(figures, size, measured))
    chart(figures).write_png(options.out / "jobs.png")
    print("", *measured, sep="\n")
    return 0 if all(bar.is_met for bar in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
