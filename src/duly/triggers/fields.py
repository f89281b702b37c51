"""Parser of cron expressions.

Returns one Field per position, each a tuple of Items, or raises InvalidTrigger with the field, the
text, its position and the allowed values. Evaluation is in `rules`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NoReturn

from duly.errors import InvalidTrigger

MAX_LENGTH = 256
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

Kind = Literal["values", "hash", "last", "last_weekday", "nearest_weekday", "last_of", "nth_of"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The allowed values of one position of the expression."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    specials: str = ""
    hash_high: int | None = None

    @property
    def allowed(self) -> str:
        """Return the allowed values as one line of text."""
        names = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return (
            f"{self.low}-{self.high}{names}, lists a,b, ranges a-b, steps */n, *, H{self.specials}"
        )


SHAPES = (
    Shape("second", 0, 59),
    Shape("minute", 0, 59),
    Shape("hour", 0, 23),
    Shape("day of month", 1, 31, specials=", ?, L, LW, 15W", hash_high=28),
    Shape("month", 1, 12, names=_MONTHS),
    Shape("day of week", 0, 7, names=_WEEKDAYS, specials=", ?, 5L (last Friday), 1#2", hash_high=6),
)


@dataclass(frozen=True, slots=True)
class Item:
    """One element of a list: plain values, or one that depends on the month or the key."""

    kind: Kind
    values: range | tuple[int, int]
    """`values`: the range; `hash`: the range to choose from, its step being the period; `nth_of`:
    (weekday, n); the other kinds: (day or weekday, 0)."""


@dataclass(frozen=True, slots=True)
class Field:
    """One parsed position of the expression."""

    shape: Shape
    text: str
    items: tuple[Item, ...]

    @property
    def is_open(self) -> bool:
        """Return whether it begins with `*` or `?`: not restricted, as in Vixie cron."""
        return self.text[0] in "*?"

    @property
    def has_hash(self) -> bool:
        """Return whether an element is an H, which the schedule's key decides."""
        return any(item.kind == "hash" for item in self.items)

    def resolve(self, choose: Callable[[str, int], int]) -> Field:
        """Return the field with every H replaced by choose(field name, number of choices)."""
        return replace(self, items=tuple(self._decide(item, choose) for item in self.items))

    def _decide(self, item: Item, choose: Callable[[str, int], int]) -> Item:
        if item.kind != "hash" or isinstance(item.values, tuple):
            return item
        low, stop, period = item.values.start, item.values.stop, item.values.step
        return Item("values", range(low + choose(self.shape.name, period), stop, period))


def parse_fields(expression: str, *, seconds: bool) -> tuple[Field, ...]:
    """Return the six fields of an expression, seconds first; five-field ones get second 0."""
    if len(expression) > MAX_LENGTH:
        allowed = f"at most {MAX_LENGTH} characters"
        raise InvalidTrigger("expression", expression, allowed)
    words = [(match.group(), match.start()) for match in re.finditer(r"[^ \t]+", expression)]
    if words and words[0][0].startswith("@"):
        source, words = _expand_macro(expression, words, seconds=seconds)
    else:
        source = expression
        _check_count(expression, words, seconds=seconds)
    shapes = SHAPES if seconds else SHAPES[1:]
    fields = tuple(
        _Reader(shape, source, start).field(word)
        for shape, (word, start) in zip(shapes, words, strict=True)
    )
    return fields if seconds else (Field(SHAPES[0], "0", (Item("values", range(1)),)), *fields)


def _expand_macro(
    expression: str, words: list[tuple[str, int]], *, seconds: bool
) -> tuple[str, list[tuple[str, int]]]:
    word, start = words[0]
    expansion = MACROS.get(word.lower()) if word.isascii() else None
    if expansion is None or len(words) > 1:
        text = word if expansion is None else words[1][0]
        place = start if expansion is None else words[1][1]
        known = ", ".join(sorted(MACROS))
        allowed = f"{known} (alone)" + ("; @reboot is not a time" if "reboot" in word else "")
        raise InvalidTrigger("expression", text, allowed, source=expression, position=place)
    source = f"0 {expansion}" if seconds else expansion
    return source, [(match.group(), match.start()) for match in re.finditer(r"\S+", source)]


def _check_count(expression: str, words: list[tuple[str, int]], *, seconds: bool) -> None:
    wanted = 6 if seconds else 5
    if len(words) == wanted:
        return
    names = ", ".join(shape.name for shape in SHAPES[6 - wanted :])
    allowed = f"exactly {wanted} fields ({names}), found {len(words)}"
    if len(words) == 6 and not seconds:
        allowed += "; for a leading seconds field pass seconds=True"
    if len(words) > wanted:
        text, position = words[wanted]
    else:
        text, position = "", len(expression)
    raise InvalidTrigger("expression", text, allowed, source=expression, position=position)


class _Reader:
    """Reader of one field; keeps its position for error messages."""

    def __init__(self, shape: Shape, source: str, start: int) -> None:
        self.shape = shape
        self.source = source
        self.start = start

    def field(self, word: str) -> Field:
        items, at = [], self.start
        for part in word.split(","):
            if part == "?" and part != word:
                self._refuse(part, at, "? stands alone")
            items.append(self._item(part, at))
            at += len(part) + 1
        return Field(self.shape, word, tuple(items))

    def _item(self, part: str, at: int) -> Item:
        base, slash, step_text = part.partition("/")
        step = self._step(step_text, at + len(base) + 1) if slash else 1
        special = None if slash else self._special(base.upper(), base, at)
        if special is not None:
            return special
        if base == "*":
            return Item("values", range(self.shape.low, self._top + 1, step))
        if base[:1] in ("H", "h"):
            return self._hash(base, at, step, stepped=bool(slash))
        first, dash, last = base.partition("-")
        low = self._value(first, at)
        if dash:
            high = self._value(last, at + len(first) + 1)
            if last.upper() == "SUN" and low > 0:
                high = 7  # FRI-SUN: Sunday is also the last day of the week
        else:
            high = self._top if slash else low
        if high < low:
            self._refuse(base, at, "a range that goes up; write two ranges to wrap around")
        return Item("values", range(low, high + 1, step))

    @property
    def _top(self) -> int:
        """Return the largest value of `*` and `a/n`: Sunday counts once."""
        return 6 if self.shape.name == "day of week" else self.shape.high

    def _value(self, text: str, at: int) -> int:
        if re.fullmatch(r"[0-9]{1,2}", text):
            number = int(text)
            if self.shape.low <= number <= self.shape.high:
                return number
        elif text.isascii() and text.upper() in self.shape.names:
            return self.shape.names.index(text.upper()) + (self.shape.low if self._top > 6 else 0)
        return self._refuse(text, at)

    def _step(self, text: str, at: int) -> int:
        most = self._top - self.shape.low + 1
        if re.fullmatch(r"[0-9]{1,2}", text) and 1 <= int(text) <= most:
            return int(text)
        return self._refuse(text, at, f"a step of 1-{most}")

    def _hash(self, base: str, at: int, step: int, *, stepped: bool) -> Item:
        low, high = self.shape.low, self.shape.hash_high or self.shape.high
        if base not in ("H", "h"):
            match = re.fullmatch(r"[Hh]\(([0-9]{1,2})-([0-9]{1,2})\)", base)
            if match is None:
                self._refuse(base, at, "H, H(a-b), H/n or H(a-b)/n")
            low, high = (self._value(match[i], at + match.start(i)) for i in (1, 2))
            if high < low:
                self._refuse(base, at, "H(a-b) with a at most b")
        if stepped and step > high - low + 1:
            self._refuse(base, at, f"H/n with n at most {high - low + 1} here")
        return Item("hash", range(low, high + 1, step if stepped else high - low + 1))

    def _special(self, upper: str, text: str, at: int) -> Item | None:
        """Read `?`, L, LW, 15W in the day of month; `?`, 5L, 1#2 in the day of week."""
        if not self.shape.specials or not text.isascii():
            return None
        if upper == "?":
            return Item("values", range(self.shape.low, self._top + 1))
        if self.shape.name == "day of month":
            if upper in ("L", "LW"):
                return Item("last" if upper == "L" else "last_weekday", (0, 0))
            if upper.endswith("W"):
                return Item("nearest_weekday", (self._value(text[:-1], at), 0))
            return None
        if upper.endswith("L") and len(upper) > 1:
            return Item("last_of", (self._value(text[:-1], at) % 7, 0))
        weekday, hash_sign, nth = text.partition("#")
        if not hash_sign:
            return None
        if nth not in tuple("12345"):
            self._refuse(nth, at + len(weekday) + 1, "1#1 to 1#5: which one of the month")
        return Item("nth_of", (self._value(weekday, at) % 7, int(nth)))

    def _refuse(self, text: str, at: int, allowed: str | None = None) -> NoReturn:
        raise InvalidTrigger(
            self.shape.name, text, allowed or self.shape.allowed, source=self.source, position=at
        )
