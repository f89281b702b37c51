"""New ids: a readable prefix and a version 7 UUID.

Ids sort by the millisecond in which they were made, and randomly within one. Ids made in one call
sort in the order in which they are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from secrets import token_bytes

from duly.clock import Clock, SystemClock
from duly.errors import InvalidInput

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
MAX_NEW = 1 << 25
"""Ids per call of `new_ids`."""

Entropy = Callable[[int], bytes]
_source: ContextVar[tuple[Clock, Entropy]] = ContextVar(
    "duly_ids", default=(SystemClock(), token_bytes)
)


@contextmanager
def ids_from(clock: Clock, entropy: Entropy) -> Iterator[None]:
    """Make ids from this clock and entropy inside the block, so that a simulation can replay."""
    earlier = _source.set((clock, entropy))
    try:
        yield
    finally:
        _source.reset(earlier)


def new_id(prefix: str, *, clock: Clock | None = None, entropy: Entropy | None = None) -> str:
    """Return a prefix and 32 hexadecimal digits: 48 bits of milliseconds, then 74 random bits."""
    ms, chance = _drawn(clock, entropy)
    high, low = chance >> 68, chance & ((1 << 62) - 1)
    return f"{prefix}{ms:012x}{0x7000 | high:04x}{(0b10 << 62) | low:016x}"


def new_ids(
    prefix: str, count: int, *, clock: Clock | None = None, entropy: Entropy | None = None
) -> list[str]:
    """Return ascending ids: after the milliseconds, a 26-bit counter and 48 random bits.

    The counter starts at random in its lower half, so that it cannot overflow. Refuse a count
    above MAX_NEW.
    """
    if not 0 <= count <= MAX_NEW:
        raise InvalidInput(f"{count} ids at once; allowed: 0 to {MAX_NEW}")
    ms, chance = _drawn(clock, entropy)
    first = (chance >> 48) & (MAX_NEW - 1)
    head, tail = f"{prefix}{ms:012x}", f"{chance & ((1 << 48) - 1):012x}"
    return [
        f"{head}{0x7000_8000 | (number >> 14) << 16 | number & 0x3FFF:08x}{tail}"
        for number in range(first, first + count)
    ]


def _drawn(clock: Clock | None, entropy: Entropy | None) -> tuple[int, int]:
    """Return the milliseconds since 1970 and 80 random bits."""
    usual_clock, usual_entropy = _source.get()
    ms = ((clock or usual_clock).now() - _EPOCH) // _MS
    return ms, int.from_bytes((entropy or usual_entropy)(10), "big")


class Ids:
    """Ids that a use case draws; the same when it is run again."""

    def __init__(
        self, clock: Clock | None = None, drawn: Mapping[str, list[str]] | None = None
    ) -> None:
        self._clock = clock
        self._drawn = {prefix: list(ids) for prefix, ids in (drawn or {}).items()}
        """Ids by prefix."""

    def draw(self, prefix: str, start: int, count: int) -> list[str]:
        """Return `count` ids from position `start` on; make those that no earlier attempt drew."""
        drawn = self._drawn.setdefault(prefix, [])
        missing = start + count - len(drawn)
        if missing > 0:
            drawn += new_ids(prefix, missing, clock=self._clock)
        return drawn[start : start + count]
