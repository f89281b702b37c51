"""Icons: a shape for every state, so that states do not differ by colour alone."""

from __future__ import annotations

from functools import lru_cache

from markupsafe import Markup

_SHAPES = {
    "dot": '<circle cx="8" cy="8" r="5"/>',
    "ring": '<circle cx="8" cy="8" r="4.5" class="line"/>',
    "half": '<circle cx="8" cy="8" r="5" class="line"/><path d="M8 3a5 5 0 0 1 0 10z"/>',
    "clock": '<circle cx="8" cy="8" r="5.2" class="line"/><path d="M8 5v3.2l2 1.3" class="line"/>',
    "check": '<path d="M3.5 8.4l3 3 6-6.6" class="line"/>',
    "triangle": '<path d="M8 2.5l6 11H2z"/>',
    "square": '<rect x="3.5" y="3.5" width="9" height="9" rx="1"/>',
    "cross": '<path d="M4 4l8 8M12 4l-8 8" class="line"/>',
    "again": '<path d="M12.6 6.2A5 5 0 1 0 13 9.5M13 2.8v3.6H9.4" class="line"/>',
    "pause": '<path d="M5.5 3.5v9M10.5 3.5v9" class="line"/>',
    "bar": '<path d="M3.5 8h9" class="line"/>',
    "diamond": '<path d="M8 2.5L13.5 8 8 13.5 2.5 8z"/>',
    "back": '<path d="M6.5 4L3 7.5 6.5 11M3.4 7.5H10a3 3 0 0 1 3 3v1.5" class="line"/>',
    "stop": '<path d="M5.7 2.5h4.6l3.2 3.2v4.6l-3.2 3.2H5.7l-3.2-3.2V5.7z"/>',
    "home": '<path d="M2.5 7.2L8 2.8l5.5 4.4M4 6.4v6.6h8V6.4" class="line"/>',
    "list": '<path d="M2.5 4.5h11M2.5 8h11M2.5 11.5h7" class="line"/>',
    "stack": '<path d="M8 2.5l5.5 2.7L8 8 2.5 5.2zM2.5 8L8 10.8 13.5 8M2.5 10.8L8 13.5l5.5-2.7" '
    'class="line"/>',
    "people": '<circle cx="8" cy="5.5" r="2.6" class="line"/>'
    '<path d="M3 13.2c.6-2.6 2.6-4 5-4s4.4 1.4 5 4" class="line"/>',
    "lock": '<rect x="3.5" y="7.2" width="9" height="6" rx="1.2" class="line"/>'
    '<path d="M5.5 7V5.2a2.5 2.5 0 0 1 5 0V7" class="line"/>',
    "pulse": '<path d="M1.8 8.5h3L6.6 4l2.8 8 1.8-3.5h3" class="line"/>',
    "book": '<path d="M3.5 2.8h7.2a1.8 1.8 0 0 1 1.8 1.8v8.6H5.3'
    'a1.8 1.8 0 0 1-1.8-1.8zM6 6h4M6 8.5h4" class="line"/>',
    "search": '<circle cx="7" cy="7" r="4" class="line"/><path d="M10 10l3.5 3.5" class="line"/>',
    "sun": '<circle cx="8" cy="8" r="3" class="line"/>'
    '<path d="M8 1.5v1.6M8 12.9v1.6M1.5 8h1.6'
    "M12.9 8h1.6M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M3.4 12.6l1.1-1.1"
    'M11.5 4.5l1.1-1.1" class="line"/>',
}
_LOOKS = {
    "succeeded": ("good", "check"),
    "active": ("good", "check"),
    "alive": ("good", "check"),
    "done": ("good", "check"),
    "ok": ("good", "check"),
    "processing": ("busy", "half"),
    "fired": ("busy", "half"),
    "dispatching": ("busy", "half"),
    "queued": ("wait", "ring"),
    "planned": ("wait", "clock"),
    "scheduled": ("wait", "clock"),
    "external": ("wait", "diamond"),
    "retrying": ("warn", "again"),
    "skipped": ("warn", "bar"),
    "missed": ("warn", "diamond"),
    "stopping": ("warn", "bar"),
    "warning": ("warn", "diamond"),
    "late": ("warn", "diamond"),
    "not_yet_planned": ("warn", "diamond"),
    "will_fire": ("wait", "clock"),
    "bad": ("bad", "triangle"),
    "failed": ("bad", "triangle"),
    "timed_out": ("bad", "triangle"),
    "lost": ("bad", "cross"),
    "dead": ("bad", "triangle"),
    "denied": ("bad", "stop"),
    "quarantined": ("bad", "stop"),
    "refused": ("bad", "stop"),
    "silent": ("bad", "triangle"),
    "paused": ("steady", "pause"),
    "cancelled": ("steady", "square"),
    "withdrawn": ("steady", "back"),
    "released": ("steady", "back"),
    "deleted": ("steady", "cross"),
    "finished": ("steady", "dot"),
}
_UNKNOWN = ("steady", "dot")


@lru_cache(maxsize=256)
def icon(name: str, size: int = 16) -> Markup:
    """Return an icon, hidden from screen readers: the text next to it has the same meaning."""
    return Markup(
        '<svg class="icon" width="{}" height="{}" viewBox="0 0 16 16" aria-hidden="true">{}</svg>'
    ).format(size, size, Markup(_SHAPES[name]))  # noqa: S704


def tone(state: str) -> str:
    """Return the tone of a state: `good`, `busy`, `wait`, `warn`, `bad` or `calm`."""
    return _LOOKS.get(state, _UNKNOWN)[0]


@lru_cache(maxsize=256)
def badge(state: str, text: str | None = None) -> Markup:
    """Return a state as an icon with its name."""
    look, shape = _LOOKS.get(state, _UNKNOWN)
    words = state.replace("_", " ") if text is None else text
    return Markup('<span class="badge {}">{}{}</span>').format(look, icon(shape, 12), words)
