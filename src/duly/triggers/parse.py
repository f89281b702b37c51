"""Parser of triggers in JSON and of bare cron strings.

Reads the output of to_json() and JSON written by hand or by an agent; raises InvalidTrigger.
Unknown fields are refused: a mistyped name must not silently become a default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from duly.errors import InvalidTrigger, UnknownTrigger
from duly.triggers.core import Wall
from duly.triggers.cron import Cron
from duly.triggers.every import Every, interval_ms
from duly.triggers.instants import check_stored, stored_ms
from duly.triggers.once import LocalOnce, Once, once_at, read_time
from duly.triggers.trigger import JSON_VERSION, NEWEST_VERSION, NO_LIMITS, Limits, spread_to_ms
from duly.triggers.weekly import Weekly, table

MAX_TEXT = 65_536
AnyTrigger: TypeAlias = Cron | Every | Weekly | Once | LocalOnce


def parse_trigger(
    obj: object, *, zones: Literal["any", "utc"] = "any", wall: Wall | None = None
) -> AnyTrigger:
    """Return the trigger of a to_json() object, its JSON text, or a bare cron string.

    Also accepted: `start_at`, `end_at` and `at` as ISO-8601 with an offset, `spread` in seconds,
    and an interval in weeks, days, hours, minutes and seconds; `at` without an offset is local time
    in `tz`. `zones="utc"` refuses other zones. `wall` is the zone, gap and fold of a rule without
    `tz`; default: UTC.
    """
    trigger = _parse(obj, wall)
    if zones == "utc" and trigger.tz != "UTC":
        raise InvalidTrigger("tz", trigger.tz, "UTC only (zones is set to utc)")
    return trigger


def _parse(obj: object, wall: Wall | None) -> AnyTrigger:
    if isinstance(obj, str) and not obj.lstrip().startswith("{"):
        return Cron(obj, wall=Wall() if wall is None else wall)
    parsed = _loads(obj) if isinstance(obj, str) else obj
    if not isinstance(parsed, Mapping):
        allowed = "a JSON object with a kind, or a cron expression"
        raise InvalidTrigger("trigger", obj, allowed)
    parts = _Parts(dict(parsed), wall)
    version = parts.take("v", JSON_VERSION)
    kind = parts.take("kind")
    if type(version) is not int or not JSON_VERSION <= version <= NEWEST_VERSION:
        raise UnknownTrigger("v", version, f"{JSON_VERSION} to {NEWEST_VERSION} in this release")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UnknownTrigger("kind", kind, ", ".join(_KINDS))
    trigger = _KINDS[kind](parts)
    parts.refuse_rest(kind)
    return trigger


def _loads(text: str) -> object:
    if len(text) > MAX_TEXT:
        raise InvalidTrigger("trigger", text, f"at most {MAX_TEXT} characters")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        position, reason = _mistake(text, error)
        raise InvalidTrigger(
            "trigger",
            text[position : position + 1],
            f"JSON ({reason})",
            source=text,
            position=position,
        ) from None
    except (ValueError, RecursionError):
        raise InvalidTrigger("trigger", text, "JSON without deep nesting or huge numbers") from None


def _mistake(text: str, error: json.JSONDecodeError) -> tuple[int, str]:
    """Return the position and the reason of a syntax error, the same on every Python version.

    For a trailing comma, Python 3.13 points at the comma and older versions at the bracket.
    """
    before = text[: error.pos].rstrip()
    if before.endswith(",") and text[error.pos : error.pos + 1] in ("}", "]"):
        return len(before) - 1, "trailing comma"
    if error.msg.startswith("Illegal trailing comma"):
        return error.pos, "trailing comma"
    return error.pos, error.msg


@dataclass(slots=True)
class _Parts:
    """The object being read; fields left over are refused at the end."""

    left: dict[Any, Any]
    default_wall: Wall | None = None
    """Zone, gap and fold of a rule that names no zone."""
    taken: list[str] = field(default_factory=list)

    def take(self, name: str, default: Any = None) -> Any:
        self.taken.append(name)
        return self.left.pop(name, default)

    def instant(self, name: str) -> int | None:
        """Return `name` (ISO-8601) or `name_ms` in milliseconds; refuse both at once."""
        text, ms = self.take(name), self.take(f"{name}_ms")
        if text is None:
            return None if ms is None else check_stored(name, ms)
        if ms is not None:
            raise InvalidTrigger(name, text, f"{name} or {name}_ms, not both")
        try:
            return stored_ms(name, datetime.fromisoformat(text))
        except (TypeError, ValueError):
            allowed = "ISO-8601 with an offset, such as 2026-12-24T18:00:00+01:00"
            raise InvalidTrigger(name, text, allowed) from None

    def limits(self) -> Limits:
        start, end = self.instant("start_at"), self.instant("end_at")
        spread, spread_ms = self.take("spread"), self.take("spread_ms")
        if spread is not None:
            if spread_ms is not None:
                allowed = "spread or spread_ms, not both"
                raise InvalidTrigger("spread", spread, allowed)
            spread_ms = spread_to_ms(spread)
        limits = Limits(start, end, 0 if spread_ms is None else spread_ms, self.take("seed"))
        return NO_LIMITS if limits == NO_LIMITS else limits

    def wall(self) -> Wall:
        usual = self.default_wall if "tz" not in self.left and self.default_wall else Wall()
        return Wall(
            self.take("tz", usual.tz), self.take("gap", usual.gap), self.take("fold", usual.fold)
        )

    def refuse_rest(self, kind: str) -> None:
        for name in self.left:
            allowed = f"of {kind}: {', '.join(sorted(set(self.taken)))}"
            raise InvalidTrigger("field", name, allowed)


def _cron(parts: _Parts) -> Cron:
    expression, seconds = parts.take("expression"), parts.take("seconds", default=False)
    return Cron(expression, seconds, parts.wall(), parts.limits())


def _weekly(parts: _Parts) -> Weekly:
    return Weekly(table(parts.take("days")), parts.wall(), parts.limits())


def _every(parts: _Parts) -> Every:
    units = {name: parts.take(name) for name in ("weeks", "days", "hours", "minutes", "seconds")}
    named = {name: amount for name, amount in units.items() if amount is not None}
    interval = parts.take("interval_ms")
    if named and interval is not None:
        raise InvalidTrigger("interval", interval, "interval_ms or units, not both")
    return Every(interval_ms(named) if named else interval, parts.limits())


def _once(parts: _Parts) -> Once | LocalOnce:
    at = parts.left.get("at")
    is_local = "at_ms" not in parts.left and _is_local(at)
    if is_local or "tz" in parts.left:
        wall = _once_wall(parts)
        parts.take("at")
        trigger = once_at(_time(at), wall, parts.limits())
    else:
        at_ms = parts.instant("at")
        if at_ms is None:
            raise InvalidTrigger("at", "", "ISO-8601, local with tz or with an offset, or at_ms")
        trigger = Once(at_ms, parts.limits())
    if trigger.limits.start_ms is not None or trigger.limits.end_ms is not None:
        raise InvalidTrigger("at", str(at), "a single time, without start_at and end_at")
    return trigger


def _is_local(at: object) -> bool:
    try:
        return read_time(at).utcoffset() is None
    except ValueError:
        return False


def _once_wall(parts: _Parts) -> Wall | None:
    """Return the zone of a local time: the named one, or the default."""
    if "tz" in parts.left:
        return parts.wall()
    if parts.default_wall is None:
        return None
    wall = parts.wall()
    # A recurring rule may fire at both; a single time defaults to the first.
    return replace(wall, fold="first") if wall.fold == "both" else wall


def _time(at: object) -> datetime:
    try:
        return read_time(at)
    except ValueError:
        allowed = "ISO-8601 local time such as 2026-11-19T09:00 when tz is given"
        raise InvalidTrigger("at", at, allowed) from None


_KINDS: dict[str, Callable[[_Parts], AnyTrigger]] = {
    "cron": _cron,
    "every": _every,
    "weekly": _weekly,
    "once": _once,
}
