"""Formats the results of the scheduler benchmark as bars, tables, a chart and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

from benchmarks.report import Bar, Chart, table
from benchmarks.scheduler_burst import Burst
from benchmarks.scheduler_mix import PLANNERS, Mix
from benchmarks.scheduler_peers import Fired
from benchmarks.scheduler_rare import Rare, rare_text
from benchmarks.scheduler_sizes import Stored, worst_ratio
from benchmarks.scheduler_snapshot import HeldPlan

BURST_AT_LEAST = 0.6
LATENESS_RATIO_AT_MOST = 1.5
RARE_AT_MOST = 2.0
HELD_AT_MOST = 2.0
DULY = "Duly"


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures."""

    facts: dict[str, str]
    burst: Burst
    stored: Sequence[Stored]
    mix: Mix
    peers: Sequence[Fired]
    rare: Rare
    held: HeldPlan

    def to_json(self) -> dict[str, object]:
        """Return all figures for later comparison."""
        return {
            "machine": self.facts,
            "burst": asdict(self.burst),
            "stored": [each.to_json() for each in self.stored],
            "mix": asdict(self.mix),
            "peers": [each.to_json() for each in self.peers],
            "rare": self.rare.to_json(),
            "held_snapshot": self.held.to_json(),
        }


def bars(figures: Figures) -> list[Bar]:
    """Return the bars; lateness is that of the worst size."""
    duplicates = figures.mix.duplicates
    return [
        Bar("burst-vs-bare", figures.burst.ratio, BURST_AT_LEAST, places=2),
        *(_lateness_bar(figures.stored, database) for database in ("PostgreSQL", "SQLite")),
        Bar("duplicate-jobs", duplicates, 0, at_most=True),
        Bar("rare-flow-step", figures.rare.ratio, RARE_AT_MOST, at_most=True, places=2),
        Bar("held-snapshot-plan", figures.held.ratio, HELD_AT_MOST, at_most=True, places=2),
    ]


def _lateness_bar(stored: Sequence[Stored], database: str) -> Bar:
    name = f"lateness-vs-plain-jobs-{database.lower()}"
    ratio = worst_ratio(stored, database)
    return Bar(name, ratio, LATENESS_RATIO_AT_MOST, at_most=True, places=2)


def text(figures: Figures) -> str:
    """Return the tables to print."""
    parts = [
        "\n".join(f"{name}: {fact}" for name, fact in figures.facts.items()),
        _burst_text(figures.burst),
        _stored_text(figures.stored),
        _mix_text(figures.mix),
        rare_text(figures.rare),
        str(figures.held),
        _peers_text(figures),
    ]
    return "\n\n".join(parts)


def _burst_text(burst: Burst) -> str:
    ours, bare = median(burst.ours), median(burst.bare)
    return (
        f"burst of {burst.count:,}: {ours:,.0f} schedules/s into jobs, bare statements "
        f"{bare:,.0f}; {burst.ratio:.2f} is the median of {len(burst.ours)} pairs"
    )


def _stored_text(stored: Sequence[Stored]) -> str:
    head = ["stored schedules", "created/s", "fires/s", "jobs", "p50 ms", "p99 ms"]
    rows = [[*head, "p99 ms of new", "p99 ms of plain jobs", "ratio", "commits/s"]]
    for each in stored:
        late = each.lateness
        commits = "n/a" if late.commits_per_s is None else f"{late.commits_per_s:,.0f}"
        times = [
            f"{ms:,.0f}" for ms in (late.p50_ms, late.p99_ms, late.new_p99_ms, late.plain_p99_ms)
        ]
        times.append(f"{late.ratio:.2f}")
        rates = [f"{each.created_per_s:,.0f}", f"{each.fires_per_s:,.0f}", f"{late.jobs:,}"]
        rows.append([f"{each.database}, {each.schedules:,}", *rates, *times, commits])
    return table(rows)


def _mix_text(mix: Mix) -> str:
    naive = PLANNERS * mix.occurrences
    runs = {
        f"a run with {mix.due} due": (mix.statements, mix.rows_read),
        "a run with nothing due": (mix.statements_without, mix.rows_read_without),
    }
    rows = [[f"{mix.schedules:,} hourly, daily and weekly", "statements", "rows read"]]
    rows += [[name, *(f"{count:,}" for count in counts)] for name, counts in runs.items()]
    said = (
        f"{PLANNERS} planners at once, {mix.occurrences:,} occurrences: {mix.jobs:,} jobs, "
        f"{mix.duplicates} duplicates (each planner for itself: {naive:,} jobs)\n"
        f"idle planner: {mix.idle_queries_per_s:.2f} queries/s (document 003 claims 8.5), "
        f"{mix.idle_cpu_percent:.2f} % CPU\n"
        f"a step that finds nothing: p50 {mix.empty_p50_ms:.1f} ms, p99 {mix.empty_p99_ms:.1f} ms "
        "(document 003 claims 1)"
    )
    return f"{table(rows)}\n{said}"


def _peers_text(figures: Figures) -> str:
    rows = [["due entries", "entries", "fired", "fires/s", "remark"]]
    ours = median(figures.burst.ours)
    rows.append([DULY, f"{figures.burst.count:,}", f"{figures.burst.count:,}", f"{ours:,.0f}", ""])
    for each in figures.peers:
        fired = "n/a" if each.fired is None else f"{each.fired:,}"
        rate = "n/a" if each.per_second is None else f"{each.per_second:,.0f}"
        rows.append([each.name, f"{each.entries:,}", fired, rate, each.why_absent or ""])
    return table(rows)


def rates_chart(figures: Figures) -> Chart:
    """Return a chart of fires per second, with as many entries as each can handle."""
    groups: dict[str, dict[str, float | None]] = {DULY: {"fires": median(figures.burst.ours)}}
    for each in figures.peers:
        groups[f"{each.name}\n{each.entries:,}"] = {"fires": each.per_second}
    title = f"Due entries; Duly with {figures.burst.count:,}"
    return Chart(title, "fires per second", ["fires"], groups, better="more")


def lateness_chart(figures: Figures) -> Chart:
    """Return a chart of lateness by number of stored schedules."""
    groups: dict[str, dict[str, float | None]] = {
        f"{each.database}\n{each.schedules:,}": {
            "p50": each.lateness.p50_ms,
            "p99": each.lateness.p99_ms,
            "p99 of plain jobs": each.lateness.plain_p99_ms,
        }
        for each in figures.stored
    }
    series = ["p50", "p99", "p99 of plain jobs"]
    return Chart("Lateness in steady state", "milliseconds", series, groups)
