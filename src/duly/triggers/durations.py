"""Durations as text, the same in all messages, logs and commands."""

from __future__ import annotations

from duly.errors import InvalidInput, shown

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_MAX_SHOWN_MS = 10**18
"""Larger numbers are not durations, and Python refuses to format more than 4,300 digits."""


def duration_text(ms: float) -> str:
    """Return a duration in its two largest units: `250 ms`, `1.5 s`, `5 min`, `1 h 30 min`.

    Fractions of a millisecond are rounded; a negative duration has a minus sign.
    """
    if ms < 0:
        return f"-{duration_text(-ms)}"
    if ms < 1_000:
        return f"{ms:.0f} ms" if ms >= 0.5 else "0 s"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s".replace(".0 ", " ")
    return " ".join(_parts(round(ms))[:2])


def _parts(ms: int) -> list[str]:
    found = []
    for name, size in _UNITS:
        count, ms = divmod(ms, size)
        if count:
            found.append(f"{count} {name}")
    return found


def duration_shown(ms: object) -> str:
    """Return a duration argument exactly; other values as short text."""
    if type(ms) is not int or abs(ms) > _MAX_SHOWN_MS:
        return shown(ms) if not isinstance(ms, str) else repr(shown(ms))
    if abs(ms) < 60_000:
        return f"{ms} ms" if 0 < abs(ms) < 1_000 else f"{ms / 1000:g} s"
    whole, rest = divmod(abs(ms), 1_000)
    parts = [*_parts(whole * 1_000), *([f"{rest} ms"] if rest else [])]
    return ("-" if ms < 0 else "") + " ".join(parts)


def check_duration(field: str, ms: object, least_ms: int, most_ms: int) -> None:
    """Refuse a duration that is not a whole number of milliseconds within its bounds."""
    if type(ms) is not int or not least_ms <= ms <= most_ms:
        allowed = f"{duration_text(least_ms)} to {duration_text(most_ms)}, in whole milliseconds"
        raise InvalidInput(f"{field} is {duration_shown(ms)}; allowed: {allowed}")
