"""Turns the figures of a comparison into ratios, bars, tables and charts; measures nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles

from benchmarks.report import COLOURS, Bar, Chart, table

CPU_AT_MOST = 1.05
KEYED_CPU_AT_MOST = 1.10
KEYED = "keyed-enqueue"
STATEMENTS_AT_MOST = 1.0
ROWS_AT_MOST = 1.01
"""1 % for the server's reads of its catalogue, which vary from run to run."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The mean cost of one operation on one side."""

    client_us: float
    """CPU time of the process that holds the store."""
    server_us: float
    """CPU time of its PostgreSQL backend; 0 on SQLite."""
    wall_us: float
    statements: float
    rows: float | None
    """Rows read and written by the server; None on SQLite."""

    @property
    def cpu_us(self) -> float:
        """Return the CPU time of client and server."""
        return self.client_us + self.server_us


@dataclass(frozen=True, slots=True)
class Pair:
    """The costs of both sides, measured within the same minute."""

    base: Costs
    ours: Costs


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of ratios over the pairs."""

    median: float
    first_quartile: float
    third_quartile: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        several = list(values) if len(values) > 1 else [*values, *values]
        first, _, third = quantiles(several, n=4, method="inclusive")
        return cls(median(values), first, third, min(values), max(values))

    def __str__(self) -> str:
        return (
            f"{self.median:.3f} [{self.first_quartile:.3f}, {self.third_quartile:.3f}] "
            f"({self.least:.3f} to {self.most:.3f})"
        )


def ratio(ours: float, base: float) -> float:
    """Return ours / base; 1 if both are zero."""
    if base == 0:
        return 1.0 if ours == 0 else float("inf")
    return ours / base


METRICS: dict[str, Callable[[Costs], float]] = {
    "cpu": lambda costs: costs.cpu_us,
    "client": lambda costs: costs.client_us,
    "server": lambda costs: costs.server_us,
    "wall": lambda costs: costs.wall_us,
    "statements": lambda costs: costs.statements,
    "rows": lambda costs: costs.rows or 0.0,
}


@dataclass(slots=True)
class Comparison:
    """One operation on one store, over all pairs."""

    operation: str
    store: str
    pairs: list[Pair] = field(default_factory=list)
    texts: dict[str, Counter[str]] = field(default_factory=dict)
    """Statements of one counted run, per side."""
    counted: int = 1
    """Number of operations in that run."""

    @property
    def has_server(self) -> bool:
        """Return whether a database server does part of the work."""
        return self.pairs[0].base.rows is not None

    @property
    def metrics(self) -> list[str]:
        """Return the names of the metrics of this store."""
        return [each for each in METRICS if self.has_server or each not in ("server", "rows")]

    def spread(self, metric: str) -> Spread:
        """Return the ratios of ours to base."""
        of = METRICS[metric]
        return Spread.of([ratio(of(pair.ours), of(pair.base)) for pair in self.pairs])

    def medians(self, metric: str) -> tuple[float, float]:
        """Return the medians of base and ours."""
        of = METRICS[metric]
        return (
            median([of(pair.base) for pair in self.pairs]),
            median([of(pair.ours) for pair in self.pairs]),
        )

    def to_json(self) -> dict[str, object]:
        """Return all figures for later comparison."""
        return {
            "operation": self.operation,
            "store": self.store,
            "ratios": {each: asdict(self.spread(each)) for each in self.metrics},
            "pairs": [asdict(pair) for pair in self.pairs],
        }


def bars(comparisons: Sequence[Comparison]) -> list[Bar]:
    """Return the upper limits, checked against the median of the pairs."""
    found = []
    for each in comparisons:
        cpu = KEYED_CPU_AT_MOST if each.operation == KEYED else CPU_AT_MOST
        limits = {"cpu": cpu, "statements": STATEMENTS_AT_MOST}
        if each.has_server:
            limits["rows"] = ROWS_AT_MOST
        found += [
            Bar(
                f"{metric}-{each.operation}-{each.store}",
                each.spread(metric).median,
                limit,
                at_most=True,
                places=3,
            )
            for metric, limit in limits.items()
        ]
    return found


def text(facts: Mapping[str, str], comparisons: Sequence[Comparison]) -> str:
    """Return the tables to print."""
    times = [["per operation", "CPU base", "CPU ours", "CPU ratio", "client", "server", "wall"]]
    counts = [["per operation", "statements base", "ours", "rows base", "ours", "rows ratio"]]
    for each in comparisons:
        name = f"{each.operation}, {each.store}"
        base, ours = each.medians("cpu")
        parts = [
            f"{each.spread(part).median:.3f}" if part in each.metrics else ""
            for part in ("client", "server", "wall")
        ]
        times.append([name, f"{base:,.0f} µs", f"{ours:,.0f} µs", str(each.spread("cpu")), *parts])
        rows = ["", "", ""]
        if each.has_server:
            rows = [f"{rows:,.2f}" for rows in each.medians("rows")] + [str(each.spread("rows"))]
        counts.append([name, *(f"{count:.3f}" for count in each.medians("statements")), *rows])
    footing = (
        "Ratios are ours to base, the median of the pairs [quartiles] (least to most). Rows are "
        "those that\nthe server returned, fetched, inserted, updated and deleted. Wall time is "
        "not judged."
    )
    heading = "\n".join(f"{name}: {fact}" for name, fact in facts.items())
    return "\n\n".join([heading, table(times), table(counts), footing])


def statements_text(comparisons: Sequence[Comparison]) -> str:
    """Return the statements whose counts differ between the sides."""
    parts = []
    for each in comparisons:
        base, ours = each.texts["base"], each.texts["ours"]
        differing = sorted(
            statement for statement in base | ours if base[statement] != ours[statement]
        )
        name = f"{each.operation}, {each.store}"
        if not differing:
            parts.append(f"{name}: the same statements")
            continue
        lines = [
            f"  {base[one] / each.counted:8.3f} {ours[one] / each.counted:8.3f}  {one}"
            for one in differing
        ]
        parts.append("\n".join([f"{name}: per operation, base and ours", *lines]))
    return "\n".join(parts)


def chart(store: str, comparisons: Sequence[Comparison]) -> Chart:
    """Return a chart of the CPU time of both sides on one store."""
    groups: dict[str, dict[str, float | None]] = {
        each.operation.replace("-", "\n"): dict(
            zip(("base", "ours"), each.medians("cpu"), strict=True)
        )
        for each in comparisons
        if each.store == store
    }
    title = f"CPU time of an operation, {store}"
    return Chart(title, "µs", ("base", "ours"), groups, colours=(COLOURS[4], COLOURS[0]))
