"""Compares single answers of Duly and its peers: whether they agree, and how long each takes.

Each contestant gets aware instants in the form it needs and returns its next times, called as by a
program that keeps its rules compiled. No state is kept between answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from random import Random
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from croniter import croniter
from cronsim import CronSim

from benchmarks.rounds import Contestant, Timing, batches, measure
from duly import cron

TZ = ZoneInfo("Europe/Berlin")
YEAR_FROM = datetime(2026, 1, 1, tzinfo=UTC)
YEAR_MINUTES = 365 * 1440
WARM_UP = 100
OURS = "duly"
CRONITER = "croniter"
CRONSIM = "cronsim"
CRONSIM_REUSED = "cronsim, reused"
APSCHEDULER = "APScheduler"
NAMES = (OURS, CRONITER, CRONSIM, CRONSIM_REUSED, APSCHEDULER)

Ask = Callable[[Sequence[datetime]], list[datetime | None]]


@dataclass(frozen=True, slots=True)
class Peer:
    """A function that returns next times, and the instants in the form it needs."""

    name: str
    ask: Ask
    instants: list[datetime]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a peer's answer differs from ours, near a clock change and elsewhere."""

    near_change: int
    elsewhere: int


@dataclass(frozen=True, slots=True)
class Single:
    """Figures of one expression, by contestant."""

    expression: str
    timings: dict[str, Timing]
    agreements: dict[str, Agreement]

    def ratio(self, peer: str) -> float:
        return self.timings[peer].minimum_us / self.timings[OURS].minimum_us


class Disagreement(Exception):
    """Our answer differs from the peers' away from clock changes, so nothing is measured."""


def random_instants(count: int, seed: int) -> list[datetime]:
    """Return seconds of one year, none of them on a full minute.

    On a full minute APScheduler would return the instant itself and all others the next one.
    """
    random = Random(seed)
    return [
        YEAR_FROM + timedelta(0, 60 * random.randrange(YEAR_MINUTES) + random.randrange(1, 60))
        for _ in range(count)
    ]


def measure_single(
    expression: str, instants: Sequence[datetime], batch: int, rounds: int
) -> Single:
    """Compare the answers of all contestants, which may raise Disagreement, then time them."""
    entrants = peers(expression, instants)
    agreements = compare(expression, instants, entrants)
    contestants = [
        Contestant(
            peer.name,
            [partial(peer.ask, some) for some in batches(peer.instants, batch)],
            len(instants),
            warm_up=partial(peer.ask, peer.instants[:WARM_UP]),
        )
        for peer in entrants
    ]
    return Single(expression, measure(contestants, rounds), agreements)


def peers(expression: str, instants: Sequence[datetime]) -> list[Peer]:
    """Return all that support the expression, ours first. `instants` are UTC, whole seconds."""
    local = [instant.astimezone(TZ) for instant in instants]
    found = [
        Peer(OURS, _ours(expression), list(instants)),
        Peer(CRONITER, _croniter(expression, local[0]), local),
        Peer(CRONSIM, _cronsim(expression), local),
        _cronsim_reused(expression, local),
    ]
    ask = _apscheduler(expression)
    return found if ask is None else [*found, Peer(APSCHEDULER, ask, local)]


# Each contestant has its own loop: the interpreter specialises a call for the kind of callee, so a
# shared loop would slow down all of them, and the fastest most.


def _ours(expression: str) -> Ask:
    next_after = cron(expression, tz=TZ.key).next_after

    def ask(instants: Sequence[datetime]) -> list[datetime | None]:
        return [next_after(instant) for instant in instants]

    return ask


def _croniter(expression: str, first: datetime) -> Ask:
    # get_next(start_time) sets the current time itself, which saves a call of set_current().
    get_next = croniter(expression, first).get_next

    def ask(instants: Sequence[datetime]) -> list[datetime | None]:
        return [get_next(datetime, instant) for instant in instants]

    return ask


def _cronsim(expression: str) -> Ask:
    """Create an iterator per question, since no call takes an instant."""

    def ask(instants: Sequence[datetime]) -> list[datetime | None]:
        return [next(CronSim(expression, instant)) for instant in instants]

    return ask


def _cronsim_reused(expression: str, local: list[datetime]) -> Peer:
    """Reset one iterator by hand, which is undocumented, to measure only its evaluation."""
    iterator = CronSim(expression, local[0])
    if iterator.fixup_tz is not None:
        # Rules with a fixed time are evaluated on the wall clock; the constructor strips the zone.
        local = [instant.replace(tzinfo=None) for instant in local]

    def ask(instants: Sequence[datetime]) -> list[datetime | None]:
        answers: list[datetime | None] = []
        for instant in instants:
            iterator.dt = instant
            answers.append(next(iterator))
        return answers

    return Peer(CRONSIM_REUSED, ask, local)


def _apscheduler(expression: str) -> Ask | None:
    try:
        next_fire_time = CronTrigger.from_crontab(expression, timezone=TZ).get_next_fire_time
    except ValueError:
        return None

    def ask(instants: Sequence[datetime]) -> list[datetime | None]:
        return [next_fire_time(None, instant) for instant in instants]

    return ask


def compare(
    expression: str, instants: Sequence[datetime], entrants: Sequence[Peer]
) -> dict[str, Agreement]:
    """Compare all answers; raise Disagreement if croniter and cronsim both contradict ours."""
    answers = {peer.name: peer.ask(peer.instants) for peer in entrants}
    ours = answers.pop(OURS)
    # Compared as timestamps: between zones, datetimes in a fold are never equal.
    is_calm = [
        not changes_near(TZ, instant) and answer is not None and not changes_near(TZ, answer)
        for instant, answer in zip(instants, ours, strict=True)
    ]
    differs = {
        name: [timestamp(a) != timestamp(b) for a, b in zip(ours, theirs, strict=True)]
        for name, theirs in answers.items()
    }
    for i, instant in enumerate(instants):
        if is_calm[i] and differs[CRONITER][i] and differs[CRONSIM][i]:
            raise Disagreement(
                f"{expression} in {TZ.key} after {instant}: ours says {ours[i]}, "
                f"croniter {answers[CRONITER][i]}, cronsim {answers[CRONSIM][i]}"
            )
    return {name: _agreement(row, is_calm) for name, row in differs.items()}


def _agreement(differs: Sequence[bool], is_calm: Sequence[bool]) -> Agreement:
    elsewhere = sum(d and calm for d, calm in zip(differs, is_calm, strict=True))
    return Agreement(sum(differs) - elsewhere, elsewhere)


def changes_near(tz: tzinfo, instant: datetime) -> bool:
    """Return whether the zone's clocks change within a day of an instant."""
    day = timedelta(days=1)
    before, after = ((instant + step).astimezone(tz).utcoffset() for step in (-day, day))
    return before != after


def timestamp(instant: datetime | None) -> float | None:
    return None if instant is None else instant.timestamp()
