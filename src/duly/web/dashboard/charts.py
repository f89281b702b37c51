"""Charts as inline SVG. Pure; colours come from the style sheet by class.

Every chart has an accessible name, and its parts show their numbers on hover.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from markupsafe import Markup, escape

from duly.model.summaries import MINUTE_MS
from duly.operate.forecast import Forecast
from duly.operate.summary_views import Minute
from duly.triggers.instants import from_ms
from duly.web.dashboard.icons import tone

WIDTH = 1_120
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 4, 10, 22
_GAP = 6
"""Pixels between a scale label and its line."""
_DIGIT = 7
"""Upper bound of the width of a digit in a label, in pixels."""
_SCALE = (0, 0.5, 1)
"""Shares of the largest number that get a line and a label."""
SLOT_MINUTES = 10
LATENESS_STEPS = (100, 500, 1_000, 5_000, 30_000, 120_000)
_LATENESS_NAMES = ("≤ 0.1 s", "≤ 0.5 s", "≤ 1 s", "≤ 5 s", "≤ 30 s", "≤ 2 min", "more")
_WEEKDAYS = ((0, "Mon"), (2, "Wed"), (4, "Fri"))
_WORST = ("bad", "warn", "busy", "good", "wait", "steady")


@dataclass(frozen=True, slots=True)
class Frame:
    """Drawing area and scale of a chart."""

    width: int
    height: int
    top: float
    """Number at the upper edge."""

    @property
    def floor(self) -> float:
        """Vertical position of the base line."""
        return self.height - _BOTTOM

    @property
    def left(self) -> float:
        """Horizontal start of the scale lines: right of the widest label."""
        return max(_LEFT, _GAP + _DIGIT * max(len(_figure(self.top * each)) for each in _SCALE))

    def y(self, value: float) -> float:
        """Return the vertical position of a number."""
        return self.floor - (self.floor - _TOP) * value / self.top

    def x(self, share: float) -> float:
        """Return the horizontal position of a share from the left (0) to the right edge (1)."""
        return self.left + (self.width - self.left - _RIGHT) * share


def forecast_chart(forecast: Forecast, height: int = 190) -> Markup:
    """Return a chart of the forecast: the busiest minute of every ten."""
    minutes = forecast.minutes
    slots = [minutes[i : i + SLOT_MINUTES] for i in range(0, len(minutes), SLOT_MINUTES)]
    frame = Frame(WIDTH, height, nice(max((max(slot) for slot in slots), default=0)))
    step = (frame.x(1) - frame.x(0)) / max(1, len(slots))
    bars = []
    for i, slot in enumerate(slots):
        if most := max(slot):
            at = from_ms(forecast.start_ms + i * SLOT_MINUTES * MINUTE_MS)
            words = f"{at:%a %H:%M} UTC: {sum(slot):,} in ten minutes, at most {most:,} a minute"
            bars.append(_bar(frame, (frame.x(0) + i * step, max(step - 1, 1)), (0, most), words))
    marks = _hours(forecast, frame)
    at_ms, most = forecast.peak
    name = f"Fires per minute for the next 24 hours, at most {most:,} at {from_ms(at_ms):%H:%M} UTC"
    return _svg(frame, name, [_grid(frame), *bars, *marks], "chart")


def _hours(forecast: Forecast, frame: Frame) -> list[Markup]:
    """Return the hour labels, and lines where a new day begins."""
    marks = []
    first = from_ms(forecast.start_ms).replace(minute=0) + timedelta(hours=1)
    end = from_ms(forecast.start_ms + len(forecast.minutes) * MINUTE_MS)
    span = max(1, len(forecast.minutes) * MINUTE_MS)
    at = first
    while at < end:
        offset_ms = (at - from_ms(forecast.start_ms)) / timedelta(milliseconds=1)
        x = frame.x(offset_ms / span)
        if at.hour == 0:
            marks.append(_line((x, _TOP), (x, frame.floor), "day"))
        if at.hour % 3 == 0:
            marks.append(
                _text((x, frame.height - 6), f"{at:%a}" if at.hour == 0 else f"{at:%H:%M}")
            )
        at += timedelta(hours=1)
    return marks


def minutes_chart(minutes: Sequence[Minute], height: int = 200, width: int = 720) -> Markup:
    """Return a chart of jobs ended per minute, stacked by final state."""
    most = max((each.succeeded + each.dead + each.cancelled for each in minutes), default=0)
    frame = Frame(width, height, nice(most))
    step = (frame.x(1) - frame.x(0)) / max(1, len(minutes))
    parts = [_grid(frame)]
    for i, each in enumerate(minutes):
        base = 0
        for kind, jobs in (
            ("good", each.succeeded),
            ("steady", each.cancelled),
            ("bad", each.dead),
        ):
            if jobs:
                word = {"good": "succeeded", "steady": "cancelled", "bad": "dead"}[kind]
                words = f"{each.at:%H:%M} UTC: {jobs:,} {word}"
                place = (frame.x(0) + i * step, max(step - 1.5, 1))
                parts.append(_bar(frame, place, (base, base + jobs), words, kind))
                base += jobs
        if each.at.minute % 10 == 0:
            label = _text((frame.x(0) + (i + 0.5) * step, height - 6), f"{each.at:%H:%M}")
            parts.append(label)
    total = sum(each.ended for each in minutes)
    return _svg(frame, f"Jobs ended per minute in the last hour: {total:,}", parts, "chart")


def sparkline(values: Sequence[float], width: int = 120, height: int = 28) -> Markup:
    """Return a line chart without a scale."""
    if not values or max(values) == 0:
        points = [(0.0, height - 1.5), (float(width), height - 1.5)]
    else:
        step = width / max(1, len(values) - 1)
        most = max(values)
        points = [
            (i * step, height - 1.5 - (height - 4) * value / most) for i, value in enumerate(values)
        ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    inner = Markup('<polygon points="0,{0} {1} {2},{0}" class="under"/><polyline points="{1}"/>')
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" width="{0}" height="{1}" aria-hidden="true" '
        'preserveAspectRatio="none">{2}</svg>'
    ).format(width, height, inner.format(height, line, width))


def lateness_chart(lateness_ms: Sequence[int], width: int = 360) -> Markup:
    """Return a chart of occurrences by lateness."""
    counts = [0] * (len(LATENESS_STEPS) + 1)
    for ms in lateness_ms:
        counts[sum(ms > step for step in LATENESS_STEPS)] += 1
    return rank_chart(
        [(name, count, None) for name, count in zip(_LATENESS_NAMES, counts, strict=True)],
        f"Lateness of the last {len(lateness_ms):,} occurrences",
        width,
    )


def rank_chart(rows: Sequence[tuple[str, int, str | None]], name: str, width: int = 360) -> Markup:
    """Return a chart of horizontal bars, each with a label and a tone."""
    most = max((count for _, count, _ in rows), default=0) or 1
    widest = max((len(_figure(count)) for _, count, _ in rows), default=1)
    parts, room = [], min(width - 150, width - 92 - _DIGIT * widest)
    for i, (word, count, kind) in enumerate(rows):
        y = i * 24
        length = max(room * count / most, 2 if count else 0)
        parts += [
            _text((0, y + 16), word, "word"),
            Markup('<rect x="84" y="{}" width="{:.1f}" height="14" rx="2" class="bar {}"/>').format(
                y + 5, length, kind or "accent"
            ),
            _text((92 + length, y + 16), f"{count:,}", "value"),
        ]
    frame = Frame(width, max(24, len(rows) * 24), 1)
    return _svg(frame, name, parts, "rank")


@dataclass(frozen=True, slots=True)
class Day:
    """One day of a calendar."""

    fires: int
    tone: str
    words: str


def heat_map(days: Mapping[date, Day], today: date, weeks: tuple[int, int] = (13, 13)) -> Markup:
    """Return a calendar of past outcomes and planned fires, one column per week."""
    cell, before, after = 14, *weeks
    first = today - timedelta(days=today.weekday(), weeks=before)
    most = max((day.fires for day in days.values()), default=0) or 1
    parts: list[Markup] = [_text((0, 30 + row * cell), name, "word") for row, name in _WEEKDAYS]
    for place in range((before + after + 1) * 7):
        at = first + timedelta(days=place)
        week, row = divmod(place, 7)
        x, y = 34 + week * cell, 19 + row * cell
        day = days.get(at)
        if at.day == 1:
            parts.append(_text((x, 12), f"{at:%b}", "word"))
        if day is None:
            kind, words = "none", f"{at:%a %d %b}: nothing"
        else:
            level = 1 + min(3, int(4 * day.fires / (most + 1)))
            kind, words = f"{day.tone} level{level}", f"{at:%a %d %b}: {day.words}"
        edge = " today" if at == today else " future" if at > today else ""
        parts.append(_cell((x, y), cell - 3, f"cell {kind}{edge}", words))
    frame = Frame(34 + (before + after + 1) * cell, 19 + 7 * cell, 1)
    return _svg(frame, "Calendar of fires, past and planned", parts, "heat")


def past_days(
    occurrences: Iterable[tuple[date, str, int]],
) -> dict[date, Day]:
    """Return calendar days from (day, state, count), each in the tone of its worst outcome."""
    found: dict[date, dict[str, int]] = {}
    for day, state, count in occurrences:
        states = found.setdefault(day, {})
        states[state] = states.get(state, 0) + count
    return {
        day: Day(
            sum(states.values()),
            min((tone(state) for state in states), key=_WORST.index),
            ", ".join(f"{count:,} {state}" for state, count in sorted(states.items())),
        )
        for day, states in found.items()
    }


def strip(marks: Sequence[tuple[str, str]], width: int = 720) -> Markup:
    """Return a strip of occurrences, oldest first, from (state, label)."""
    step = max(4.0, min(12.0, width / max(1, len(marks))))
    parts = []
    for i, (state, words) in enumerate(marks):
        kind = tone(state)
        # Failures also differ in height and position, not only in colour.
        y, height = {"bad": (12, 18), "warn": (8, 16), "steady": (12, 8)}.get(kind, (2, 20))
        parts.append(
            Markup(
                '<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" rx="1.5" class="bar {}">'
                "<title>{}</title></rect>"
            ).format(i * step, y, step - 2, height, kind, words)
        )
    frame = Frame(int(step * max(1, len(marks))), 30, 1)
    return _svg(frame, f"The last {len(marks)} occurrences", parts, "strip")


@dataclass(frozen=True, slots=True)
class Span:
    """A period in the life of a job."""

    start: datetime
    end: datetime
    tone: str
    words: str
    lane: int


def spans_chart(spans: Sequence[Span], width: int = 720) -> Markup:
    """Return a timeline of periods, one lane per attempt."""
    if not spans:
        return Markup("")
    begin = min(each.start for each in spans)
    length = max(each.end - begin for each in spans) or timedelta(milliseconds=1)
    lanes = max(each.lane for each in spans) + 1
    parts = []
    for each in spans:
        x = (width - 8) * ((each.start - begin) / length)
        wide = max((width - 8) * ((each.end - each.start) / length), 3)
        parts.append(
            Markup(
                '<rect x="{:.1f}" y="{}" width="{:.1f}" height="12" rx="3" class="bar {}">'
                "<title>{}</title></rect>"
            ).format(x, 4 + each.lane * 18, wide, each.tone, each.words)
        )
    frame = Frame(width, 8 + lanes * 18, 1)
    return _svg(frame, f"{len(spans)} spans of time", parts, "spans")


def meter(value: float, most: float, words: str) -> Markup:
    """Return a small bar that shows the used share."""
    share = 0 if most <= 0 else min(1, value / most)
    return Markup(
        '<svg class="meter" viewBox="0 0 80 8" width="80" height="8" role="img" aria-label="{}">'
        '<rect width="80" height="8" rx="4" class="track"/>'
        '<rect width="{:.1f}" height="8" rx="4" class="bar accent"/></svg>'
    ).format(words, 80 * share)


def nice(value: float) -> float:
    """Return the round number at the top of a scale."""
    if value <= 4:
        return 4
    size = float(f"1e{len(str(int(value))) - 1}")
    return next(size * step for step in (1, 2, 4, 5, 8, 10) if size * step >= value)


def _grid(frame: Frame) -> Markup:
    parts = []
    for share in _SCALE:
        y = frame.y(frame.top * share)
        parts.append(_line((frame.left, y), (frame.width - _RIGHT, y), "grid"))
        parts.append(_text((frame.left - _GAP, y + 4), _figure(frame.top * share), "scale"))
    return Markup("").join(parts)


def _figure(value: float) -> str:
    return f"{value:,.0f}"


def _bar(
    frame: Frame,
    place: tuple[float, float],
    between: tuple[float, float],
    words: str,
    kind: str = "accent",
) -> Markup:
    x, width = place
    upper, lower = frame.y(between[1]), frame.y(between[0])
    # A page has hundreds of these, and Markup.format() would take most of its time.
    return Markup(  # noqa: S704
        f'<rect x="{x:.1f}" y="{min(upper, lower - 1.5):.1f}" width="{width:.1f}" '
        f'height="{max(lower - upper, 1.5):.1f}" class="bar {escape(kind)}">'
        f"<title>{escape(words)}</title></rect>"
    )


def _cell(place: tuple[float, float], size: float, kind: str, words: str) -> Markup:
    x, y = place
    return Markup(  # noqa: S704
        f'<rect x="{x}" y="{y}" width="{size}" height="{size}" rx="2" class="{escape(kind)}">'
        f"<title>{escape(words)}</title></rect>"
    )


def _text(place: tuple[float, float], words: str, kind: str = "axis") -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" class="{}">{}</text>').format(*place, kind, words)


def _line(start: tuple[float, float], end: tuple[float, float], kind: str) -> Markup:
    return Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>').format(
        *start, *end, kind
    )


def _svg(frame: Frame, name: str, parts: Sequence[Markup], kind: str) -> Markup:
    return Markup('<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        kind, frame.width, frame.height, escape(name), Markup("").join(parts)
    )
