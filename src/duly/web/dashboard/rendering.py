"""Rendering of dashboard pages with templates, and formatting functions for them.

Pages are rendered whole, or as the blocks named `live_*` that change while a page is open.
Everything is escaped except the markup made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from importlib import resources
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from duly.model.summaries import QueueCount, QueuePlace
from duly.operate.control_characters import first_line
from duly.triggers.instants import from_ms
from duly.triggers.words import clock_words
from duly.web.dashboard import charts
from duly.web.dashboard.icons import badge, icon

STATIC = ("duly.css", "duly.js", "icon.svg")
LIVE = "live_"
_STEPS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


class Renderer:
    """The templates of this package."""

    def __init__(self) -> None:
        self.files = {name: _static(name) for name in STATIC}
        self.versions = {
            name: sha256(content).hexdigest()[:12] for name, content in self.files.items()
        }
        self._environment = Environment(
            loader=PackageLoader("duly.web.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals |= {
            "badge": badge,
            "icon": icon,
            "charts": charts,
            "number": number,
            "capped": capped,
            "in_queue": in_queue,
            "duration": duration,
            "wall": wall,
            "from_ms": from_ms,
            "short": short,
            "brief": brief,
            "version": self.versions,
        }

    def page(self, template: str, values: Mapping[str, Any]) -> str:
        """Return a whole page as HTML."""
        return self._environment.get_template(template).render(values)

    def fragments(self, template: str, values: Mapping[str, Any]) -> dict[str, str]:
        """Return the HTML of the live blocks by name."""
        found = self._environment.get_template(template)
        context = found.new_context(dict(values))
        return {
            name: "".join(block(context))
            for name, block in found.blocks.items()
            if name.startswith(LIVE)
        }


class Words:
    """Formatting of times and URLs for one answer."""

    def __init__(self, now: datetime, root: str) -> None:
        self._now = now
        self._root = root

    def ago(self, at: datetime | None, otherwise: str = "–") -> Markup:
        """Return a time relative to now, with the exact time on hover."""
        if at is None:
            return Markup('<span class="quiet">{}</span>').format(otherwise)
        return Markup('<time datetime="{}" title="{}">{}</time>').format(
            at.isoformat(timespec="milliseconds"), exact(at), distance(at - self._now)
        )

    def on_wall(self, at: datetime) -> Markup:
        """Return a day and time, with seconds if not 0, and the exact time on hover."""
        return Markup('<time datetime="{}" title="{}" data-fixed>{}</time>').format(
            at.isoformat(timespec="milliseconds"), exact(at), wall(at)
        )

    def at(self, at: datetime, form: str = "%H:%M:%S") -> Markup:
        """Return a time of day, with the exact time on hover."""
        return Markup('<time datetime="{}" title="{}" data-fixed>{}</time>').format(
            at.isoformat(timespec="milliseconds"), exact(at), at.strftime(form)
        )

    def url(self, path: str, **query: object) -> str:
        """Return a URL below the dashboard's mount path; empty parameters are omitted."""
        named = {name: value for name, value in query.items() if value not in (None, "")}
        return f"{self._root}{path}" + (f"?{urlencode(named)}" if named else "")


def wall(at: datetime, form: str = "%a %d %b") -> str:
    """Return a day and time of day, with seconds if not 0."""
    return f"{at.strftime(form)} {clock_words(at)}"


def exact(at: datetime) -> str:
    """Return an instant to the millisecond."""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03} {at.tzname() or ''}".rstrip()


def distance(delta: timedelta) -> str:
    """Return a relative time, such as `3 min ago` or `in 2 h`."""
    seconds = delta.total_seconds()
    if abs(seconds) < 1:
        return "now"
    text = _largest(abs(seconds))
    return f"in {text}" if seconds > 0 else f"{text} ago"


def _largest(seconds: float) -> str:
    unit, size = next((step for step in _STEPS if seconds >= step[1]), _STEPS[-1])
    return f"{int(seconds // size)} {unit}"


def duration(ms: float | None) -> str:
    """Return a duration in its largest fitting unit."""
    if ms is None:
        return "–"
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.1f} s"
    if ms < 3_600_000:
        return f"{ms / 60_000:.1f} min"
    return f"{ms / 3_600_000:.1f} h" if ms < 172_800_000 else f"{ms / 86_400_000:.1f} d"


def number(value: float) -> str:
    """Return a number with thousands separators."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def capped(value: int, most: int) -> str:
    """Return a count, with `+` if it reached `most`."""
    return f"{number(value)}+" if value >= most else number(value)


def in_queue(count: QueueCount, place: QueuePlace) -> str:
    """Return a count of a queue's jobs, with `+` if it was capped."""
    return f"{number(getattr(count, place))}{'+' if place in count.capped else ''}"


def short(text: str, most: int = 80) -> Markup:
    """Return a text truncated to `most` characters, with the whole text on hover."""
    if len(text) <= most:
        return escape(text)
    return Markup('<span title="{}">{}…</span>').format(text[:2_000], text[: most - 1])


def brief(text: str | None, most: int = 80) -> Markup:
    """Return the first line of an error, truncated, with the whole text on hover if longer."""
    line, whole = first_line(text), (text or "").strip()
    if line == whole and len(line) <= most:
        return escape(line)
    shown = line if len(line) <= most else f"{line[: most - 1]}…"
    return Markup('<span title="{}">{}</span>').format(whole[:2_000], shown)


def _static(name: str) -> bytes:
    return (resources.files("duly.web.dashboard") / "static" / name).read_bytes()
