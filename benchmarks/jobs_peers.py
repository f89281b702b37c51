"""Measures other job queues with no-op jobs, each in its best known configuration.

Every candidate gets a new database with all jobs enqueued, vacuumed and checkpointed. All are timed
as jobs_peer_runs.py describes. The best candidate counts. A peer that cannot be measured yields a
result with the reason, never an exception.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# `python benchmarks/jobs_peers.py` puts this folder on the path, but not its parent.
sys.path.insert(0, str(Path(__file__).parents[1]))

import psycopg
from tests.servers import NO_SERVER, find_binaries

from benchmarks.jobs_peer_catalogue import HUEY, POSTGRES_PEERS, Candidate, Peer
from benchmarks.jobs_peer_environments import Absent, Program
from benchmarks.jobs_peer_places import Place, Places, PostgresPlaces, SqlitePlaces
from benchmarks.jobs_peer_runs import drain_seconds, run_once, running
from benchmarks.servers import durable_server, scratch_folder

PEERS = tuple(POSTGRES_PEERS)
PEER_SECONDS = 90
QUICK_SHARE = 20


@dataclass(frozen=True)
class PeerResult:
    """A peer's best figure, or why there is none."""

    name: str
    jobs_per_second: float | None
    jobs: int
    processes: int
    configuration: str
    why_absent: str | None


def run_peer(name: str, postgres_url: str, scratch: Path, *, quick: bool = False) -> PeerResult:
    """Measure one of PEERS, in new databases on a server."""
    return best_of(all_results(POSTGRES_PEERS[name], PostgresPlaces(postgres_url), scratch, quick))


def run_huey(scratch: Path, *, quick: bool = False) -> PeerResult:
    """Measure huey on SQLite files with the same durability as ours."""
    return best_of(all_results(HUEY, SqlitePlaces(scratch), scratch, quick))


def best_of(results: Iterable[PeerResult]) -> PeerResult:
    """Return the fastest result; if none was measured, the first one, with its reason."""
    return max(results, key=lambda each: each.jobs_per_second or 0)


def all_results(peer: Peer, places: Places, scratch: Path, quick: bool) -> Iterator[PeerResult]:
    """Yield a result per candidate, or one with the reason why the peer is absent."""
    jobs = max(100, peer.jobs // QUICK_SHARE) if quick else peer.jobs
    try:
        program = peer.program()
    except Absent as absent:
        yield PeerResult(peer.name, None, jobs, 0, peer.version, str(absent))
        return
    deadline_at = time.time() + PEER_SECONDS
    for each in peer.candidates[:1] if quick else peer.candidates:
        rate, why = None, None
        try:
            with places.new(peer.is_done.format(jobs=jobs)) as place:
                rate = _rate(program, each, place, jobs, scratch / f"{peer.name}.log", deadline_at)
        except (Absent, OSError, psycopg.Error, sqlite3.Error) as error:
            why = str(error).partition("\n")[0] or type(error).__name__
        yield PeerResult(
            peer.name, rate, jobs, each.processes, f"{peer.version}, {each.words}", why
        )


def _rate(
    program: Program, candidate: Candidate, place: Place, jobs: int, log: Path, deadline_at: float
) -> float:
    run_once(program, ["enqueue", place.address, str(jobs)], log, deadline_at)
    place.settle()
    arguments = ["work", place.address, str(jobs), json.dumps(candidate.options)]
    with running(program, arguments, candidate.processes, log) as workers:
        return jobs / drain_seconds(workers, jobs, place.is_done, log, deadline_at)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a JSON line for each named peer, or for all; return the exit status."""
    known = (*PEERS, HUEY.name)
    parser = argparse.ArgumentParser(prog="jobs_peers.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(known))
    parser.add_argument("--quick", action="store_true", help="a small run; its figures are noise")
    parser.add_argument("--all", action="store_true", help="print every candidate, not the best")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(known):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    binaries = find_binaries()
    if binaries is None:
        print(f"benchmark: {NO_SERVER}", file=sys.stderr)
        return 1
    with scratch_folder() as folder, durable_server(folder, binaries) as server:
        for name in options.names or known:
            if name == HUEY.name:
                results = all_results(HUEY, SqlitePlaces(folder), folder, options.quick)
            else:
                places = PostgresPlaces(server.url)
                results = all_results(POSTGRES_PEERS[name], places, folder, options.quick)
            for result in results if options.all else [best_of(results)]:
                print(json.dumps(asdict(result)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
