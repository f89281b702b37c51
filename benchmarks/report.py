"""Formats the results of every benchmark: machine facts, tables, a JSON file, a chart and bars.

Turns figures into text and files; measures nothing. Results hold no path, host or user.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal
from zoneinfo import TZPATH

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.options import Options

# Okabe and Ito's palette, distinguishable by colour-blind people, and a grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#8FCFB8", "#999999", "#CC79A7")


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that must reach a limit, or with `at_most` must not exceed it."""

    name: str
    measured: float
    limit: float
    at_most: bool = False
    places: int = 1

    @property
    def figure(self) -> float:
        """Return the figure rounded to the stricter side, so that the printed value decides."""
        unit = 10.0**self.places
        # Rounding to nine digits removes floating-point noise, such as that of 1.1 * 10.
        scaled = round(self.measured * unit, 9)
        return (math.ceil(scaled) if self.at_most else math.floor(scaled)) / unit

    @property
    def is_met(self) -> bool:
        return self.figure <= self.limit if self.at_most else self.figure >= self.limit

    def __str__(self) -> str:
        limit = f"<={self.limit:g}" if self.at_most else f"{self.limit:g}"
        verdict = "ok" if self.is_met else "short"
        return f"bar {self.name} {self.figure:.{self.places}f} {limit} {verdict}"

    def to_json(self) -> dict[str, object]:
        """Return the bar as printed."""
        side = {"at_most": True} if self.at_most else {}
        return {
            "name": self.name,
            "figure": self.figure,
            "limit": self.limit,
            **side,
            "ok": self.is_met,
        }


def machine_facts(*packages: str) -> dict[str, str]:
    """Return what the figures depend on: interpreter, system, zone files and versions."""
    facts = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "tzdata": _zone_files(),
    }
    return facts | {package: version(package) for package in packages}


def _zone_files() -> str:
    """Return the version of the zone files that zoneinfo uses: the system's, else the package's."""
    for folder in map(Path, TZPATH):
        source = folder / "tzdata.zi"
        if source.is_file():
            with source.open() as lines:
                return f"{lines.readline().removeprefix('# version').strip()} of the system"
        if (folder / "Europe").is_dir():
            return "of the system, version unknown"
    return f"{version('tzdata')} of the package"


def today() -> str:
    """Return the date of a run in UTC."""
    return datetime.now(UTC).date().isoformat()


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return aligned text with a heading row; the first column is left-aligned, others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def part_of(values: Sequence[float], part: float) -> float:
    """Return the quantile `part` of the values; 0 if there are none."""
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] if values else 0.0


def write_results(options: Options, name: str, results: Mapping[str, object]) -> None:
    """Write `<name>.json` with the load at the start, rounding numbers to four places."""
    whole = {**results, "load_at_start": options.load}
    rounded = json.loads(json.dumps(whole), parse_float=lambda text: round(float(text), 4))
    path = options.out / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rounded, indent=2) + "\n")


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of grouped bars, one colour per series, on a log scale by default.

    A value of None is shown as n/a; a series that a group lacks leaves a gap.
    """

    title: str
    unit: str
    series: Sequence[str]
    groups: Mapping[str, Mapping[str, float | None]]
    better: Literal["less", "more"] = "less"
    colours: Sequence[str] = COLOURS
    is_log: bool = True

    def write_png(self, path: Path) -> None:
        """Draw the chart into a file, without a display."""
        figure = _new_figure()
        self.draw(figure.add_subplot())
        figure.legend(loc="outside lower center", ncols=len(self.series), frameon=False)
        _save(figure, path)

    def draw(self, axes: Axes) -> None:
        """Draw the chart on given axes, without a legend."""
        values = [v for group in self.groups.values() for v in group.values() if v is not None]
        lowest, highest = min(values) / 3, max(values) * 3
        if not self.is_log:
            lowest, highest = 0, max(values) * 1.1
        for k, name in enumerate(self.series):
            self._draw_series(axes, k, name, lowest)
        scale = "log" if self.is_log else "linear"
        axes.set_yscale(scale)
        axes.set_ylim(lowest, highest)
        axes.set_ylabel(f"{self.unit} ({scale} scale, {self.better} is better)")
        axes.set_xticks(range(len(self.groups)), list(self.groups))
        axes.set_title(self.title, loc="left")
        axes.grid(visible=True, axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)

    def _draw_series(self, axes: Axes, k: int, name: str, lowest: float) -> None:
        width = 0.86 / len(self.series)
        own = [(g, group[name]) for g, group in enumerate(self.groups.values()) if name in group]
        places = [g - 0.43 + width * (k + 0.5) for g, _ in own]
        heights = [lowest if value is None else value for _, value in own]
        axes.bar(places, heights, width * 0.92, color=self.colours[k], label=name)
        for place, height, (_, value) in zip(places, heights, own, strict=True):
            axes.annotate(
                _label(value),
                (place, height),
                (0, 2),
                textcoords="offset points",
                ha="center",
                size=8,
            )


def _label(value: float | None) -> str:
    """Return a value with three significant digits below 1,000, never in exponent notation."""
    if value is None:
        return "n/a"
    return f"{value:.3g}" if value < 1_000 else f"{value:,.0f}"


def write_png(path: Path, charts: Sequence[Chart], widths: Sequence[float]) -> None:
    """Draw charts side by side, each above its own legend."""
    figure = _new_figure()
    for chart, axes in zip(
        charts, figure.subplots(1, len(charts), width_ratios=list(widths)), strict=True
    ):
        chart.draw(axes)
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=len(chart.series), frameon=False
        )
    _save(figure, path)


def _new_figure() -> Figure:
    figure = Figure(figsize=(12, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the name and version of matplotlib, the file changes only with the figures.
    figure.savefig(path, dpi=110, metadata={"Software": None})
