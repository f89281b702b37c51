"""Claiming and advancing: Duly, the bare driver and APScheduler on one backlog, in paired rounds.

In a round Duly and the bare driver drain the same rows, each in its own database, in alternating
batches, so that load from other processes affects both; then APScheduler fires its jobs. A ratio
is the median over the rounds. The garbage collector stays on, as in production.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from benchmarks.index_apscheduler import Peer
from benchmarks.index_places import Place
from benchmarks.index_rows import NOW_MS, Backlog, Move
from duly.stores import open_store

OURS = "duly"
BARE = "bare driver"

Claim = Callable[[], Awaitable[int]]


class Disagreement(Exception):
    """The contestants did not do the same work, so they cannot be compared."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows per second of each round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)

    @property
    def best(self) -> float:
        return max(self.rounds)

    def ratio(self, other: Rates) -> float:
        """Return the ratio to the other's rates, the median over the rounds."""
        return median(a / b for a, b in zip(self.rounds, other.rounds, strict=True))

    def to_json(self) -> dict[str, object]:
        return {"median": self.median, "best": self.best, "rounds": list(self.rounds)}


@dataclass(frozen=True, slots=True)
class Drains:
    """Figures of one batch size; peers have no batches and are measured once."""

    batch: int
    ours: Rates
    bare: Rates
    peers: dict[str, Rates]

    def by_name(self) -> dict[str, Rates]:
        return {OURS: self.ours, BARE: self.bare, **self.peers}


@dataclass(frozen=True, slots=True)
class Contest:
    """The databases of Duly, the bare driver and the peers."""

    ours: Place
    bare: Place
    peers: Mapping[str, Peer]
    backlog: Backlog
    rounds: int


async def first_drain(place: Place, backlog: Backlog, batch: int) -> float:
    """Return Duly's rows per second before it has parsed any trigger.

    Leaves the rows advanced; the bare driver is given their new times.
    """
    place.refill(backlog)
    store = open_store(place.url)
    started = perf_counter()
    claimed = 0
    while taken := len(await store.claim_due(NOW_MS, limit=batch)):
        claimed += taken
    rate = claimed / (perf_counter() - started)
    await store.close()
    if claimed != len(backlog):
        raise Disagreement(f"{claimed} of {len(backlog)} rows were claimed")
    return rate


async def measure_drains(
    contest: Contest, batch: int, moves: Mapping[int, Move], *, with_peers: bool
) -> Drains:
    """Let the contestants drain the backlog in each round; raise Disagreement if results differ."""
    store = open_store(contest.ours.url)

    async def ours() -> int:
        return len(await store.claim_due(NOW_MS, limit=batch))

    async def bare() -> int:
        return contest.bare.claim(NOW_MS, batch, moves)

    rates: list[tuple[float, float]] = []
    fired: dict[str, list[float]] = {name: [] for name in contest.peers if with_peers}
    for turn in range(contest.rounds):
        for place in (contest.ours, contest.bare):
            place.refill(contest.backlog)
        gc.collect()
        rates.append(await _drain([ours, bare], turn, len(contest.backlog)))
        for place in (contest.ours, contest.bare):
            if place.moves() != moves:
                raise Disagreement(f"the rows of {place.url} were advanced differently")
        for name, each in fired.items():
            each.append(_fire(contest.peers[name]))
    await store.close()
    return Drains(
        batch,
        ours=Rates(tuple(rate for rate, _ in rates)),
        bare=Rates(tuple(rate for _, rate in rates)),
        peers={name: Rates(tuple(each)) for name, each in fired.items()},
    )


async def _drain(claims: Sequence[Claim], turn: int, rows: int) -> tuple[float, float]:
    """Drain both in alternating batches until nothing is due; return their rates."""
    seconds, claimed = [0.0, 0.0], [0, 0]
    for step in itertools.count(turn):
        # The order alternates, since the second one runs with caches filled by the first.
        order = (0, 1) if step % 2 else (1, 0)
        before = sum(claimed)
        for i in order:
            started = perf_counter()
            claimed[i] += await claims[i]()
            seconds[i] += perf_counter() - started
        if sum(claimed) == before:
            break
    if claimed != [rows, rows]:
        raise Disagreement(f"of {rows} rows, {claimed[0]} and {claimed[1]} were claimed")
    return rows / seconds[0], rows / seconds[1]


def _fire(peer: Peer) -> float:
    peer.make_due()
    gc.collect()
    started = perf_counter()
    fired = peer.fire()
    seconds = perf_counter() - started
    if fired != peer.count:
        raise Disagreement(f"APScheduler fired {fired} of {peer.count} jobs")
    return fired / seconds
