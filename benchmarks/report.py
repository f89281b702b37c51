"""What every benchmark hands over: machine facts, tables, a JSON file, a chart, and bars.

Takes figures, gives text and files; nothing here measures. Results hold no path, host or user.
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

# Okabe and Ito's palette, which colour-blind people can tell apart, and a grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#8FCFB8", "#999999", "#CC79A7")


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that must reach a limit, or with `at_most` must not pass it."""

    name: str
    measured: float
    limit: float
    at_most: bool = False
    places: int = 1

    @property
    def figure(self) -> float:
        """Rounded to the side that is harder to meet, so that what is printed decides."""
        unit = 10.0**self.places
        # Digits beyond the ninth are the machine's arithmetic: 1.1 × 10 is 11 and a little.
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
        """As printed."""
        side = {"at_most": True} if self.at_most else {}
        return {
            "name": self.name,
            "figure": self.figure,
            "limit": self.limit,
            **side,
            "ok": self.is_met,
        }


def machine_facts(*packages: str) -> dict[str, str]:
    """What the figures depend on, by name: interpreter, system, zone files, versions."""
    facts = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "tzdata": _zone_files(),
    }
    return facts | {package: version(package) for package in packages}


def _zone_files() -> str:
    """zoneinfo prefers the system's files to the package, so the package's version may mislead."""
    for folder in map(Path, TZPATH):
        source = folder / "tzdata.zi"
        if source.is_file():
            with source.open() as lines:
                return f"{lines.readline().removeprefix('# version').strip()} of the system"
        if (folder / "Europe").is_dir():
            return "of the system, version unknown"
    return f"{version('tzdata')} of the package"


def today() -> str:
    """The date of a run, UTC."""
    return datetime.now(UTC).date().isoformat()


def table(rows: Sequence[Sequence[str]]) -> str:
    """Aligned text: the first row is the heading, the first column stands left, others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def part_of(values: Sequence[float], part: float) -> float:
    """The value that so large a part does not exceed; 0 of none."""
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] if values else 0.0


def write_results(options: Options, name: str, results: Mapping[str, object]) -> None:
    """Write `<name>.json` with the load at the start, numbers rounded to four places."""
    whole = {**results, "load_at_start": options.load}
    rounded = json.loads(json.dumps(whole), parse_float=lambda text: round(float(text), 4))
    path = options.out / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rounded, indent=2) + "\n")


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars, one colour per series, in groups; on a log scale unless the figures are alike.

    A value of None is written as n/a; a series that a group does not have leaves a gap.
    """

    title: str
    unit: str
    series: Sequence[str]
    groups: Mapping[str, Mapping[str, float | None]]
    better: Literal["less", "more"] = "less"
    colours: Sequence[str] = COLOURS
    is_log: bool = True

    def write_png(self, path: Path) -> None:
        """Draw it, without a display."""
        figure = _new_figure()
        self.draw(figure.add_subplot())
        figure.legend(loc="outside lower center", ncols=len(self.series), frameon=False)
        _save(figure, path)

    def draw(self, axes: Axes) -> None:
        """Draw it in a place of its own, without a legend."""
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
    """Three digits where they say enough, never a power of ten."""
    if value is None:
        return "n/a"
    return f"{value:.3g}" if value < 1_000 else f"{value:,.0f}"


def write_png(path: Path, charts: Sequence[Chart], widths: Sequence[float]) -> None:
    """Draw charts side by side, each over its own legend."""
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
    # Without the drawing library's own name and version, the file changes with figures only.
    figure.savefig(path, dpi=110, metadata={"Software": None})
