"""Formats the figures of the index benchmark as text, JSON and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.index_apscheduler import APSCHEDULER
from benchmarks.index_claims import BARE, OURS, Drains, Rates
from benchmarks.index_ticks import DUE, Ticks
from benchmarks.report import COLOURS, Chart, table, today
from benchmarks.trigger_rows import RULES


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of one database.

    The first drains use the largest batches, beside the peers, which have no batches and take
    everything due at once; the bar against the bare driver applies to the second ones.
    """

    name: str
    settings: dict[str, str]
    first_rate: float
    drains: tuple[Drains, ...]
    ticks: Ticks

    @property
    def vs_bare(self) -> float:
        return self.drains[1].ours.ratio(self.drains[1].bare)

    def vs_peer(self, peer: str = APSCHEDULER) -> float:
        return self.drains[0].ours.ratio(self.drains[0].peers[peer])

    def to_json(self) -> dict[str, object]:
        return {
            "database": self.name,
            "settings": self.settings,
            "first_drain_rows_per_s": self.first_rate,
            "rows_per_s": [
                {
                    "batch": each.batch,
                    **{name: rates.to_json() for name, rates in each.by_name().items()},
                }
                for each in self.drains
            ],
            "ticks": self.ticks.to_json(),
        }


def facts_text(facts: dict[str, str], figures: Sequence[Figures]) -> str:
    lines = {"date": today(), **facts}
    for each in figures:
        version, *rest = (f"{name}={value}" for name, value in each.settings.items())
        lines[each.name] = " ".join([version.removeprefix("version="), *rest])
    return "\n".join(f"{name:<12} {value}" for name, value in lines.items())


def drains_text(figures: Sequence[Figures], rows: int, triggers: int) -> str:
    rounds = len(figures[0].drains[0].ours.rounds)
    title = (
        f"claim_due() until {rows:,} due rows are claimed and advanced: rows per second,\n"
        f"median (best) of {rounds} rounds; {RULES} rules, {triggers:,} different triggers once "
        "H and every are bound"
    )
    lines = [
        [
            f"{each.name}, batches of {drains.batch:,}",
            _cell(drains.ours),
            _cell(drains.bare),
            f"{drains.ours.ratio(drains.bare):.2f}",
        ]
        for each in figures
        for drains in each.drains
    ]
    first = ", ".join(f"{each.first_rate:,.0f} on {each.name}" for each in figures)
    footing = (
        "× is the median of the ratios of paired rounds: duly and the bare driver drain a database "
        "each,\nin alternating batches. The bare driver sends the same statements to the same "
        "schema and is given\nthe next times. duly's first drain, with no trigger parsed yet: "
        f"{first}."
    )
    return "\n\n".join([title, table([["", OURS, BARE, "×"], *lines]), footing])


def _cell(rates: Rates) -> str:
    return f"{rates.median:,.0f} ({rates.best:,.0f})"


def peers_text(figures: Sequence[Figures], jobs: int) -> str:
    batch = figures[0].drains[0].batch
    title = (
        f"APScheduler on {jobs} due cron jobs of the same rules: fires per second, median (best) "
        f"of the\nsame rounds; × is duly's rate in batches of {batch:,} divided by it"
    )
    lines = [
        [f"{each.name}, {name}", _cell(rates), f"{each.vs_peer(name):.0f}"]
        for each in figures
        for name, rates in each.drains[0].peers.items()
    ]
    footing = (
        "Its _process_jobs() is timed: it reads the due jobs of its SQLAlchemyJobStore, passes "
        "them to an\nexecutor that returns at once, and stores each next time. Jobs are stored "
        "and made due beforehand;\nmisfire_grace_time=None, coalesce=True. SQLite as SQLAlchemy "
        "opens it (rollback journal,\nsynchronous=FULL), and with the pragmas that duly sets (WAL, "
        "FULL).\n"
        "It takes everything due at once, so duly uses the largest batches."
    )
    return "\n\n".join([title, table([["", "fires per second", "×"], *lines]), footing])


def ticks_text(figures: Sequence[Figures]) -> str:
    stored = list(figures[0].ticks.ms)
    count = len(figures[0].ticks.ms[stored[0]])
    title = (
        f"claim_due() with {DUE} due rows, by number of stored rows: ms, median (best) of {count} "
        "ticks;\n× is the median ratio of largest to smallest, tick by tick; making rows due "
        "is not timed"
    )
    lines = [
        [
            each.name,
            *(f"{each.ticks.median(n):.2f} ({min(each.ticks.ms[n]):.2f})" for n in stored),
            f"{each.ticks.growth():.2f}",
        ]
        for each in figures
    ]
    return "\n\n".join([title, table([["", *(f"{n:,}" for n in stored), "×"], *lines])])


def rates_chart(figures: Sequence[Figures]) -> Chart:
    groups: dict[str, dict[str, float | None]] = {
        f"{each.name}\nby {drains.batch:,}": {
            name: rates.median for name, rates in drains.by_name().items()
        }
        for each in figures
        for drains in each.drains
    }
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    return Chart("Due schedules claimed and advanced", "rows per second", series, groups, "more")


def ticks_chart(figures: Sequence[Figures]) -> Chart:
    groups = {
        f"{stored:,}\nstored": {each.name: each.ticks.median(stored) for each in figures}
        for stored in figures[0].ticks.ms
    }
    names = [each.name for each in figures]
    title = f"A tick with {DUE} due schedules"
    return Chart(title, "ms", names, groups, colours=COLOURS[4:], is_log=False)
